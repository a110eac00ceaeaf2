/* find.c - one look-up from start to its one callback: exact here, exact in Redis, then similar: the question's vector, the nearest
 * questions of its partition, the guards on each, the policy, and the answer of the one that passes. What goes wrong on the way is
 * a miss with a reason. A look-up lives until its last command, embedding or search has come back, also when cancelled. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/cache_internal.h"

enum { CANDIDATES = 16, ANSWERS_TRIED_MAX = 3 };

struct accepted {
    struct hash128 id;
    double similarity, threshold;
    const char *reason;
};
struct cache_lookup {
    struct cache *c;
    const struct cache_key *k; /* borrowed while cb is set */
    struct cache_lookup_options o;
    struct cache_knobs knobs;
    void (*cb)(void *arg, const struct cache_found *found);
    void *arg;
    int pending;                 /* callbacks that will still come */
    struct cache_found found;    /* what a miss will say */
    struct partition *p;         /* held while set */
    struct loop_timer *patience; /* for a partition that is being loaded */
    bool waits_for_load, starts_by_timer;
    float *vec;
    struct vector_hit hits[CANDIDATES];
    size_t n_hits;
    struct accepted accepted[CANDIDATES];
    size_t n_accepted, tried;
    struct cache_lookup *next, *prev;
};

static void settle(struct cache_lookup *l)
{
    if (l->pending || l->cb) return;
    struct cache *c = l->c;
    if (l->p) partition_unref(l->p);
    loop_timer_free(l->patience);
    mem_free(l->vec);
    mem_free(l);
    cache_unref(c);
}

static void unlist(struct cache_lookup *l)
{
    if (l->prev)
        l->prev->next = l->next;
    else
        l->c->lookups = l->next;
    if (l->next) l->next->prev = l->prev;
    l->next = l->prev = NULL;
}

/* The one callback. The caller may free the key and start other look-ups in it. */
static void finish(struct cache_lookup *l)
{
    void (*cb)(void *arg, const struct cache_found *found) = l->cb;
    struct cache *c = l->c;
    unlist(l);
    l->cb = NULL;
    if (l->found.result == CACHE_EXACT)
        c->stats.exact_hits++, metric_add(c->m.exact, 1);
    else if (l->found.result == CACHE_SEMANTIC)
        c->stats.semantic_hits++, metric_add(c->m.semantic, 1);
    else
        c->stats.misses++, metric_add(c->m.miss, 1);
    if (l->found.result == CACHE_MISS && l->found.entry_id[0]) c->stats.near_misses++;
    cb(l->arg, &l->found);
    settle(l);
}

static void say(struct cache_lookup *l, const char *reason)
{
    snprintf(l->found.reason, sizeof l->found.reason, "%s", reason);
}

static void miss(struct cache_lookup *l, const char *reason)
{
    say(l, reason);
    finish(l);
}

/* True when the entry could be rendered and the look-up is over. */
static bool serve(struct cache_lookup *l, const struct entry *e, enum cache_result result,
                  const char *reason)
{
    struct openai_answer answer = {0};
    struct errmsg why = {0};
    if (openai_answer_parse(&answer, e->kind, e->answer, &why) != OK) {
        log_limited(LOG_WARN, "cache", "a stored answer cannot be read: %s", why.text);
        return false;
    }
    int64_t age = clock_wall_s() - e->created_s;
    l->found.result = result;
    l->found.answer = &answer;
    l->found.age_s = age > 0 ? age : 0;
    hash_hex(e->id, l->found.entry_id);
    say(l, reason);
    finish(l);
    openai_answer_fini(&answer);
    return true;
}

static bool young_enough(const struct cache_lookup *l, const struct entry *e)
{
    int64_t now = clock_wall_s();
    int64_t age = now - e->created_s;
    return !entry_expired(e, now) && (l->o.max_age_s < 0 || age <= l->o.max_age_s) &&
           (!l->knobs.max_age_s || age <= l->knobs.max_age_s);
}

