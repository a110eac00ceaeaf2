/* shadow_compare.h - do two answers to one question tell the customer the same? For shadow samples, where no judge is asked. Answers
 * are worded freely, so only what both can be pinned down on is held against each other: numbers, units, money, dates, times,
 * negation and opposites; then the similarity of their vectors. Between the two marks nothing is said. Pure. */
#ifndef DEJA_GATEWAY_SHADOW_COMPARE_H
#define DEJA_GATEWAY_SHADOW_COMPARE_H
#include "cache/guard.h"

enum shadow_verdict { SHADOW_SAME, SHADOW_DIFFERS, SHADOW_UNCLEAR };
struct shadow_scale {
    double same, differ; /* cosines: from same on alike, below differ another matter */
};
/* Measured for some embedders, else nothing but near-repeats count as the same. */
struct shadow_scale shadow_scale_for(struct str embedder_id);
/* cosine: of the two texts' vectors, -1 = not known. */
enum shadow_verdict shadow_compare(const struct guard *g, const struct shadow_scale *s,
                                   struct str a, struct str b, double cosine);

#endif
