/* shelf.h - a bounded set of numbered slots outside the KV pool that keep copies of full blocks under their identity: one tier of the
 * prefix cache (host memory, disk). The longest unused gives way first; a pinned one stays. Knows no bytes: who holds a slot moves them.
 * Every call is O(1) but shelf_check. Threading: engine thread only. Allocation: all in shelf_new. */
#ifndef DEJA_ENGINE_SCHED_SHELF_H
#define DEJA_ENGINE_SCHED_SHELF_H
#include "engine/sched/prefix_cache.h"

struct shelf;
typedef int32_t shelf_slot; /* 0..n_slots-1 */
#define SHELF_NO_SLOT ((shelf_slot)-1)

/* n_slots > 0. seed and root as for the prefix cache whose blocks it keeps. Never NULL. */
struct shelf *shelf_new(int n_slots, int block_tokens, uint64_t seed, struct hash128 root);
void shelf_free(struct shelf *s);

shelf_slot shelf_find(const struct shelf *s, const struct block_name *name);
/* As prefix_cache_find_partial. */
shelf_slot shelf_find_partial(const struct shelf *s, struct hash128 parent, const int32_t *tokens,
                              int n_tokens, int *n_same);
/* An empty slot, pinned once: an unused one, else the longest unused, which is forgotten. SHELF_NO_SLOT: all are pinned. */
shelf_slot shelf_take(struct shelf *s);
/* Names a pinned, nameless slot whose bytes are there, or will be before anybody reads them. False: a slot has that name already. */
bool shelf_enter(struct shelf *s, shelf_slot slot, const struct block_name *name);
/* A pinned slot is not given away. The last unpin leaves it the most recently used, or empty when it has no name. */
void shelf_pin(struct shelf *s, shelf_slot slot);
void shelf_unpin(struct shelf *s, shelf_slot slot);
bool shelf_is_pinned(const struct shelf *s, shelf_slot slot);
/* Most recently used from now on. */
void shelf_touch(struct shelf *s, shelf_slot slot);
/* Its bytes turned out to be bad. */
void shelf_forget(struct shelf *s, shelf_slot slot);
/* False: the slot has no name. *out borrows the tokens until it changes. */
bool shelf_name(const struct shelf *s, shelf_slot slot, struct block_name *out);
int shelf_size(const struct shelf *s);
int shelf_count(const struct shelf *s); /* slots with a name */

/* As prefix_cache_watch. */
void shelf_watch(struct shelf *s, void (*changed)(void *arg, bool entered, struct hash128 id),
                 void *arg);

/* NULL, or what is wrong. For tests and debug builds. */
const char *shelf_check(const struct shelf *s);

#endif