/* --- similar */
static void next_answer(struct cache_lookup *l);

/* Is this the entry the index promised, and does its question still read as when it was judged? */
static bool is_promised(const struct cache_lookup *l, const struct entry *e)
{
    const struct question *q = partition_question(l->p, e->id.lo);
    return entry_fits_partition(e, l->k) && young_enough(l, e) && q && hash_eq(q->id, e->id) &&
           str_eq(q->text, e->question);
}

static bool serve_accepted(struct cache_lookup *l, const struct entry *e)
{
    const struct accepted *a = &l->accepted[l->tried - 1];
    if (!is_promised(l, e)) return false;
    l->found.similarity = a->similarity;
    l->found.threshold = a->threshold;
    return serve(l, e, CACHE_SEMANTIC, a->reason);
}

static void got_answer(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        settle(l);
        return;
    }
    struct str values[N_ENTRY_FIELDS];
    struct entry e;
    struct errmsg why = {0};
    if (code != OK) {
        miss(l, "redis_unavailable");
        return;
    }
    if (!cache_reply_values(reply, values) ||
        entry_read(l->accepted[l->tried - 1].id, values, N_ENTRY_FIELDS, true, &e, &why) != OK) {
        partition_remove(
            l->p,
            l->accepted[l->tried - 1].id); /* gone or spoilt: the index must not promise it again */
        next_answer(l);
        return;
    }
    e.vector = (struct str){"", 0};
    e.write_no = ++l->c->write_no;
    struct entry *copy = entry_copy(&e);
    if (copy) (void)store_put(l->c->store, copy, false);
    if (!serve_accepted(l, &e)) next_answer(l);
}

static void next_answer(struct cache_lookup *l)
{
    while (l->tried < l->n_accepted && l->tried < ANSWERS_TRIED_MAX) {
        const struct accepted *a = &l->accepted[l->tried++];
        const struct entry *e = store_get(l->c->store, a->id);
        if (e && serve_accepted(l, e)) return;
        if (e || !l->c->redis) continue;
        l->pending++;
        cache_redis_read(l->c, a->id, false, true, got_answer, l);
        return;
    }
    miss(l, "entry_gone");
}

static void accept(struct cache_lookup *l, struct accepted a, bool same)
{
    /* those of which every word is explained come first, each kind in order of similarity */
    size_t at = l->n_accepted;
    if (same)
        for (at = 0; at < l->n_accepted && !strcmp(l->accepted[at].reason, "semantic:same"); at++)
            continue;
    memmove(&l->accepted[at + 1], &l->accepted[at], (l->n_accepted - at) * sizeof a);
    l->accepted[at] = a;
    l->n_accepted++;
}

static void note_near_miss(struct cache_lookup *l, const struct question *q, double similarity,
                           double threshold, const struct guard_verdict *v, const char *reason)
{
    if (v->refused_by[0]) {
        char label[64];
        snprintf(label, sizeof label, "guard=\"%s\"", v->refused_by);
        metric_add(metrics_get(l->c->registry, METRIC_COUNTER, "deja_cache_guard_refusals_total",
                               label, "candidates a guard refused", 0, 0),
                   1);
    }
    if (l->found.entry_id[0]) return; /* the nearest one is told of */
    hash_hex(q->id, l->found.entry_id);
    l->found.similarity = similarity;
    l->found.threshold = threshold;
    if (v->refused_by[0])
        snprintf(l->found.reason, sizeof l->found.reason, "guard:%s", v->refused_by);
    else
        say(l, reason);
}

