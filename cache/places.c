/* places.c - the partitions a look-up goes through: taking hold of them, and waiting, not for long, until they are as Redis has them. */
#include "cache/lookup.h"

void lookup_take_place(struct cache_lookup *l, struct hash128 key)
{
    if ((!key.hi && !key.lo) || l->around.n_places == NEARBY_PLACES_MAX) return;
    for (int i = 0; i < l->around.n_places; i++)
        if (hash_eq(partition_key(l->around.places[i]), key)) return;
    struct partition *p = partitions_get(l->c->partitions, key, true);
    if (!p) return;
    partition_ref(p);
    l->around.places[l->around.n_places++] = p;
    if (!l->c->redis && partition_state(p) == PARTITION_PARTIAL)
        partition_set_state(p, PARTITION_LOADED);
}

void lookup_take_curated(struct cache_lookup *l)
{
    int64_t allowed = l->knobs.curated;
    if (allowed == KNOB_CURATED_NO || (allowed == KNOB_CURATED_PLAIN && l->k->has_system)) return;
    for (int i = 0; i < 2; i++)
        lookup_take_place(l, l->k->curated[i]);
}

/* By their states, not by counting: those that were waited for in vain in an earlier step may still report. */
static bool any_loading(const struct cache_lookup *l)
{
    for (int i = 0; i < l->around.n_places; i++)
        if (partition_state(l->around.places[i]) == PARTITION_LOADING) return true;
    return false;
}

static void partition_ready(void *arg)
{
    struct cache_lookup *l = arg;
    l->pending--;
    if (!l->cb) {
        lookup_settle(l);
    } else if (l->loading && !any_loading(l)) { /* else patience is over */
        l->loading = false;
        loop_timer_stop(l->patience);
        l->when_loaded(l);
    }
}

static void out_of_patience(void *arg)
{
    struct cache_lookup *l = arg;
    if (!l->cb || !l->loading) return;
    l->loading = false;
    l->when_late(l);
}

void lookup_await_places(struct cache_lookup *l, void (*when_loaded)(struct cache_lookup *l),
                         void (*when_late)(struct cache_lookup *l))
{
    struct cache *c = l->c;
    bool wait = false;
    l->when_loaded = when_loaded;
    l->when_late = when_late;
    for (int i = 0; i < l->around.n_places; i++) {
        if (partition_state(l->around.places[i]) == PARTITION_LOADED) continue;
        l->pending++;
        if (cache_await_partition(c, l->around.places[i], partition_ready, l))
            wait = true;
        else
            l->pending--; /* Redis is away: what is here must do */
    }
    if (!wait) {
        when_loaded(l);
        return;
    }
    l->loading = true;
    loop_timer_free(l->patience);
    l->patience = loop_timer_new(c->loop, out_of_patience, l);
    loop_timer_arm(l->patience, (uint64_t)c->o.redis_deadline_ms);
}
