/* http_client_conn.c - one connection of the client: a request out, a reply in, back to the pool or closed.
 * A reply is whole only when its framing says so (RFC 9112 6.3, 8): a counted body with all its bytes, a chunked one
 * with its last chunk, or, with neither header, the orderly end of the connection. Everything else that ends early is
 * ERR_CLOSED. */
#include <unistd.h>

#include "base/clock.h"
#include "base/http_client_internal.h"
#include "base/mem.h"

enum { INTERIM_MAX = 16, HEADERS_MAX = 256, READ_BYTES = 65536 };

void conn_drop(struct client_conn *c)
{
    if (!c->call) pool_remove(c);
    bufferevent_free(c->bev);
    http_head_fini(&c->head);
    mem_free(c);
}

/* Takes the connection from its call; reusable ones go to the pool. */
static void release(struct client_conn *c, bool reusable)
{
    struct http_call *call = c->call;
    call->conn = NULL;
    reusable = reusable && !c->ended && !evbuffer_get_length(bufferevent_get_input(c->bev)) &&
               !evbuffer_get_length(bufferevent_get_output(c->bev));
    if (!reusable) {
        conn_drop(c); /* c->call is still set: it is in no pool */
        return;
    }
    c->call = NULL;
    http_head_clear(&c->head);
    bufferevent_enable(c->bev, EV_READ);
    pool_put(c);
}

static void fail(struct client_conn *c, enum err code, const char *why)
{
    struct http_call *call = c->call;
    release(c, false);
    call_finish(call, code, "%s port %d: %s", call->origin.host, call->origin.port, why);
}

static void reply_done(struct client_conn *c)
{
    struct http_call *call = c->call;
    release(c, c->head.keep_alive);
    call_finish(call, OK, "%s", "");
}

/* --- the reply */

/* A final head is there. False: c is gone. */
static bool deliver_head(struct client_conn *c)
{
    struct http_call *call = c->call;
    struct http_head *h = &c->head;
    if (call->is_head) h->framing = HTTP_BODY_NONE;
    if (h->framing == HTTP_BODY_LENGTH && h->length > call->options.body_max) {
        fail(c, ERR_TOO_LARGE, "the reply is larger than allowed");
        return false;
    }
    call->state = CALL_BODY;
    if (!call->paused) call_deadline(call, call->options.idle_timeout_ms);
    http_body_begin(&c->body, h->framing, h->length);
    struct http_reply_head head = {h->status, h->fields, (size_t)h->n_fields};
    if (call->handler.on_head) call->handler.on_head(call->handler.arg, &head);
    return true;
}

/* False: c is gone. */
static bool take_head(struct client_conn *c, struct str in)
{
    struct http_call *call = c->call;
    struct http_refusal why = {0};
    size_t used;
    enum err result = http_head_feed(&c->head, in, &used, &why);
    evbuffer_drain(bufferevent_get_input(c->bev), used);
    if (result == ERR_AGAIN) return true;
    if (result) {
        fail(c, why.status == 431 ? ERR_TOO_LARGE : ERR_CORRUPT,
             why.status == 431 ? "the reply's header is too large"
                               : "the reply is not valid HTTP/1.1");
        return false;
    }
    if (c->head.status >= 200) return deliver_head(c);
    if (c->head.status == 101 || ++call->n_interim > INTERIM_MAX) {
        fail(c, ERR_CORRUPT, "the reply is an upgrade or an endless row of interim replies");
        return false;
    }
    http_head_clear(&c->head);
    return true;
}

/* False: c is gone. */
static bool take_body(struct client_conn *c, struct str in)
{
    struct http_call *call = c->call;
    struct str content;
    size_t used;
    if (http_body_step(&c->body, in, &used, &content)) {
        fail(c, ERR_CORRUPT, "the reply's chunks are not framed correctly");
        return false;
    }
    call->body_bytes += content.n;
    if (call->body_bytes > call->options.body_max) {
        fail(c, ERR_TOO_LARGE, "the reply is larger than allowed");
        return false;
    }
    if (content.n && call->handler.on_body) call->handler.on_body(call->handler.arg, content);
    evbuffer_drain(bufferevent_get_input(c->bev), used);
    return true;
}

/* The peer has sent all it will, and all has been read. */
static void take_end(struct client_conn *c)
{
    struct http_call *call = c->call;
    if (call->state == CALL_BODY && c->body.framing == HTTP_BODY_TO_CLOSE && !c->broken) {
        reply_done(c);
    } else if (call->any_received) {
        fail(c, ERR_CLOSED,
             call->state == CALL_BODY ? "the reply was cut off"
                                      : "the connection closed inside the reply's header");
    } else {
        release(c, false);
        call_lost_early(call, "the connection closed before any reply");
    }
}

