/* opinion.h - private to the look-up: what the verifier says of its open candidates. The first look is taken at once where both sketches
 * are remembered; the second is asked of the embedder, and the look-up goes on when it has come. Threading: the loop's. */
#ifndef DEJA_CACHE_OPINION_H
#define DEJA_CACHE_OPINION_H
#include "cache/lookup.h"

/* True: resume(l) will be called, once, on the loop; l->pending counts it. False: nothing (more) is to be had. */
bool opinions_ask(struct cache_lookup *l, const struct chain_item *items, size_t n,
                  void (*resume)(struct cache_lookup *l));
/* Fills in items[i].verifier of the open ones of whose wording there is an opinion. */
void opinions_fill(const struct cache_lookup *l, struct chain_item *items, size_t n);

#endif
