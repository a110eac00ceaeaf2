/* batches.c - see batches.h. Takes when there is room, renews leases, counts. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/batch_pace.h"
#include "gateway/batches_internal.h"
#include "gateway/tuning.h"

enum { POLL_MS = 500, TAKE_MAX = 8 /* at once: each is begun in the same turn of the loop */ };

static void let_go(struct batches *b)
{
    if (b->closed && !b->taking && !b->n_tasks) mem_free(b);
}

void batches_add(struct batches *b, struct batch_task *t)
{
    t->b = b;
    t->prev = NULL;
    t->next = b->tasks;
    if (b->tasks) b->tasks->prev = t;
    b->tasks = t;
    b->n_tasks++;
    metric_set(b->running, b->n_tasks);
}

bool batches_has(const struct batches *b, struct str batch, struct str entry)
{
    for (const struct batch_task *t = b->tasks; t; t = t->next)
        if (str_eqz(batch, t->batch) && str_eqz(entry, t->entry)) return true;
    return false;
}

static void tell_drained(struct batches *b)
{
    void (*done)(void *arg) = b->drained;
    if (b->n_tasks || b->taking || !done) return;
    b->drained = NULL;
    done(b->drained_arg);
}

void batches_drain(struct batches *b, void (*done)(void *arg), void *arg)
{
    if (!b) return done(arg);
    b->drained = done;
    b->drained_arg = arg;
    tell_drained(b);
}

void batches_remove(struct batch_task *t)
{
    struct batches *b = t->b;
    if (t->prev)
        t->prev->next = t->next;
    else
        b->tasks = t->next;
    if (t->next) t->next->prev = t->prev;
    b->n_tasks--;
    if (!b->closed) {
        metric_set(b->running, b->n_tasks);
        batches_wake(b);
        tell_drained(b);
    }
    let_go(b);
}

/* --- how many */
static bool window_open(const struct batch_window *w)
{
    time_t now = (time_t)clock_wall_s();
    struct tm tm;
    if (w->local)
        localtime_r(&now, &tm);
    else
        gmtime_r(&now, &tm);
    return batch_window_open(w, tm.tm_hour * 60 + tm.tm_min);
}

static int room(const struct batches *b)
{
    const struct gateway *gw = b->gw;
    struct cache_knobs k = settings_knobs(tuning_settings(gw->tuning), STR(""), -1);
    struct batch_load l = {.concurrency = (int)k.batch_concurrency,
                           .minimum = (int)k.batch_minimum,
                           .yield_above = (int)k.batch_yield,
                           .online = gw->inflight - b->n_lines,
                           .window_open = window_open(&gw->o.batch_window)};
    int n = batch_allowed(&l) - b->n_tasks;
    return n > TAKE_MAX ? TAKE_MAX : n;
}

/* --- taking */
static void take(struct batches *b);

static void poll_later(struct batches *b)
{
    loop_timer_arm(b->poll, POLL_MS / 2 + rng_below(&b->gw->rng, POLL_MS));
}

static void start_items(struct batches *b, const struct redis_reply *r)
{
    if (r->n_items < 2) return;
    metric_set(b->queued, (double)r->items[0].integer);
    metric_set(b->active, (double)r->items[1].integer);
    for (size_t i = 2; i < r->n_items; i++) {
        const struct redis_reply *item = &r->items[i];
        if (item->n_items == 5 && str_eqz(item->items[0].text, "validate"))
            batch_input_start(b, item);
        else if (item->n_items == 12 && str_eqz(item->items[0].text, "line"))
            batch_line_start(b, item);
    }
}

static void on_taken(void *arg, enum err code, const struct redis_reply *reply)
{
    struct batches *b = arg;
    b->taking = false;
    if (b->closed) return let_go(b);
    bool some = code == OK && reply->kind == REDIS_ARRAY && reply->n_items > 2;
    if (code == OK && reply->kind == REDIS_ARRAY)
        start_items(b, reply);
    else if (code == OK)
        log_limited(LOG_WARN, "gateway", "batches: " STR_FMT,
                    STR_ARG(str_sub(reply->text, 0, 200)));
    if (b->gw->draining)
        tell_drained(b);
    else if (some)
        take(b);
    else
        poll_later(b);
}

