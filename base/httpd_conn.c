/* httpd_conn.c - one connection of the server: bytes in, requests out, deadlines, the end.
 *
 * One request at a time is with the handler. Meanwhile reading goes on, for two reasons: to notice at once that the
 * client has left (generation for nobody is the dearest thing this program can do), and to take pipelined requests, as
 * raw bytes, up to pipelined_max x 8 KiB; beyond that reading pauses and a slow poll watches for the end instead.
 *
 * An end of stream (FIN) while a reply is owed counts as gone. A client that only shut its sending side looks the same
 * on the wire; of real clients only `nc -N` does that, while every SDK and browser that cancels closes. Proxies that
 * copy half-closes (ssh -L, docker's) would hide a cancelled client for good if we waited for a failing write. A reply
 * that is already queued is always delivered first, so `printf ... | nc -N` gets answers that are made at once. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/httpd_internal.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    AHEAD_BYTES = 8192, /* per request of pipelined_max */
    KEPT_BYTES = 16384, /* of body buffer between requests: idle connections are many */
    LINGER_SILENCE_MS = 2000,
    LINGER_MS = 5000,
    GONE_POLL_MS = 500,
    FIRST_REQUEST_MS = 500, /* of a connection that has asked nothing when the server ends */
    REPLY_HEADERS_MAX = 65536,
};

static const uint64_t STALL_UNKNOWN = UINT64_MAX;

size_t conn_waiting(const struct http_conn *c)
{
    return wire_unsent(&c->wire); /* nothing once it is closed */
}

/* --- deadlines: one timer a connection, moved only when it must fire earlier */

static void arm_for(struct http_conn *c, uint64_t when_ms)
{
    if (c->timer_ms && c->timer_ms <= when_ms) return;
    uint64_t now_ms = loop_ms(c->server->loop);
    c->timer_ms = when_ms;
    loop_timer_arm(c->timer, when_ms > now_ms ? when_ms - now_ms : 0);
}

static void set_deadline(struct http_conn *c, int after_ms)
{
    c->deadline_ms = after_ms ? loop_ms(c->server->loop) + (uint64_t)after_ms : 0;
    if (after_ms) arm_for(c, c->deadline_ms);
}

static void enter(struct http_conn *c, enum conn_state state)
{
    const struct httpd_options *o = &c->server->options;
    c->state = state;
    switch (state) {
    case CONN_IDLE:
        set_deadline(c, o->idle_timeout_ms);
        break;
    case CONN_HEAD:
        set_deadline(c, o->header_timeout_ms);
        break;
    case CONN_BODY:
        set_deadline(c, o->body_timeout_ms);
        break;
    case CONN_LINGER:
        set_deadline(c, LINGER_SILENCE_MS);
        break;
    default:
        set_deadline(c, 0);
    }
}

/* --- writing */

/* From now on the client must read. What it has read by then is looked at later, off the path of short replies. */
static void watch_reading(struct http_conn *c)
{
    if (c->stall_ms) return;
    c->stall_bytes = STALL_UNKNOWN;
    c->stall_ms = loop_ms(c->server->loop) + (uint64_t)c->server->options.write_timeout_ms / 2;
    arm_for(c, c->stall_ms);
}

void conn_write(struct http_conn *c, struct str bytes)
{
    if (!c->wire.open || !bytes.n) return;
    if (!wire_put(&c->wire, bytes))
        c->broken = true; /* a reply with a hole must not pass for whole */
    if (c->broken || !c->wire.writing) conn_kick(c);
    if (c->broken) return;
    c->queued_bytes += bytes.n;
    watch_reading(c);
}

/* Sends what this turn of the loop has queued, in one call and without asking epoll first: a socket that takes it all
 * (nearly every time) costs no registration. What is left, and owners waiting for room, go the slow way, through
 * on_write. False: the connection is gone. */
static bool flush(struct http_conn *c)
{
    if (!conn_waiting(c) || c->wire.writing) return true;
    if (!wire_flush(&c->wire)) {
        conn_close(c);
        return false;
    }
    bool waits = c->req && c->req->wants_writable;
    if (conn_waiting(c) || waits) wire_writes(&c->wire, true);
    if (waits) /* the system took it all, but has room for no more: the client must still read */
        watch_reading(c);
    else if (!conn_waiting(c))
        c->stall_ms = 0;
    return true;
}

