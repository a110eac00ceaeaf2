/* client_rig.h - for the tests of http_client: a scripted upstream on its own thread, and one call run to its end on a loop
 * of the test's thread with everything it delivered recorded. */
#ifndef DEJA_TESTS_CLIENT_RIG_H
#define DEJA_TESTS_CLIENT_RIG_H
#include <stdatomic.h>

#include "base/http_client.h"
#include "tests/unit/base/net_rig.h"

enum ending { ENDS_BY_CLOSE, ENDS_BY_RESET, ENDS_BY_STALL };

/* What one accepted connection does: for each reply, read one request, send it; then the ending. */
struct script {
    const char *replies[4];
    enum ending ending;
    size_t step;          /* bytes a send; 0 = all at once */
    int pause_ms;         /* before each send but the first of a reply */
    size_t bulk;          /* after the last reply, so many bytes more */
    bool hang_up_on_next; /* read one more request before the ending */
};

struct upstream {
    int fd, port;
    pthread_t thread;
    const struct script *scripts;
    int n_scripts;
    atomic_bool stop;
    atomic_size_t bulk_sent;
    char request[8192]; /* the last one seen */
};

static inline bool read_request(int fd, struct upstream *u)
{
    struct answer a;
    answer_init(&a);
    receive(fd, &a, "\r\n\r\n", 5000);
    bool got = has(&a, "\r\n\r\n");
    int64_t length = 0;
    struct str text = buf_view(&a.bytes);
    ptrdiff_t at = str_find(text, STR("Content-Length: "));
    if (got && at >= 0) {
        struct str rest = str_sub(text, (size_t)at + 16, text.n), digits;
        str_next(&rest, '\r', &digits);
        got = str_to_i64(digits, 0, 4000, &length) == OK;
    }
    size_t want = got ? (size_t)str_find(text, STR("\r\n\r\n")) + 4 + (size_t)length : 0;
    while (got && a.bytes.n < want && !a.closed) {
        char c;
        if (recv(fd, &c, 1, 0) != 1) got = false;
        buf_add(&a.bytes, &c, 1);
    }
    if (a.bytes.n && a.bytes.n < sizeof u->request) memcpy(u->request, a.bytes.p, a.bytes.n + 1);
    answer_fini(&a);
    return got;
}

static inline void send_bulk(int fd, struct upstream *u, size_t n)
{
    static char piece[16384];
    memset(piece, 'b', sizeof piece);
    while (n && !atomic_load(&u->stop)) {
        size_t now = n < sizeof piece ? n : sizeof piece;
        if (!send_all(fd, piece, now)) return;
        atomic_fetch_add(&u->bulk_sent, now);
        n -= now;
    }
}

static inline void play(int fd, struct upstream *u, const struct script *s)
{
    for (int i = 0; i < 4 && s->replies[i]; i++) {
        if (!read_request(fd, u)) return;
        size_t n = strlen(s->replies[i]), step = s->step ? s->step : n;
        for (size_t at = 0; at < n; at += step) {
            if (at) usleep((useconds_t)s->pause_ms * 1000);
            send_all(fd, s->replies[i] + at, n - at < step ? n - at : step);
        }
    }
    send_bulk(fd, u, s->bulk);
    if (s->hang_up_on_next) (void)read_request(fd, u);
    struct linger hard = {1, 0};
    if (s->ending == ENDS_BY_RESET) {
        usleep(20000); /* let the bytes be read first: a reset throws them away */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    while (s->ending == ENDS_BY_STALL && !atomic_load(&u->stop)) {
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        if (poll(&p, 1, 20) > 0) break;
    }
}

static inline void *upstream_thread(void *arg)
{
    struct upstream *u = arg;
    for (int i = 0; i < u->n_scripts; i++) {
        struct pollfd p = {.fd = u->fd, .events = POLLIN};
        while (!atomic_load(&u->stop) && poll(&p, 1, 20) == 0)
            continue;
        if (atomic_load(&u->stop)) return NULL;
        int fd = accept(u->fd, NULL, NULL), one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        play(fd, u, &u->scripts[i]);
        close(fd);
    }
    return NULL;
}

static inline int listen_local(int backlog, int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, backlog));
    ASSERT(!getsockname(fd, (struct sockaddr *)&a, &n));
    *port = ntohs(a.sin_port);
    return fd;
}

static inline void upstream_open(struct upstream *u, const struct script *scripts, int n)
{
    memset(u, 0, sizeof *u);
    u->scripts = scripts;
    u->n_scripts = n;
    u->fd = listen_local(64, &u->port);
    pthread_create(&u->thread, NULL, upstream_thread, u);
}

static inline void upstream_close(struct upstream *u)
{
    atomic_store(&u->stop, true);
    pthread_join(u->thread, NULL);
    close(u->fd);
}

/* --- one call and what came of it */

struct outcome {
    struct loop *loop;
    struct http_call *call;
    int n_done, n_heads, status;
    enum err code;
    struct errmsg e;
    struct buf body;
    char x_a[64];
    bool stop_when_done;
    bool cancel_in_head, cancel_in_body, pause_in_body;
};

static inline void out_head(void *arg, const struct http_reply_head *head)
{
    struct outcome *o = arg;
    o->n_heads++;
    o->status = head->status;
    struct str v = http_head_find(head, "x-a");
    if (v.n && v.n < sizeof o->x_a) memcpy(o->x_a, v.p, v.n);
    if (o->cancel_in_head) http_call_cancel(o->call);
}
static inline void out_body(void *arg, struct str bytes)
{
    struct outcome *o = arg;
    buf_str(&o->body, bytes);
    if (o->cancel_in_body) http_call_cancel(o->call);
    if (o->pause_in_body) http_call_pause(o->call);
}
static inline void out_done(void *arg, enum err code, const struct errmsg *e)
{
    struct outcome *o = arg;
    o->n_done++;
    o->code = code;
    o->e = *e;
    o->call = NULL;
    if (o->stop_when_done) loop_stop(o->loop);
}
static inline struct http_call_handler out_handler(struct outcome *o)
{
    return (struct http_call_handler){out_head, out_body, out_done, o};
}
static inline void outcome_init(struct outcome *o, struct loop *l)
{
    *o = (struct outcome){.loop = l, .stop_when_done = true};
    buf_init(&o->body, 64 << 20);
}
static inline void outcome_fini(struct outcome *o)
{
    buf_fini(&o->body);
}

static inline struct http_origin origin_at(const char *scheme_host, int port)
{
    struct buf b;
    struct http_origin o = {0};
    buf_init(&b, 300);
    buf_printf(&b, "%s:%d", scheme_host, port);
    ASSERT(http_origin_parse(buf_view(&b), &o, NULL) == OK);
    buf_fini(&b);
    return o;
}

static inline struct http_call_options get_from(const struct http_origin *o)
{
    return (struct http_call_options){.origin = o,
                                      .method = "GET",
                                      .path = "/x",
                                      .connect_timeout_ms = 2000,
                                      .first_byte_timeout_ms = 2000,
                                      .idle_timeout_ms = 2000};
}

/* Starts the call and runs the loop until it ends. */
static inline void run_call(struct http_client *c, const struct http_call_options *opt,
                            struct outcome *o)
{
    struct http_call_handler h = out_handler(o);
    int before = o->n_done;
    o->call = http_call(c, opt, &h);
    CHECK_INT(o->n_done, before); /* never from inside http_call */
    loop_run(o->loop);
}

#endif
