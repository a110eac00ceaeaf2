/* nearby.h - what is stored around a question, over the partitions in which its answer may stand: texts that mean the same word for word,
 * and by their vectors the candidates for cache/chain.h. Whatever has expired or was removed leaves the partitions on the way.
 * Pure but for the partitions. Threading: the loop's thread, nearby_search on any. */
#ifndef DEJA_CACHE_NEARBY_H
#define DEJA_CACHE_NEARBY_H
#include "cache/chain.h"
#include "cache/wording.h"

enum {
    NEARBY_PLACES_MAX =
        3, /* curated answers of the tenant, of all tenants, and what was asked before */
    NEARBY_HITS_MAX = CANDIDATES_MAX + JUDGED_HITS_MAX
};
struct nearby {
    struct partition *places[NEARBY_PLACES_MAX];
    int n_places;
    const struct marks *marks;
    struct vector_hit hits[NEARBY_PLACES_MAX][NEARBY_HITS_MAX];
    size_t n_hits[NEARBY_PLACES_MAX];
    struct hash128 vetoed[WORDING_VETOES_MAX]; /* entries the question's own text must not get */
    size_t n_vetoed;
    size_t
        swept; /* hits that nearby_candidates found expired or removed: another search finds others in their places */
};
struct nearby_text {
    struct hash128 entry;
    int place;
};

/* Entries a text leads to that is the question word for word, or of which every word is explained, where that is a hit
 * (knobs_same_words); at most max, curated ones first.
 * Notes what such texts forbid, and leaves it out if vetoes count. */
size_t nearby_same(struct nearby *n, const struct guard *g, const struct cache_knobs *k,
                   struct str question, int64_t now_s, struct nearby_text *out, size_t max);

/* Fills in the nearest texts of vec. */
void nearby_search(struct nearby *n, const float *vec, size_t top_k);
/* From them the candidates, best first. Pointers in items are good until something is added to or removed from a partition. */
size_t nearby_candidates(struct nearby *n, int64_t now_s, struct chain_item *items, size_t max);

#endif
