/* http_client.c - calls and the pools of idle connections of http_client.h: what starts, times out, is tried again,
 * ends. */
#include "base/http_client.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/http_client_internal.h"
#include "base/http_client_request.h"
#include "base/mem.h"

enum { POOLS_MAX = 256, HEAD_BYTES_MAX = 1 << 20, HEAD_BYTES = 700 };

/* --- pools */

static void pool_evict(struct http_client *c)
{
    for (struct client_pool **at = &c->pools; *at; at = &(*at)->next) {
        struct client_pool *p = *at;
        if (p->n_calls || p->n_idle) continue;
        *at = p->next;
        mem_free(p);
        c->n_pools--;
        return;
    }
}

static struct client_pool *pool_of(struct http_client *c, const struct http_origin *o)
{
    for (struct client_pool *p = c->pools; p; p = p->next)
        if (p->port == o->port && p->tls == o->tls && !strcmp(p->host, o->host)) return p;
    if (c->n_pools >= POOLS_MAX) pool_evict(c);
    struct client_pool *p = xcalloc(1, sizeof *p);
    p->tls = o->tls;
    p->port = o->port;
    memcpy(p->host, o->host, sizeof p->host);
    p->next = c->pools;
    c->pools = p;
    c->n_pools++;
    return p;
}

static uint64_t sweep_every_ms(const struct http_client *c)
{
    uint64_t ms = (uint64_t)c->options.idle_timeout_ms / 4;
    return ms < 5 ? 5 : ms;
}

void pool_put(struct client_conn *c)
{
    struct client_pool *p = c->pool;
    struct http_client *client = c->client;
    c->idle_since_ms = loop_ms(client->loop);
    c->prev = NULL;
    c->next = p->idle;
    if (p->idle) p->idle->prev = c;
    p->idle = c;
    p->n_idle++;
    if (client->stats.idle_connections++ == 0)
        loop_timer_arm(client->sweep_timer, sweep_every_ms(client));
    if (p->n_idle > client->options.idle_per_origin_max || client->closing) conn_drop(c);
}

void pool_remove(struct client_conn *c)
{
    struct client_pool *p = c->pool;
    if (c->prev)
        c->prev->next = c->next;
    else
        p->idle = c->next;
    if (c->next) c->next->prev = c->prev;
    p->n_idle--;
    c->client->stats.idle_connections--;
}

static void sweep(void *arg)
{
    struct http_client *client = arg;
    uint64_t now_ms = clock_ms();
    for (struct client_pool *p = client->pools; p; p = p->next) {
        for (struct client_conn *c = p->idle, *next; c; c = next) {
            next = c->next;
            if (now_ms - c->idle_since_ms >= (uint64_t)client->options.idle_timeout_ms)
                conn_drop(c);
        }
    }
    if (client->stats.idle_connections) loop_timer_arm(client->sweep_timer, sweep_every_ms(client));
}

/* --- deadlines: one timer a call, moved only when it must fire earlier */

void call_deadline(struct http_call *call, int after_ms)
{
    uint64_t now_ms = loop_ms(call->client->loop);
    call->deadline_ms = after_ms ? now_ms + (uint64_t)after_ms : 0;
    if (!after_ms || (call->timer_ms && call->timer_ms <= call->deadline_ms)) return;
    call->timer_ms = call->deadline_ms;
    loop_timer_arm(call->timer, (uint64_t)after_ms);
}

static void deadline_passed(struct http_call *call)
{
    const struct http_call_options *o = &call->options;
    const char *host = call->origin.host;
    int port = call->origin.port;
    switch (call->state) {
    case CALL_DIALLING:
        call_finish(call, ERR_UNAVAILABLE, "no connection to %s port %d within %d ms", host, port,
                    o->connect_timeout_ms);
        return;
    case CALL_SENDING: {
        size_t unsent = wire_unsent(&call->conn->wire);
        if (unsent < call->unsent_seen) {
            call->unsent_seen = unsent;
            call_deadline(call, o->idle_timeout_ms);
        } else {
            call_finish(call, ERR_TIMEOUT, "%s port %d took no byte of the request for %d ms", host,
                        port, o->idle_timeout_ms);
        }
        return;
    }
    case CALL_AWAITING:
        if (!call->head_late &&
            http_head_begun(&call->conn->head)) { /* more than a byte is there */
            call->head_late = true;
            call_deadline(call, o->idle_timeout_ms);
            return;
        }
        call_finish(call, ERR_TIMEOUT, "%s port %d gave no reply within %d ms", host, port,
                    o->first_byte_timeout_ms);
        return;
    case CALL_BODY:
        call_finish(call, ERR_TIMEOUT, "%s port %d fell silent for %d ms inside the reply", host,
                    port, o->idle_timeout_ms);
    }
}

