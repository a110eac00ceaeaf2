/* attend_wide.cuh - causal attention of large tiles (up to 64 query vectors: prompt chunks, shared prefixes) over the block table with the
 * means of sm_90a: K and V come by the tensor memory accelerator, a block of the cache a copy; both products are a warp group's (wgmma),
 * queries and weights in registers, K and V in shared memory as they lie in the cache. KV in f16, heads of 64 or 128.
 *
 * attend_wide<head_dim>: grid = (tiles x splits, kv heads), block = 4 warps, 16 vectors a warp. Steps of WIDE_RUN = 64 tokens, two buffers:
 *   the next step's copies are on their way while this one is computed. Shared (dynamic): 2 * 2 * 64 * head_dim * 2 bytes and up to 1 KB to
 *   its alignment (65 KB for heads of 128); a slab is 64 tokens by 64 dimensions, rows of 128 bytes, swizzled. Bytes: K and V once a
 *   tile, in whole blocks. Blocks of 8, 16, 32 or 64 tokens.
 * Not for drafts that branch: their tokens lie apart. Splits, the scratch for parts and attend_merge are those of attention.cuh; sums are
 * taken in another order, so bits differ from attend_tiles, and what a split of a row gives depends on this tile's shape only in that.
 * Sources: Shah et al. 2024, arXiv:2407.08608 (FlashAttention-3: wgmma with weights in registers); what it adds to that, overlapping softmax
 * with products and warps that only copy, is not here. Never run on hardware: off unless asked for. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ATTEND_WIDE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ATTEND_WIDE_CUH
#include "engine/backend/cuda/attend_maps.h"
#include "engine/backend/cuda/attention.cuh"
#include "engine/backend/cuda/hopper.cuh"

enum { WIDE_RUN = 64, WIDE_ALIGN = 1024, WIDE_THREADS_ALL = 128, WIDE_SLAB = WIDE_RUN * 128 };

template <int DIM> struct wide_bytes {
    static constexpr int slabs = DIM / 64, half = slabs * WIDE_SLAB, stage = 2 * half,
                         all = 2 * stage + WIDE_ALIGN;
};

/* Copies of tokens at..min(at + 64, end) into a stage: K's slabs, then V's. By one thread. */
template <int DIM>
DEVICE void wide_load(const struct attend_args &a, const struct attend_maps &maps,
                      const int32_t *table, int head, int at, int end, uint8_t *stage,
                      uint64_t *bar)
{
    int tokens = a.kv.block_tokens, n = (min(at + WIDE_RUN, end) - at + tokens - 1) / tokens;
    BAR_EXPECT(bar, (unsigned)(n * tokens * 128 * 2 * wide_bytes<DIM>::slabs));
    for (int b = 0; b < n; b++)
        for (int slab = 0; slab < wide_bytes<DIM>::slabs; slab++) {
            int from[5] = {slab * 64, 0, head, table[at / tokens + b], a.layer};
            uint8_t *to = stage + slab * WIDE_SLAB + b * tokens * 128;
            TMA_LOAD(to, &maps.k, from, bar);
            TMA_LOAD(to + wide_bytes<DIM>::half, &maps.v, from, bar);
        }
}

/* Tokens past the end have no weight, but a zero times what lies there must be zero. */
template <int DIM> DEVICE void wide_clear(uint8_t *v, int n_tokens)
{
    int chunks = (WIDE_RUN - n_tokens) * 8;
    for (int i = (int)threadIdx.x; i < chunks * wide_bytes<DIM>::slabs; i += WIDE_THREADS_ALL)
        *(uint4 *)(v + i / chunks * WIDE_SLAB + n_tokens * 128 + i % chunks * 16) =
            make_uint4(0, 0, 0, 0);
    ASYNC_FENCE();
    __syncthreads();
}

/* Of products: sums and the fragments that are multiplied. */
template <int N> DEVICE void wide_hold(float (&d)[32], unsigned (&a)[N][4])
{
    WGMMA_HOLD(d);
#pragma unroll
    for (int i = 0; i < N; i++)
        WGMMA_HOLD(a[i]);
}
template <int M, int N> DEVICE void wide_hold(float (&d)[M][32], unsigned (&a)[N][4])
{
#pragma unroll
    for (int i = 1; i < M; i++)
        WGMMA_HOLD(d[i]);
    wide_hold(d[0], a);
}

