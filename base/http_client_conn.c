/* http_client_conn.c - one connection of the client: a request out, a reply in, back to the pool or closed.
 * A reply is whole only when its framing says so (RFC 9112 6.3, 8): a counted body with all its bytes, a chunked one
 * with its last chunk, or, with neither header, the orderly end of the connection. Everything else that ends early is
 * ERR_CLOSED. */
#include <unistd.h>

#include "base/http_client_internal.h"
#include "base/mem.h"

enum { INTERIM_MAX = 16, HEADERS_MAX = 256 };

void conn_drop(struct client_conn *c)
{
    if (!c->call) pool_remove(c);
    wire_close(&c->wire);
    http_head_fini(&c->head);
    mem_free(c);
}

/* Takes the connection from its call; reusable ones go to the pool. */
static void release(struct client_conn *c, bool reusable)
{
    struct http_call *call = c->call;
    call->conn = NULL;
    reusable = reusable && !c->ended && !wire_in(&c->wire).n && !wire_unsent(&c->wire);
    if (!reusable) {
        conn_drop(c); /* c->call is still set: it is in no pool */
        return;
    }
    c->call = NULL;
    http_head_clear(&c->head);
    wire_reads(&c->wire, true);
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
    call_finish(call, OK, NULL);
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
    wire_take(&c->wire, used);
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
    wire_take(&c->wire, used);
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
        if (call->cancelled) return; /* the kick event ends it */
        if (call->state == CALL_BODY && c->body.done) {
            reply_done(c);
            return;
        }
        if (call->paused) return;
        struct str bytes = wire_in(&c->wire);
        if (!bytes.n) break;
        call->any_received = true;
        bool alive = call->state == CALL_BODY ? take_body(c, bytes) : take_head(c, bytes);
        if (!alive) return;
    }
    if (c->ended) take_end(c);
}

/* --- events of the socket */

static void on_read(void *arg)
{
    struct client_conn *c = arg;
    struct http_call *call = c->call;
    if (call) {
        if (call->state == CALL_BODY && !call->paused)
            call_deadline(call, call->options.idle_timeout_ms);
        conn_take_input(c);
    } else if (wire_in(&c->wire).n) {
        conn_drop(c); /* nobody asked for anything */
    }
}

static void all_sent(struct http_call *call)
{
    call->state = CALL_AWAITING;
    call_deadline(call, call->options.first_byte_timeout_ms);
}

static void on_write(void *arg)
{
    struct client_conn *c = arg;
    struct http_call *call = c->call;
    if (wire_unsent(&c->wire)) return;
    wire_writes(&c->wire, false);
    if (call && call->state == CALL_SENDING) all_sent(call);
}

/* A plain socket mostly takes the whole request at once: no need to ask epoll. An error is left for the event that
 * follows, because no callback may run inside http_call. */
static void send_now(struct client_conn *c, struct http_call *call)
{
    if (!wire_flush(&c->wire) || wire_unsent(&c->wire))
        wire_writes(&c->wire, true);
    else
        all_sent(call);
}

static void handshake_failed(struct client_conn *c)
{
    struct http_call *call = c->call;
    struct errmsg e = {0};
    http_tls_explain(c->wire.tls, call->origin.host, &e);
    release(c, false);
    call_finish(call, ERR_UNAVAILABLE, "%s", e.text);
}

static void on_event(void *arg, enum wire_event e)
{
    struct client_conn *c = arg;
    if (e == WIRE_CONNECTED) {
        if (c->call) conn_send(c, c->call);
    } else if (!c->call) {
        conn_drop(c);
    } else if (c->call->state == CALL_DIALLING) {
        handshake_failed(c);
    } else {
        c->ended = true;
        c->broken = e == WIRE_BROKEN;
        conn_take_input(c); /* what came before is delivered first */
    }
}

struct client_conn *conn_over(struct http_client *client, struct client_pool *pool, int fd)
{
    static const struct wire_handler handler = {on_read, on_write, on_event};
    struct bufferevent *tls = NULL;
    if (pool->tls) {
        tls = http_tls_connect(client->tls, loop_base(client->loop), fd, pool->host);
        if (!tls) {
            close(fd);
            return NULL;
        }
    }
    struct client_conn *c = xcalloc(1, sizeof *c);
    c->client = client;
    c->pool = pool;
    http_head_init(&c->head, true, client->options.header_max, HEADERS_MAX);
    if (tls)
        wire_open_tls(&c->wire, client->loop, tls, &handler, c);
    else
        wire_open(&c->wire, client->loop, fd, &handler, c);
    return c;
}

void conn_send(struct client_conn *c, struct http_call *call)
{
    c->call = call;
    call->conn = c;
    call->any_received = call->head_late = false;
    call->n_interim = 0;
    call->state = CALL_SENDING;
    call->unsent_seen = call->request.n;
    call_deadline(call, call->options.idle_timeout_ms);
    if (call->paused) wire_reads(&c->wire, false);
    if (!wire_put(&c->wire, buf_view(&call->request))) {
        err_set(&call->failure, ERR_UNAVAILABLE, "no memory to send the request");
        call_kick(call);
    } else if (!c->pool->tls) {
        send_now(c, call);
    }
}
