/* wide.cuh - both sides of a large product (lt.h) in one of its forms, and its sums scaled back. A scale a row of the matrix and one a
 * token: value = scale * q, the largest of a row becoming 127 (int8) or 448 (E4M3); f16 and bf16 have no scales.
 *
 * int8 takes a spread f32[n_in] (calibration.h): activations are divided by it and columns multiplied before their scales are found.
 *
 * wide_rows<type, kind>: grid = rows, block = WIDE_THREADS; the packed row is read twice (the second time from cache), n_in or 2 n_in bytes
 *   are written. wide_tokens<kind>: the same for activations, after norm or gate (act_value.cuh).
 * wide_sums<kind>: grid = (tokens, n_out / WIDE_THREADS), as only its first side may be over 65,535; 4 bytes read and 4 written (8 read where it adds) a sum. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_WIDE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_WIDE_CUH
#include "engine/backend/cuda/act_value.cuh"
#include "engine/backend/cuda/lt.h"
#include "engine/backend/cuda/reduce.cuh"
#include "engine/backend/cuda/weight.cuh"

enum { WIDE_THREADS = 256 };

struct wide_sums_args {
    const void *sums; /* f32 or s32 [tokens][n_rows]: rows first_row.. of n_out */
    const float *token_scale, *row_scale, *bias; /* bias f32[n_out] or NULL */
    float *out;                                  /* f32[tokens][n_out] */
    int first_row, n_rows, n_out;
    bool accumulate;
};

template <int KIND> DEVICE float wide_scale(float most)
{
    if (KIND != LT_INT8 && KIND != LT_E4M3) return 1.0f;
    float d = most / (KIND == LT_INT8 ? 127.0f : 448.0f);
    return d > 0 ? d : 1.0f; /* of what is too small to be divided nothing is left */
}
template <int KIND> DEVICE void wide_put(void *to, size_t i, float v)
{
    if (KIND == LT_F16)
        ((uint16_t *)to)[i] = float_f16(fminf(fmaxf(v, -65504.0f), 65504.0f));
    else if (KIND == LT_BF16)
        ((uint16_t *)to)[i] = float_bf16(v);
    else if (KIND == LT_INT8)
        ((int8_t *)to)[i] = (int8_t)__float2int_rn(fminf(fmaxf(v, -127.0f), 127.0f));
    else
        ((uint8_t *)to)[i] = float_e4m3(v);
}

/* partial: one float a warp. */
DEVICE float block_max(float v, float *partial)
{
    v = warp_max(v);
    if (threadIdx.x % LANES == 0) partial[threadIdx.x / LANES] = v;
    __syncthreads();
    float most = partial[0];
    for (unsigned w = 1; w < blockDim.x / LANES; w++)
        most = fmaxf(most, partial[w]);
    return most;
}

/* A row's element, and an activation, with what the channel's spread moves from one to the other (LT_INT8 only; spread NULL: nothing). */
template <int TYPE>
DEVICE float wide_weight(const struct packed &p, size_t row, int e, const float *spread)
{
    float v = weight_value<TYPE>(p, row, e);
    return spread ? v * spread[e] : v;
}
DEVICE float wide_value(const struct act_args &a, size_t at, int i, float factor,
                        const float *spread)
{
    float v = act_value(a, at, i, factor);
    return spread ? v / spread[i] : v;
}

template <int TYPE, int KIND>
KERNEL __launch_bounds__(WIDE_THREADS)
    wide_rows(struct packed p, int first_row, const float *spread, void *out, float *scale)
{
    if (KIND != LT_INT8) spread = NULL;
    SHARED(float, partial, WIDE_THREADS / LANES);
    size_t row = (size_t)first_row + blockIdx.x;
    float most = 0;
    if (KIND == LT_INT8 || KIND == LT_E4M3) {
        for (int e = (int)threadIdx.x; e < p.n_in; e += WIDE_THREADS)
            most = fmaxf(most, fabsf(wide_weight<TYPE>(p, row, e, spread)));
        most = block_max(most, partial);
    }
    float d = wide_scale<KIND>(most);
    for (int e = (int)threadIdx.x; e < p.n_in; e += WIDE_THREADS)
        wide_put<KIND>(out, (size_t)blockIdx.x * (size_t)p.n_in + (size_t)e,
                       wide_weight<TYPE>(p, row, e, spread) / d);
    if (scale && threadIdx.x == 0) scale[blockIdx.x] = d;
}

template <int KIND>
KERNEL __launch_bounds__(WIDE_THREADS)
    wide_tokens(struct act_args a, const float *spread, void *out, float *scale)
{
    if (KIND != LT_INT8) spread = NULL;
    SHARED(float, sums, WIDE_THREADS / LANES);
    SHARED(float, partial, WIDE_THREADS / LANES);
    size_t from = (size_t)(a.row ? a.row[blockIdx.x] : (int)blockIdx.x) * (size_t)a.n,
           to = (size_t)blockIdx.x * (size_t)a.n;
    float factor = 1, most = 0;
    if (a.in == ACT_RMSNORM) {
        float sum = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += WIDE_THREADS)
            sum += a.x[from + (size_t)i] * a.x[from + (size_t)i];
        factor = 1.0f / sqrtf(block_sum(sum, sums) / (float)a.n + a.eps);
    }
    if (KIND == LT_INT8 || KIND == LT_E4M3) {
        for (int i = (int)threadIdx.x; i < a.n; i += WIDE_THREADS)
            most = fmaxf(most, fabsf(wide_value(a, from, i, factor, spread)));
        most = block_max(most, partial);
    }
    float d = wide_scale<KIND>(most);
    for (int i = (int)threadIdx.x; i < a.n; i += WIDE_THREADS)
        wide_put<KIND>(out, to + (size_t)i, wide_value(a, from, i, factor, spread) / d);
    if (scale && threadIdx.x == 0) scale[blockIdx.x] = d;
}

/* out[token][row] (+)= sum * scale of the token * scale of the row + bias */
template <int KIND> KERNEL __launch_bounds__(WIDE_THREADS) wide_sums(struct wide_sums_args a)
{
    int row = (int)(blockIdx.y * WIDE_THREADS + threadIdx.x);
    if (row >= a.n_rows) return;
    size_t from = (size_t)blockIdx.x * (size_t)a.n_rows + (size_t)row;
    float sum =
        KIND == LT_INT8 ? (float)((const int32_t *)a.sums)[from] : ((const float *)a.sums)[from];
    if (KIND == LT_INT8 || KIND == LT_E4M3) sum *= a.token_scale[blockIdx.x] * a.row_scale[row];
    if (a.bias) sum += a.bias[a.first_row + row];
    float *to = a.out + (size_t)blockIdx.x * (size_t)a.n_out + (size_t)(a.first_row + row);
    *to = a.accumulate ? *to + sum : sum;
}

#endif
