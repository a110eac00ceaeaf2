/* attention.cuh - causal attention over the block table, for decoding and prompt chunks alike, on tensor cores.
 * All query heads of a KV head are taken together: a tile is up to 16 query vectors of one sequence (rows x heads of the group), the
 * M of mma.m16n8k16. The context is cut at fixed positions into splits of ATTEND_SPLIT tokens, so that a result does not depend on
 * what else is in the batch; splits are merged by attend_merge.
 *
 * attend_tiles<head_dim>: grid = (tiles x splits, kv heads), block = 4 warps; each warp takes every fourth run of 16 tokens and keeps
 *   its own running maximum, sum and output; they meet in shared memory at the end. Shared (dynamic): for each warp K and V of two
 *   runs, f16, rows 8 elements apart so that ldmatrix meets no bank twice: 4 * 2 * 2 * 16 * (head_dim + 8) * 2 bytes. K and V
 *   are read once for all heads of a group; f16 comes by cp.async one run ahead, 8-bit types are widened on the way.
 * attend_merge: grid = (query vectors), block = head_dim rounded up to warps.
 * Sources: Dao 2023, arXiv:2307.08691 (online softmax on fragments); Flash-Decoding, Dao et al. 2023 (splits); Kwon et al. 2023,
 * arXiv:2309.06180 (paged KV). Never measured on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ATTENTION_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ATTENTION_CUH
#include "engine/backend/cuda/kv.cuh"

enum {
    ATTEND_WARPS = 4,
    ATTEND_THREADS = ATTEND_WARPS * LANES,
    ATTEND_RUN = 16, /* tokens of one step of a warp */
    ATTEND_PAD = 8
};

/* Shared elements (2 bytes) of one warp. */
template <int DIM> struct attend_shape {
    static constexpr int warp_elements = 2 * 2 * ATTEND_RUN * (DIM + ATTEND_PAD);
};

struct
    attend_state { /* of the two query vectors whose fragments a lane holds: rows lane / 4 and lane / 4 + 8 */
    float max[2], sum[2];
};

/* Tokens at..at+15 of K or V as f16 rows of dim + 8; what lies past `to`, or past the head's real size, is zero. By one warp. */
template <int DIM>
DEVICE void attend_load(const struct attend_args &a, const int32_t *table, int head, size_t part_at,
                        size_t scale_at, int at, int to, uint16_t *tile)
{
    int lane = (int)threadIdx.x % LANES, dim = a.kv.head_dim;
    for (int i = lane; i < ATTEND_RUN * (DIM / 8); i += LANES) {
        int token = at + i / (DIM / 8), e = i % (DIM / 8) * 8;
        uint16_t *out = tile + i / (DIM / 8) * (DIM + ATTEND_PAD) + e;
        if (token >= to || e >= dim) {
            *(uint4 *)out = make_uint4(0, 0, 0, 0);
            continue;
        }
        const uint8_t *head_at = kv_head(a.kv, table[token / a.kv.block_tokens], head);
        size_t slot = (size_t)(token % a.kv.block_tokens), from = slot * (size_t)dim + (size_t)e;
        if (a.kv.type == GPU_KV_F16) {
            COPY_ASYNC_16(out, (const uint16_t *)(head_at + part_at) + from);
            continue;
        }
        uint2 bytes = *(const uint2 *)(head_at + part_at + from);
        float d = ((const float *)(head_at + scale_at))[slot];
        for (int j = 0; j < 8; j++) {
            uint8_t b = (uint8_t)((j < 4 ? bytes.x : bytes.y) >> j % 4 * 8);
            out[j] = float_f16(d * (a.kv.type == GPU_KV_INT8 ? (float)(int8_t)b : e4m3_float(b)));
        }
    }
}

/* Which row and head a query vector of the tile is; false: there is none. */
DEVICE bool attend_vector(const struct attend_args &a, const struct attend_tile &t, int v, int head,
                          int *row, int *query_head)
{
    int group = a.n_heads / a.kv.n_heads;
    *row = t.row + (t.vector + v) / group;
    *query_head = head * group + (t.vector + v) % group;
    return v < t.n_vectors;
}

template <int DIM>
DEVICE void attend_queries(const struct attend_args &a, const struct attend_tile &t, int head,
                           unsigned q[DIM / 16][4])
{
    int lane = (int)threadIdx.x % LANES, dim = a.kv.head_dim, row, query_head;
    for (int k = 0; k < DIM / 16; k++)
        for (int r = 0; r < 4; r++) {
            int e = k * 16 + lane % 4 * 2 + r / 2 * 8;
            bool real = attend_vector(a, t, lane / 4 + r % 2 * 8, head, &row, &query_head);
            if (!real || e >= dim) {
                q[k][r] = 0;
                continue;
            }
            const float *x =
                a.q + ((size_t)row * (size_t)a.n_heads + (size_t)query_head) * (size_t)dim + e;
            q[k][r] = (unsigned)float_f16(x[1] * a.scale) << 16 | float_f16(x[0] * a.scale);
        }
}

