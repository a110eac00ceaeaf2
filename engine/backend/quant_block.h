/* quant_block.h - one run of 32 quantised weights, whatever the type: the form in which the packers read a file's rows.
 * Private to the backend. Any thread. */
#ifndef DEJA_ENGINE_BACKEND_QUANT_BLOCK_H
#define DEJA_ENGINE_BACKEND_QUANT_BLOCK_H
#include "engine/backend/quant.h"

enum { QUANT_RUN = 32 }; /* elements that share one activation scale */

/* value = (q - offset) * d (+ m) for the plain types, with d and m float16;
 * Q4_K, Q5_K: q * (d * sc[0]) - m * sc[1], sc unsigned; Q6_K: (q - 32) * (d * sc[half]), sc signed, one per 16 elements. */
struct quant_block {
    uint8_t q[QUANT_RUN]; /* unsigned: Q8_0 is stored with 128 added */
    uint16_t d, m;
    uint8_t sc[2];
};

bool quant_is_float(enum tensor_type t); /* F32, F16, BF16: no blocks of 32 */
int quant_offset(enum tensor_type t);    /* what is taken off q: 8, 16, 32, 128 or 0 */
static inline bool quant_has_min(enum tensor_type t)
{
    return t == TENSOR_Q4_1 || t == TENSOR_Q5_1 || t == TENSOR_Q4_K || t == TENSOR_Q5_K;
}
/* Elements 32*run .. 32*run+31 of a row of a type that is not float. */
void quant_unpack(enum tensor_type t, const void *row, int64_t run, struct quant_block *out);
void quant_values(enum tensor_type t, const struct quant_block *b, float out[QUANT_RUN]);

#endif
