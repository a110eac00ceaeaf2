/* kv_tier.h - keeps KV blocks on disk: saves full blocks in the background, and brings the beginning of a new prompt back to host memory
 * before it is
 * scheduled, so that an engine that was restarted finds what an earlier one computed. Owns the list of what is on disk; the thread and
 * the bytes there are kv_disk's. Never waits.
 * Threading: the step thread, but kv_tier_new and kv_tier_free, which run when there is none. */
#ifndef DEJA_ENGINE_KV_TIER_H
#define DEJA_ENGINE_KV_TIER_H
#include "engine/engine_private.h"
#include "engine/kv_disk.h"

struct kv_tier;

/* Takes disk. sched must have a host tier and keep track of fresh blocks; it, model and host (its bytes) outlive the tier. */
struct kv_tier *kv_tier_new(struct kv_disk *disk, struct sched *sched,
                            const struct engine_forward *model, uint8_t *host);
/* Saves what is queued first, for at most wait_ms. NULL is fine. False: a disk that does not answer still uses host. */
bool kv_tier_free(struct kv_tier *t, int wait_ms);

/* Hands at most n_max blocks that became full to the disk. Returns how many were copied. */
int kv_tier_save(struct kv_tier *t, int n_max);
/* Has what is missing of the beginning of tokens[n] read from disk. Returns how many blocks are on their way: 0 = whatever can be had is
 * in host
 * memory or in the pool. Otherwise ask again once kv_tier_poll has said true. */
int kv_tier_fetch(struct kv_tier *t, const struct prefix_scope *scope, const int32_t *tokens,
                  int n);
/* Takes note of what the disk has done. True: a read was among it. */
bool kv_tier_poll(struct kv_tier *t);
/* As prefix_cache_watch, and at once for every block that is there already. */
void kv_tier_watch(struct kv_tier *t, void (*changed)(void *arg, bool entered, struct hash128 id),
                   void *arg);
void kv_tier_stats(const struct kv_tier *t, struct engine_stats *out);

#endif
