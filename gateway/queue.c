/* queue.c - see queue.h. Grants are given from a timer of 0 ms, so that nobody is called back within a call of his own. */
#include "gateway/queue.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/gateway.h"

enum { POOLS_MAX = 16, TICK_MS = 50, LATE_RETRY_MAX_MS = 60000 };
#define RATE_MEMORY_S 5.0

struct queue_pool {
    struct fair_queue *fair;
    uint32_t targets; /* bits: the upstreams its calls may go to */
    double rate;      /* calls ended a second, over the last seconds */
    uint64_t rate_us;
};

struct queue {
    struct gateway *gw;
    struct loop_timer *timer;
    uint64_t due_ms; /* when the timer fires; 0 = it does not */
    struct queue_pool pools[POOLS_MAX];
    int n_pools;
    struct metric *waiting[N_FAIR_CLASSES], *working[N_FAIR_CLASSES], *seconds[N_FAIR_CLASSES];
    struct metric *refused[N_FAIR_CLASSES][2]; /* full, late */
};

/* --- life */
static struct fair_queue_options bounds(const struct gateway_options *o)
{
    return (struct fair_queue_options){.items_max = o->queue_max,
                                       .batch_share = o->queue_batch_percent / 100.0,
                                       .batch_most = o->queue_batch_most_percent / 100.0,
                                       .batch_age_ms = (uint64_t)o->queue_batch_age_s * 1000};
}

static void pump(void *arg);

struct queue *queue_open(struct gateway *gw)
{
    static const char *classes[] = {"class=\"online\"", "class=\"batch\""};
    static const char *refusals[][2] = {
        {"class=\"online\",why=\"full\"", "class=\"online\",why=\"late\""},
        {"class=\"batch\",why=\"full\"", "class=\"batch\",why=\"late\""}};
    struct queue *q = xcalloc(1, sizeof *q);
    struct metrics *m = gw->metrics;
    q->gw = gw;
    q->timer = loop_timer_new(gw->loop, pump, q);
    for (int c = 0; c < N_FAIR_CLASSES; c++) {
        q->waiting[c] = metrics_get(m, METRIC_GAUGE, "deja_queue_waiting", classes[c],
                                    "calls that wait for a free slot of an upstream", 0, 0);
        q->working[c] = metrics_get(m, METRIC_GAUGE, "deja_queue_working", classes[c],
                                    "calls that hold a slot of an upstream", 0, 0);
        q->seconds[c] = metrics_get(m, METRIC_HISTOGRAM, "deja_queue_seconds", classes[c],
                                    "time calls waited for a slot", 0.001, 17);
        for (int w = 0; w < 2; w++)
            q->refused[c][w] =
                metrics_get(m, METRIC_COUNTER, "deja_queue_refused_total", refusals[c][w],
                            "calls that were refused before any work", 0, 0);
    }
    return q;
}

void queue_close(struct queue *q)
{
    if (!q) return;
    loop_timer_free(q->timer);
    for (int i = 0; i < q->n_pools; i++)
        fair_queue_free(q->pools[i].fair);
    mem_free(q);
}

static void arm(struct queue *q, uint64_t delay_ms)
{
    uint64_t at = clock_ms() + delay_ms;
    if (q->due_ms && q->due_ms <= at) return;
    q->due_ms = at;
    loop_timer_arm(q->timer, delay_ms);
}

/* --- pools */
static bool is_empty(const struct queue_pool *p)
{
    int n = 0;
    for (int c = 0; c < N_FAIR_CLASSES; c++)
        n += fair_queue_waiting(p->fair, (enum fair_class)c) +
             fair_queue_working(p->fair, (enum fair_class)c);
    return !n;
}

/* The pool of the set of upstreams. Once there are too many sets, those beyond share the first pool: they may wait for each other. */
static struct queue_pool *pool_of(struct queue *q, uint32_t targets)
{
    struct queue_pool *p = NULL;
    for (int i = 0; i < q->n_pools; i++)
        if (q->pools[i].targets == targets) return &q->pools[i];
    if (q->n_pools < POOLS_MAX) {
        struct fair_queue_options o = bounds(&q->gw->o);
        p = &q->pools[q->n_pools++];
        p->fair = fair_queue_new(&o);
    }
    for (int i = 0; i < q->n_pools && !p; i++)
        if (is_empty(&q->pools[i])) p = &q->pools[i];
    if (!p) return &q->pools[0];
    p->targets = targets;
    p->rate = 0;
    return p;
}

static int working(const struct queue_pool *p)
{
    return fair_queue_working(p->fair, FAIR_ONLINE) + fair_queue_working(p->fair, FAIR_BATCH);
}

/* How many calls of p may be at work at a time now; 0 = any number. */
static int slots_of(const struct queue *q, const struct queue_pool *p)
{
    int room = upstreams_room(q->gw->upstreams, p->targets);
    if (room == INT_MAX) return 0;
    int n = working(p) + room;
    return n ? n : 1; /* 0 would mean no bound */
}

void queue_show(struct queue *q)
{
    for (int c = 0; c < N_FAIR_CLASSES; c++) {
        int waiting = 0, at_work = 0;
        for (int i = 0; i < q->n_pools; i++) {
            waiting += fair_queue_waiting(q->pools[i].fair, (enum fair_class)c);
            at_work += fair_queue_working(q->pools[i].fair, (enum fair_class)c);
        }
        metric_set(q->waiting[c], waiting);
        metric_set(q->working[c], at_work);
    }
}

/* --- how long it will take */
static void note_end(struct queue_pool *p, uint64_t now_us)
{
    double dt = p->rate_us ? (double)(now_us - p->rate_us) / 1e6 : 0;
    p->rate = p->rate * exp(-dt / RATE_MEMORY_S) + 1 / RATE_MEMORY_S;
    p->rate_us = now_us;
}

