/* limit_local.c - see limit_local.h. A table of sets of 8: a bucket has its place in one set; in a full one the least used goes. */
#include "gateway/limit_local.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "gateway/gcra.h"

enum {
    WAYS = 8,
    SETS = LIMIT_LOCAL_MAX / WAYS,
    RATES = LIMIT_TOKENS_DAY + 1,
    BUSY_RETRY_MS = 1000
};
static const double periods_us[RATES] = {60e6, 86400e6, 60e6, 86400e6};

struct place {
    uint64_t name; /* hash; 0 = free */
    struct gcra rates[RATES];
    int active;
    double money_left; /* as Redis last said, less what was spent since; NAN = never said */
};
struct limit_local {
    struct place places[SETS][WAYS];
};

struct limit_local *limit_local_new(void)
{
    return xcalloc(1, sizeof(struct limit_local));
}

void limit_local_free(struct limit_local *l)
{
    mem_free(l);
}

static double last_tat(const struct place *p)
{
    double t = 0;
    for (int i = 0; i < RATES; i++)
        t = fmax(t, p->rates[i].tat_us);
    return t;
}

/* Which of two is the lesser loss. */
static bool matters_less(const struct place *a, const struct place *b)
{
    if (!a->name || !b->name) return !a->name && b->name;
    if (!a->active != !b->active) return !a->active;
    return last_tat(a) < last_tat(b);
}

static struct place *place_of(struct limit_local *l, const char *name)
{
    uint64_t h = hash_bytes(0, str_of(name)).lo;
    struct place *set = l->places[h % SETS], *least = set;
    h |= 1;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].name == h) return &set[i];
        if (matters_less(&set[i], least)) least = &set[i];
    }
    *least = (struct place){.name = h, .money_left = NAN};
    return least;
}

static struct gcra_rate rate_of(const struct limit_bucket *b, int kind, int gateways)
{
    return (struct gcra_rate){.limit = fmax(1, floor(b->limit[kind] / gateways)),
                              .period_us = periods_us[kind]};
}

static double amount_of(int kind, struct limit_amounts a)
{
    return kind < LIMIT_TOKENS_MIN ? 1 : a.tokens;
}

struct refusal {
    int kind;
    double used;
    int64_t retry_ms;
};

static void refuse(struct refusal *r, int kind, double used, int64_t retry_ms)
{
    if (r->kind < 0) {
        *r = (struct refusal){kind, used, retry_ms};
    } else if (r->retry_ms >= 0) {
        r->retry_ms = retry_ms < 0 ? -1 : retry_ms > r->retry_ms ? retry_ms : r->retry_ms;
    }
}

static struct refusal look(const struct place *at, const struct limit_bucket *b,
                           struct limit_amounts a, int gateways, double now_us)
{
    struct refusal r = {.kind = -1};
    for (int k = 0; k < RATES; k++) {
        double wait_us;
        if (b->limit[k] <= 0) continue;
        struct gcra_rate rate = rate_of(b, k, gateways);
        if (gcra_fits(&at->rates[k], &rate, now_us, amount_of(k, a), &wait_us)) continue;
        double used = rate.limit - gcra_left(&at->rates[k], &rate, now_us);
        refuse(&r, k, used, wait_us < 0 ? -1 : (int64_t)ceil(wait_us / 1000));
    }
    double seats = fmax(1, floor(b->limit[LIMIT_CONCURRENCY] / gateways));
    if (b->limit[LIMIT_CONCURRENCY] > 0 && at->active >= seats)
        refuse(&r, LIMIT_CONCURRENCY, at->active, BUSY_RETRY_MS);
    int budget = b->limit[LIMIT_BUDGET_DAY] > 0 ? LIMIT_BUDGET_DAY : LIMIT_BUDGET_MONTH;
    if (b->limit[budget] <= 0) return r;
    /* never told: all of it may be left */
    double left = isnan(at->money_left) ? b->limit[budget] / gateways : at->money_left;
    if (a.cost > left || left <= 0)
        refuse(&r, budget, b->limit[budget] - left, a.cost > b->limit[budget] ? -1 : 60000);
    return r;
}

