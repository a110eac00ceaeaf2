/* net_rig.h - for the tests of httpd and http_client: a server on its own loop and thread, and a blocking raw client with
 * time-outs, all inside one process on loopback. */
#ifndef DEJA_TESTS_NET_RIG_H
#define DEJA_TESTS_NET_RIG_H
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/httpd.h"
#include "base/mem.h"
#include "tests/check.h"

struct rig {
    struct loop *loop;
    struct httpd *server;
    pthread_t thread;
    int port;
};

static inline void *rig_thread(void *arg)
{
    loop_run(((struct rig *)arg)->loop);
    return NULL;
}

static inline void rig_open(struct rig *g, struct httpd_options o,
                            void (*on_request)(void *, struct http_req *))
{
    struct errmsg e = {0};
    struct httpd_handler handler = {on_request, g};
    ASSERT(loop_new(&g->loop, &e) == OK);
    ASSERT(httpd_listen(&g->server, g->loop, &o, &handler, &e) == OK);
    g->port = httpd_port(g->server);
    pthread_create(&g->thread, NULL, rig_thread, g);
}

static inline void rig_close(struct rig *g)
{
    loop_stop(g->loop);
    pthread_join(g->thread, NULL);
    httpd_close(g->server);
    loop_free(g->loop);
}

/* Runs fn(arg) on the rig's loop and waits for it. */
struct rig_call {
    void (*fn)(void *arg);
    void *arg;
    sem_t done;
};
static inline void rig_call_run(void *arg)
{
    struct rig_call *c = arg;
    c->fn(c->arg);
    sem_post(&c->done);
}
static inline void rig_do(struct rig *g, void (*fn)(void *arg), void *arg)
{
    struct rig_call c = {.fn = fn, .arg = arg};
    sem_init(&c.done, 0, 0);
    ASSERT(loop_post(g->loop, rig_call_run, &c) == OK);
    while (sem_wait(&c.done))
        continue;
    sem_destroy(&c.done);
}

static inline void rig_stats_read(void *arg)
{
    struct {
        struct httpd *s;
        struct httpd_stats stats;
    } *a = arg;
    a->stats = httpd_stats(a->s);
}
static inline struct httpd_stats rig_stats(struct rig *g)
{
    struct {
        struct httpd *s;
        struct httpd_stats stats;
    } a = {g->server, {0}};
    rig_do(g, rig_stats_read, &a);
    return a.stats;
}

/* --- raw client */

static inline int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static inline bool send_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}
static inline bool send_z(int fd, const char *text)
{
    return send_all(fd, text, strlen(text));
}

struct answer {
    struct buf bytes;
    bool closed; /* by an orderly end */
    bool reset;
};

/* Reads until the end of the connection, until `stop` stands in what came (NULL: never), or for wait_ms of silence. */
static inline void receive(int fd, struct answer *a, const char *stop, int wait_ms)
{
    char piece[65536];
    for (;;) {
        if (stop && a->bytes.p && str_find(buf_view(&a->bytes), str_of(stop)) >= 0) return;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, wait_ms) <= 0) return;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n == 0) a->closed = true;
        if (n < 0) a->reset = true;
        if (n <= 0) return;
        buf_add(&a->bytes, piece, (size_t)n);
    }
}

static inline void answer_init(struct answer *a)
{
    *a = (struct answer){.closed = false};
    buf_init(&a->bytes, 64 << 20);
}
static inline void answer_fini(struct answer *a)
{
    buf_fini(&a->bytes);
}

static inline int count_of(struct str in, const char *what)
{
    int n = 0;
    struct str needle = str_of(what);
    for (ptrdiff_t at; (at = str_find(in, needle)) >= 0; n++)
        in = str_sub(in, (size_t)at + needle.n, in.n);
    return n;
}
static inline int count_answers(const struct answer *a)
{
    int n = 0;
    struct str in = buf_view(&a->bytes);
    for (ptrdiff_t at; (at = str_find(in, STR("HTTP/1.1 "))) >= 0;) {
        in = str_sub(in, (size_t)at + 9, in.n);
        n += in.n && in.p[0] >= '1' && in.p[0] <= '5'; /* messages speak of HTTP/1.1 too */
    }
    return n;
}
static inline bool has(const struct answer *a, const char *text)
{
    return str_find(buf_view(&a->bytes), str_of(text)) >= 0;
}
static inline int first_status(const struct answer *a)
{
    struct str s = buf_view(&a->bytes);
    int64_t status = 0;
    if (!str_starts(s, STR("HTTP/1.1 ")) || str_to_i64(str_sub(s, 9, 3), 100, 599, &status))
        return 0;
    return (int)status;
}

/* One request on a fresh connection, all that comes back. */
static inline void ask(int port, const char *request, struct answer *a, int wait_ms)
{
    int fd = dial(port);
    answer_init(a);
    send_z(fd, request);
    receive(fd, a, NULL, wait_ms);
    close(fd);
}

#endif
