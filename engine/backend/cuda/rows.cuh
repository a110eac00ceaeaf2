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

template <int TYPE>
KERNEL embed_rows(struct packed p, const int32_t *id, bool accumulate, float *out)
{
    float *to = out + (size_t)blockIdx.x * (size_t)p.n_in;
    for (int e = (int)threadIdx.x; e < p.n_in; e += ROWS_THREADS) {
        float v =
            id[blockIdx.x] >= p.n_out ? 0.0f : weight_value<TYPE>(p, (size_t)id[blockIdx.x], e);
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

/* n bytes, a multiple of 4, by the whole block. */
DEVICE void copy_words(uint8_t *to, const uint8_t *from, int n)
{
    for (int i = (int)threadIdx.x; i < n / 4; i += ROWS_THREADS)
        ((unsigned *)to)[i] = ((const unsigned *)from)[i];
}
/* The first n_tokens of block src to block dst. kv.layer is layer 0; layers lie layer_bytes apart. */
KERNEL kv_copy_tokens(struct kv_view kv, size_t layer_bytes, int dst, int src, int n_tokens)
{
    uint8_t *to = kv.layer + blockIdx.x * layer_bytes + (size_t)dst * kv.block_bytes +
                  blockIdx.y * kv.head_bytes;
    const uint8_t *from = kv.layer + blockIdx.x * layer_bytes + (size_t)src * kv.block_bytes +
                          blockIdx.y * kv.head_bytes;
    copy_words(to, from, n_tokens * kv.k_bytes);
    copy_words(to + kv.v_at, from + kv.v_at, n_tokens * kv.v_bytes);
    if (kv.type == GPU_KV_F16) return;
    copy_words(to + kv.scale_at, from + kv.scale_at, n_tokens * 4);
    copy_words(to + kv.v_scale_at, from + kv.v_scale_at, n_tokens * kv.v_scale_bytes);
}
/* Tokens' K and V to other places of the store, one move after the other: a thread takes the same bytes of every token, so that it reads
 * what it has written. grid = (layers, kv heads). */
KERNEL kv_move_tokens(struct kv_view kv, size_t layer_bytes, struct kv_move_list list)
{
    uint8_t *head = kv.layer + blockIdx.x * layer_bytes + blockIdx.y * kv.head_bytes;
    for (int i = 0; i < list.n; i++) {
        struct kv_place m = list.move[i];
        uint8_t *to = head + (size_t)m.dst_block * kv.block_bytes;
        const uint8_t *from = head + (size_t)m.src_block * kv.block_bytes;
        copy_words(to + m.dst_at * kv.k_bytes, from + m.src_at * kv.k_bytes, kv.k_bytes);
        copy_words(to + kv.v_at + m.dst_at * kv.v_bytes, from + kv.v_at + m.src_at * kv.v_bytes,
                   kv.v_bytes);
        if (kv.type == GPU_KV_F16) continue;
        copy_words(to + kv.scale_at + m.dst_at * 4, from + kv.scale_at + m.src_at * 4, 4);
        copy_words(to + kv.v_scale_at + m.dst_at * kv.v_scale_bytes,
                   from + kv.v_scale_at + m.src_at * kv.v_scale_bytes, kv.v_scale_bytes);
    }
}

#endif
