/* prefix_index.h - which pods (servers with a KV cache) hold which block of which prompt: block identity -> a small set of pods with the
 * tier it lies in; pod -> its blocks, so that one that is gone or starts anew is forgotten in O(its own). Two kinds of knowledge:
 * what a pod told (events), and guesses (what was sent there will be there): a guess about a pod that tells holds until it is confirmed
 * or guess_ms are over, about any other until it is pushed out. Bounded by bytes; the longest unused block gives way.
 * Does not score, hash or tokenise. Pure: time is an argument. Threading: one thread. Allocation: all in prefix_index_new. */
#ifndef DEJA_CACHE_PREFIX_INDEX_H
#define DEJA_CACHE_PREFIX_INDEX_H
#include "base/hash.h"

struct prefix_index;
enum { PREFIX_PODS_MAX = 32, PREFIX_CHAIN_MAX = 16384 /* blocks of one look-up; more are cut */ };
enum prefix_tier { PREFIX_DEVICE, PREFIX_HOST, PREFIX_DISK, PREFIX_TIERS };

/* Never NULL; at least 64 blocks. */
struct prefix_index *prefix_index_new(size_t bytes_max, uint32_t guess_ms);
void prefix_index_free(struct prefix_index *x);

/* pod (0..PREFIX_PODS_MAX-1) runs as incarnation (any number that no earlier run had). Another one than before: all it held is
 * forgotten. tells: it reports what it holds. */
void prefix_index_join(struct prefix_index *x, int pod, uint64_t incarnation, bool tells);
/* All that is known of pod is forgotten, and it tells no more. */
void prefix_index_leave(struct prefix_index *x, int pod);
/* The same, but it goes on telling. O(its blocks). */
void prefix_index_clear(struct prefix_index *x, int pod);

/* What pod told, in its order. False: that incarnation is not the one that joined; nothing has changed. */
bool prefix_index_store(struct prefix_index *x, int pod, uint64_t incarnation,
                        enum prefix_tier tier, struct hash128 block);
bool prefix_index_remove(struct prefix_index *x, int pod, uint64_t incarnation,
                         enum prefix_tier tier, struct hash128 block);
/* pod will hold these blocks soon. */
void prefix_index_guess(struct prefix_index *x, int pod, const struct hash128 *chain, size_t n,
                        uint64_t now_ms);

/* How much of a prompt each pod holds: the longest run of blocks from the first on. */
struct prefix_match {
    uint32_t pods; /* a bit each: those with at least one block */
    int blocks[PREFIX_PODS_MAX];
    int slow[PREFIX_PODS_MAX]; /* of these, on host or disk only */
};
/* Looks up chain[n]; what is found counts as used. */
void prefix_index_match(struct prefix_index *x, const struct hash128 *chain, size_t n,
                        uint64_t now_ms, struct prefix_match *out);

struct prefix_index_stats {
    size_t blocks, blocks_max, places, places_max; /* a place = one pod's copy of a block */
    uint64_t evicted;                              /* blocks that gave way, ever */
};
struct prefix_index_stats prefix_index_stats(const struct prefix_index *x);
size_t prefix_index_held(const struct prefix_index *x, int pod); /* blocks known of pod */

/* NULL, or what is wrong. For tests. */
const char *prefix_index_check(const struct prefix_index *x);

#endif