/* s[tile of 8 tokens][fragment] = scores of 16 tokens, masked; -inf where a vector may not look. */
template <int DIM>
DEVICE void attend_scores(const struct attend_args &a, const unsigned q[DIM / 16][4],
                          const uint16_t *k_tile, int at, const int from[2], const int to[2],
                          float s[2][4])
{
    int lane = (int)threadIdx.x % LANES;
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++)
            s[n][i] = 0;
    for (int k = 0; k < DIM / 16; k++) {
        unsigned b[4]; /* tokens 0..7 | 8..15, elements 0..7 | 8..15 of these 16 */
        int token = lane % 8 + lane / 16 * 8, e = k * 16 + lane / 8 % 2 * 8;
        LDMATRIX_X4(b, k_tile + token * (DIM + ATTEND_PAD) + e);
        MMA_F16(s[0], q[k], b);
        MMA_F16(s[1], q[k], (b + 2));
    }
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++) {
            int token = at + n * 8 + lane % 4 * 2 + i % 2;
            if (a.softcap > 0) s[n][i] = a.softcap * tanhf(s[n][i] / a.softcap);
            if (token < from[i / 2] || token >= to[i / 2]) s[n][i] = -INFINITY;
        }
}

/* Scores become weights in place; the running maximum moves, and what was summed under the old one is scaled. */
template <int DIM>
DEVICE void attend_softmax(struct attend_state *st, float s[2][4], float o[DIM / 8][4])
{
    for (int r = 0; r < 2; r++) {
        float most =
            fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        most = fmaxf(most, st->max[r]);
        float base = most == -INFINITY ? 0.0f : most, keep = __expf(st->max[r] - base), sum = 0;
        for (int n = 0; n < 2; n++)
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                s[n][i] = __expf(s[n][i] - base);
                sum += s[n][i];
            }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        st->sum[r] = st->sum[r] * keep + sum;
        st->max[r] = most;
        for (int d = 0; d < DIM / 8; d++)
            for (int i = 2 * r; i < 2 * r + 2; i++)
                o[d][i] *= keep;
    }
}

template <int DIM>
DEVICE void attend_values(const float s[2][4], const uint16_t *v_tile, float o[DIM / 8][4])
{
    int lane = (int)threadIdx.x % LANES;
    unsigned p[4];
    for (int r = 0; r < 4; r++) {
        const float *two = s[r / 2] + r % 2 * 2;
        p[r] = (unsigned)float_f16(two[1]) << 16 | float_f16(two[0]);
    }
    for (int d = 0; d < DIM / 16; d++) {
        unsigned b[4]; /* elements 0..7: tokens 0..7 | 8..15, then elements 8..15 */
        LDMATRIX_X4_T(b, v_tile + lane % 16 * (DIM + ATTEND_PAD) + d * 16 + lane / 16 * 8);
        MMA_F16(o[2 * d], p, b);
        MMA_F16(o[2 * d + 1], p, (b + 2));
    }
}

/* The four warps' parts become one; vector v of the tile is written by the threads in turn. parts: [warp]{ o f32[16][dim] },
 * stats f32[warp][16][2]. */
template <int DIM>
DEVICE void attend_write(const struct attend_args &a, const struct attend_tile &t, int split,
                         int head, const uint16_t *shared, const float *stats)
{
    int dim = a.kv.head_dim, row, query_head;
    for (int i = (int)threadIdx.x; i < t.n_vectors * dim; i += ATTEND_THREADS) {
        int v = i / dim, e = i % dim;
        float most = -INFINITY, sum = 0, o = 0;
        for (int w = 0; w < ATTEND_WARPS; w++)
            most = fmaxf(most, stats[(w * 16 + v) * 2]);
        for (int w = 0; w < ATTEND_WARPS && most > -INFINITY; w++) {
            float share = __expf(stats[(w * 16 + v) * 2] - most);
            sum += share * stats[(w * 16 + v) * 2 + 1];
            o += share *
                 ((const float *)(shared + w * attend_shape<DIM>::warp_elements))[v * DIM + e];
        }
        attend_vector(a, t, v, head, &row, &query_head);
        size_t vector = (size_t)row * (size_t)a.n_heads + (size_t)query_head;
        if (t.n_splits == 1) {
            a.out[vector * (size_t)dim + (size_t)e] = sum > 0 ? o / sum : 0.0f;
            continue;
        }
        size_t part = vector * (size_t)a.splits_max + (size_t)split;
        a.part_o[part * (size_t)dim + (size_t)e] = o;
        if (e == 0) {
            a.part_stats[part * 2] = most;
            a.part_stats[part * 2 + 1] = sum;
        }
    }
}

