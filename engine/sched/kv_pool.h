/* kv_pool.h - the physical KV blocks of one engine: who uses them, and which may be taken next.
 * A block is in exactly one state: free (nobody, nothing worth keeping), used (one or more users; may also hold a cached prefix),
 * kept (no user, but a cached prefix: taken only when nothing is free, the longest unused first).
 * Never touches block contents and knows no hashes: the backend moves bytes, prefix_cache knows what a block means.
 * Every call is O(1). Threading: engine thread only. Time: none. Allocation: all in kv_pool_new.
 * Source: Kwon et al. 2023, arXiv:2309.06180, section 4 (block tables, reference counts). */
#ifndef DEJA_ENGINE_SCHED_KV_POOL_H
#define DEJA_ENGINE_SCHED_KV_POOL_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef int32_t kv_block; /* 0..n_blocks-1 */
#define KV_NO_BLOCK ((kv_block)-1)

struct kv_pool;

struct kv_pool *kv_pool_new(int n_blocks); /* n_blocks > 0; never NULL */
void kv_pool_free(struct kv_pool *pool);

/* Takes one block with one user: a free one, else the longest unused kept one, which then is no longer cached (*evicted = true: its
 * owner in prefix_cache must forget it). ERR_FULL: nothing has changed, preempt and retry. */
MUST enum err kv_pool_take(struct kv_pool *pool, kv_block *out, bool *evicted);
/* One more user of a used or kept block. */
void kv_pool_ref(struct kv_pool *pool, kv_block b);
/* One user less. The last one leaves the block kept (most recently used) when it is cached, free otherwise. */
void kv_pool_unref(struct kv_pool *pool, kv_block b);
/* Says whether a used block holds a cached prefix. Clearing a kept block frees it. */
void kv_pool_set_cached(struct kv_pool *pool, kv_block b, bool cached);

int kv_pool_users(const struct kv_pool *pool, kv_block b);
bool kv_pool_is_cached(const struct kv_pool *pool, kv_block b);
int kv_pool_size(const struct kv_pool *pool);
int kv_pool_n_kept(const struct kv_pool *pool);
/* Blocks that kv_pool_take can still give: free + kept. */
int kv_pool_available(const struct kv_pool *pool);

/* NULL, or what is wrong: walks both lists and all blocks. For tests and debug builds. */
const char *kv_pool_check(const struct kv_pool *pool);

#endif