/* --- the end */

/* Takes the request away from its owner, telling it when the reply had not ended. */
static void end_request(struct http_conn *c, bool lost)
{
    struct http_req *r = c->req;
    if (!r) return;
    if (lost && r->gone) r->gone(r->gone_arg);
    c->req = NULL;
    c->server->stats.open_requests--;
    mem_free(r);
}

void conn_close(struct http_conn *c)
{
    if (c->state == CONN_DEAD) return;
    c->state =
        CONN_DEAD; /* first: the gone callback may still write to its request, which then does nothing */
    wire_close(&c->wire);
    loop_timer_free(c->timer);
    c->timer = NULL;
    end_request(c, true);
    conn_unlink(c);
    conn_kick(c);
}

void conn_free(struct http_conn *c)
{
    http_head_fini(&c->head);
    buf_fini(&c->body);
    buf_fini(&c->reply_headers);
    mem_free(c);
}

/* The last byte of the last reply is out. */
static void last_is_out(struct http_conn *c)
{
    size_t unread = wire_in(&c->wire).n;
    if (!c->linger && !unread) {
        conn_close(c);
        return;
    }
    /* closing with unread input would reset the connection and could take the reply away from the client */
    shutdown(wire_fd(&c->wire), SHUT_WR);
    wire_take(&c->wire, unread);
    wire_reads(&c->wire, true);
    c->linger_ms = loop_ms(c->server->loop) + LINGER_MS;
    enter(c, CONN_LINGER);
}

static void begin_last(struct http_conn *c)
{
    enter(c, CONN_LAST);
    if (!conn_waiting(c)) conn_kick(c);
}

void conn_refuse(struct http_conn *c, const struct http_refusal *why)
{
    c->server->stats.rejected++;
    log_debug("http", "request refused status=%d code=%s", why->status, why->code);
    reply_error(c, why);
    c->linger = true;
    begin_last(c);
}

void conn_reply_done(struct http_conn *c, bool keep)
{
    end_request(c, false);
    if (c->state == CONN_DEAD) return;
    if (c->broken) {
        c->state = CONN_LAST; /* the kick event drops it; nobody is left to be told */
        return;
    }
    http_head_clear(&c->head);
    if (c->body.cap > KEPT_BYTES) buf_fini(&c->body);
    buf_clear(&c->body);
    if (!keep || c->server->draining) {
        begin_last(c);
        return;
    }
    enter(c, CONN_IDLE);
    if (c->paused) wire_reads(&c->wire, true);
    c->paused = false;
    if (!c->in_handler && wire_in(&c->wire).n) conn_kick(c);
}

