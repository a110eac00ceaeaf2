/* guard_align.h - which content tokens of two questions correspond. Pure. */
#ifndef DEJA_CACHE_GUARD_ALIGN_H
#define DEJA_CACHE_GUARD_ALIGN_H
#include "cache/guard_text.h"

enum { GUARD_NO_PARTNER = 255 };

struct guard_alignment {
    size_t n_a, n_b;                /* content tokens */
    int weight_a, weight_b, shared; /* by weight; shared counts in-order and moved ones */
    size_t in_order, moved;         /* pairs; moved = equal but elsewhere in the order */
    uint8_t left_a[GUARD_TOKENS_MAX],
        left_b[GUARD_TOKENS_MAX]; /* token indices without a partner */
    size_t n_left_a, n_left_b;
    uint8_t partner
        [GUARD_TOKENS_MAX]; /* of each content token of a: the token of b; GUARD_NO_PARTNER */
    size_t all_in_order, all_a, all_b; /* pairs and tokens, grammar included */
    int frame, frame_a,
        frame_b; /* the same by weight: how much of the sentence is word for word the same */
};
/* Units in common, in order: the same measure before any meaning is read into characters. */
size_t guard_align_units(const struct guard_text *a, const struct guard_text *b);
void guard_align(const struct guard_text *a, const struct guard_text *b,
                 struct guard_alignment *out);
bool guard_tokens_equal(const struct guard_token *a, const struct guard_token *b);

#endif
