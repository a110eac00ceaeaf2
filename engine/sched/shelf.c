/* shelf.c - a kv_pool for who may go and a prefix_cache for who is who, both numbered by slot. */
#include "engine/sched/shelf.h"

#include "base/mem.h"

struct shelf {
    struct kv_pool *pool;
    struct prefix_cache *cache;
};

/* Slots are complete when they are entered, so no step is "being written". */
enum { ENTERED = 1, NOW = 2 };

struct shelf *shelf_new(int n_slots, int block_tokens, uint64_t seed, struct hash128 root)
{
    struct shelf *s = xcalloc(1, sizeof *s);
    s->pool = kv_pool_new(n_slots);
    s->cache = prefix_cache_new(n_slots, block_tokens, seed, root);
    return s;
}

void shelf_free(struct shelf *s)
{
    if (!s) return;
    kv_pool_free(s->pool);
    prefix_cache_free(s->cache);
    mem_free(s);
}

shelf_slot shelf_find(const struct shelf *s, const struct block_name *name)
{
    return prefix_cache_find(s->cache, name->id, name->parent, name->tokens);
}

shelf_slot shelf_find_partial(const struct shelf *s, struct hash128 parent, const int32_t *tokens,
                              int n_tokens, int *n_same)
{
    return prefix_cache_find_partial(s->cache, parent, tokens, n_tokens, NOW, n_same);
}

shelf_slot shelf_take(struct shelf *s)
{
    kv_block slot;
    bool evicted;
    if (kv_pool_take(s->pool, &slot, &evicted) != OK) return SHELF_NO_SLOT;
    if (evicted) prefix_cache_forget(s->cache, slot);
    return slot;
}

bool shelf_enter(struct shelf *s, shelf_slot slot, const struct block_name *name)
{
    ASSERT(kv_pool_users(s->pool, slot) > 0 && !kv_pool_is_cached(s->pool, slot));
    if (!prefix_cache_enter(s->cache, slot, name->id, name->parent, name->tokens, ENTERED))
        return false;
    kv_pool_set_cached(s->pool, slot, true);
    return true;
}

void shelf_pin(struct shelf *s, shelf_slot slot)
{
    kv_pool_ref(s->pool, slot);
}

void shelf_unpin(struct shelf *s, shelf_slot slot)
{
    kv_pool_unref(s->pool, slot);
}

bool shelf_is_pinned(const struct shelf *s, shelf_slot slot)
{
    return kv_pool_users(s->pool, slot) > 0;
}

void shelf_touch(struct shelf *s, shelf_slot slot)
{
    kv_pool_ref(s->pool, slot);
    kv_pool_unref(s->pool, slot);
}

void shelf_forget(struct shelf *s, shelf_slot slot)
{
    prefix_cache_forget(s->cache, slot);
    kv_pool_set_cached(s->pool, slot, false);
}

bool shelf_name(const struct shelf *s, shelf_slot slot, struct block_name *out)
{
    return prefix_cache_name(s->cache, slot, out);
}

int shelf_size(const struct shelf *s)
{
    return kv_pool_size(s->pool);
}
int shelf_count(const struct shelf *s)
{
    return prefix_cache_count(s->cache);
}
void shelf_watch(struct shelf *s, void (*changed)(void *arg, bool entered, struct hash128 id),
                 void *arg)
{
    prefix_cache_watch(s->cache, changed, arg);
}

const char *shelf_check(const struct shelf *s)
{
    const char *why = kv_pool_check(s->pool);
    return why ? why : prefix_cache_check(s->cache, s->pool);
}
