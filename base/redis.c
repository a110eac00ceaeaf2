/* redis.c - the link: commands in flight with deadlines, the breaker, heartbeat, reconnecting. See redis.h.
 *
 * In flight: a ring in the order of sending; replies come in that order. A command whose deadline passes is told so and stays in the ring
 * as `fired`, so that its late reply is dropped. One timer stands for the earliest deadline; when it fires the ring is scanned.
 * Breaker: after breaker_failures time-outs in a row the link is `broken`: a PING is sent behind what waits, commands fail at once until
 * it is answered; an error instead (but MISCONF) means another PING with the next heartbeat.
 * Hang: when the oldest unanswered command has waited HANG_MS (and its own time-out, should that be longer), the connection is given up.
 * Refused commands wait in a list for a timer of 0 ms, since a callback never comes before redis_command has returned.
 * redis_close inside a callback: the struct goes when the outermost callback returns. */
#include "base/redis.h"

#include <string.h>

#include "base/clock.h"
#include "base/http_client_dial.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/redis_conn.h"
#include "base/rng.h"

enum {
    HANG_MS = 1000,
    LISTENERS_MAX = 16,
    RELOAD_MS = 1000,
    INTERNAL_MAX = 4 /* PINGs beyond pending_max */
};

/* That Redis is away. One for all links of a process, which are lost together. */
static struct log_site away;

struct pending {
    redis_callback *cb; /* NULL: nobody listens */
    void *arg;
    uint64_t sent_ms, deadline_ms;
    int timeout_ms;
    bool fired, probe;
};

struct refused {
    struct refused *next;
    redis_callback *cb;
    void *arg;
    enum err code;
};

struct listener {
    void (*fn)(void *arg);
    void *arg;
    bool due;
};

struct redis {
    struct loop *loop;
    struct redis_options o; /* defaults filled in; url not kept */
    struct redis_address address;
    struct resolver *resolver;
    struct redis_conn *conn;
    bool up;     /* greeting done */
    bool broken; /* breaker open */
    bool closed;
    int depth; /* callbacks of the loop on the stack */
    int failures_in_row, attempts;
    bool seen_up;
    char *library;
    size_t library_n;
    uint64_t reloaded_ms; /* when the library was last found missing and sent again; 0 = never */
    bool library_late;    /* given while a connection was under way that knows nothing of it */
    struct pending *ring; /* cap entries, a power of two */
    size_t cap, first, n, n_waiting; /* n_waiting: not fired */
    uint64_t armed_ms;               /* what deadline_timer is set to; 0 = not */
    uint64_t last_reply_ms;
    struct loop_timer *deadline_timer, *retry_timer, *soon_timer, *heartbeat_timer;
    struct refused *refused_first, **refused_last;
    struct listener listeners[LISTENERS_MAX];
    int n_listeners;
    struct rng rng;
    struct redis_stats stats;
};

/* --- life */
static void destroy(struct redis *r)
{
    loop_timer_free(r->deadline_timer);
    loop_timer_free(r->retry_timer);
    loop_timer_free(r->soon_timer);
    loop_timer_free(r->heartbeat_timer);
    resolver_free(r->resolver);
    mem_free(r->library);
    mem_free(r->ring);
    mem_free(r);
}

static void enter(struct redis *r)
{
    r->depth++;
}

static void leave(struct redis *r)
{
    if (--r->depth == 0 && r->closed) destroy(r);
}

/* --- the ring */
static struct pending *at(struct redis *r, size_t i)
{
    return &r->ring[(r->first + i) & (r->cap - 1)];
}

static void push(struct redis *r, const struct pending *p)
{
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        struct pending *ring = xcalloc(cap, sizeof *ring);
        for (size_t i = 0; i < r->n; i++)
            ring[i] = *at(r, i);
        mem_free(r->ring);
        r->ring = ring;
        r->cap = cap;
        r->first = 0;
    }
    r->n++;
    r->n_waiting += !p->fired;
    *at(r, r->n - 1) = *p;
}

static struct pending pop(struct redis *r)
{
    struct pending p = *at(r, 0);
    r->first = (r->first + 1) & (r->cap - 1);
    r->n--;
    r->n_waiting -= !p.fired;
    return p;
}