static void judge(struct cache_lookup *l)
{
    struct cache *c = l->c;
    int64_t now = clock_wall_s();
    struct policy policy = policy_with(&c->shipped, &l->knobs);
    say(l, l->n_hits ? "below_floor" : "empty");
    for (size_t i = 0; i < l->n_hits; i++) {
        double similarity = l->hits[i].score;
        const struct question *q = partition_question(l->p, l->hits[i].id);
        if (!q || similarity < policy.floor) continue;
        if (q->expires_s <= now) {
            partition_remove(l->p, q->id);
            continue;
        }
        struct guard_verdict v;
        guard_check_without(c->guard, l->knobs.guards_off, l->k->user_text, q->text, &v);
        struct policy_decision d = {false, 0, ""};
        if (v.allowed) d = policy_decide(&policy, &v, similarity, l->o.threshold_min);
        if (d.hit)
            accept(l, (struct accepted){q->id, similarity, d.threshold, d.reason}, v.same);
        else
            note_near_miss(l, q, similarity,
                           v.allowed ? d.threshold : policy.threshold[v.language == 'z'], &v,
                           d.reason);
    }
    if (l->n_accepted)
        next_answer(l);
    else
        finish(l);
}

static void run_search(void *arg) /* a worker */
{
    struct cache_lookup *l = arg;
    l->n_hits = partition_search(l->p, l->vec, (size_t)l->knobs.top_k, l->hits);
}

static void searched(void *arg, bool cancelled)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb)
        settle(l);
    else if (cancelled)
        miss(l, "search_cancelled");
    else
        judge(l);
}

static void search(struct cache_lookup *l)
{
    if (l->c->workers && partition_count(l->p) > SEARCH_INLINE_MAX) {
        l->pending++;
        if (workers_submit(l->c->workers, l->c->loop, run_search, searched, l) == OK) return;
        l->pending--;
        miss(l, "busy");
        return;
    }
    run_search(l);
    judge(l);
}

static void search_when_ready(struct cache_lookup *l)
{
    if (!l->vec || l->waits_for_load) return;
    if (l->patience) loop_timer_stop(l->patience);
    search(l);
}

static void partition_ready(void *arg)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        settle(l);
        return;
    }
    if (!l->waits_for_load) return; /* patience is over: answered already, or about to be */
    l->waits_for_load = false;
    search_when_ready(l);
}

static void out_of_patience(void *arg)
{
    struct cache_lookup *l = arg;
    if (!l->cb || !l->waits_for_load) return;
    if (l->vec)
        miss(l, "index_loading");
    else
        loop_timer_arm(l->patience,
                       5); /* the vector is not there either; its own deadline ends this */
}

static void got_vector(void *arg, enum err code, const float *vec)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        settle(l);
        return;
    }
    if (code != OK) {
        miss(l, code == ERR_TIMEOUT       ? "embedder_timeout"
                : code == ERR_TOO_LARGE   ? "skipped:long_text"
                : code == ERR_UNSUPPORTED ? "skipped:unknown_script"
                                          : "embedder_unavailable");
        return;
    }
    l->vec = xmalloc(l->c->dim * sizeof *vec);
    memcpy(l->vec, vec, l->c->dim * sizeof *vec);
    search_when_ready(l);
}

static void similar(struct cache_lookup *l)
{
    struct cache *c = l->c;
    if (l->o.skip_semantic || !l->knobs.semantic || !c->partitions) {
        if (!l->found.reason[0])
            say(l, l->o.skip_semantic || !l->knobs.semantic ? "no_entry" : "skipped:no_embedder");
        finish(l);
        return;
    }
    if (l->k->temperature > l->knobs.temperature_max) {
        miss(l, "skipped:temperature");
        return;
    }
    if (!l->k->semantic_allowed) {
        snprintf(l->found.reason, sizeof l->found.reason, "skipped:%s",
                 l->k->why_not ? l->k->why_not : "not_allowed");
        finish(l);
        return;
    }
    l->p = partitions_get(c->partitions, l->k->partition, true);
    if (!l->p) {
        miss(l, "index_unavailable");
        return;
    }
    partition_ref(l->p);
    if (!c->redis && partition_state(l->p) == PARTITION_PARTIAL)
        partition_set_state(l->p, PARTITION_LOADED);
    /* nothing asked here before, nothing in Redis: no vector is needed to know that */
    if (partition_state(l->p) == PARTITION_LOADED && !partition_count(l->p)) {
        miss(l, "empty");
        return;
    }
    l->pending++; /* the vector */
    enum err code = cache_embed(c, l->k->user_text, c->o.embed_deadline_ms, got_vector, l);
    if (code != OK) {
        l->pending--;
        miss(l, code == ERR_FULL        ? "embedder_busy"
                : code == ERR_TOO_LARGE ? "skipped:long_text"
                                        : "embedder_unavailable");
        return;
    }
    if (partition_state(l->p) == PARTITION_LOADED) return;
    l->waits_for_load = true;
    loop_timer_free(l->patience);
    l->patience = loop_timer_new(c->loop, out_of_patience, l);
    loop_timer_arm(l->patience, (uint64_t)c->o.redis_deadline_ms);
    l->pending++;
    if (!cache_await_partition(c, l->p, partition_ready, l)) {
        l->pending--;
        l->waits_for_load = false; /* Redis is away: what is here must do */
    }
}

