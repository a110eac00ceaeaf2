/* prefix_cache.c - two hash tables over blocks: by identity, and by parent (buckets of doubly linked
 * siblings) for partial matches. */
#include "engine/sched/prefix_cache.h"

#include <string.h>

#include "base/hash_slots.h"

struct entry {
    struct hash128 id, parent;
    uint64_t step;
    kv_block next, prev; /* siblings' bucket, newest first; prev KV_NO_BLOCK = bucket head */
    bool in;
};

struct prefix_cache {
    int n_blocks, block_tokens, count;
    uint64_t seed;
    struct hash128 root;
    struct hash_slots table;                                     /* by identity */
    kv_block *buckets;                                           /* [table.mask+1] by parent */
    struct entry *entries;                                       /* [n_blocks] */
    int32_t *tokens;                                             /* [n_blocks][block_tokens] */
    void (*changed)(void *arg, bool entered, struct hash128 id); /* or NULL */
    void *changed_arg;
};

struct prefix_cache *prefix_cache_new(int n_blocks, int block_tokens, uint64_t seed,
                                      struct hash128 root)
{
    ASSERT(n_blocks > 0 && n_blocks <= 1 << 28);
    ASSERT(block_tokens > 0 && block_tokens <= PREFIX_BLOCK_TOKENS_MAX);
    struct prefix_cache *c = xcalloc(1, sizeof *c);
    c->n_blocks = n_blocks;
    c->block_tokens = block_tokens;
    c->seed = seed;
    c->root = root;
    c->table = hash_slots_new((size_t)n_blocks);
    c->buckets = xcalloc((size_t)c->table.mask + 1, sizeof *c->buckets);
    for (uint32_t i = 0; i <= c->table.mask; i++)
        c->buckets[i] = KV_NO_BLOCK;
    c->entries = xcalloc((size_t)n_blocks, sizeof *c->entries);
    c->tokens = xcalloc((size_t)n_blocks * (size_t)block_tokens, sizeof *c->tokens);
    return c;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c) return;
    mem_free(c->table.at);
    mem_free(c->buckets);
    mem_free(c->entries);
    mem_free(c->tokens);
    mem_free(c);
}

struct hash128 prefix_cache_start(const struct prefix_cache *c, const struct prefix_scope *scope)
{
    struct prefix_origin o = {
        .seed = c->seed, .root = c->root, .adapter = scope->adapter, .salt = scope->salt};
    return prefix_hash_start(&o);
}

struct hash128 prefix_cache_chain(const struct prefix_cache *c, struct hash128 parent,
                                  const int32_t *tokens)
{
    return prefix_hash_next(c->seed, parent, tokens, c->block_tokens);
}

static int32_t *tokens_of(const struct prefix_cache *c, kv_block b)
{
    return c->tokens + (size_t)b * (size_t)c->block_tokens;
}

static uint32_t home(const struct prefix_cache *c, struct hash128 id)
{
    return hash_slots_home(&c->table, id);
}

static uint32_t slot_of(const struct prefix_cache *c, struct hash128 id)
{
    return hash_slots_find(&c->table, c->entries, sizeof *c->entries, id);
}

kv_block prefix_cache_find(const struct prefix_cache *c, struct hash128 id, struct hash128 parent,
                           const int32_t *tokens)
{
    kv_block b = (kv_block)c->table.at[slot_of(c, id)];
    if (b == KV_NO_BLOCK) return b;
    bool same = hash_eq(c->entries[b].parent, parent) &&
                !memcmp(tokens_of(c, b), tokens, (size_t)c->block_tokens * sizeof *tokens);
    return same ? b : KV_NO_BLOCK;
}

kv_block prefix_cache_find_partial(const struct prefix_cache *c, struct hash128 parent,
                                   const int32_t *tokens, int n_tokens, uint64_t step, int *n_same)
{
    kv_block best = KV_NO_BLOCK;
    int looked = 0;
    *n_same = 0;
    ASSERT(n_tokens <= c->block_tokens);
    for (kv_block b = c->buckets[home(c, parent)]; b != KV_NO_BLOCK && looked < PREFIX_SIBLINGS_MAX;
         b = c->entries[b].next, looked++) {
        if (c->entries[b].step == step || !hash_eq(c->entries[b].parent, parent)) continue;
        const int32_t *have = tokens_of(c, b);
        int n = 0;
        while (n < n_tokens && have[n] == tokens[n])
            n++;
        if (n > *n_same) {
            *n_same = n;
            best = b;
        }
    }
    return best;
}