static void fire(const struct pending *p, enum err code, const struct redis_reply *reply)
{
    if (!p->fired && p->cb) p->cb(p->arg, code, reply);
}

static void fail_all(struct redis *r, enum err code)
{
    while (r->n) {
        struct pending p = pop(r);
        fire(&p, code, NULL);
    }
}

/* --- refused commands and due listeners */
static void refuse(struct redis *r, redis_callback *cb, void *arg, enum err code)
{
    struct refused *x = xmalloc(sizeof *x);
    *x = (struct refused){NULL, cb, arg, code};
    *r->refused_last = x;
    r->refused_last = &x->next;
    r->stats.refused++;
    if (!r->closed) loop_timer_arm(r->soon_timer, 0);
}

/* Those that wait now; what callbacks add is for the next turn. */
static void fire_refused(struct redis *r, bool cancelled)
{
    struct refused *list = r->refused_first;
    r->refused_first = NULL;
    r->refused_last = &r->refused_first;
    for (struct refused *next; list; list = next) {
        next = list->next;
        if (list->cb)
            list->cb(list->arg, cancelled || r->closed ? ERR_CANCELLED : list->code, NULL);
        mem_free(list);
    }
}

static void on_soon(void *arg)
{
    struct redis *r = arg;
    enter(r);
    fire_refused(r, false);
    for (int i = 0; i < r->n_listeners && r->up && !r->closed; i++) {
        bool due = r->listeners[i].due;
        r->listeners[i].due = false;
        if (due) r->listeners[i].fn(r->listeners[i].arg);
    }
    leave(r);
}

/* --- deadlines */
static void arm(struct redis *r, uint64_t when_ms)
{
    if (r->armed_ms && r->armed_ms <= when_ms) return;
    uint64_t now = clock_ms();
    r->armed_ms = when_ms;
    loop_timer_arm(r->deadline_timer, when_ms > now ? when_ms - now : 0);
}

static uint64_t hang_at(const struct pending *oldest)
{
    uint64_t patience = oldest->timeout_ms > HANG_MS ? (uint64_t)oldest->timeout_ms : HANG_MS;
    return oldest->sent_ms + patience;
}

static void arm_next(struct redis *r)
{
    uint64_t when = r->n ? hang_at(at(r, 0)) : 0;
    for (size_t i = 0; i < r->n && r->n_waiting; i++)
        if (!at(r, i)->fired && at(r, i)->deadline_ms < when) when = at(r, i)->deadline_ms;
    if (when) arm(r, when);
}

static void send(struct redis *r, int argc, const struct str *argv, const struct pending *p)
{
    enum err code = redis_conn_send(r->conn, argc, argv);
    if (code) {
        refuse(r, p->cb, p->arg, code);
        return;
    }
    push(r, p);
    r->stats.commands++;
    arm(r, p->deadline_ms < hang_at(p) ? p->deadline_ms : hang_at(p));
}

static void ping(struct redis *r, bool probe)
{
    uint64_t now = clock_ms();
    int timeout = probe ? HANG_MS : r->o.command_timeout_ms;
    struct pending p = {.sent_ms = now,
                        .deadline_ms = now + (uint64_t)timeout,
                        .timeout_ms = timeout,
                        .probe = probe};
    if (r->n < r->o.pending_max + INTERNAL_MAX) send(r, 1, &(struct str){"PING", 4}, &p);
}

static void note_timeout(struct redis *r)
{
    r->stats.timeouts++;
    if (++r->failures_in_row < r->o.breaker_failures || r->broken) return;
    r->broken = true;
    log_limited(LOG_WARN, "redis",
                "no answer within the time limit: commands fail at once until a PING is answered");
    ping(r, true);
}

static void lose(struct redis *r, const char *why);

static void on_deadline(void *arg)
{
    struct redis *r = arg;
    uint64_t now = clock_ms();
    enter(r);
    r->armed_ms = 0;
    for (size_t i = 0; i < r->n && !r->closed;
         i++) { /* by index: a callback may send, and so move the ring */
        struct pending *p = at(r, i);
        if (p->fired || p->deadline_ms > now) continue;
        struct pending told = *p;
        p->fired = true;
        r->n_waiting--;
        note_timeout(r);
        fire(&told, ERR_TIMEOUT, NULL);
    }
    if (!r->closed && r->n && hang_at(at(r, 0)) <= now) lose(r, "it hangs");
    if (!r->closed) arm_next(r);
    leave(r);
}

