/* rows.cuh - what happens to rows of plain numbers: embedding look-up, norms, sums, gathering, and copying of KV blocks.
 *
 * embed_rows<type>: grid = rows, block = ROWS_THREADS. norm_rows: the same; shared: one float a warp. The others run a thread an element.
 * kv_copy_tokens: grid = (layers, kv heads), block = ROWS_THREADS. All are bound by memory: every byte is read and written once
 * (norm_rows reads twice, the second time from cache). */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ROWS_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ROWS_CUH
#include "engine/backend/cuda/reduce.cuh"
#include "engine/backend/cuda/weight.cuh"

enum { ROWS_THREADS = 128 };

template <int TYPE> DEVICE float weight_value(const struct packed &p, size_t row, int e)
{
    typedef weight_traits<TYPE> t;
    size_t at = row * (size_t)p.n_in + (size_t)e;
    if (TYPE == TENSOR_F32) return ((const float *)p.q)[at];
    if (TYPE == TENSOR_F16) return f16_float(((const uint16_t *)p.q)[at]);
    if (TYPE == TENSOR_BF16) return bf16_float(((const uint16_t *)p.q)[at]);
    size_t run_i = row * (size_t)p.n_runs + (size_t)(e / 32);
    int i = e % 32, q;
    struct weight_run s;
    run_scales<TYPE>(p, run_i, &s);
    if (t::wide)
        q = (int)(int8_t)p.q[run_i * 32 + (size_t)i];
    else
        q = p.q[run_i * 16 + (size_t)(i % 16)] >> i / 16 * 4 & 15;
    if (t::five) q |= (p.high[run_i * 4 + (size_t)(i / 8)] >> i % 8 & 1) << 4;
    if (t::six) q |= (p.high[run_i * 8 + (size_t)(i / 4)] >> i % 4 * 2 & 3) << 4;
    return s.scale[i / 16] * (float)q + s.min[i / 16];
}
template <int TYPE>
KERNEL embed_rows(struct packed p, const int32_t *id, bool accumulate, float *out)
{
    float *to = out + (size_t)blockIdx.x * (size_t)p.n_in;
    for (int e = (int)threadIdx.x; e < p.n_in; e += ROWS_THREADS) {
        float v = weight_value<TYPE>(p, (size_t)id[blockIdx.x], e);
        to[e] = accumulate ? to[e] + v : v;
    }
}

/* x and out may be the same */
KERNEL norm_rows(const float *x, const float *weight, float eps, int n, float *out)
{
    SHARED(float, partial, ROWS_THREADS / LANES);
    const float *row = x + (size_t)blockIdx.x * (size_t)n;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += ROWS_THREADS)
        sum += row[i] * row[i];
    float factor = 1.0f / sqrtf(block_sum(sum, partial) / (float)n + eps);
    for (int i = (int)threadIdx.x; i < n; i += ROWS_THREADS)
        out[(size_t)blockIdx.x * (size_t)n + (size_t)i] = row[i] * factor * weight[i];
}

DEVICE size_t element()
{
    return (size_t)blockIdx.x * ROWS_THREADS + threadIdx.x;
}
KERNEL add_rows(const float *x, size_t n, float *inout)
{
    if (element() < n) inout[element()] += x[element()];
}
KERNEL scale_rows(float factor, size_t n, float *inout)
{
    if (element() < n) inout[element()] *= factor;
}
/* out[i] = x[row[i]] */
KERNEL gather_rows(const float *x, const int32_t *row, int width, size_t n, float *out)
{
    size_t i = element();
    if (i < n) out[i] = x[(size_t)row[i / (size_t)width] * (size_t)width + i % (size_t)width];
}

/* The first n_tokens of block src to block dst. kv.layer is layer 0; layers lie layer_bytes apart. */
KERNEL kv_copy_tokens(struct kv_view kv, size_t layer_bytes, int dst, int src, int n_tokens)
{
    uint8_t *to = kv.layer + blockIdx.x * layer_bytes + (size_t)dst * kv.block_bytes +
                  blockIdx.y * kv.head_bytes;
    const uint8_t *from = kv.layer + blockIdx.x * layer_bytes + (size_t)src * kv.block_bytes +
                          blockIdx.y * kv.head_bytes;
    size_t n = (size_t)n_tokens * (size_t)kv.head_dim * (kv.type == GPU_KV_F16 ? 2 : 1) / 8;
    for (size_t i = threadIdx.x; i < n; i += ROWS_THREADS) {
        ((uint2 *)to)[i] = ((const uint2 *)from)[i];
        ((uint2 *)(to + kv.v_at))[i] = ((const uint2 *)(from + kv.v_at))[i];
    }
    if (kv.type == GPU_KV_F16) return;
    for (int i = (int)threadIdx.x; i < n_tokens; i += ROWS_THREADS)
        for (int v = 0; v < 2; v++)
            ((float *)(to + kv.scale_at))[v * kv.block_tokens + i] =
                ((const float *)(from + kv.scale_at))[v * kv.block_tokens + i];
}

#endif