/* --- exact */
static void got_exact(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        settle(l);
        return;
    }
    struct str values[N_ENTRY_FIELDS];
    struct entry e;
    struct errmsg why = {0};
    if (code != OK) {
        say(l, "redis_unavailable");
    } else if (cache_reply_values(reply, values)) {
        enum err read = entry_read(l->k->exact, values, N_ENTRY_FIELDS, true, &e, &why);
        if (read != OK)
            log_limited(LOG_WARN, "cache", "an entry in Redis cannot be read: %s", why.text);
        if (read == OK && entry_fits_exact(&e, l->k) && young_enough(l, &e)) {
            e.vector = (struct str){"", 0};
            e.write_no = ++l->c->write_no;
            struct entry *copy = entry_copy(&e);
            if (copy) (void)store_put(l->c->store, copy, false);
            if (serve(l, &e, CACHE_EXACT, "exact")) return;
        }
    }
    similar(l);
}

static void start(void *arg)
{
    struct cache_lookup *l = arg;
    l->pending--;
    l->starts_by_timer = false;
    if (!l->cb) {
        settle(l);
        return;
    }
    struct cache *c = l->c;
    if (!l->o.skip_exact && l->knobs.exact) {
        const struct entry *e = store_get(c->store, l->k->exact);
        if (e && entry_fits_exact(e, l->k) && young_enough(l, e) &&
            serve(l, e, CACHE_EXACT, "exact"))
            return;
        if (c->redis && redis_usable(c->redis)) {
            l->pending++;
            cache_redis_read(c, l->k->exact, false, true, got_exact, l);
            return;
        }
        if (c->redis) say(l, "redis_unavailable");
    }
    similar(l);
}

struct cache_lookup *cache_find(struct cache *c, const struct cache_key *k,
                                const struct cache_lookup_options *o,
                                void (*cb)(void *arg, const struct cache_found *found), void *arg)
{
    struct cache_lookup *l = xcalloc(1, sizeof *l);
    *l = (struct cache_lookup){.c = c, .k = k, .o = *o, .cb = cb, .arg = arg, .pending = 1};
    l->knobs = o->knobs ? *o->knobs : c->knobs;
    l->o.knobs = NULL;
    l->found.result = CACHE_MISS;
    l->found.similarity = -1;
    l->found.age_s = -1;
    cache_ref(c);
    l->next = c->lookups;
    if (c->lookups) c->lookups->prev = l;
    c->lookups = l;
    if (loop_post(c->loop, start, l) != OK) { /* the queue is full: a timer does as well */
        l->starts_by_timer = true;
        l->patience = loop_timer_new(c->loop, start, l);
        loop_timer_arm(l->patience, 0);
    }
    return l;
}

void cache_find_cancel(struct cache_lookup *l)
{
    if (!l || !l->cb) return;
    unlist(l);
    l->cb = NULL;
    if (l->patience) loop_timer_stop(l->patience);
    if (l->starts_by_timer) l->pending--;
    settle(l);
}
