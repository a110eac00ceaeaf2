/* kv.cuh - paged K and V on the GPU, and rope on the way in. One layer is [block][kv head]{ K [block_tokens][head_dim], V [block_tokens]
 * [head_dim], and for the rounded types: scale of K f32[block_tokens], scale of V f32[block_tokens] }.
 * f16 as it is; int8 is scaled by the largest value of a token's head. k8v4: K as int8; V in nibbles (element 2i low, 2i + 1
 * high in byte i), with {scale f16, minimum f16}[block_tokens][groups of GPU_V4_GROUP dimensions] in place of its scale: v = nibble *
 * scale + minimum.
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

/* x f32[head_dim] -> V of a token in nibbles, each group between its smallest and its largest value; by one warp, a lane an element. */
DEVICE void kv_write_v4(const struct kv_view &kv, uint8_t *to, uint16_t *scale_min, const float *x)
{
    int lane = (int)threadIdx.x;
    for (int g = 0; g * GPU_V4_GROUP < kv.head_dim; g++) {
        int e = g * GPU_V4_GROUP + lane;
        bool real = e < kv.head_dim;
        float v = real ? x[e] : 0, most = warp_max(real ? v : -INFINITY),
              least = -warp_max(real ? -v : -INFINITY);
        uint16_t d_bits = float_f16((most - least) / 15.0f), m_bits = float_f16(least);
        float d = f16_float(d_bits), q = d > 0 ? (v - f16_float(m_bits)) / d : 0.0f;
        int low = __float2int_rn(fminf(fmaxf(q, 0.0f), 15.0f)),
            high = __shfl_down_sync(0xffffffffu, low, 1);
        if (real && lane % 2 == 0) to[e / 2] = (uint8_t)(low | high << 4);
        if (lane == 0) scale_min[2 * g] = d_bits, scale_min[2 * g + 1] = m_bits;
    }
}

/* x f32[head_dim] in shared memory -> K or V of a token; by one warp. */
DEVICE void kv_write(const struct kv_view &kv, uint8_t *head, bool is_v, int slot, const float *x)
{
    int lane = (int)threadIdx.x;
    uint8_t *part = head + (is_v ? kv.v_at : 0);
    if (is_v && kv.type == GPU_KV_K8V4) {
        uint8_t *scale_min = head + kv.v_scale_at + (size_t)slot * (size_t)kv.v_scale_bytes;
        kv_write_v4(kv, part + (size_t)slot * (size_t)kv.v_bytes, (uint16_t *)scale_min, x);
        return;
    }
    if (kv.type == GPU_KV_F16) {
        for (int i = lane; i < kv.head_dim; i += LANES)
            ((uint16_t *)part)[(size_t)slot * (size_t)kv.head_dim + (size_t)i] = float_f16(x[i]);
        return;
    }
    float most = 0;
    for (int i = lane; i < kv.head_dim; i += LANES)
        most = fmaxf(most, fabsf(x[i]));
    most = warp_max(most);
    float d = most > 0 ? most / 127.0f : 1.0f;
    for (int i = lane; i < kv.head_dim; i += LANES)
        part[(size_t)slot * (size_t)kv.head_dim + (size_t)i] = (uint8_t)__float2int_rn(x[i] / d);
    if (lane == 0) ((float *)(head + (is_v ? kv.v_scale_at : kv.scale_at)))[slot] = d;
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
    if (pos < 0) return; /* padding; the whole block */
    bool is_query = head < a.n_heads;
    int kv_i = head - a.n_heads;
    float *x =
        is_query ? a.q + ((size_t)row * (size_t)a.n_heads + (size_t)head) * (size_t)dim
                 : (float *)a.k + ((size_t)row * (size_t)a.kv.n_heads + (size_t)kv_i) * (size_t)dim;
    for (int i = (int)threadIdx.x; i < dim; i += LANES)
        in[i] = x[i];
    __syncthreads();
    rope_turn(a.rope, pos, dim, in, out);
    const float *spread =
        a.spread ? a.spread + (is_query ? head / (a.n_heads / a.kv.n_heads) : kv_i) * dim : NULL;
    for (int i = (int)threadIdx.x; spread && i < dim; i += LANES)
        out[i] = is_query ? out[i] * spread[i] : out[i] / spread[i];
    __syncthreads();
    if (is_query) {
        for (int i = (int)threadIdx.x; i < dim; i += LANES)
            x[i] = out[i];
        return;
    }
    int at = a.rows.slot ? a.rows.slot[row] : pos, slot = at % a.kv.block_tokens;
    int block = a.rows.table[(size_t)a.rows.seq[row] * (size_t)a.rows.table_stride +
                             (size_t)(at / a.kv.block_tokens)];
    uint8_t *to = kv_head(a.kv, block, kv_i);
    kv_write(a.kv, to, false, slot, out);
    const float *value = a.v + ((size_t)row * (size_t)a.kv.n_heads + (size_t)kv_i) * (size_t)dim;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < dim; i += LANES)
        in[i] = value[i];
    __syncthreads();
    kv_write(a.kv, to, true, slot, in);
}

#endif
