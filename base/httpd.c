/* httpd.c - the server of httpd.h as a whole: options, listener, list of connections, deferred work, drain and close.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/httpd_internal.h"
#include "base/log.h"
#include "base/mem.h"

enum { BACKLOG = 1024, ACCEPT_PAUSE_MS = 100, REFUSED_MAX = 64, SCRATCH_MAX = 1 << 20 };

static void set_defaults(struct httpd_options *o)
{
    if (!o->host) o->host = "127.0.0.1";
    if (!o->header_max) o->header_max = 65536;
    if (!o->headers_max) o->headers_max = 100;
    if (!o->body_max) o->body_max = 8 << 20;
    if (!o->connections_max) o->connections_max = 4096;
    if (!o->pipelined_max) o->pipelined_max = 8;
    if (!o->idle_timeout_ms) o->idle_timeout_ms = 75000;
    if (!o->header_timeout_ms) o->header_timeout_ms = 10000;
    if (!o->body_timeout_ms) o->body_timeout_ms = 30000;
    if (!o->write_timeout_ms) o->write_timeout_ms = 60000;
    if (!o->write_high) o->write_high = 256 << 10;
}

const char *httpd_date(struct httpd *s)
{
    int64_t now_s = clock_wall_s();
    if (now_s != s->date_s) {
        struct tm tm;
        time_t t = (time_t)now_s;
        gmtime_r(&t, &tm);
        strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        s->date_s = now_s;
    }
    return s->date;
}

/* --- deferred work */

void conn_kick(struct http_conn *c)
{
    if (c->kicked) return;
    c->kicked = true;
    c->kick_next = c->server->kicks;
    c->server->kicks = c;
    event_active(c->server->kick_ev, EV_TIMEOUT, 1);
}

void conn_unlink(struct http_conn *c)
{
    struct httpd *s = c->server;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    c->prev = c->next = NULL;
    s->n_conns--;
    if (s->draining && !s->n_conns && s->drained_timer) loop_timer_arm(s->drained_timer, 0);
}

static void run_kicks(struct httpd *s)
{
    while (s->kicks) {
        struct http_conn *c = s->kicks;
        s->kicks = c->kick_next;
        c->kicked = false;
        if (c->state != CONN_DEAD) conn_continue(c);
        if (c->state == CONN_DEAD && !c->kicked) conn_free(c);
    }
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct httpd *s = arg;
    struct loop *l = s->loop;
    uint64_t entered = loop_enter(l);
    run_kicks(s);
    loop_leave(l, entered);
}

/* --- accepting */

static void accept_one(struct httpd *s, int fd, const struct sockaddr *peer, int peer_n)
{
    s->stats.connections++;
    bool over = s->n_conns >= s->options.connections_max;
    if (s->n_conns >= s->options.connections_max + REFUSED_MAX) {
        s->stats.rejected++;
        close(fd);
        return;
    }
    struct http_conn *c = conn_new(s, fd, peer, peer_n);
    if (!over) return;
    log_limited(LOG_WARN, "http", "connection refused: %d are open, the maximum", s->n_conns - 1);
    conn_refuse(c, &(struct http_refusal){503, "too_many_connections",
                                          "The server has too many open connections."});
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int peer_n, void *arg)
{
    (void)listener;
    struct httpd *s = arg;
    struct loop *l = s->loop;
    uint64_t entered = loop_enter(l);
    accept_one(s, fd, peer, peer_n);
    loop_leave(l, entered);
}

/* Out of descriptors, most likely: without the pause the loop would spin on the same failure. */
static void on_accept_failed(struct evconnlistener *listener, void *arg)
{
    struct httpd *s = arg;
    log_limited(LOG_ERROR, "http", "accept failed: %s", strerror(errno));
    evconnlistener_disable(listener);
    loop_timer_arm(s->accept_timer, ACCEPT_PAUSE_MS);
}

static void accept_again(void *arg)
{
    struct httpd *s = arg;
    if (s->listener) evconnlistener_enable(s->listener);
}

