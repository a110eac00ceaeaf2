/* budget.c - one budget of memory for what the cache holds in process: entries, the indexes of questions, and what the embedder remembers.
 * The indexes may take three quarters of it; the entries get what is left, an eighth at least. And the budget in Redis (lua/budget.lua):
 * tells it what was served, and has it swept. */
#include <stdio.h>

#include "base/clock.h"
#include "cache/cache_internal.h"

enum {
    TRIM_AT_ONCE = 500 /* questions; some 0.3 ms */,
    DIG_AT_ONCE = 2000 /* likewise */,
    TELL_MS = 1000
};

static void sweep(struct cache *c)
{
    char key[KEY_BYTES_MAX];
    struct str argv[] = {STR("FCALL"), STR("deja_evict"), STR("1"),
                         cache_redis_key(c, key, "use", STR("")), STR("100")};
    redis_command(c->redis, sizeof argv / sizeof *argv, argv, 1000, NULL, NULL);
}

void cache_budget_redis_tick(struct cache *c)
{
    char key[KEY_BYTES_MAX], ids[USES_MAX][33], times[USES_MAX][12];
    struct str argv[4 + 2 * USES_MAX] = {STR("FCALL"), STR("deja_used"), STR("1"),
                                         cache_redis_key(c, key, "use", STR(""))};
    int n = 4;
    if (clock_ms() - c->uses_told_ms < TELL_MS) return;
    c->uses_told_ms = clock_ms();
    for (size_t i = 0; i < USES_MAX && c->uses.n; i++) {
        if (!c->uses.times[i]) continue;
        hash_hex(c->uses.ids[i], ids[i]);
        snprintf(times[i], sizeof times[i], "%u",
                 c->uses.times[i] > 1000000 ? 1000000 : c->uses.times[i]);
        argv[n++] = str_of(ids[i]);
        argv[n++] = str_of(times[i]);
    }
    if (n > 4) redis_command(c->redis, n, argv, 1000, NULL, NULL);
    uses_clear(&c->uses);
    sweep(c);
}

static size_t sketch_bytes(const struct cache *c)
{
    struct embedder_stats s = {0};
    if (c->embedder) embedder_stats_read(c->embedder, &s);
    return s.memo_bytes;
}

void cache_budget_tick(struct cache *c)
{
    size_t all = c->o.memory_bytes_max, sketches = sketch_bytes(c), beside = all / 4 * 3;
    partitions_dig(c->partitions, DIG_AT_ONCE);
    partitions_trim(c->partitions, beside > sketches ? beside - sketches : 0, TRIM_AT_ONCE);
    size_t index = partitions_bytes(c->partitions) + crowds_bytes(c->crowds),
           taken = index + sketches;
    store_set_budget(c->store, all > taken && all - taken > all / 8 ? all - taken : all / 8);
    c->stats.bytes = store_bytes(c->store) + taken;
    metric_set(c->m.bytes_entries, (double)store_bytes(c->store));
    metric_set(c->m.bytes_index, (double)index);
    metric_set(c->m.bytes_sketches, (double)sketches);
}
