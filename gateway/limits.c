/* limits.c - see limits.h. A hold is asked for, held, ending, gone. A settlement is known by its id, so it is sent again until answered;
 * what was used without Redis is sent once (mode force): counting it twice would be worse than not at all. */
#include "gateway/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/gateway.h"
#include "gateway/limit_wire.h"
#include "gateway/tuning.h"

enum { TICK_MS = 1000, ENDING_MAX = 4096, SEND_TIMEOUT_MS = 1000, RENEW_MAX = 500, SEEN = 4 };

struct limit_hold {
    struct limits *l;
    struct limit_hold *prev, *next; /* in held or ending */
    struct limit_plan plan;
    struct limit_amounts reserved, used;
    double saved;
    char id[LIMIT_ID_BYTES];
    uint64_t since_ms;
    bool in_redis, maybe; /* Redis has it; may have it: the answer did not come in time */
    bool sending;
    limit_decided *decided; /* NULL once decided or abandoned */
    void *arg;
};
struct list {
    struct limit_hold *first;
    int n;
};

struct limits {
    struct gateway *gw;
    struct limit_local *local; /* made with the first limit */
    struct loop_timer *timer;
    char key[96], gateway_id[33];
    struct list held, ending;
    int gateways; /* most of those seen lately: after a restart of Redis they come back one by one */
    int seen[SEEN];
    unsigned n_seen;
    bool away, closed;
    int waiting; /* callbacks to come; after limits_close the last one frees */
    uint64_t renewed_ms;
    void (*flushed)(void *arg);
    void *flushed_arg;
    struct metric *allowed, *refused[N_LIMIT_KINDS], *shadowed[N_LIMIT_KINDS], *reserved, *used,
        *spent, *saved, *local_gauge, *gateways_gauge, *held_gauge, *ending_gauge, *dropped;
};

static void push(struct list *at, struct limit_hold *h)
{
    h->prev = NULL;
    h->next = at->first;
    if (at->first) at->first->prev = h;
    at->first = h;
    at->n++;
}

static void take_out(struct list *from, struct limit_hold *h)
{
    if (h->prev)
        h->prev->next = h->next;
    else
        from->first = h->next;
    if (h->next) h->next->prev = h->prev;
    from->n--;
}

static void let_go(struct limits *l)
{
    if (!l->closed || l->waiting) return;
    limit_local_free(l->local);
    mem_free(l);
}

static double now_us(void)
{
    return (double)clock_us();
}

static void set_away(struct limits *l, bool away)
{
    if (l->away == away) return;
    l->away = away;
    metric_set(l->local_gauge, away);
    if (away)
        log_warn("gateway",
                 "limits: Redis does not answer: this gateway goes by its share, 1 of %d",
                 l->gateways);
    else
        log_info("gateway", "limits: Redis answers again: limits are those of all gateways");
}

/* --- reserve */
static void count(struct limits *l, const struct limit_plan *p, struct limit_amounts a,
                  const struct limit_verdict *v)
{
    if (v->shadow_kind >= 0) {
        metric_add(l->shadowed[v->shadow_kind], 1);
        log_limited(LOG_INFO, "gateway", "limit shadow: %s of %s would have refused a request",
                    limit_kind_name((enum limit_kind)v->shadow_kind),
                    p->buckets[v->shadow_bucket].name);
    }
    if (!v->allowed) {
        metric_add(l->refused[v->kind], 1);
        return;
    }
    metric_add(l->allowed, 1);
    metric_add(l->reserved, a.tokens);
}

static void hold_now(struct limits *l, struct limit_hold *h)
{
    push(&l->held, h);
    metric_set(l->held_gauge, l->held.n);
}

/* By this gateway's share. */
static struct limit_verdict decide_here(struct limits *l, struct limit_hold *h)
{
    struct limit_verdict v =
        limit_local_reserve(l->local, &h->plan, h->reserved, l->gateways, now_us());
    set_away(l, true);
    return v;
}

