/* coming.h - private to similar.c, find.c and cache.c: questions whose answers are on their way, in an index of their own. Where no stored
 * answer will do, the same chain decides on them, with what is stored around them: judged texts forbid them, other answers are rivals.
 * A question of another partition is never looked at. Bounds: COMING_MAX questions, of COMING_PARTITIONS_MAX partitions (the least
 * recently used one is not followed any more); each costs its text and its vector. Threading: the loop's thread. */
#ifndef DEJA_CACHE_COMING_H
#define DEJA_CACHE_COMING_H
#include "cache/lookup.h"

enum { COMING_MAX = 4096, COMING_PARTITIONS_MAX = 256 };

/* Is one on its way that the look-up may wait for? */
bool coming_any(const struct cache_lookup *l);
/* Those near the question, best first, behind what is stored: texts[n] as nearby_texts has them. Writes up to CANDIDATES_MAX. */
size_t coming_gather(struct cache_lookup *l, const struct near_text *texts, size_t n,
                     struct chain_item *items);
/* The chain has settled items; order[n_hits] as from it. True: the look-up is over, one of them is to be waited for. */
bool coming_serve(struct cache_lookup *l, const struct chain_item *items, const size_t *order,
                  size_t n_hits);

#endif