/* --- the connection */
static void load_library(struct redis *r)
{
    struct str argv[] = {STR("FUNCTION"), STR("LOAD"), STR("REPLACE"), {r->library, r->library_n}};
    r->library_late = false;
    redis_command(r, 4, argv, r->o.connect_timeout_ms, NULL, NULL);
}

/* Somebody has removed it from under us (FUNCTION FLUSH, a failover to a server without it): commands fail until it is loaded again. */
static void note_missing(struct redis *r, const struct redis_reply *reply)
{
    uint64_t now = clock_ms();
    if (reply->kind != REDIS_ERROR || !r->library_n || r->broken ||
        str_find(reply->text, STR("Function not found")) < 0 ||
        (r->reloaded_ms && now - r->reloaded_ms < RELOAD_MS))
        return;
    r->reloaded_ms = now;
    log_limited(LOG_WARN, "redis", "its Functions are gone: they are loaded again");
    load_library(r);
}

static void on_open(void *arg)
{
    struct redis *r = arg;
    enter(r);
    if (r->seen_up) r->stats.reconnects++;
    r->up = r->seen_up = true;
    r->broken = false;
    r->attempts = r->failures_in_row = 0;
    r->last_reply_ms = clock_ms();
    away.last_ms = 0;
    log_info("redis", "connected");
    if (r->library_late) load_library(r);
    loop_timer_arm(r->heartbeat_timer, (uint64_t)r->o.heartbeat_ms);
    for (int i = 0; i < r->n_listeners; i++)
        r->listeners[i].due = true;
    loop_timer_arm(r->soon_timer, 0);
    leave(r);
}

/* A Redis that may not write (its disk is full) refuses PING too, and answers the rest. */
static bool answers(const struct redis_reply *reply)
{
    return reply->kind != REDIS_ERROR || str_starts(reply->text, STR("MISCONF"));
}

static void on_reply(void *arg, const struct redis_reply *reply)
{
    struct redis *r = arg;
    enter(r);
    if (!r->n) { /* nobody asked: not a Redis, or one that has lost count */
        lose(r, "a reply without a command");
        leave(r);
        return;
    }
    struct pending p = pop(r);
    r->last_reply_ms = clock_ms();
    if (p.probe && answers(reply)) {
        r->broken = false;
        r->failures_in_row = 0;
        log_info("redis", "answers again");
    }
    if (!r->broken && !p.fired) r->failures_in_row = 0;
    note_missing(r, reply);
    fire(&p, OK, reply);
    leave(r);
}

static void try_later(struct redis *r)
{
    uint64_t most = (uint64_t)r->o.backoff_max_ms,
             delay = (uint64_t)r->o.backoff_first_ms << (r->attempts < 16 ? r->attempts : 16);
    if (delay > most) delay = most;
    r->attempts++;
    loop_timer_arm(r->retry_timer, delay / 2 + rng_below(&r->rng, delay / 2 + 1));
}

/* Gives the connection up (or learns that it is gone) and plans the next one. */
static void lose(struct redis *r, const char *why)
{
    if (log_site_open(&away, REDIS_TELL_AGAIN_MS, NULL))
        log_warn("redis", "connection lost: %s", why);
    redis_conn_close(r->conn);
    r->conn = NULL;
    r->up = r->broken = false;
    loop_timer_stop(r->heartbeat_timer);
    loop_timer_stop(r->deadline_timer);
    r->armed_ms = 0;
    try_later(r);
    fail_all(r, ERR_CLOSED);
}

static void on_closed(void *arg, const char *why)
{
    struct redis *r = arg;
    enter(r);
    r->conn = NULL;
    lose(r, why);
    leave(r);
}

static void open_conn(void *arg)
{
    struct redis *r = arg;
    struct redis_conn_options o = {
        r->loop, r->resolver, &r->address, r->o.connect_timeout_ms, {r->library, r->library_n}};
    r->conn = redis_conn_open(&o, &(struct redis_conn_handler){on_open, on_reply, on_closed, r});
}

