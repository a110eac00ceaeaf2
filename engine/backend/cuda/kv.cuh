/* kv.cuh - paged K and V on the GPU, and rope on the way in. One layer is [block][kv head]{ K [block_tokens][head_dim], V [block_tokens]
 * [head_dim], and for the 8-bit types: scale of K f32[block_tokens], scale of V f32[block_tokens] }.
 * f16 as it is; int8 and E4M3 are scaled by the largest value of a token's head.
 *
 * rope_store: grid = (rows, query heads + kv heads), block = a warp. Queries are turned in place; keys are turned, rounded and stored,
 *   and the value of the same head with them. Bytes a row: 8 head_dim a query head; 8 head_dim read and 4 (2) written a kv head. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_KV_CUH
#define DEJA_ENGINE_BACKEND_CUDA_KV_CUH
#include "engine/backend/cuda/launch.h"
#include "engine/backend/cuda/reduce.cuh"

enum { HEAD_MAX = 256 };

DEVICE uint8_t *kv_head(const struct kv_view &kv, int block, int head)
{
    return kv.layer + (size_t)block * kv.block_bytes + (size_t)head * kv.head_bytes;
}
DEVICE float kv_e4m3_scale(float most)
{
    return most > 0 ? most / 448.0f : 1.0f;
}

/* x f32[head_dim] in shared memory -> slot of a K or V part; by one warp. */
DEVICE void kv_write(const struct kv_view &kv, uint8_t *part, float *scale, int slot,
                     const float *x)
{
    int lane = (int)threadIdx.x;
    if (kv.type == GPU_KV_F16) {
        for (int i = lane; i < kv.head_dim; i += LANES)
            ((uint16_t *)part)[(size_t)slot * (size_t)kv.head_dim + (size_t)i] = float_f16(x[i]);
        return;
    }
    float most = 0;
    for (int i = lane; i < kv.head_dim; i += LANES)
        most = fmaxf(most, fabsf(x[i]));
    most = warp_max(most);
    float d = kv.type == GPU_KV_INT8 ? (most > 0 ? most / 127.0f : 1.0f) : kv_e4m3_scale(most);
    for (int i = lane; i < kv.head_dim; i += LANES) {
        float v = x[i] / d;
        part[(size_t)slot * (size_t)kv.head_dim + (size_t)i] =
            kv.type == GPU_KV_INT8 ? (uint8_t)__float2int_rn(v) : float_e4m3(v);
    }
    if (lane == 0) scale[slot] = d;
}

/* in f32[head_dim] -> out f32[head_dim] turned (pairs (i, i + dims/2) or (2i, 2i + 1)); by one warp. */
DEVICE void rope_turn(const struct rope_view &r, int pos, int head_dim, const float *in, float *out)
{
    int half = r.dims / 2;
    for (int i = (int)threadIdx.x; i < head_dim; i += LANES) {
        if (!r.cos_sin || i >= r.dims) {
            out[i] = in[i];
            continue;
        }
        int pair = r.half_split ? i % half : i / 2;
        bool first = r.half_split ? i < half : i % 2 == 0;
        int other = r.half_split ? (first ? i + half : i - half) : i ^ 1;
        const float *cs = r.cos_sin + ((size_t)pos * (size_t)half + (size_t)pair) * 2;
        out[i] = first ? in[i] * cs[0] - in[other] * cs[1] : in[i] * cs[0] + in[other] * cs[1];
    }
}

KERNEL rope_store(struct rope_store_args a)
{
    SHARED(float, in, HEAD_MAX);
    SHARED(float, out, HEAD_MAX);
    int row = (int)blockIdx.x, head = (int)blockIdx.y, dim = a.kv.head_dim, pos = a.rows.pos[row];
    bool is_query = head < a.n_heads;
    int kv_i = head - a.n_heads;
    float *x =
        is_query ? a.q + ((size_t)row * (size_t)a.n_heads + (size_t)head) * (size_t)dim
                 : (float *)a.k + ((size_t)row * (size_t)a.kv.n_heads + (size_t)kv_i) * (size_t)dim;
    for (int i = (int)threadIdx.x; i < dim; i += LANES)
        in[i] = x[i];
    __syncthreads();
    rope_turn(a.rope, pos, dim, in, out);
    __syncthreads();
    if (is_query) {
        for (int i = (int)threadIdx.x; i < dim; i += LANES)
            x[i] = out[i];
        return;
    }
    int block = a.rows.table[(size_t)a.rows.seq[row] * (size_t)a.rows.table_stride +
                             (size_t)(pos / a.kv.block_tokens)];
    int slot = pos % a.kv.block_tokens;
    uint8_t *k = kv_head(a.kv, block, kv_i), *v = k + a.kv.v_at;
    float *scale = (float *)(k + a.kv.scale_at);
    kv_write(a.kv, k, scale, slot, out);
    const float *value = a.v + ((size_t)row * (size_t)a.kv.n_heads + (size_t)kv_i) * (size_t)dim;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < dim; i += LANES)
        in[i] = value[i];
    __syncthreads();
    kv_write(a.kv, v, scale + a.kv.block_tokens, slot, in);
}

#endif