template <int DIM> KERNEL attend_tiles(struct attend_args a)
{
    DYN_SHARED(uint16_t, shared);
    SHARED(float, stats, ATTEND_WARPS * 16 * 2);
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES, head = (int)blockIdx.y;
    const struct attend_tile t = a.tiles[blockIdx.x / (unsigned)a.splits_max];
    int split = (int)(blockIdx.x % (unsigned)a.splits_max);
    if (split >= t.n_splits) return; /* the whole block */
    const int32_t *table = a.rows.table + (size_t)t.seq * (size_t)a.rows.table_stride;
    int from[2], to[2], row, query_head; /* what each of the lane's two vectors may see */
    for (int r = 0; r < 2; r++) {
        bool real = attend_vector(a, t, lane / 4 + 8 * r, head, &row, &query_head);
        to[r] = real ? a.rows.pos[row] + 1 : 0;
        from[r] = a.window && to[r] > a.window ? to[r] - a.window : 0;
    }
    int begin = t.from + split * ATTEND_SPLIT, end = min(t.to, begin + ATTEND_SPLIT);
    unsigned q[DIM / 16][4];
    attend_queries<DIM>(a, t, head, q);
    float o[DIM / 8][4] = {{0}};
    struct attend_state st = {{-INFINITY, -INFINITY}, {0, 0}};
    uint16_t *mine = shared + warp * attend_shape<DIM>::warp_elements;
    constexpr int PART = ATTEND_RUN * (DIM + ATTEND_PAD);
    size_t v_scale_at = a.kv.scale_at + (size_t)a.kv.block_tokens * sizeof(float);
    for (int at = begin + warp * ATTEND_RUN, ahead = 0, step = 0; at < end;
         at += ATTEND_WARPS * ATTEND_RUN, step++) {
        for (; ahead <= step + 1; ahead++) { /* this run and the next */
            int next = begin + (warp + ahead * ATTEND_WARPS) * ATTEND_RUN;
            uint16_t *k = mine + ahead % 2 * 2 * PART;
            if (next < end) {
                attend_load<DIM>(a, table, head, 0, a.kv.scale_at, next, end, k);
                attend_load<DIM>(a, table, head, a.kv.v_at, v_scale_at, next, end, k + PART);
            }
            COPY_COMMIT();
        }
        COPY_WAIT(1);
        __syncwarp();
        float s[2][4];
        uint16_t *k = mine + step % 2 * 2 * PART;
        attend_scores<DIM>(a, q, k, at, from, to, s);
        attend_softmax<DIM>(&st, s, o);
        attend_values<DIM>(s, k + PART, o);
        __syncwarp();
    }
    COPY_WAIT(0);
    __syncwarp();
    for (int r = 0; r < 2; r++) {
        int v = lane / 4 + 8 * r;
        for (int d = 0; d < DIM / 8; d++)
            for (int i = 0; i < 2; i++)
                ((float *)mine)[v * DIM + d * 8 + lane % 4 * 2 + i] = o[d][2 * r + i];
        if (lane % 4 == 0) {
            stats[(warp * 16 + v) * 2] = st.max[r];
            stats[(warp * 16 + v) * 2 + 1] = st.sum[r];
        }
    }
    __syncthreads();
    attend_write<DIM>(a, t, split, head, shared, stats);
}

/* One query vector: its splits become one. */
KERNEL attend_merge(struct attend_args a, const int32_t *n_splits)
{
    int dim = a.kv.head_dim;
    size_t vector = blockIdx.x;
    int n = n_splits[vector / (size_t)a.n_heads];
    if (n == 1) return;
    const float *stats = a.part_stats + vector * (size_t)a.splits_max * 2;
    float most = -INFINITY, sum = 0;
    for (int s = 0; s < n; s++)
        most = fmaxf(most, stats[s * 2]);
    for (int s = 0; s < n; s++)
        sum += __expf(stats[s * 2] - most) * stats[s * 2 + 1];
    for (int e = (int)threadIdx.x; e < dim; e += (int)blockDim.x) {
        float o = 0;
        for (int s = 0; s < n; s++)
            o += __expf(stats[s * 2] - most) *
                 a.part_o[(vector * (size_t)a.splits_max + (size_t)s) * (size_t)dim + (size_t)e];
        a.out[vector * (size_t)dim + (size_t)e] = o / sum;
    }
}

#endif