/* Milliseconds until a new call of this tenant would get its turn; 0 when nothing is known yet. */
static double expected_wait_ms(const struct queue_pool *p, enum fair_class c, struct str tenant,
                               double weight)
{
    double idle_s = p->rate_us ? (double)(clock_us() - p->rate_us) / 1e6 : 0;
    double rate = p->rate * exp(-idle_s / RATE_MEMORY_S);
    if (rate * RATE_MEMORY_S < 3) return 0; /* too few ended lately to say */
    return 1000 * fair_queue_ahead(p->fair, c, tenant, weight) / rate;
}

/* --- coming and going */
static struct queue_place *place_of(struct fair_item *i)
{
    return (struct queue_place *)(void *)((char *)i - offsetof(struct queue_place, item));
}

static void refuse(struct queue *q, struct queue_place *p, enum fault f, uint64_t retry_ms)
{
    metric_add(q->refused[p->item.class][f == FAULT_QUEUE_LATE], 1);
    p->waited_us = clock_us() - p->entered_us;
    p->pool = NULL;
    p->on_refused(p->arg, f, retry_ms);
}

static uint64_t come_back_ms(double expected_ms, double patience_ms)
{
    double ms = expected_ms - patience_ms;
    if (ms < 1000) ms = 1000;
    return ms > LATE_RETRY_MAX_MS ? LATE_RETRY_MAX_MS : (uint64_t)ms;
}

/* p waits now; whoever had to give way for it has been told. */
static enum queue_answer wait_for_turn(struct queue *q, struct queue_place *p,
                                       const struct queue_want *w, enum fault *fault,
                                       uint64_t *retry_ms)
{
    struct queue_pool *pool = p->pool;
    struct fair_item *displaced;
    double weight = w->weight > 0 ? w->weight : 1;
    double patience = w->batch ? 1000.0 * q->gw->o.queue_batch_wait_s : q->gw->o.queue_wait_ms;
    double expected = expected_wait_ms(pool, p->item.class, w->tenant, weight);
    p->pool = NULL;
    *retry_ms = come_back_ms(expected, patience);
    *fault = FAULT_QUEUE_LATE;
    if (expected <= patience) {
        p->item.arrived_ms = clock_ms();
        p->item.deadline_ms = p->item.arrived_ms + (uint64_t)patience;
        *fault = FAULT_QUEUE_FULL;
        if (fair_queue_put(pool->fair, &p->item, w->tenant, weight, &displaced) == OK) {
            p->pool = pool;
            if (displaced) refuse(q, place_of(displaced), FAULT_QUEUE_FULL, 1000);
            arm(q, TICK_MS);
            return QUEUE_WAIT;
        }
    }
    metric_add(q->refused[p->item.class][*fault == FAULT_QUEUE_LATE], 1);
    return QUEUE_REFUSED;
}

enum queue_answer queue_enter(struct queue *q, struct queue_place *p, const struct queue_want *w,
                              enum fault *fault, uint64_t *retry_ms)
{
    struct queue_want want = *w;
    if (!want.tenant.n) want.tenant = STR("(gateway)");
    p->item.class = want.batch ? FAIR_BATCH : FAIR_ONLINE;
    p->item.cost = want.cost >= 1 ? want.cost : 1;
    p->entered_us = clock_us();
    p->pool = pool_of(q, upstreams_targets(q->gw->upstreams, want.model));
    double weight = want.weight > 0 ? want.weight : 1;
    if (fair_queue_pass(p->pool->fair, &p->item, want.tenant, weight, slots_of(q, p->pool))) {
        metric_observe(q->seconds[p->item.class], 0);
        return QUEUE_GO;
    }
    return wait_for_turn(q, p, &want, fault, retry_ms);
}

/* A slot is free. */
static void stir(struct queue *q)
{
    for (int i = 0; i < q->n_pools; i++)
        for (int c = 0; c < N_FAIR_CLASSES; c++)
            if (fair_queue_waiting(q->pools[i].fair, (enum fair_class)c)) {
                arm(q, 0);
                return;
            }
}

void queue_leave(struct queue *q, struct queue_place *p, double cost)
{
    struct queue_pool *pool = p->pool;
    if (!pool) return;
    p->pool = NULL;
    if (p->item.waiting) {
        fair_queue_remove(pool->fair, &p->item);
    } else {
        fair_queue_done(pool->fair, &p->item, cost);
        note_end(pool, clock_us());
        stir(q);
    }
}

/* --- turns */
static void pump_pool(struct queue *q, struct queue_pool *p)
{
    uint64_t now_ms = clock_ms();
    for (struct fair_item *i; (i = fair_queue_expired(p->fair, now_ms));)
        refuse(q, place_of(i), FAULT_QUEUE_LATE, 1000);
    for (struct fair_item *i; (i = fair_queue_next(p->fair, slots_of(q, p), now_ms));) {
        struct queue_place *place = place_of(i);
        place->waited_us = clock_us() - place->entered_us;
        metric_observe(q->seconds[i->class], (double)place->waited_us / 1e6);
        place->on_turn(place->arg);
    }
}

static void pump(void *arg)
{
    struct queue *q = arg;
    bool any = false;
    q->due_ms = 0;
    for (int i = 0; i < q->n_pools; i++) {
        struct queue_pool *p = &q->pools[i];
        pump_pool(q, p);
        any |= fair_queue_deadline(p->fair) != UINT64_MAX;
    }
    if (any) arm(q, TICK_MS); /* deadlines, bounds that grew, breakers that closed */
}
