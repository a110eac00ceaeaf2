/* attention.cuh - causal attention over the block table, for decoding and prompt chunks alike, on tensor cores.
 * All query heads of a KV head are taken together: a tile is up to 16 M query vectors (rows x heads of the group; attend_plan.h), 16
 * being the rows of mma.m16n8k16. The context is cut at fixed positions into splits of ATTEND_SPLIT tokens, so that a result does not
 * depend on what else is in the batch; splits are merged by attend_merge.
 *
 * attend_tiles<head_dim, M>: grid = (tiles x splits, kv heads), block = 4 teams of M warps. A team takes every fourth run of 16 tokens,
 *   each of its warps 16 of the vectors, with their own running maximum, sum and output; teams meet in shared memory at the end.
 *   Shared (dynamic): for each team K and V of two runs, f16, rows 8 elements apart so that ldmatrix meets no bank twice: 4 * 2 * 2 *
 *   16 * (head_dim + 8) * 2 bytes; of heads over 128 wide one run, as most devices give a block 99 KiB and two would be 132 KiB.
 *   K and V are read once a tile; f16 comes by cp.async, one run ahead where there are two, rounded types are widened on the way.
 *   M = 1 for a decoding row, more for prompts and for prefixes that rows of several sequences share: the bits are the same.
 *   A node of a tree of drafts has a tile of its own from the split on in which its tree begins.
 * attend_merge: grid = (query vectors), block = 64. Bytes: each split's part of the vector, once.
 * Sources: Dao 2023, arXiv:2307.08691 (online softmax on fragments); Flash-Decoding, Dao et al. 2023 (splits); Kwon et al. 2023,
 * arXiv:2309.06180 (paged KV). Never measured on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ATTENTION_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ATTENTION_CUH
#include <limits.h>

#include "engine/backend/cuda/kv.cuh"

enum {
    ATTEND_TEAMS = 4,
    ATTEND_RUN = 16, /* tokens of one step of a warp */
    ATTEND_PAD = 8,
    SHARED_EVERYWHERE =
        99 << 10 /* bytes a block may have on every supported device: 8.6, 8.9, 12.x have no more */
};

template <int DIM> struct attend_shape {
    static constexpr int buffers = DIM <= 128 ? 2 : 1, /* runs that are there at once */
        team_elements = buffers * 2 * ATTEND_RUN * (DIM + ATTEND_PAD); /* shared, 2 bytes each */
    static_assert(team_elements * 2 >= 16 * DIM * 4, "a team's part of the output lies there too");
};

struct attend_sight { /* of two query vectors: tokens from..to-1 */
    int from[2], to[2];
};
struct
    attend_state { /* of the two query vectors whose fragments a lane holds: rows lane / 4 and lane / 4 + 8 */
    float max[2], sum[2];
};

/* Elements e..e+7 of a token's K or V as f16. */
DEVICE void attend_widen(const struct kv_view &kv, const uint8_t *head, bool is_v, int slot, int e,
                         uint16_t *out)
{
    const uint8_t *token = head + (is_v ? kv.v_at + (size_t)(slot * kv.v_bytes)
                                        : (size_t)(slot * kv.k_bytes)),
                  *scale = head + (is_v ? kv.v_scale_at : kv.scale_at);
    if (kv.type == GPU_KV_F16) {
        COPY_ASYNC_16(out, (const uint16_t *)token + e);
        return;
    }
    if (is_v && kv.type == GPU_KV_K8V4) {
        unsigned nibbles = *(const unsigned *)(token + e / 2),
                 scale_min =
                     *(const unsigned *)(scale + slot * kv.v_scale_bytes + e / GPU_V4_GROUP * 4);
        float d = f16_float((uint16_t)scale_min), m = f16_float((uint16_t)(scale_min >> 16));
        for (int j = 0; j < 8; j++)
            out[j] = float_f16(d * (float)(nibbles >> 4 * j & 15) + m);
        return;
    }
    uint2 bytes = *(const uint2 *)(token + e);
    float d = ((const float *)scale)[slot];
    for (int j = 0; j < 8; j++) {
        uint8_t b = (uint8_t)((j < 4 ? bytes.x : bytes.y) >> j % 4 * 8);
        out[j] = float_f16(d * (float)(int8_t)b);
    }
}

/* Where the token at this place of a node's path lies: its ancestors and itself follow one another from tree_from on, but lie where the
 * mask says. So a node is computed as the last row of a chain is, bit for bit. */
DEVICE int attend_place(const struct attend_args &a, int row, int token)
{
    uint64_t mask = a.rows.tree_mask[row];
    int from = a.rows.tree_from[row];
    for (int n = token - from; n > 0; n--)
        mask &= mask - 1;
    for (; !(mask & 1); mask >>= 1)
        from++;
    return from;
}