bool prefix_cache_enter(struct prefix_cache *c, kv_block b, struct hash128 id,
                        struct hash128 parent, const int32_t *tokens, uint64_t step)
{
    ASSERT(b >= 0 && b < c->n_blocks);
    struct entry *e = &c->entries[b];
    uint32_t i = slot_of(c, id);
    if (e->in || c->table.at[i] != HASH_SLOT_EMPTY) return false;
    c->table.at[i] = (uint32_t)b;
    uint32_t k = home(c, parent);
    *e = (struct entry){.id = id,
                        .parent = parent,
                        .step = step,
                        .next = c->buckets[k],
                        .prev = KV_NO_BLOCK,
                        .in = true};
    if (e->next != KV_NO_BLOCK) c->entries[e->next].prev = b;
    c->buckets[k] = b;
    memcpy(tokens_of(c, b), tokens, (size_t)c->block_tokens * sizeof *tokens);
    c->count++;
    if (c->changed) c->changed(c->changed_arg, true, id);
    return true;
}

bool prefix_cache_name(const struct prefix_cache *c, kv_block b, struct block_name *out)
{
    ASSERT(b >= 0 && b < c->n_blocks);
    const struct entry *e = &c->entries[b];
    if (e->in) *out = (struct block_name){e->id, e->parent, tokens_of(c, b)};
    return e->in;
}

int prefix_cache_count(const struct prefix_cache *c)
{
    return c->count;
}

void prefix_cache_forget(struct prefix_cache *c, kv_block b)
{
    ASSERT(b >= 0 && b < c->n_blocks);
    struct entry *e = &c->entries[b];
    if (!e->in) return;
    uint32_t i = slot_of(c, e->id);
    ASSERT(c->table.at[i] == (uint32_t)b);
    hash_slots_remove(&c->table, c->entries, sizeof *c->entries, i);
    if (e->prev == KV_NO_BLOCK)
        c->buckets[home(c, e->parent)] = e->next;
    else
        c->entries[e->prev].next = e->next;
    if (e->next != KV_NO_BLOCK) c->entries[e->next].prev = e->prev;
    e->in = false;
    c->count--;
    if (c->changed) c->changed(c->changed_arg, false, e->id);
}

void prefix_cache_watch(struct prefix_cache *c,
                        void (*changed)(void *arg, bool entered, struct hash128 id), void *arg)
{
    c->changed = changed;
    c->changed_arg = arg;
}

const char *prefix_cache_check(const struct prefix_cache *c, const struct kv_pool *pool)
{
    int in = 0, in_table = 0, in_buckets = 0;
    for (kv_block b = 0; b < c->n_blocks; b++) {
        const struct entry *e = &c->entries[b];
        if (e->in != kv_pool_is_cached(pool, b))
            return "pool and prefix cache disagree about a block";
        if (!e->in) continue;
        in++;
        if (c->table.at[slot_of(c, e->id)] != (uint32_t)b)
            return "an entry cannot be found by its identity";
        if (!hash_eq(e->id, prefix_cache_chain(c, e->parent, tokens_of(c, b))))
            return "an entry's identity is not that of its tokens";
    }
    for (uint32_t i = 0; i <= c->table.mask; i++) {
        in_table += c->table.at[i] != HASH_SLOT_EMPTY;
        for (kv_block b = c->buckets[i]; b != KV_NO_BLOCK; b = c->entries[b].next) {
            if (!c->entries[b].in || home(c, c->entries[b].parent) != i)
                return "a sibling list holds a stranger";
            if (++in_buckets > c->n_blocks) return "a sibling list has a cycle";
        }
    }
    if (in != c->count || in_table != in || in_buckets != in)
        return "prefix cache counts do not agree";
    return NULL;
}
