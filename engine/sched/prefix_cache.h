/* prefix_cache.h - which KV block holds which piece of which prompt. The identity of a block is a keyed 128-bit hash over tagged,
 * length-prefixed {root, adapter, salt, parent's identity, token ids}; the token ids are stored and compared on a hit, so a collision
 * costs a miss, never a wrong answer. Blocks are entered when they are full, while their producer still runs.
 * Does not count users (kv_pool) and touches no contents. Threading: engine thread only. Allocation: all in prefix_cache_new.
 * Source: chained block hashing as in vLLM's design notes; keyed and verified because unkeyed chains were attacked in public. */
#ifndef DEJA_ENGINE_SCHED_PREFIX_CACHE_H
#define DEJA_ENGINE_SCHED_PREFIX_CACHE_H
#include "base/prefix_hash.h"
#include "engine/sched/kv_pool.h"

struct prefix_cache;

/* What a full block holds. */
struct block_name {
    struct hash128 id, parent;
    const int32_t *tokens; /* [block_tokens] */
};

/* Whose computations may be shared: those over the same model file (the cache's root), with the same adapter (hash of its content and
 * scale; zero = none) and the same salt (zero = shared by all tenants). */
struct prefix_scope {
    struct hash128 adapter, salt;
};

/* block_tokens: 1..PREFIX_BLOCK_TOKENS_MAX. seed: secret of this process. root: identity of the model file. */
struct prefix_cache *prefix_cache_new(int n_blocks, int block_tokens, uint64_t seed,
                                      struct hash128 root);
void prefix_cache_free(struct prefix_cache *c);

/* Where a chain starts. */
struct hash128 prefix_cache_start(const struct prefix_cache *c, const struct prefix_scope *scope);
/* Identity of the block of tokens[block_tokens] after parent. */
struct hash128 prefix_cache_chain(const struct prefix_cache *c, struct hash128 parent,
                                  const int32_t *tokens);

/* The block with this identity, parent and these very tokens; KV_NO_BLOCK when there is none. */
kv_block prefix_cache_find(const struct prefix_cache *c, struct hash128 id, struct hash128 parent,
                           const int32_t *tokens);
/* The cached block after parent that shares the longest beginning with tokens[n_tokens] (n_tokens <= block_tokens; at most
 * PREFIX_SIBLINGS_MAX are looked at); *n_same gets its length. Blocks entered at `step` are passed over: their
 * contents are not there yet, so they cannot be copied. KV_NO_BLOCK when nothing is shared. */
enum { PREFIX_SIBLINGS_MAX = 16 };
kv_block prefix_cache_find_partial(const struct prefix_cache *c, struct hash128 parent,
                                   const int32_t *tokens, int n_tokens, uint64_t step, int *n_same);
/* Enters b under id. step: when its contents are written. False (nothing changed) when the identity is taken or b is in already. */
bool prefix_cache_enter(struct prefix_cache *c, kv_block b, struct hash128 id,
                        struct hash128 parent, const int32_t *tokens, uint64_t step);
/* False: b is not in. out->tokens is borrowed until b is forgotten. */
bool prefix_cache_name(const struct prefix_cache *c, kv_block b, struct block_name *out);
void prefix_cache_forget(struct prefix_cache *c, kv_block b); /* b need not be in */
int prefix_cache_count(const struct prefix_cache *c);

/* changed(arg, true, id) for every block that is entered from now on, (arg, false, id) for every one forgotten; from inside the call. */
void prefix_cache_watch(struct prefix_cache *c,
                        void (*changed)(void *arg, bool entered, struct hash128 id), void *arg);

/* NULL, or what is wrong. For tests and debug builds. */
const char *prefix_cache_check(const struct prefix_cache *c, const struct kv_pool *pool);

#endif