static struct limit_verdict decide(struct limits *l, struct limit_hold *h, enum err code,
                                   const struct redis_reply *reply)
{
    struct limit_verdict v;
    double left[LIMIT_BUCKETS_MAX];
    if (code != OK || !limit_wire_read(reply, h->plan.n, &v, left)) {
        if (code == OK)
            log_limited(LOG_WARN, "gateway", "limits: Redis refused the call: " STR_FMT,
                        STR_ARG(str_sub(reply->text, 0, 160)));
        h->maybe = code == ERR_TIMEOUT || code == ERR_CLOSED;
        return decide_here(l, h);
    }
    set_away(l, false);
    h->in_redis = v.allowed;
    for (int i = 0; i < h->plan.n; i++)
        if (left[i] >= 0) limit_local_money(l->local, &h->plan, i, left[i]);
    if (v.allowed) limit_local_note(l->local, &h->plan, h->reserved, l->gateways, now_us());
    return v;
}

static void on_reserved(void *arg, enum err code, const struct redis_reply *reply)
{
    struct limit_hold *h = arg;
    struct limits *l = h->l;
    l->waiting--;
    if (l->closed) {
        mem_free(h);
        let_go(l);
        return;
    }
    struct limit_verdict v = decide(l, h, code, reply);
    limit_decided *decided = h->decided;
    void *told = h->arg;
    h->decided = NULL;
    count(l, &h->plan, h->reserved, &v);
    if (v.allowed || h->maybe) hold_now(l, h);
    if (!v.allowed && h->maybe) /* refused here, yet Redis may hold it */
        limit_local_note(l->local, &h->plan, h->reserved, l->gateways, now_us());
    if (!v.allowed && !h->maybe)
        mem_free(h);
    else if (!v.allowed || !decided)
        limits_settle(h, (struct limit_amounts){0, 0}, 0);
    if (decided) decided(told, &v);
}

enum limit_answer limits_reserve(struct limits *l, const struct limit_plan *p,
                                 struct limit_amounts a, struct limit_hold **out,
                                 struct limit_verdict *v, limit_decided *decided, void *arg)
{
    struct limit_hold *h = xcalloc(1, sizeof *h);
    if (!l->local) l->local = limit_local_new();
    h->l = l;
    h->plan = *p;
    h->reserved = a;
    h->since_ms = clock_ms();
    limit_wire_id(h->id, rng_u64(&l->gw->rng), rng_u64(&l->gw->rng));
    *out = h;
    if (l->gw->redis && redis_usable(l->gw->redis)) {
        struct limit_args args;
        limit_wire_reserve(&args, l->key, h->id, false, l->gw->o.limit_lease_ms, p, a);
        h->decided = decided;
        h->arg = arg;
        l->waiting++;
        redis_command(l->gw->redis, args.n, args.v, 0, on_reserved, h);
        return LIMIT_PENDING;
    }
    *v = decide_here(l, h);
    count(l, p, a, v);
    if (v->allowed) {
        hold_now(l, h);
        return LIMIT_ALLOWED;
    }
    *out = NULL;
    mem_free(h);
    return LIMIT_REFUSED;
}

void limits_abandon(struct limit_hold *h)
{
    h->decided = NULL;
}

/* --- settle */
static void end_one(struct limits *l, struct limit_hold *h)
{
    take_out(&l->ending, h);
    metric_set(l->ending_gauge, l->ending.n);
    mem_free(h);
}

static void send_end(struct limits *l, struct limit_hold *h);

static void tell_flushed(struct limits *l)
{
    void (*flushed)(void *arg) = l->flushed;
    l->flushed = NULL;
    if (flushed) flushed(l->flushed_arg);
}