/* Tokens at..at+15 of K or V as f16 rows of dim + 8; those from `path` on lie where row's path does; what lies past `to`, or past the head's real size, is zero. By a team. */
template <int DIM, int M>
DEVICE void attend_load(const struct attend_args &a, const int32_t *table, int head, bool is_v,
                        int at, int to, int path, int row, uint16_t *tile)
{
    int dim = a.kv.head_dim;
    for (int i = (int)threadIdx.x % (M * LANES); i < ATTEND_RUN * (DIM / 8); i += M * LANES) {
        int token = at + i / (DIM / 8), e = i % (DIM / 8) * 8;
        uint16_t *out = tile + i / (DIM / 8) * (DIM + ATTEND_PAD) + e;
        if (token >= to || e >= dim) {
            *(uint4 *)out = make_uint4(0, 0, 0, 0);
            continue;
        }
        if (token >= path) token = attend_place(a, row, token);
        const uint8_t *head_at = kv_head(a.kv, table[token / a.kv.block_tokens], head);
        attend_widen(a.kv, head_at, is_v, token % a.kv.block_tokens, e, out);
    }
}

/* Which row and head a query vector of the tile is; false: there is none. */
DEVICE bool attend_vector(const struct attend_args &a, const struct attend_tile &t, int v, int head,
                          int *row, int *query_head)
{
    int group = a.n_heads / a.kv.n_heads;
    *row = t.row + (t.vector + v) / group;
    if (v < t.n_vectors && t.listed) *row = a.members[*row];
    *query_head = head * group + (t.vector + v) % group;
    return v < t.n_vectors;
}

DEVICE void attend_look(const struct attend_args &a, struct attend_sight *s, int r, int row,
                        bool real)
{
    int end = real ? a.rows.pos[row] + 1 : 0;
    s->from[r] = a.window && end > a.window ? end - a.window : 0;
    s->to[r] = end;
}