static int socket_listening(const struct addrinfo *a, const struct httpd_options *o)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (o->joins_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    /* accepted sockets inherit these two on Linux, which saves two calls a connection */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    int failed = bind(fd, a->ai_addr, a->ai_addrlen);
    /* only now: bound before, a second process started by mistake would silently share the port */
    if (!failed && o->reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (!failed && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static enum err open_socket(const struct httpd_options *o, int *fd, struct errmsg *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    struct buf port;
    buf_init(&port, 16);
    buf_printf(&port, "%d", o->port);
    bool range_ok = o->port >= 0 && o->port <= 65535;
    int failed = range_ok ? getaddrinfo(o->host, port.p, &hints, &found) : EAI_SERVICE;
    buf_fini(&port);
    if (!range_ok) return err_set(e, ERR_RANGE, "port %d is not between 0 and 65535", o->port);
    if (failed)
        return err_set(e, ERR_INVALID, "cannot listen on \"%s\": %s", o->host,
                       gai_strerror(failed));
    *fd = socket_listening(found, o);
    int why = errno;
    freeaddrinfo(found);
    if (*fd >= 0) return OK;
    if (why == EADDRINUSE)
        return err_set(e, ERR_UNAVAILABLE, "port %d is in use on %s", o->port, o->host);
    return err_set(e, ERR_UNAVAILABLE, "cannot listen on %s port %d: %s", o->host, o->port,
                   strerror(why));
}

static int port_of(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)&a)->sin_port);
}

enum err httpd_listen(struct httpd **out, struct loop *l, const struct httpd_options *o,
                      const struct httpd_handler *h, struct errmsg *e)
{
    ASSERT(h->on_request);
    struct httpd_options options = *o;
    set_defaults(&options);
    int fd;
    enum err bad = open_socket(&options, &fd, e);
    if (bad) return bad;
    struct httpd *s = xcalloc(1, sizeof *s);
    s->loop = l;
    s->options = options;
    s->options.host = NULL; /* the caller's memory */
    s->handler = *h;
    s->port = port_of(fd);
    buf_init(&s->scratch, SCRATCH_MAX);
    s->kick_ev = event_new(loop_base(l), -1, 0, on_kick, s);
    s->accept_timer = loop_timer_new(l, accept_again, s);
    s->listener = evconnlistener_new(loop_base(l), on_accept, s,
                                     LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    ASSERT(s->kick_ev && s->listener);
    evconnlistener_set_error_cb(s->listener, on_accept_failed);
    *out = s;
    return OK;
}

int httpd_port(const struct httpd *s)
{
    return s->port;
}

struct httpd_stats httpd_stats(const struct httpd *s)
{
    struct httpd_stats stats = s->stats;
    stats.open_connections = s->n_conns;
    return stats;
}

/* --- the end */

static void stop_accepting(struct httpd *s)
{
    if (s->listener) evconnlistener_free(s->listener);
    s->listener = NULL;
}

static void on_drained(void *arg)
{
    struct httpd *s = arg;
    void (*drained)(void *) = s->drained;
    s->drained = NULL;
    if (drained) drained(s->drained_arg); /* may close the server */
}

/* Those whose connection the system has made already, and who may have sent a request: closing would reset them. */
static void accept_rest(struct httpd *s)
{
    int fd;
    struct sockaddr_storage peer;
    socklen_t n = sizeof peer;
    for (int i = 0; s->listener && i < BACKLOG; i++, n = sizeof peer) {
        fd = accept4(evconnlistener_get_fd(s->listener), (struct sockaddr *)&peer, &n,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        accept_one(s, fd, (struct sockaddr *)&peer, (int)n);
    }
}

void httpd_drain(struct httpd *s, void (*drained)(void *arg), void *arg)
{
    accept_rest(s);
    stop_accepting(s);
    s->draining = true;
    s->drained = drained;
    s->drained_arg = arg;
    if (!s->drained_timer) s->drained_timer = loop_timer_new(s->loop, on_drained, s);
    for (struct http_conn *c = s->conns; c; c = c->next)
        conn_kick(c); /* an idle one closes there */
    if (!s->n_conns) loop_timer_arm(s->drained_timer, 0);
}

void httpd_close(struct httpd *s)
{
    if (!s) return;
    stop_accepting(s);
    s->drained = NULL;
    while (s->conns) {
        ASSERT(!s->conns->in_handler); /* a handler cannot free the server under itself */
        conn_close(s->conns);
    }
    run_kicks(s);
    loop_timer_free(s->drained_timer);
    loop_timer_free(s->accept_timer);
    event_free(s->kick_ev);
    buf_fini(&s->scratch);
    mem_free(s);
}