static void take(struct place *at, const struct limit_bucket *b, struct limit_amounts a,
                 int gateways, double now_us)
{
    for (int k = 0; k < RATES; k++) {
        struct gcra_rate rate = rate_of(b, k, gateways);
        if (b->limit[k] > 0) gcra_add(&at->rates[k], &rate, now_us, amount_of(k, a));
    }
    at->active++;
    if (!isnan(at->money_left)) at->money_left -= a.cost * gateways;
}

static void add_view(struct limit_view *v, const struct place *at, const struct limit_bucket *b,
                     int kind, int gateways, double now_us)
{
    if (b->limit[kind] <= 0) return;
    struct gcra_rate rate = rate_of(b, kind, gateways);
    double left = gcra_left(&at->rates[kind], &rate, now_us);
    if (v->limit >= 0 && v->left <= left) return;
    *v = (struct limit_view){.limit = rate.limit,
                             .left = left,
                             .full_ms =
                                 (int64_t)ceil(gcra_empty_in_us(&at->rates[kind], now_us) / 1000)};
}

static void view(struct limit_local *l, const struct limit_plan *p, struct limit_verdict *v,
                 int gateways, double now_us)
{
    v->requests = v->tokens = (struct limit_view){.limit = -1};
    for (int i = 0; i < p->n; i++) {
        const struct limit_bucket *b = &p->buckets[i];
        if (b->shadow) continue;
        const struct place *at = place_of(l, b->name);
        add_view(&v->requests, at, b, LIMIT_REQUESTS_MIN, gateways, now_us);
        add_view(&v->requests, at, b, LIMIT_REQUESTS_DAY, gateways, now_us);
        add_view(&v->tokens, at, b, LIMIT_TOKENS_MIN, gateways, now_us);
        add_view(&v->tokens, at, b, LIMIT_TOKENS_DAY, gateways, now_us);
    }
}

struct limit_verdict limit_local_reserve(struct limit_local *l, const struct limit_plan *p,
                                         struct limit_amounts a, int gateways, double now_us)
{
    struct limit_verdict v = {
        .allowed = true, .kind = -1, .bucket = -1, .shadow_kind = -1, .shadow_bucket = -1};
    for (int i = 0; i < p->n; i++) {
        const struct limit_bucket *b = &p->buckets[i];
        struct refusal r = look(place_of(l, b->name), b, a, gateways, now_us);
        if (r.kind < 0) continue;
        if (b->shadow) {
            if (v.shadow_kind < 0) v.shadow_kind = r.kind, v.shadow_bucket = i;
        } else if (v.allowed) {
            v.allowed = false;
            v.kind = r.kind;
            v.bucket = i;
            v.used = r.used;
            v.retry_ms = r.retry_ms;
        }
    }
    if (v.allowed) limit_local_note(l, p, a, gateways, now_us);
    view(l, p, &v, gateways, now_us);
    return v;
}

void limit_local_note(struct limit_local *l, const struct limit_plan *p, struct limit_amounts a,
                      int gateways, double now_us)
{
    for (int i = 0; i < p->n; i++)
        take(place_of(l, p->buckets[i].name), &p->buckets[i], a, gateways, now_us);
}

void limit_local_money(struct limit_local *l, const struct limit_plan *p, int i, double left)
{
    place_of(l, p->buckets[i].name)->money_left = left;
}

void limit_local_settle(struct limit_local *l, const struct limit_plan *p,
                        struct limit_amounts reserved, struct limit_amounts used, int gateways,
                        double now_us)
{
    for (int i = 0; i < p->n; i++) {
        const struct limit_bucket *b = &p->buckets[i];
        struct place *at = place_of(l, b->name);
        for (int k = LIMIT_TOKENS_MIN; k <= LIMIT_TOKENS_DAY; k++) {
            struct gcra_rate rate = rate_of(b, k, gateways);
            if (b->limit[k] > 0)
                gcra_add(&at->rates[k], &rate, now_us, used.tokens - reserved.tokens);
        }
        if (at->active > 0) at->active--;
        if (!isnan(at->money_left)) at->money_left += (reserved.cost - used.cost) * gateways;
    }
}