template <int DIM>
DEVICE void attend_queries(const struct attend_args &a, const struct attend_tile &t, int first,
                           int head, unsigned q[DIM / 16][4])
{
    int lane = (int)threadIdx.x % LANES, dim = a.kv.head_dim, row, query_head;
    for (int k = 0; k < DIM / 16; k++)
        for (int r = 0; r < 4; r++) {
            int e = k * 16 + lane % 4 * 2 + r / 2 * 8;
            bool real = attend_vector(a, t, first + lane / 4 + r % 2 * 8, head, &row, &query_head);
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
                          const uint16_t *k_tile, int at, const struct attend_sight &sight,
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
            if (token < sight.from[i / 2] || token >= sight.to[i / 2]) s[n][i] = -INFINITY;
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

/* The four teams' parts of 16 vectors become one; written by the threads in turn. parts: [team]{ o f32[16][DIM] }, stats
 * f32[team][16][2]. */
template <int DIM, int M>
DEVICE void attend_write(const struct attend_args &a, const struct attend_tile &t, int first,
                         int head, const uint16_t *shared, const float *stats)
{
    int dim = a.kv.head_dim, row, query_head, n = min(16, t.n_vectors - first),
        split = t.first_split + (int)(blockIdx.x % (unsigned)a.splits_max);
    bool whole = !t.listed && t.first_split == 0 && t.n_splits == 1;
    for (int i = (int)threadIdx.x; i < n * dim; i += ATTEND_TEAMS * M * LANES) {
        int v = i / dim, e = i % dim;
        float most = -INFINITY, sum = 0, o = 0;
        for (int w = 0; w < ATTEND_TEAMS; w++)
            most = fmaxf(most, stats[(w * 16 + v) * 2]);
        for (int w = 0; w < ATTEND_TEAMS && most > -INFINITY; w++) {
            float share = __expf(stats[(w * 16 + v) * 2] - most);
            sum += share * stats[(w * 16 + v) * 2 + 1];
            o += share *
                 ((const float *)(shared + w * attend_shape<DIM>::team_elements))[v * DIM + e];
        }
        attend_vector(a, t, first + v, head, &row, &query_head);
        size_t vector = (size_t)row * (size_t)a.n_heads + (size_t)query_head;
        if (whole) {
            a.out[vector * (size_t)dim + (size_t)e] = sum > 0 ? o / sum : 0.0f;
            continue;
        }
        size_t part = (vector - a.first_vector) * (size_t)a.splits_max + (size_t)split;
        a.part_o[part * (size_t)dim + (size_t)e] = o;
        if (e == 0) {
            a.part_stats[part * 2] = most;
            a.part_stats[part * 2 + 1] = sum;
        }
    }
}

/* Each warp's 16 vectors in turn: its team's part goes to shared memory and from there, merged, out. */
template <int DIM, int M>
DEVICE void attend_meet(const struct attend_args &a, const struct attend_tile &t, int head,
                        const struct attend_state &st, const float o[DIM / 8][4], uint16_t *shared,
                        float *stats)
{
    int lane = (int)threadIdx.x % LANES, m = (int)threadIdx.x / LANES % M,
        team = (int)threadIdx.x / (M * LANES);
    float *mine = (float *)(shared + team * attend_shape<DIM>::team_elements);
    for (int turn = 0; turn < M && turn * 16 < t.n_vectors; turn++) {
        __syncthreads();
        for (int r = 0; r < 2 && turn == m; r++) {
            int v = lane / 4 + 8 * r;
            for (int d = 0; d < DIM / 8; d++)
                for (int i = 0; i < 2; i++)
                    mine[v * DIM + d * 8 + lane % 4 * 2 + i] = o[d][2 * r + i];
            if (lane % 4 == 0) {
                stats[(team * 16 + v) * 2] = st.max[r];
                stats[(team * 16 + v) * 2 + 1] = st.sum[r];
            }
        }
        __syncthreads();
        attend_write<DIM, M>(a, t, turn * 16, head, shared, stats);
    }
}

/* The warps of a team have all come here. */
template <int M> DEVICE void team_barrier(int team)
{
    if (M == 1)
        __syncwarp();
    else
        NAMED_BARRIER(1 + team, M * LANES);
}

template <int DIM, int M>
KERNEL __launch_bounds__(ATTEND_TEAMS *M *LANES) attend_tiles(struct attend_args a)
{
    DYN_SHARED(uint16_t, shared);
    SHARED(float, stats, ATTEND_TEAMS * 16 * 2);
    int lane = (int)threadIdx.x % LANES, team = (int)threadIdx.x / (M * LANES),
        first = (int)threadIdx.x / LANES % M * 16, head = (int)blockIdx.y;
    const struct attend_tile t = a.tiles[blockIdx.x / (unsigned)a.splits_max];
    int split = (int)(blockIdx.x % (unsigned)a.splits_max);
    if (split >= t.n_splits) return; /* the whole block */
    const int32_t *table = a.rows.table + (size_t)t.seq * (size_t)a.rows.table_stride;
    struct attend_sight sight; /* what each of the lane's two vectors may see */
    int row, query_head, path = INT_MAX;
    for (int r = 0; r < 2; r++) {
        bool real = attend_vector(a, t, first + lane / 4 + 8 * r, head, &row, &query_head);
        attend_look(a, &sight, r, row, real);
    }
    if (a.rows.tree_mask && !t.listed && a.rows.tree_mask[t.row]) path = a.rows.tree_from[t.row];
    int begin = t.from + split * ATTEND_SPLIT, end = min(t.to, begin + ATTEND_SPLIT);
    unsigned q[DIM / 16][4];
    attend_queries<DIM>(a, t, first, head, q);
    float o[DIM / 8][4] = {{0}};
    struct attend_state st = {{-INFINITY, -INFINITY}, {0, 0}};
    uint16_t *mine = shared + team * attend_shape<DIM>::team_elements;
    constexpr int PART = ATTEND_RUN * (DIM + ATTEND_PAD), BUFFERS = attend_shape<DIM>::buffers;
    for (int at = begin + team * ATTEND_RUN, ahead = 0, step = 0; at < end;
         at += ATTEND_TEAMS * ATTEND_RUN, step++) {
        for (; ahead < step + BUFFERS; ahead++) { /* this run and, with two buffers, the next */
            int next = begin + (team + ahead * ATTEND_TEAMS) * ATTEND_RUN;
            uint16_t *k = mine + ahead % BUFFERS * 2 * PART;
            if (next < end) {
                attend_load<DIM, M>(a, table, head, false, next, end, path, t.row, k);
                attend_load<DIM, M>(a, table, head, true, next, end, path, t.row, k + PART);
            }
            COPY_COMMIT();
        }
        COPY_WAIT(BUFFERS - 1);
        team_barrier<M>(team);
        if (first < t.n_vectors) { /* the whole warp */
            float s[2][4];
            uint16_t *k = mine + step % BUFFERS * 2 * PART;
            attend_scores<DIM>(a, q, k, at, sight, s);
            attend_softmax<DIM>(&st, s, o);
            attend_values<DIM>(s, k + PART, o);
        }
        team_barrier<M>(team);
    }
    COPY_WAIT(0);
    attend_meet<DIM, M>(a, t, head, st, o, shared, stats);
}

/* One query vector: its splits become one. */
KERNEL attend_merge(struct attend_args a)
{
    int dim = a.kv.head_dim;
    size_t part = blockIdx.x, vector = a.first_vector + part;
    int n = a.n_splits[part / (size_t)a.n_heads];
    if (n <= 1) return; /* 0: padding */
    const float *stats = a.part_stats + part * (size_t)a.splits_max * 2;
    float most = -INFINITY, sum = 0;
    for (int s = 0; s < n; s++)
        most = fmaxf(most, stats[s * 2]);
    for (int s = 0; s < n; s++)
        sum += __expf(stats[s * 2] - most) * stats[s * 2 + 1];
    for (int e = (int)threadIdx.x; e < dim; e += (int)blockDim.x) {
        float o = 0;
        for (int s = 0; s < n; s++)
            o += __expf(stats[s * 2] - most) *
                 a.part_o[(part * (size_t)a.splits_max + (size_t)s) * (size_t)dim + (size_t)e];
        a.out[vector * (size_t)dim + (size_t)e] = o / sum;
    }
}

#endif
