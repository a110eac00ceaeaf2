/* kv_pool.c - block states as two intrusive lists: a free stack and a doubly linked list of kept
 * blocks in order of use. */
#include "engine/sched/kv_pool.h"

#include "base/mem.h"

struct block {
    int32_t users;
    bool cached;
    kv_block prev, next; /* kept list; next alone for the free stack */
};

struct kv_pool {
    int n_blocks, n_free, n_kept;
    kv_block free_top;
    kv_block oldest, newest; /* kept list */
    struct block *blocks;
};

struct kv_pool *kv_pool_new(int n_blocks)
{
    ASSERT(n_blocks > 0);
    struct kv_pool *pool = xcalloc(1, sizeof *pool);
    pool->blocks = xcalloc((size_t)n_blocks, sizeof *pool->blocks);
    pool->n_blocks = pool->n_free = n_blocks;
    pool->oldest = pool->newest = KV_NO_BLOCK;
    /* low ids first: a lightly used engine touches the least memory */
    for (kv_block b = 0; b < n_blocks; b++)
        pool->blocks[b].next = b + 1 < n_blocks ? b + 1 : KV_NO_BLOCK;
    pool->free_top = 0;
    return pool;
}

void kv_pool_free(struct kv_pool *pool)
{
    if (!pool) return;
    mem_free(pool->blocks);
    mem_free(pool);
}

static struct block *at(const struct kv_pool *pool, kv_block b)
{
    ASSERT(b >= 0 && b < pool->n_blocks);
    return &pool->blocks[b];
}

static void kept_remove(struct kv_pool *pool, kv_block b)
{
    struct block *x = at(pool, b);
    if (x->prev == KV_NO_BLOCK)
        pool->oldest = x->next;
    else
        at(pool, x->prev)->next = x->next;
    if (x->next == KV_NO_BLOCK)
        pool->newest = x->prev;
    else
        at(pool, x->next)->prev = x->prev;
    pool->n_kept--;
}

static void kept_add_newest(struct kv_pool *pool, kv_block b)
{
    struct block *x = at(pool, b);
    x->prev = pool->newest;
    x->next = KV_NO_BLOCK;
    if (pool->newest == KV_NO_BLOCK)
        pool->oldest = b;
    else
        at(pool, pool->newest)->next = b;
    pool->newest = b;
    pool->n_kept++;
}

static void free_push(struct kv_pool *pool, kv_block b)
{
    at(pool, b)->next = pool->free_top;
    pool->free_top = b;
    pool->n_free++;
}

enum err kv_pool_take(struct kv_pool *pool, kv_block *out, bool *evicted)
{
    *evicted = false;
    kv_block b = pool->free_top;
    if (b != KV_NO_BLOCK) {
        pool->free_top = at(pool, b)->next;
        pool->n_free--;
    } else if (pool->oldest != KV_NO_BLOCK) {
        b = pool->oldest;
        kept_remove(pool, b);
        at(pool, b)->cached = false;
        *evicted = true;
    } else {
        return ERR_FULL;
    }
    at(pool, b)->users = 1;
    *out = b;
    return OK;
}

void kv_pool_ref(struct kv_pool *pool, kv_block b)
{
    struct block *x = at(pool, b);
    if (!x->users) {
        ASSERT(x->cached); /* nobody may revive a free block */
        kept_remove(pool, b);
    }
    x->users++;
}

void kv_pool_unref(struct kv_pool *pool, kv_block b)
{
    struct block *x = at(pool, b);
    ASSERT(x->users > 0);
    if (--x->users) return;
    if (x->cached)
        kept_add_newest(pool, b);
    else
        free_push(pool, b);
}

void kv_pool_set_cached(struct kv_pool *pool, kv_block b, bool cached)
{
    struct block *x = at(pool, b);
    if (x->cached == cached) return;
    if (!x->users) {
        ASSERT(!cached);
        kept_remove(pool, b);
        free_push(pool, b);
    }
    x->cached = cached;
}

int kv_pool_users(const struct kv_pool *pool, kv_block b)
{
    return at(pool, b)->users;
}
bool kv_pool_is_cached(const struct kv_pool *pool, kv_block b)
{
    return at(pool, b)->cached;
}
int kv_pool_size(const struct kv_pool *pool)
{
    return pool->n_blocks;
}
int kv_pool_n_kept(const struct kv_pool *pool)
{
    return pool->n_kept;
}
int kv_pool_available(const struct kv_pool *pool)
{
    return pool->n_free + pool->n_kept;
}

const char *kv_pool_check(const struct kv_pool *pool)
{
    int n_free = 0, n_kept = 0, n_used = 0;
    for (kv_block b = pool->free_top; b != KV_NO_BLOCK; b = at(pool, b)->next) {
        if (++n_free > pool->n_blocks) return "free list has a cycle";
        if (at(pool, b)->users || at(pool, b)->cached) return "a free block has users or is cached";
    }
    kv_block before = KV_NO_BLOCK;
    for (kv_block b = pool->oldest; b != KV_NO_BLOCK; b = at(pool, b)->next) {
        if (++n_kept > pool->n_blocks) return "kept list has a cycle";
        if (at(pool, b)->users || !at(pool, b)->cached)
            return "a kept block has users or is not cached";
        if (at(pool, b)->prev != before) return "kept list is not linked both ways";
        before = b;
    }
    if (before != pool->newest) return "kept list's end is wrong";
    for (kv_block b = 0; b < pool->n_blocks; b++)
        n_used += at(pool, b)->users > 0;
    if (n_free != pool->n_free || n_kept != pool->n_kept) return "a list's length is not its count";
    if (n_free + n_kept + n_used != pool->n_blocks) return "a block is in no state, or in two";
    return NULL;
}
