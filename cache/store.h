/* store.h - entries held in process: a map by id under a byte budget; what is worth least (cache/worth.h) goes first. Truth is Redis; an
 * entry that has not reached Redis yet is marked and pushed out after all that has, one that people wrote (pinned) last.
 * Threading: the loop's thread. */
#ifndef DEJA_CACHE_STORE_H
#define DEJA_CACHE_STORE_H
#include "cache/served.h"

struct store;
/* gone(arg, e): e was pushed out (budget), not removed by the caller; still readable during the call. */
struct store *store_new(size_t bytes_max, void (*gone)(void *arg, const struct entry *e),
                        void *arg);
void store_free(struct store *s);
/* Takes e; an entry of the same id is replaced. False (and e freed) when it can never fit. */
bool store_put(struct store *s, struct entry *e, bool unsaved);
/* Borrowed until the next store call; counts as use. NULL when unknown. */
const struct entry *store_get(struct store *s, struct hash128 id);
/* The same, but no use: for the cache's own bookkeeping. */
const struct entry *store_peek(const struct store *s, struct hash128 id);
/* The answer of e, an entry as store_get gave it, with a reference for the caller; kept here, within the budget, from the second use on. */
MUST enum err store_served(struct store *s, const struct entry *e, struct served **out,
                           struct errmsg *why);
bool store_remove(struct store *s, struct hash128 id);
/* write_no as in the entry that was written: nothing happens when it was replaced meanwhile. */
void store_set_saved(struct store *s, struct hash128 id, uint64_t write_no);
/* The oldest entry that is not in Redis yet, NULL = none. */
const struct entry *store_unsaved(struct store *s);
/* Drops everything that Redis has (or had). */
void store_drop_saved(struct store *s);
/* The budget changes, as when the indexes beside the store have grown; what does not fit any more goes. */
void store_set_budget(struct store *s, size_t bytes_max);
size_t store_count(const struct store *s);
size_t store_bytes(const struct store *s);

#endif