static void take(struct batches *b)
{
    char lines[16], lease[16];
    int n = room(b);
    if (b->taking || b->closed || b->gw->draining) return;
    if (n <= 0 || !store_usable(b->gw->store)) return poll_later(b);
    snprintf(lines, sizeof lines, "%d", n);
    snprintf(lease, sizeof lease, "%d", b->gw->o.batch_lease_ms);
    struct str args[] = {str_of(b->name), str_of(lines), str_of(lease)};
    b->taking = true;
    store_call(b->gw->store, "deja_batch_take", 3, args, on_taken, b);
}

static void on_poll(void *arg)
{
    take(arg);
}

void batches_wake(struct batches *b)
{
    if (b && !b->taking && !b->closed) loop_timer_arm(b->poll, 0);
}

/* --- leases */
static void renew(void *arg)
{
    struct batches *b = arg;
    loop_timer_arm(b->renewal, (uint64_t)b->gw->o.batch_lease_ms / 3);
    if (!b->n_tasks || !store_usable(b->gw->store)) return;
    char lease[16];
    struct str *args = xcalloc(2 + 2 * (size_t)b->n_tasks, sizeof *args);
    size_t n = 0;
    args[n++] = str_of(b->name);
    snprintf(lease, sizeof lease, "%d", b->gw->o.batch_lease_ms);
    args[n++] = str_of(lease);
    for (struct batch_task *t = b->tasks; t; t = t->next) {
        args[n++] = str_of(t->batch);
        args[n++] = str_of(t->entry);
    }
    store_call(b->gw->store, "deja_batch_renew", n, args, NULL, NULL);
    mem_free(args);
}

/* --- life */
static struct metric *counter(struct batches *b, const char *labels)
{
    return metrics_get(b->gw->metrics, METRIC_COUNTER, "deja_batch_lines_total", labels,
                       "lines of batches by what became of them here", 0, 0);
}

static struct metric *gauge(struct batches *b, const char *name, const char *help)
{
    return metrics_get(b->gw->metrics, METRIC_GAUGE, name, "", help, 0, 0);
}

struct batches *batches_open(struct gateway *gw)
{
    if (!gw->store || !gw->o.batch_api) return NULL;
    struct batches *b = xcalloc(1, sizeof *b);
    b->gw = gw;
    hash_hex((struct hash128){rng_u64(&gw->rng), rng_u64(&gw->rng)}, b->name);
    b->queued = gauge(b, "deja_batch_queue", "lines that wait or run, of all gateways' batches");
    b->active = gauge(b, "deja_batches_active", "batches that have not ended, of all gateways");
    b->running = gauge(b, "deja_batch_running", "lines and validations at work in this gateway");
    b->good = counter(b, "result=\"good\"");
    b->bad = counter(b, "result=\"bad\"");
    b->retried = counter(b, "result=\"retried\"");
    b->waited = counter(b, "result=\"waited\"");
    b->dead = counter(b, "result=\"dead\"");
    b->taken_over = counter(b, "result=\"taken_over\"");
    b->refused = metrics_get(gw->metrics, METRIC_COUNTER, "deja_batch_results_refused_total", "",
                             "results of lines that Redis refused; they wait here and are handed "
                             "over again",
                             0, 0);
    b->poll = loop_timer_new(gw->loop, on_poll, b);
    b->renewal = loop_timer_new(gw->loop, renew, b);
    poll_later(b);
    loop_timer_arm(b->renewal, (uint64_t)gw->o.batch_lease_ms / 3);
    return b;
}

void batches_close(struct batches *b)
{
    if (!b) return;
    loop_timer_free(b->poll);
    loop_timer_free(b->renewal);
    b->closed = true;
    b->n_tasks++; /* held */
    for (struct batch_task *t = b->tasks, *next; t; t = next) {
        next = t->next;
        t->stop(t);
    }
    b->n_tasks--;
    let_go(b);
}