void conn_abort(struct http_conn *c, bool reset)
{
    struct linger at_once = {.l_onoff = 1};
    if (c->state == CONN_DEAD) return;
    end_request(c, false);
    if (reset) {
        setsockopt(wire_fd(&c->wire), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        c->broken = true;
    }
    enter(c, CONN_LAST);
    conn_kick(c);
}

/* --- reading */

static void dispatch(struct http_conn *c)
{
    struct httpd *s = c->server;
    enter(c, CONN_REQUEST);
    c->req = req_new(c);
    s->stats.requests++;
    s->stats.open_requests++;
    c->in_handler = true;
    s->handler.on_request(s->handler.arg, c->req);
    c->in_handler = false;
}

static const struct http_refusal too_large = {413, "body_too_large",
                                              "The request body is too large."};

static void head_done(struct http_conn *c)
{
    struct http_head *h = &c->head;
    struct httpd *s = c->server;
    struct http_req asking = {.conn = c};
    c->body_max = s->options.body_max_of ? s->options.body_max_of(s->options.body_max_arg, &asking)
                                         : s->options.body_max;
    c->body.max = c->body_max;
    if (h->framing == HTTP_BODY_LENGTH && h->length > c->body_max) {
        conn_refuse(c, &too_large);
        return;
    }
    http_body_begin(&c->body_reader, h->framing, h->length);
    if (c->body_reader.done) {
        dispatch(c);
        return;
    }
    enter(c, CONN_BODY);
    if (h->expects_continue && !wire_in(&c->wire).n)
        conn_write(c, STR("HTTP/1.1 100 Continue\r\n\r\n"));
}

static size_t take_head(struct http_conn *c, struct str in)
{
    struct http_refusal why = {0};
    size_t used;
    enum err result = http_head_feed(&c->head, in, &used, &why);
    if (c->state == CONN_IDLE && http_head_begun(&c->head)) {
        c->started_us = clock_us();
        enter(c, CONN_HEAD);
    }
    if (result == ERR_AGAIN) return used;
    wire_take(&c->wire, used);
    if (result)
        conn_refuse(c, &why);
    else
        head_done(c);
    return 0;
}

static size_t take_body(struct http_conn *c, struct str in)
{
    struct http_body *b = &c->body_reader;
    struct str content;
    size_t used;
    if (http_body_step(b, in, &used, &content)) {
        conn_refuse(c, &(struct http_refusal){400, "bad_request",
                                              "The chunked body is not framed correctly."});
        return 0;
    }
    uint64_t announced = b->framing == HTTP_BODY_CHUNKED ? b->left : 0;
    if (c->body.n + content.n + announced > c->body_max) {
        conn_refuse(c, &too_large);
        return 0;
    }
    buf_str(&c->body, content);
    if (buf_failed(&c->body)) {
        conn_refuse(
            c, &(struct http_refusal){503, "out_of_memory", "No memory for this request now."});
        return 0;
    }
    if (!b->done) return used;
    wire_take(&c->wire, used);
    dispatch(c);
    return 0;
}

/* Bytes behind the request in work stay in the input buffer; too many, and reading stops. */
static void look_ahead(struct http_conn *c, size_t waiting)
{
    if (c->paused || waiting < (size_t)c->server->options.pipelined_max * AHEAD_BYTES) return;
    c->paused = true;
    wire_reads(&c->wire, false);
    set_deadline(c, GONE_POLL_MS);
}

/* Between requests: whether the client must read first. Else one that only asks could fill the memory with replies. */
static bool owes_reading(struct http_conn *c)
{
    bool much = conn_waiting(c) > c->server->options.write_high;
    if (much && !c->paused) wire_reads(&c->wire, false);
    if (!much && c->paused) wire_reads(&c->wire, true);
    c->paused = much;
    return much;
}

/* Works through the input until it is used up or a reply must come first. */
static void take_input(struct http_conn *c)
{
    while (c->wire.open) {
        if (c->state == CONN_IDLE && owes_reading(c)) return;
        struct str bytes = wire_in(&c->wire);
        size_t used = 0;
        if (!bytes.n) return;
        switch (c->state) {
        case CONN_IDLE:
        case CONN_HEAD:
            used = take_head(c, bytes);
            break;
        case CONN_BODY:
            used = take_body(c, bytes);
            break;
        case CONN_REQUEST:
            look_ahead(c, bytes.n);
            return;
        default: /* nothing more is wanted */
            used = bytes.n;
            c->linger = true;
        }
        if (used) wire_take(&c->wire, used);
    }
}

static void on_read(void *arg)
{
    struct http_conn *c = arg;
    if (c->state == CONN_BODY || c->state == CONN_LINGER)
        enter(c, c->state); /* silence starts anew */
    take_input(c);
    if (c->server->draining && c->state == CONN_IDLE) conn_kick(c); /* it was an empty line */
}

/* --- events of the socket */

static void on_write(void *arg)
{
    struct http_conn *c = arg;
    size_t waiting = conn_waiting(c);
    if (!waiting) c->stall_ms = 0;
    struct http_req *r = c->req;
    if (r && r->wants_writable && waiting < c->server->options.write_high) {
        r->wants_writable = false;
        if (r->writable) r->writable(r->writable_arg);
    }
    if (c->state == CONN_LAST && !conn_waiting(c)) last_is_out(c);
    if (c->state == CONN_IDLE && c->paused) conn_kick(c); /* goes on with what was held back */
    if (!conn_waiting(c)) wire_writes(&c->wire, false);   /* back to the short way */
}

static void on_event(void *arg, enum wire_event e)
{
    struct http_conn *c = arg;
    bool error = e == WIRE_BROKEN;
    if (error || c->state == CONN_REQUEST || c->state == CONN_LINGER || !conn_waiting(c))
        conn_close(c);
    else if (c->state != CONN_LAST)
        begin_last(c); /* nothing more will come; what is queued still goes out */
}

/* With reading off, only the socket's state tells that the client has left. */
static bool left_while_paused(const struct http_conn *c)
{
    struct pollfd p = {.fd = wire_fd(&c->wire), .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLERR | POLLHUP));
}