static void on_timer(void *arg)
{
    struct http_call *call = arg;
    uint64_t now_ms = loop_ms(call->client->loop);
    call->timer_ms = 0;
    if (!call->deadline_ms) return;
    if (now_ms >= call->deadline_ms)
        deadline_passed(call);
    else
        call_deadline(call, (int)(call->deadline_ms - now_ms));
}

/* --- the life of a call */

void call_kick(struct http_call *call)
{
    if (call->kicked || call->finished) return;
    call->kicked = true;
    call->kick_next = call->client->kicks;
    call->client->kicks = call;
    event_active(call->client->kick_ev, EV_TIMEOUT, 1);
}

static void unkick(struct http_call *call)
{
    if (!call->kicked) return;
    struct http_call **at = &call->client->kicks;
    while (*at != call)
        at = &(*at)->kick_next;
    *at = call->kick_next;
    call->kicked = false;
}

static void unlist(struct http_call *call)
{
    if (call->prev)
        call->prev->next = call->next;
    else
        call->client->calls = call->next;
    if (call->next) call->next->prev = call->prev;
    call->client->stats.open_calls--;
    call->pool->n_calls--;
}

void call_finish(struct http_call *call, enum err code, const char *fmt, ...)
{
    struct errmsg e;
    va_list ap;
    e.code = code;
    e.text[0] = 0;
    va_start(ap, fmt);
    int n = fmt ? vsnprintf(e.text, sizeof e.text, fmt, ap) : 0;
    va_end(ap);
    ASSERT(n >= 0 && !call->finished);
    call->finished = true;
    unkick(call);
    unlist(call);
    dial_cancel(call->dial);
    if (call->conn) conn_drop(call->conn);
    loop_timer_free(call->timer);
    call->handler.on_done(call->handler.arg, code, &e);
    buf_fini(&call->request);
    mem_free(call);
}

static void on_dialled(void *arg, int fd, const struct errmsg *e)
{
    struct http_call *call = arg;
    call->dial = NULL;
    if (fd < 0) {
        call_finish(call, ERR_UNAVAILABLE, "%s", e->text);
        return;
    }
    call->client->stats.connections++;
    struct client_conn *c = conn_over(call->client, call->pool, fd);
    if (!c) {
        call_finish(call, ERR_UNAVAILABLE, "no memory for a connection to %s", call->origin.host);
        return;
    }
    c->call = call;
    call->conn = c;
    if (!call->origin.tls) conn_send(c, call); /* else after the handshake */
}

static void dial(struct http_call *call)
{
    call->state = CALL_DIALLING;
    call->on_reused = false;
    call_deadline(call, call->options.connect_timeout_ms);
    call->dial =
        dial_start(call->client->resolver, call->origin.host, call->origin.port, on_dialled, call);
}

void call_lost_early(struct http_call *call, const char *why)
{
    if (call->on_reused && call->options.retry_stale && !call->retried) {
        call->retried = true;
        call->client->stats.retried++;
        dial(call);
        return;
    }
    call_finish(call, ERR_CLOSED, "%s port %d: %s", call->origin.host, call->origin.port, why);
}

static void begin(struct http_call *call)
{
    struct client_conn *c;
    while ((c = call->pool->idle) && !wire_silent(&c->wire))
        conn_drop(c); /* closed, or with bytes that would pass for the answer to this call */
    if (!c) {
        dial(call);
        return;
    }
    pool_remove(c);
    call->client->stats.reused++;
    call->on_reused = true;
    conn_send(c, call);
}

static void run_kicks(struct http_client *client)
{
    while (client->kicks) {
        struct http_call *call = client->kicks;
        client->kicks = call->kick_next;
        call->kicked = false;
        if (call->cancelled)
            call_finish(call, ERR_CANCELLED, "the call was cancelled");
        else if (call->failure.code)
            call_finish(call, call->failure.code, "%s", call->failure.text);
        else if (call->conn && call->state != CALL_DIALLING)
            conn_take_input(call->conn);
    }
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct http_client *client = arg;
    struct loop *l = client->loop;
    uint64_t entered = loop_enter(l);
    run_kicks(client);
    loop_leave(l, entered);
}