/* Notices a dead or frozen Redis before a request has to. One whose answer to a probe was an error is asked again. */
static void on_heartbeat(void *arg)
{
    struct redis *r = arg;
    enter(r);
    bool idle = clock_ms() - r->last_reply_ms >= (uint64_t)r->o.heartbeat_ms / 2;
    if (r->up && !r->n && (idle || r->broken)) ping(r, r->broken);
    loop_timer_arm(r->heartbeat_timer, (uint64_t)r->o.heartbeat_ms);
    leave(r);
}

/* --- public */
static int or_default(int given, int preset)
{
    return given > 0 ? given : preset;
}

enum err redis_open(struct redis **out, struct loop *l, const struct redis_options *o,
                    struct errmsg *e)
{
    struct redis_address address;
    enum err code = redis_address_parse(o->url, &address, e);
    if (code) return code;
    struct redis *r = xcalloc(1, sizeof *r);
    r->loop = l;
    r->address = address;
    r->o = (struct redis_options){.connect_timeout_ms = or_default(o->connect_timeout_ms, 500),
                                  .command_timeout_ms = or_default(o->command_timeout_ms, 50),
                                  .backoff_first_ms = or_default(o->backoff_first_ms, 50),
                                  .backoff_max_ms = or_default(o->backoff_max_ms, 1000),
                                  .pending_max = o->pending_max ? o->pending_max : 10000,
                                  .breaker_failures = or_default(o->breaker_failures, 1),
                                  .heartbeat_ms = or_default(o->heartbeat_ms, 1000)};
    r->resolver = resolver_new(l);
    r->refused_last = &r->refused_first;
    r->deadline_timer = loop_timer_new(l, on_deadline, r);
    r->retry_timer = loop_timer_new(l, open_conn, r);
    r->soon_timer = loop_timer_new(l, on_soon, r);
    r->heartbeat_timer = loop_timer_new(l, on_heartbeat, r);
    rng_seed(&r->rng, rng_entropy());
    loop_timer_arm(r->retry_timer, 0); /* not at once: redis_use_library comes first */
    *out = r;
    return OK;
}

void redis_close(struct redis *r)
{
    if (!r || r->closed) return;
    r->closed = true;
    r->up = false;
    enter(r);
    redis_conn_close(r->conn);
    r->conn = NULL;
    loop_timer_stop(r->retry_timer);
    loop_timer_stop(r->soon_timer);
    loop_timer_stop(r->deadline_timer);
    loop_timer_stop(r->heartbeat_timer);
    while (r->n || r->refused_first) {
        fail_all(r, ERR_CANCELLED);
        fire_refused(r, true);
    }
    leave(r);
}

bool redis_usable(const struct redis *r)
{
    return r->up && !r->broken;
}

void redis_on_connect(struct redis *r, void (*fn)(void *arg), void *arg)
{
    ASSERT(r->n_listeners < LISTENERS_MAX);
    r->listeners[r->n_listeners++] = (struct listener){fn, arg, r->up};
    if (r->up) loop_timer_arm(r->soon_timer, 0);
}

void redis_command(struct redis *r, int argc, const struct str *argv, int timeout_ms,
                   redis_callback *cb, void *arg)
{
    ASSERT(argc > 0);
    if (!redis_usable(r) || r->n >= r->o.pending_max) {
        refuse(r, cb, arg,
               r->closed         ? ERR_CANCELLED
               : redis_usable(r) ? ERR_FULL
                                 : ERR_UNAVAILABLE);
        return;
    }
    uint64_t now = clock_ms();
    if (timeout_ms <= 0) timeout_ms = r->o.command_timeout_ms;
    send(r, argc, argv,
         &(struct pending){.cb = cb,
                           .arg = arg,
                           .sent_ms = now,
                           .deadline_ms = now + (uint64_t)timeout_ms,
                           .timeout_ms = timeout_ms});
}

void redis_use_library(struct redis *r, struct str code)
{
    mem_free(r->library);
    r->library = xstrndup(code.p ? code.p : "", code.n);
    r->library_n = code.n;
    if (r->up)
        load_library(r);
    else
        r->library_late = r->conn != NULL;
}

struct redis_stats redis_stats(const struct redis *r)
{
    struct redis_stats s = r->stats;
    s.pending = r->n_waiting;
    return s;
}