static void deadline_passed(struct http_conn *c)
{
    c->deadline_ms = 0;
    switch (c->state) {
    case CONN_HEAD:
        conn_refuse(c, &(struct http_refusal){408, "request_timeout",
                                              "The request head did not arrive in time."});
        break;
    case CONN_BODY:
        conn_refuse(c, &(struct http_refusal){408, "request_timeout",
                                              "The request body did not arrive in time."});
        break;
    case CONN_REQUEST:
        if (left_while_paused(c))
            conn_close(c);
        else
            set_deadline(c, GONE_POLL_MS);
        break;
    case CONN_IDLE:
        if (conn_waiting(
                c)) /* not idle for the client; one that reads nothing is dropped elsewhere */
            enter(c, CONN_IDLE);
        else
            conn_close(c);
        break;
    default:
        conn_close(c);
    }
}

/* False: the client has read nothing for write_timeout_ms. */
static bool still_reading(struct http_conn *c, uint64_t now_ms)
{
    int in_kernel = 0;
    if (ioctl(wire_fd(&c->wire), SIOCOUTQ, &in_kernel)) in_kernel = 0;
    uint64_t out = c->queued_bytes - conn_waiting(c) - (uint64_t)in_kernel;
    if (out == c->stall_bytes) return false;
    c->stall_bytes = out;
    c->stall_ms = now_ms + (uint64_t)c->server->options.write_timeout_ms;
    return true;
}

static void on_timer(void *arg)
{
    struct http_conn *c = arg;
    uint64_t now_ms = loop_ms(c->server->loop);
    c->timer_ms = 0;
    if (c->state == CONN_LINGER && now_ms >= c->linger_ms) {
        conn_close(c);
        return;
    }
    if (c->stall_ms && now_ms >= c->stall_ms && !still_reading(c, now_ms)) {
        log_debug("http", "connection dropped: the client reads nothing");
        conn_close(c);
        return;
    }
    if (c->deadline_ms && now_ms >= c->deadline_ms) deadline_passed(c);
    if (c->state == CONN_DEAD) return;
    if (c->deadline_ms) arm_for(c, c->deadline_ms);
    if (c->stall_ms) arm_for(c, c->stall_ms);
}

/* Between requests, at the end of the server. What is on its way is still answered. */
static void drain_idle(struct http_conn *c)
{
    if (c->hurried || !wire_silent(&c->wire)) return; /* an event follows */
    c->hurried = !c->queued_bytes;
    if (c->hurried)
        set_deadline(c, FIRST_REQUEST_MS);
    else
        begin_last(c);
}

void conn_continue(struct http_conn *c)
{
    if (c->broken) {
        conn_close(c);
        return;
    }
    if (!flush(c)) return;
    if (c->state == CONN_LAST && !conn_waiting(c))
        last_is_out(c);
    else if (c->server->draining && c->state == CONN_IDLE && !wire_in(&c->wire).n)
        drain_idle(c);
    else
        take_input(c);
}

struct http_conn *conn_new(struct httpd *s, int fd, const struct sockaddr *peer, int peer_n)
{
    static const struct wire_handler handler = {on_read, on_write, on_event};
    struct http_conn *c = xcalloc(1, sizeof *c);
    c->server = s;
    if (peer_n > 0 && (size_t)peer_n <= sizeof c->peer) memcpy(&c->peer, peer, (size_t)peer_n);
    http_head_init(&c->head, false, s->options.header_max, s->options.headers_max);
    buf_init(&c->body, s->options.body_max);
    buf_init(&c->reply_headers, REPLY_HEADERS_MAX);
    c->timer = loop_timer_new(s->loop, on_timer, c);
    c->next = s->conns;
    if (s->conns) s->conns->prev = c;
    s->conns = c;
    s->n_conns++;
    wire_open(&c->wire, s->loop, fd, &handler, c);
    c->wire.write_low = s->options.write_high / 2;
    enter(c, CONN_IDLE);
    return c;
}