static void set_defaults(struct http_call *call)
{
    struct http_call_options *o = &call->options;
    if (!o->connect_timeout_ms) o->connect_timeout_ms = call->origin.tls ? 3000 : 500;
    if (!o->first_byte_timeout_ms) o->first_byte_timeout_ms = 60000;
    if (!o->idle_timeout_ms) o->idle_timeout_ms = 60000;
    if (!o->body_max) o->body_max = 64 << 20;
    o->origin = NULL; /* pointers of the caller's, copied where needed */
    o->method = o->path = NULL;
    o->headers = NULL;
    o->body = (struct str){NULL, 0};
}

struct http_call *http_call(struct http_client *c, const struct http_call_options *o,
                            const struct http_call_handler *h)
{
    ASSERT(!c->closing && h->on_done);
    struct http_call *call = xcalloc(1, sizeof *call);
    call->client = c;
    call->origin = *o->origin;
    call->options = *o;
    call->handler = *h;
    call->is_head = str_eqz(str_of(o->method), "HEAD");
    call->pool = pool_of(c, &call->origin);
    call->pool->n_calls++;
    call->timer = loop_timer_new(c->loop, on_timer, call);
    call->next = c->calls;
    if (c->calls) c->calls->prev = call;
    c->calls = call;
    c->stats.calls++;
    c->stats.open_calls++;
    buf_init(&call->request, o->body.n + HEAD_BYTES_MAX);
    buf_reserve(&call->request, o->body.n + HEAD_BYTES);
    enum err bad = http_request_write(&call->request, o, &call->failure);
    set_defaults(call);
    if (!bad && call->origin.tls && !c->tls)
        bad = http_tls_new(&c->tls, c->ca_file, &call->failure);
    if (bad)
        call_kick(call);
    else
        begin(call);
    return call;
}

void http_call_cancel(struct http_call *call)
{
    call->cancelled = true;
    call_kick(call);
}

void http_call_pause(struct http_call *call)
{
    if (call->paused || call->finished) return;
    call->paused = true;
    if (call->state == CALL_BODY) call_deadline(call, 0);
    if (call->conn && call->state != CALL_DIALLING) wire_reads(&call->conn->wire, false);
}

void http_call_resume(struct http_call *call)
{
    if (!call->paused || call->finished) return;
    call->paused = false;
    if (call->state == CALL_BODY) call_deadline(call, call->options.idle_timeout_ms);
    if (!call->conn || call->state == CALL_DIALLING) return;
    wire_reads(&call->conn->wire, true);
    call_kick(call); /* what was left in the buffer */
}

/* --- the client */

struct http_client *http_client_new(struct loop *l, const struct http_client_options *o)
{
    struct http_client *c = xcalloc(1, sizeof *c);
    c->loop = l;
    if (o) c->options = *o;
    if (!c->options.idle_per_origin_max) c->options.idle_per_origin_max = 32;
    if (!c->options.idle_timeout_ms) c->options.idle_timeout_ms = 30000;
    if (!c->options.header_max) c->options.header_max = 65536;
    if (c->options.ca_file) c->ca_file = xstrdup(c->options.ca_file);
    c->options.ca_file = NULL;
    c->resolver = resolver_new(l);
    c->sweep_timer = loop_timer_new(l, sweep, c);
    c->kick_ev = event_new(loop_base(l), -1, 0, on_kick, c);
    ASSERT(c->kick_ev);
    return c;
}

struct http_client_stats http_client_stats(const struct http_client *c)
{
    return c->stats;
}

void http_client_free(struct http_client *c)
{
    if (!c) return;
    c->closing = true;
    while (c->calls)
        call_finish(c->calls, ERR_CANCELLED, "the client is being closed");
    for (struct client_pool *p = c->pools, *next; p; p = next) {
        next = p->next;
        while (p->idle)
            conn_drop(p->idle);
        mem_free(p);
    }
    resolver_free(c->resolver);
    http_tls_free(c->tls);
    loop_timer_free(c->sweep_timer);
    event_free(c->kick_ev);
    mem_free(c->ca_file);
    mem_free(c);
}