static void on_settled(void *arg, enum err code, const struct redis_reply *reply)
{
    struct limit_hold *h = arg;
    struct limits *l = h->l;
    l->waiting--;
    h->sending = false;
    if (l->closed) {
        mem_free(h);
        let_go(l);
        return;
    }
    bool as_used = !h->in_redis && !h->maybe, done = code == OK;
    if (done && reply->kind == REDIS_ERROR)
        log_limited(LOG_WARN, "gateway", "limits: a settlement was not taken by Redis: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 160)));
    if (done && h->maybe && reply->kind == REDIS_INTEGER && reply->integer == 0) {
        h->maybe = false; /* it never came there: what was used is told now */
        send_end(l, h);
        return;
    }
    if (done || (as_used && code != ERR_UNAVAILABLE)) end_one(l, h);
    if (!l->ending.n) tell_flushed(l);
}

static void send_end(struct limits *l, struct limit_hold *h)
{
    struct limit_args args;
    if (!l->gw->redis || !redis_usable(l->gw->redis)) return;
    if (h->in_redis || h->maybe) {
        limit_wire_settle(&args, l->key, h->id, h->used, h->saved);
    } else if (h->used.tokens > 0 || h->used.cost > 0) {
        limit_wire_reserve(&args, l->key, h->id, true, l->gw->o.limit_lease_ms, &h->plan, h->used);
    } else {
        end_one(l, h);
        return;
    }
    h->sending = true;
    l->waiting++;
    redis_command(l->gw->redis, args.n, args.v, SEND_TIMEOUT_MS, on_settled, h);
}

void limits_settle(struct limit_hold *h, struct limit_amounts used, double saved)
{
    struct limits *l = h->l;
    h->used = used;
    h->saved = saved;
    limit_local_settle(l->local, &h->plan, h->reserved, used, l->gateways, now_us());
    take_out(&l->held, h);
    metric_set(l->held_gauge, l->held.n);
    metric_add(l->used, used.tokens);
    metric_add(l->spent, used.cost);
    metric_add(l->saved, saved);
    if (l->ending.n >= ENDING_MAX) {
        metric_add(l->dropped, 1);
        log_limited(LOG_WARN, "gateway", "limits: more than %d settlements wait for Redis",
                    ENDING_MAX);
        mem_free(h);
        return;
    }
    push(&l->ending, h);
    metric_set(l->ending_gauge, l->ending.n);
    send_end(l, h);
}

/* --- the beat */
static void on_renewed(void *arg, enum err code, const struct redis_reply *reply)
{
    struct limits *l = arg;
    l->waiting--;
    if (!l->closed && code == OK && reply->kind == REDIS_INTEGER) {
        l->seen[l->n_seen++ % SEEN] = reply->integer > 1000 ? 1000 : (int)reply->integer;
        l->gateways = 1;
        for (int i = 0; i < SEEN; i++)
            if (l->seen[i] > l->gateways) l->gateways = l->seen[i];
        metric_set(l->gateways_gauge, l->gateways);
        set_away(l, false);
    }
    let_go(l);
}

static void send_renew(struct limits *l, const struct str *ids, int n)
{
    char lease[16];
    struct str argv[RENEW_MAX + 7] = {STR("FCALL"),   STR("deja_limit"), STR("1"),
                                      str_of(l->key), STR("renew"),      str_of(l->gateway_id)};
    snprintf(lease, sizeof lease, "%d", l->gw->o.limit_lease_ms);
    argv[6] = str_of(lease);
    for (int i = 0; i < n; i++)
        argv[7 + i] = ids[i];
    l->waiting++;
    redis_command(l->gw->redis, 7 + n, argv, SEND_TIMEOUT_MS, on_renewed, l);
}

static void renew(struct limits *l, uint64_t now_ms)
{
    struct str ids[RENEW_MAX];
    int n = 0;
    uint64_t third = (uint64_t)l->gw->o.limit_lease_ms / 3;
    if (l->renewed_ms && now_ms - l->renewed_ms < third) return;
    l->renewed_ms = now_ms;
    for (struct limit_hold *h = l->held.first; h; h = h->next) {
        if (!h->in_redis || now_ms - h->since_ms < third) continue; /* young: its lease is long */
        ids[n++] = str_of(h->id);
        if (n < RENEW_MAX) continue;
        send_renew(l, ids, n);
        n = 0;
    }
    send_renew(l, ids, n);
}

static void on_timer(void *arg)
{
    struct limits *l = arg;
    if (l->flushed) { /* out of patience */
        tell_flushed(l);
        return;
    }
    loop_timer_arm(l->timer, TICK_MS);
    bool at_work = limit_rules_any(settings_limits(tuning_settings(l->gw->tuning))) || l->held.n;
    if (!redis_usable(l->gw->redis)) return;
    if (at_work) renew(l, clock_ms());
    for (struct limit_hold *h = l->ending.first, *next; h; h = next) {
        next = h->next;
        if (!h->sending) send_end(l, h);
    }
}

/* --- life */
static struct metric *by_kind(struct metrics *m, const char *name, int kind, const char *help)
{
    char labels[64];
    snprintf(labels, sizeof labels, "kind=\"%s\"", limit_kind_name((enum limit_kind)kind));
    return metrics_get(m, METRIC_COUNTER, name, labels, help, 0, 0);
}

static void make_series(struct limits *l, struct metrics *m)
{
    for (int k = 0; k < N_LIMIT_KINDS; k++) {
        l->refused[k] =
            by_kind(m, "deja_limit_refused_total", k, "requests that a limit refused (429)");
        l->shadowed[k] = by_kind(m, "deja_limit_shadow_refused_total", k,
                                 "requests that a shadow limit would have refused");
    }
    const struct {
        struct metric **at;
        enum metric_kind kind;
        const char *name, *help;
    } rows[] = {{&l->allowed, METRIC_COUNTER, "deja_limit_allowed_total",
                 "requests that passed their limits"},
                {&l->reserved, METRIC_COUNTER, "deja_limit_reserved_tokens_total",
                 "tokens reserved at the door"},
                {&l->used, METRIC_COUNTER, "deja_limit_used_tokens_total",
                 "tokens that requests came to at their end"},
                {&l->spent, METRIC_COUNTER, "deja_limit_spent_money_total",
                 "money that requests under a budget came to"},
                {&l->saved, METRIC_COUNTER, "deja_limit_saved_money_total",
                 "money that cached answers would have cost"},
                {&l->local_gauge, METRIC_GAUGE, "deja_limit_local",
                 "1: Redis does not answer, limits are this gateway's share"},
                {&l->gateways_gauge, METRIC_GAUGE, "deja_limit_gateways",
                 "gateways that share the limits, as last seen"},
                {&l->held_gauge, METRIC_GAUGE, "deja_limit_held", "reservations at work"},
                {&l->ending_gauge, METRIC_GAUGE, "deja_limit_unsettled",
                 "settlements Redis has not answered yet"},
                {&l->dropped, METRIC_COUNTER, "deja_limit_dropped_total",
                 "settlements given up because too many waited"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i].at = metrics_get(m, rows[i].kind, rows[i].name, "", rows[i].help, 0, 0);
}

struct limits *limits_open(struct gateway *gw)
{
    struct limits *l = xcalloc(1, sizeof *l);
    l->gw = gw;
    l->gateways = 1;
    tuning_key(gw, l->key);
    limit_wire_id(l->gateway_id, rng_entropy(), rng_entropy());
    make_series(l, gw->metrics);
    if (!gw->redis) return l;
    l->timer = loop_timer_new(gw->loop, on_timer, l);
    loop_timer_arm(l->timer, TICK_MS);
    return l;
}

void limits_flush(struct limits *l, int wait_ms, void (*done)(void *arg), void *arg)
{
    if (!l->timer || !l->ending.n) {
        done(arg);
        return;
    }
    l->flushed = done;
    l->flushed_arg = arg;
    loop_timer_arm(l->timer, (uint64_t)wait_ms);
}

void limits_close(struct limits *l)
{
    if (!l) return;
    loop_timer_free(l->timer);
    for (struct limit_hold *h = l->ending.first, *next; h; h = next) {
        next = h->next;
        if (!h->sending) mem_free(h);
    }
    for (struct limit_hold *h = l->held.first, *next; h; h = next) {
        next = h->next;
        mem_free(h);
    }
    l->closed = true;
    let_go(l);
}

bool limits_plan(const struct limits *l, struct str tenant, struct str model,
                 struct limit_plan *out)
{
    const struct limit_rules *r = settings_limits(tuning_settings(l->gw->tuning));
    return limit_rules_any(r) && limit_rules_plan(r, tenant, model, out);
}

struct limit_price limits_price(const struct limits *l, struct str model)
{
    const struct settings *s = tuning_settings(l->gw->tuning);
    struct limit_price own = limit_rules_price(settings_limits(s), model);
    struct cache_knobs all = settings_knobs(s, STR(""), -1);
    return (struct limit_price){own.prompt >= 0 ? own.prompt : all.price_prompt,
                                own.completion >= 0 ? own.completion : all.price_completion};
}
