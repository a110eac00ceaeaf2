/* nearby.h - what is stored around a question, over the partitions in which its answer may stand: texts that mean the same word for word,
 * and by its vector the nearest texts, for cache/candidates.h. Whatever has expired or was removed leaves the partitions on the way. What
 * look-ups do and what `deja eval` measures. Pure but for the partitions.
 * Threading: the loop's thread; hits may be filled in on a worker meanwhile. */
#ifndef DEJA_CACHE_NEARBY_H
#define DEJA_CACHE_NEARBY_H
#include "cache/candidates.h"
#include "cache/guard.h"
#include "cache/marks.h"
#include "cache/wording.h"

enum {
    NEARBY_PLACES_MAX = 3, /* curated answers of the tenant, of all, and what was asked before */
    STALE_HITS_MAX = 8, /* and expired ones, kept for when no model answers; more are in the way */
    NEARBY_HITS_MAX = CANDIDATES_MAX + JUDGED_HITS_MAX + STALE_HITS_MAX,
    NEARBY_TEXTS_MAX = NEARBY_PLACES_MAX * NEARBY_HITS_MAX
};
struct nearby {
    struct partition *places[NEARBY_PLACES_MAX];
    int n_places;
    const struct marks *marks;
    int64_t stale_s; /* how long after its end a text will do */
    int64_t keep_s;  /* and how long it may stay, where longer */
    struct vector_hit hits[NEARBY_PLACES_MAX][NEARBY_HITS_MAX];
    size_t
        wanted[NEARBY_PLACES_MAX]; /* of a place: texts; hits, STALE_HITS_MAX more; texts that do */
    size_t n_hits[NEARBY_PLACES_MAX], n_alive[NEARBY_PLACES_MAX];
    struct hash128 vetoed[WORDING_VETOES_MAX]; /* entries the question's own text must not get */
    size_t n_vetoed;
};

/* Calls found for every text that is the question word for word, or of which every word is explained. */
void nearby_same(const struct nearby *n, const struct guard *g, uint64_t guards_off,
                 struct str question, void (*found)(void *arg, int place, const struct question *q),
                 void *arg);
/* What q, such a text, forbids; and is it forbidden? */
void nearby_note_vetoes(struct nearby *n, const struct question *q);
bool nearby_forbids(const struct nearby *n, struct hash128 entry);
/* q of a place if it will do, else NULL; removed and worthless ones go out of the partition, expired ones after keep_s. NULL is fine. */
const struct question *nearby_alive(const struct nearby *n, int place, const struct question *q,
                                    int64_t now_s);

/* Before a search of the places' hits: for top_k entries. */
void nearby_want(struct nearby *n, size_t top_k);
/* After it, the texts that do, best first, a curated one before an equal other: at most NEARBY_TEXTS_MAX. Pointers are good until
 * something is added to or removed from a partition. */
size_t nearby_texts(struct nearby *n, int64_t now_s, struct near_text *out);
/* Did the search stop before it had as many as were wanted and do? */
bool nearby_is_crowded(const struct nearby *n);
/* The place q stands in. */
int nearby_place(const struct nearby *n, const struct question *q);

#endif
