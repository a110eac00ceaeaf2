/* act.cuh - activations on their way into a matrix: norm or gate first, then one of three forms. The int8 form has a scale for every 16
 * elements, as on the CPU, so that products with integer weights are exact up to that rounding.
 *
 * act_rows: grid = rows, block = ACT_THREADS; a thread takes 16 neighbouring elements at a time. Shared: one float a warp. Bytes a
 *   row: 4n read (twice for RMSNorm, the second time from cache), then 1.5n (int8), 2n (f16) or 4n (f32) written. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ACT_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ACT_CUH
#include "engine/backend/cuda/act_value.cuh"
#include "engine/backend/cuda/reduce.cuh"

enum { ACT_THREADS = 256, ACT_STEP = 16 };

DEVICE void act_write_q(const struct act_args &a, size_t at, int i, const float v[ACT_STEP])
{
    float most = 0, sum = 0;
    int word[4] = {0};
    for (int j = 0; j < ACT_STEP; j++)
        most = fmaxf(most, fabsf(v[j]));
    float d = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0.0f;
    for (int j = 0; j < ACT_STEP; j++) {
        int q = __float2int_rn(v[j] * inverse);
        sum += (float)q;
        word[j / 4] |= (q & 255) << j % 4 * 8;
    }
    *(int4 *)(a.q + at + (size_t)i) = make_int4(word[0], word[1], word[2], word[3]);
    a.d[(at + (size_t)i) / ACT_STEP] = d;
    a.s[(at + (size_t)i) / ACT_STEP] = d * sum;
}

KERNEL __launch_bounds__(ACT_THREADS) act_rows(struct act_args a)
{
    SHARED(float, partial, ACT_THREADS / LANES);
    size_t from = (size_t)(a.row ? a.row[blockIdx.x] : (int)blockIdx.x) * (size_t)a.n,
           to = (size_t)blockIdx.x * (size_t)a.n;
    float factor = 1;
    if (a.in == ACT_RMSNORM) {
        float sum = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += ACT_THREADS)
            sum += a.x[from + (size_t)i] * a.x[from + (size_t)i];
        factor = 1.0f / sqrtf(block_sum(sum, partial) / (float)a.n + a.eps);
    }
    for (int i = (int)threadIdx.x * ACT_STEP; i < a.n; i += ACT_THREADS * ACT_STEP) {
        float v[ACT_STEP];
        int n = a.n - i < ACT_STEP ? a.n - i : ACT_STEP;
        for (int j = 0; j < n; j++)
            v[j] = act_value(a, from, i + j, factor);
        if (a.q) act_write_q(a, to, i, v);
        for (int j = 0; j < n; j++) {
            if (a.h) a.h[to + (size_t)(i + j)] = float_f16(fminf(fmaxf(v[j], -65504.0f), 65504.0f));
            if (a.f) a.f[to + (size_t)(i + j)] = v[j];
        }
    }
}

#endif
