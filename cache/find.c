/* find.c - one look-up from start to its one callback: exact here, exact in Redis, then similar (similar.c). What goes wrong on the way
 * is a miss with a reason. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/lookup.h"

void lookup_settle(struct cache_lookup *l)
{
    if (l->pending || l->cb) return;
    struct cache *c = l->c;
    for (int i = 0; i < l->around.n_places; i++)
        partition_unref(l->around.places[i]);
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

static void count(struct cache *c, const struct cache_found *f)
{
    if (f->result == CACHE_EXACT)
        c->stats.exact_hits++, metric_add(c->m.exact, 1);
    else if (f->result == CACHE_SEMANTIC)
        c->stats.semantic_hits++, metric_add(c->m.semantic, 1);
    else
        c->stats.misses++, metric_add(c->m.miss, 1);
    if (f->result == CACHE_MISS && f->entry_id[0]) c->stats.near_misses++;
}

/* The caller may free the key and start other look-ups in the callback. */
void lookup_finish(struct cache_lookup *l)
{
    void (*cb)(void *arg, const struct cache_found *found) = l->cb;
    struct cache *c = l->c;
    unlist(l);
    l->cb = NULL;
    if (!l->o.explain && l->o.coming != COMING_ONLY) count(c, &l->found);
    cb(l->arg, &l->found);
    lookup_settle(l);
}

void lookup_say(struct cache_lookup *l, const char *reason)
{
    snprintf(l->found.reason, sizeof l->found.reason, "%s", reason);
}

void lookup_miss(struct cache_lookup *l, const char *reason)
{
    lookup_say(l, reason);
    lookup_finish(l);
}

bool lookup_serve(struct cache_lookup *l, const struct entry *e, enum cache_result result,
                  const char *reason)
{
    struct served *v;
    struct errmsg why = {0};
    if (store_served(l->c->store, e, &v, &why) != OK) {
        log_limited(LOG_WARN, "cache", "a stored answer cannot be read: %s", why.text);
        return false;
    }
    struct openai_answer answer = v->answer; /* what it holds is v's */
    bool whole = answer.model[0] && answer.created;
    if (!answer.model[0]) /* curated: of no model */
        snprintf(answer.model, sizeof answer.model, STR_FMT, STR_ARG(l->k->model));
    if (!answer.created) answer.created = e->created_s;
    int64_t age = clock_wall_s() - e->created_s;
    if (l->c->redis) uses_note(&l->c->uses, e->id);
    l->found.result = result;
    l->found.answer = &answer;
    if (whole && v->as_stored) l->found.json = e->answer;
    l->found.age_s = age > 0 ? age : 0;
    l->found.stale_s = age >= e->ttl_s ? age - e->ttl_s + 1 : 0;
    hash_hex(e->id, l->found.entry_id);
    lookup_say(l, reason);
    lookup_finish(l);
    served_unref(v);
    return true;
}

bool lookup_may_use(const struct cache_lookup *l, const struct entry *e)
{
    int64_t now = clock_wall_s(), stale = l->o.stale_s;
    int64_t age = now - e->created_s;
    return !entry_expired(e, now - stale) && (l->o.max_age_s < 0 || age <= l->o.max_age_s) &&
           (e->pinned || !l->knobs.max_age_s || stale || age <= l->knobs.max_age_s) &&
           !cache_is_void(l->c, e) && !marks_denied(l->c->marks, e->id, e->answer_hash, now);
}

void lookup_remember(struct cache_lookup *l, struct entry *e)
{
    e->vector = (struct str){"", 0};
    e->write_no = ++l->c->write_no;
    struct entry *copy = entry_copy(e);
    if (copy) (void)store_put(l->c->store, copy, false);
}

static void got_exact(void *arg, enum err code, const struct redis_reply *reply)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        lookup_settle(l);
        return;
    }
    struct str values[N_ENTRY_FIELDS];
    struct entry e;
    struct errmsg why = {0};
    if (code != OK) {
        lookup_say(l, "redis_unavailable");
    } else if (cache_reply_values(reply, values)) {
        enum err read = entry_read(l->k->exact, values, N_ENTRY_FIELDS, true, &e, &why);
        if (read != OK) {
            metric_add(l->c->m.corrupt, 1);
            log_limited(LOG_WARN, "cache", "an entry in Redis cannot be read: %s", why.text);
        }
        if (read == OK && entry_fits_exact(&e, l->k) && lookup_may_use(l, &e)) {
            lookup_remember(l, &e);
            if (lookup_serve(l, &e, CACHE_EXACT, "exact")) return;
        }
    }
    lookup_similar(l);
}

void lookup_exact(struct cache_lookup *l)
{
    struct cache *c = l->c;
    if (!l->o.skip_exact && l->knobs.exact) {
        const struct entry *e = store_get(c->store, l->k->exact);
        if (e && entry_fits_exact(e, l->k) && lookup_may_use(l, e) &&
            lookup_serve(l, e, CACHE_EXACT, "exact"))
            return;
        if (c->redis && redis_usable(c->redis) && c->marks_known) {
            l->pending++;
            cache_redis_read(c, l->k->exact, false, true, got_exact, l);
            return;
        }
        if (c->redis) lookup_say(l, "redis_unavailable");
    }
    lookup_similar(l);
}

static void start(void *arg)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (l->cb)
        lookup_curated(l);
    else
        lookup_settle(l);
}

struct cache_lookup *cache_find(struct cache *c, const struct cache_key *k,
                                const struct cache_lookup_options *o,
                                void (*cb)(void *arg, const struct cache_found *found), void *arg)
{
    struct cache_lookup *l = xcalloc(1, sizeof *l);
    *l = (struct cache_lookup){.c = c, .k = k, .o = *o, .cb = cb, .arg = arg, .pending = 1};
    l->knobs = o->knobs ? *o->knobs : c->knobs;
    l->o.knobs = NULL;
    l->around = (struct nearby){
        .marks = c->marks, .stale_s = o->stale_s, .keep_s = c->knobs.stale_if_error_s};
    l->found.result = CACHE_MISS;
    l->found.similarity = -1;
    l->found.age_s = -1;
    cache_ref(c);
    l->next = c->lookups;
    if (c->lookups) c->lookups->prev = l;
    c->lookups = l;
    enum err posted = loop_post_unbounded(c->loop, start, l); /* requests are bounded */
    ASSERT(posted == OK);
    return l;
}

void cache_find_cancel(struct cache_lookup *l)
{
    if (!l || !l->cb) return;
    unlist(l);
    l->cb = NULL;
    if (l->patience) loop_timer_stop(l->patience);
    lookup_settle(l);
}
