/* kv_names.h - one foreign engine's own block names and what we call these blocks: follows its events (kv_batch.h) and keeps a prefix index
 * true under our names, computed from the token ids the events bring, so that a prompt's chain finds them. The same block may be held
 * by several groups and ranks, and in several tiers: it is gone when the last has removed it. A block whose parent is not known has no
 * name of ours and is left out. Pure. Threading: one thread. */
#ifndef DEJA_CACHE_KV_NAMES_H
#define DEJA_CACHE_KV_NAMES_H
#include "base/prefix_hash.h"
#include "cache/kv_batch.h"

struct kv_names;
/* For pod of index, which must have joined as incarnation. blocks_max: beyond, everything is forgotten and learnt anew. */
struct kv_names *kv_names_new(struct prefix_index *index, int pod, size_t blocks_max,
                              const struct prefix_origin *origin);
void kv_names_free(struct kv_names *n); /* NULL is fine */
/* Nothing is held; the next events are of this run. */
void kv_names_begin(struct kv_names *n, uint64_t incarnation);
void kv_names_event(struct kv_names *n, const struct kv_event *ev);
size_t kv_names_count(const struct kv_names *n);
int kv_names_block_tokens(const struct kv_names *n); /* as the events said; 0 = not yet */
uint64_t kv_names_orphans(const struct kv_names *n); /* blocks without a name of ours so far */

#endif
