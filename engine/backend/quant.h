/* quant.h - the tensor types of a GGUF file: names, sizes, and what their bytes mean as float32. The one place that
 * knows the bit layouts; kernels repack from what this file decodes. Refuses nothing: sizes are checked by who calls.
 * Threading: pure functions, any thread.
 * Source: the GGUF specification's type list and the block layouts described there (32- and 256-element blocks). */
#ifndef DEJA_ENGINE_BACKEND_QUANT_H
#define DEJA_ENGINE_BACKEND_QUANT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/half.h"

/* Ids as stored in GGUF files. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_BF16 = 30,
};
/* The quantised ones among them. */
#define EACH_QUANT(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K)

/* Any number may be asked; only the ids above are known. */
bool tensor_type_known(uint32_t id);
const char *tensor_type_name(
    uint32_t id); /* "Q4_K"; the format's usual name for types we cannot read; "unknown" */
int tensor_type_block(enum tensor_type t);    /* elements of one block: 1, 32 or 256 */
size_t tensor_type_bytes(enum tensor_type t); /* bytes of one block */
/* Bytes of a row of n elements; n is a multiple of the block. */
size_t tensor_row_bytes(enum tensor_type t, int64_t n);

/* out f32[n] = the row's exact values (float32 rounding of scale products only). n is a multiple of the block. */
void dequantise_row(enum tensor_type t, const void *row, float *out, int64_t n);
/* The other way, for tests and for making small models: plain nearest rounding, no search for better scales. Every known type. */
void quantise_row(enum tensor_type t, const float *x, void *row, int64_t n);

#endif