template <int DIM>
DEVICE void wide_scores(const struct attend_args &a, unsigned (&q)[DIM / 16][4], const uint8_t *k,
                        int at, const struct attend_sight &sight, float (&s)[32])
{
    wide_hold(s, q);
    WGMMA_FENCE();
#pragma unroll
    for (int i = 0; i < DIM / 16; i++)
        WGMMA_64(s, q[i], WGMMA_TILE(k + i / 4 * WIDE_SLAB + i % 4 * 32), false, i > 0);
    WGMMA_COMMIT();
    WGMMA_WAIT();
    wide_hold(s, q);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int token = at + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
        if (a.softcap > 0) s[i] = a.softcap * tanhf(s[i] / a.softcap);
        if (token < sight.from[i / 2 % 2] || token >= sight.to[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* As attend_softmax, over 64 tokens. */
template <int DIM>
DEVICE void wide_softmax(struct attend_state *st, float (&s)[32], float (&o)[DIM / 64][32])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i / 2 % 2 == r) most = fmaxf(most, s[i]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        most = fmaxf(most, st->max[r]);
        float base = most == -INFINITY ? 0.0f : most, keep = __expf(st->max[r] - base);
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (i / 2 % 2 == r) sum += s[i] = __expf(s[i] - base);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        st->sum[r] = st->sum[r] * keep + sum;
        st->max[r] = most;
#pragma unroll
        for (int d = 0; d < DIM / 64; d++)
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (i / 2 % 2 == r) o[d][i] *= keep;
    }
}

template <int DIM>
DEVICE void wide_values(const float (&s)[32], const uint8_t *v, float (&o)[DIM / 64][32])
{
    unsigned p[WIDE_RUN / 16][4];
#pragma unroll
    for (int i = 0; i < WIDE_RUN / 16; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int at = (2 * i + r / 2) * 4 + r % 2 * 2;
            p[i][r] = (unsigned)float_f16(s[at + 1]) << 16 | float_f16(s[at]);
        }
    wide_hold(o, p);
    WGMMA_FENCE();
#pragma unroll
    for (int d = 0; d < DIM / 64; d++)
#pragma unroll
        for (int i = 0; i < WIDE_RUN / 16; i++)
            WGMMA_64(o[d], p[i], WGMMA_TILE(v + d * WIDE_SLAB + i * 16 * 128), true, 1);
    WGMMA_COMMIT();
    WGMMA_WAIT();
    wide_hold(o, p);
}

/* Each lane's own elements of its two vectors. */
template <int DIM>
DEVICE void wide_write(const struct attend_args &a, const struct attend_tile &t, int first,
                       int head, const struct attend_state &st, const float (&o)[DIM / 64][32])
{
    int lane = (int)threadIdx.x % LANES, row, query_head,
        split = t.first_split + (int)(blockIdx.x % (unsigned)a.splits_max);
    bool whole = !t.listed && t.first_split == 0 && t.n_splits == 1;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (!attend_vector(a, t, first + lane / 4 + 8 * r, head, &row, &query_head)) continue;
        size_t vector = (size_t)row * (size_t)a.n_heads + (size_t)query_head,
               part = (vector - a.first_vector) * (size_t)a.splits_max + (size_t)split;
        float *to = whole ? a.out + vector * DIM : a.part_o + part * DIM,
              scale = !whole          ? 1.0f
                      : st.sum[r] > 0 ? 1.0f / st.sum[r]
                                      : 0.0f;
#pragma unroll
        for (int d = 0; d < DIM / 64; d++)
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (i / 2 % 2 == r) to[d * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = o[d][i] * scale;
        if (whole || lane % 4) continue;
        a.part_stats[part * 2] = st.max[r];
        a.part_stats[part * 2 + 1] = st.sum[r];
    }
}

template <int DIM>
KERNEL __launch_bounds__(WIDE_THREADS_ALL)
    attend_wide(struct attend_args a, const __grid_constant__ struct attend_maps maps)
{
    DYN_SHARED(uint8_t, raw);
    SHARED(uint64_t, full, 2);
    int lane = (int)threadIdx.x % LANES, first = (int)threadIdx.x / LANES * 16,
        head = (int)blockIdx.y, row, query_head, split = (int)(blockIdx.x % (unsigned)a.splits_max);
    const struct attend_tile t = a.tiles[blockIdx.x / (unsigned)a.splits_max];
    if (split >= t.n_splits) return; /* the whole block */
    uint8_t *stages = raw + (WIDE_ALIGN - shared_address(raw) % WIDE_ALIGN) % WIDE_ALIGN;
    const int32_t *table = a.rows.table + (size_t)t.seq * (size_t)a.rows.table_stride;
    int begin = t.from + split * ATTEND_SPLIT, end = min(t.to, begin + ATTEND_SPLIT);
    struct attend_sight sight;
    struct attend_state st = {{-INFINITY, -INFINITY}, {0, 0}};
    unsigned q[DIM / 16][4];
    float o[DIM / 64][32] = {{0}};
    if (threadIdx.x == 0) {
        BAR_INIT(&full[0], 1);
        BAR_INIT(&full[1], 1);
        BAR_INIT_FENCE();
    }
    __syncthreads();
    if (threadIdx.x == 0) wide_load<DIM>(a, maps, table, head, begin, end, stages, &full[0]);
    for (int r = 0; r < 2; r++) {
        bool real = attend_vector(a, t, first + lane / 4 + 8 * r, head, &row, &query_head);
        attend_look(a, &sight, r, row, real);
    }
    attend_queries<DIM>(a, t, first, head, q);
    for (int at = begin, step = 0; at < end; at += WIDE_RUN, step++) {
        uint8_t *now = stages + step % 2 * wide_bytes<DIM>::stage,
                *next = stages + (step + 1) % 2 * wide_bytes<DIM>::stage;
        float s[32] = {0};
        if (threadIdx.x == 0 && at + WIDE_RUN < end)
            wide_load<DIM>(a, maps, table, head, at + WIDE_RUN, end, next, &full[(step + 1) % 2]);
        BAR_WAIT(&full[step % 2], (unsigned)(step / 2 % 2));
        if (end - at < WIDE_RUN) wide_clear<DIM>(now + wide_bytes<DIM>::half, end - at);
        wide_scores<DIM>(a, q, now, at, sight, s);
        wide_softmax<DIM>(&st, s, o);
        wide_values<DIM>(s, now + wide_bytes<DIM>::half, o);
        __syncthreads(); /* nobody reads this stage any more */
    }
    wide_write<DIM>(a, t, first, head, st, o);
}

#endif