void conn_take_input(struct client_conn *c)
{
    for (;;) {
        struct http_call *call = c->call;
        struct evbuffer *in = bufferevent_get_input(c->bev);
        struct evbuffer_iovec piece;
        if (call->cancelled) return; /* the kick event ends it */
        if (call->state == CALL_BODY && c->body.done) {
            reply_done(c);
            return;
        }
        if (call->paused) return;
        if (!evbuffer_get_length(in) || evbuffer_peek(in, -1, NULL, &piece, 1) < 1) break;
        struct str bytes = {piece.iov_base, piece.iov_len};
        call->any_received = true;
        bool alive = call->state == CALL_BODY ? take_body(c, bytes) : take_head(c, bytes);
        if (!alive) return;
    }
    if (c->ended) take_end(c);
}

/* --- events of the socket */

static void on_read(struct bufferevent *bev, void *arg)
{
    struct client_conn *c = arg;
    struct loop *l = c->client->loop;
    uint64_t entered = loop_enter(l);
    struct http_call *call = c->call;
    if (call) {
        if (call->state == CALL_BODY && !call->paused)
            call_deadline(call, call->options.idle_timeout_ms);
        conn_take_input(c);
    } else if (evbuffer_get_length(bufferevent_get_input(bev))) {
        conn_drop(c); /* nobody asked for anything */
    }
    loop_leave(l, entered);
}

static void all_sent(struct http_call *call)
{
    call->state = CALL_AWAITING;
    call_deadline(call, call->options.first_byte_timeout_ms);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    struct client_conn *c = arg;
    struct http_call *call = c->call;
    if (evbuffer_get_length(bufferevent_get_output(bev))) return;
    if (!c->pool->tls) bufferevent_disable(bev, EV_WRITE);
    if (call && call->state == CALL_SENDING) all_sent(call);
}

/* A plain socket mostly takes the whole request at once: no need to ask epoll. An error is left for the event that
 * follows, because no callback may run inside http_call. */
static void send_now(struct client_conn *c, struct http_call *call)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    evbuffer_unfreeze(out, 1); /* a bufferevent keeps its output's front to itself */
    int n = evbuffer_write(out, bufferevent_getfd(c->bev));
    evbuffer_freeze(out, 1);
    if (n < 0 || evbuffer_get_length(out))
        bufferevent_enable(c->bev, EV_WRITE);
    else
        all_sent(call);
}

static void handshake_failed(struct client_conn *c)
{
    struct http_call *call = c->call;
    struct errmsg e = {0};
    http_tls_explain(c->bev, call->origin.host, &e);
    release(c, false);
    call_finish(call, ERR_UNAVAILABLE, "%s", e.text);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct client_conn *c = arg;
    struct loop *l = c->client->loop;
    uint64_t entered = loop_enter(l);
    if (what & BEV_EVENT_CONNECTED) {
        if (c->call) conn_send(c, c->call);
    } else if (!c->call) {
        conn_drop(c);
    } else if (c->call->state == CALL_DIALLING) {
        handshake_failed(c);
    } else {
        c->ended = true;
        c->broken = what & BEV_EVENT_ERROR;
        conn_take_input(c); /* what came before is delivered first */
    }
    loop_leave(l, entered);
}

struct client_conn *conn_over(struct http_client *client, struct client_pool *pool, int fd)
{
    struct event_base *base = loop_base(client->loop);
    struct bufferevent *bev = pool->tls ? http_tls_connect(client->tls, base, fd, pool->host)
                                        : bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        close(fd);
        return NULL;
    }
    struct client_conn *c = xcalloc(1, sizeof *c);
    c->client = client;
    c->pool = pool;
    c->bev = bev;
    http_head_init(&c->head, true, client->options.header_max, HEADERS_MAX);
    bufferevent_setcb(bev, on_read, on_write, on_event, c);
#ifdef DEJA_RARE
    bufferevent_set_max_single_read(bev, 61);
#else
    bufferevent_set_max_single_read(bev, READ_BYTES);
#endif
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    if (!pool->tls) bufferevent_disable(bev, EV_WRITE); /* see send_now */
    return c;
}

void conn_send(struct client_conn *c, struct http_call *call)
{
    c->call = call;
    call->conn = c;
    call->any_received = false;
    call->n_interim = 0;
    call->state = CALL_SENDING;
    call->unsent_seen = call->request.n;
    call_deadline(call, call->options.idle_timeout_ms);
    if (call->paused) bufferevent_disable(c->bev, EV_READ);
    if (bufferevent_write(c->bev, call->request.p, call->request.n)) {
        err_set(&call->failure, ERR_UNAVAILABLE, "no memory to send the request");
        call_kick(call);
    } else if (!c->pool->tls) {
        send_now(c, call);
    }
}
