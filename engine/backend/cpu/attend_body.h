/* attend_body.h - attention of up to 12 queries over one part (at most 256 positions) of one KV head, over the lanes of simd_*.h.
 * Three passes: scores (tokens side by side in the lanes, no horizontal sums), softmax, weighted sum of V. Each query's sums run
 * over dimensions and positions in ascending order, so they do not depend on which queries share the pass.
 * Source: online softmax, Milakov & Gimelshein 2018; parts merged as in Dao et al. 2023. */
#include "engine/backend/cpu/rows_body.h"

INLINE vf load_kv(const bool f32, const void *base, size_t i)
{
    return f32 ? vf_load((const float *)base + i) : vf_load_f16((const uint16_t *)base + i);
}

/* One or two groups of VF_LANES tokens: their K, and where their scores go in a query's row. */
struct group {
    const void *k[2];
    int at[2];
};

/* Scores of n queries (from first on) with g groups. */
INLINE void score_group(const int n, const int g, const bool f32, const struct attend *a, int first,
                        const struct group *to)
{
    vf acc[2][ATTEND_QUERIES_MAX];
    for (int j = 0; j < g; j++)
        for (int i = 0; i < n; i++)
            acc[j][i] = vf_zero();
    const float *q = a->q + first;
    for (int d = 0; d < a->head_dim; d++, q += a->n_queries) {
        vf k0 = load_kv(f32, to->k[0], (size_t)d * (size_t)a->lanes);
        vf k1 = g > 1 ? load_kv(f32, to->k[1], (size_t)d * (size_t)a->lanes) : k0;
#pragma GCC unroll 12
        for (int i = 0; i < n; i++) {
            vf qi = vf_set1(q[i]);
            acc[0][i] = vf_fma(qi, k0, acc[0][i]);
            if (g > 1) acc[1][i] = vf_fma(qi, k1, acc[1][i]);
        }
    }
    for (int j = 0; j < g; j++)
        for (int i = 0; i < n; i++)
            vf_store(a->score + (first + i) * a->score_stride + to->at[j], acc[j][i]);
}

/* All token groups of the part. Groups are stored in ascending order: lanes that pad a short block are overwritten by the next. */
INLINE void score_part(const int n, const bool f32, const struct attend *a, int first)
{
    int per_block = a->lanes / VF_LANES, n_groups = a->n_blocks * per_block, pair = n <= 4 ? 2 : 1;
    for (int i = 0; i < n_groups; i += pair) {
        struct group to;
        int g = i + pair <= n_groups ? pair : 1;
        for (int j = 0; j < g; j++) {
            int lane = (i + j) % per_block * VF_LANES, b = (i + j) / per_block;
            to.k[j] = (const char *)a->block[b] + (size_t)lane * (f32 ? 4 : 2);
            to.at[j] = b * a->block_tokens + lane;
        }
        if (n <= 4 && g == 2)
            score_group(n, 2, f32, a, first, &to);
        else
            score_group(n, 1, f32, a, first, &to);
    }
}

/* Scores of one query become weights exp(score - max). n is padded up to whole vectors with -inf. */
static void soften(const struct attend *a, int query, int n)
{
    float *s = a->score + query * a->score_stride;
    int from = a->from[query] - a->first_pos, end = a->to[query] - a->first_pos + 1;
    int padded = (n + VF_LANES - 1) / VF_LANES * VF_LANES;
    if (from > n) from = n;
    if (end > n) end = n;
    if (end < 0) end = 0;
    for (int i = 0; i < from; i++)
        s[i] = -INFINITY;
    for (int i = end; i < padded; i++)
        s[i] = -INFINITY;
    vf top = vf_set1(-INFINITY), sum = vf_zero();
    for (int i = 0; i < padded; i += VF_LANES) {
        vf v = vf_load(s + i);
        if (a->softcap > 0) { /* tanh(-inf) would unmask */
            vf capped = vf_mul(vf_set1(a->softcap), vf_tanh(vf_div(v, vf_set1(a->softcap))));
            vf_store(s + i, capped);
            for (int j = i; j < i + VF_LANES; j++)
                if (j < from || j >= end) s[j] = -INFINITY;
            v = vf_load(s + i);
        }
        top = vf_max(top, v);
    }
    float max = vf_hmax(top), shift = max > -INFINITY ? max : 0.0f;
    for (int i = 0; i < padded; i += VF_LANES) {
        vf p = vf_exp(vf_sub(vf_load(s + i), vf_set1(shift)));
        vf_store(s + i, p);
        sum = vf_add(sum, p);
    }
    a->max[query] = max;
    a->sum[query] = vf_hsum(sum);
}

/* dc vectors of V's dimensions from d0 on, for n queries. */
INLINE void gather(const int n, const int dc, const bool f32, const struct attend *a, int first,
                   int d0, int n_tokens)
{
    vf acc[ATTEND_QUERIES_MAX][4];
    for (int i = 0; i < n; i++)
        for (int c = 0; c < dc; c++)
            acc[i][c] = vf_zero();
    const float *p = a->score + first * a->score_stride;
    for (int b = 0; b * a->block_tokens < n_tokens; b++) {
        int left = n_tokens - b * a->block_tokens,
            m = left < a->block_tokens ? left : a->block_tokens;
        size_t at = a->v_offset + (size_t)d0;
        for (int t = 0; t < m; t++, at += (size_t)a->head_dim, p++) {
            vf v[4];
            for (int c = 0; c < dc; c++)
                v[c] = load_kv(f32, a->block[b], at + (size_t)(c * VF_LANES));
#pragma GCC unroll 12
            for (int i = 0; i < n; i++) {
                vf w = vf_set1(p[i * ATTEND_SCORE_STRIDE]);
                for (int c = 0; c < dc; c++)
                    acc[i][c] = vf_fma(w, v[c], acc[i][c]);
            }
        }
    }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < dc; c++)
            vf_store(a->acc + (first + i) * a->head_dim + d0 + c * VF_LANES, acc[i][c]);
}

INLINE void gather_part(const int n, const bool f32, const struct attend *a, int first,
                        int n_tokens)
{
    const int dc = n <= 3 ? 4 : n <= 6 ? 2 : 1;
    int d = 0;
    for (; d + dc * VF_LANES <= a->head_dim; d += dc * VF_LANES)
        gather(n, dc, f32, a, first, d, n_tokens);
    for (; d < a->head_dim; d += VF_LANES)
        gather(n, 1, f32, a, first, d, n_tokens);
}

/* Positions some query of the pass sees: the last one bounds the work (and what may be read of V). */
static int tokens_needed(const struct attend *a)
{
    int last = -1, whole = a->n_blocks * a->block_tokens;
    for (int i = 0; i < a->n_queries; i++)
        if (a->to[i] - a->first_pos > last) last = a->to[i] - a->first_pos;
    return last + 1 < whole ? last + 1 : whole;
}

INLINE void attend_typed(const bool f32, const struct attend *a)
{
    ASSERT(a->score_stride == ATTEND_SCORE_STRIDE && a->lanes % VF_LANES == 0 &&
           a->head_dim % VF_LANES == 0);
    int n_tokens = tokens_needed(a);
#define PIECES(CALL)                                                                               \
    for (int first = 0, left; (left = a->n_queries - first) > 0;) {                                \
        if (left >= 12) {                                                                          \
            CALL(12);                                                                              \
        } else if (left >= 8) {                                                                    \
            CALL(8);                                                                               \
        } else if (left >= 6) {                                                                    \
            CALL(6);                                                                               \
        } else if (left >= 4) {                                                                    \
            CALL(4);                                                                               \
        } else if (left >= 3) {                                                                    \
            CALL(3);                                                                               \
        } else if (left >= 2) {                                                                    \
            CALL(2);                                                                               \
        } else {                                                                                   \
            CALL(1);                                                                               \
        }                                                                                          \
    }
#define SCORE(n) score_part(n, f32, a, first), first += n
#define GATHER(n) gather_part(n, f32, a, first, n_tokens), first += n
    PIECES(SCORE)
    for (int i = 0; i < a->n_queries; i++)
        soften(a, i, n_tokens);
    PIECES(GATHER)
#undef SCORE
#undef GATHER
#undef PIECES
}

/* Not inlined into each other: two copies of everything would share one frame. */
static __attribute__((noinline)) void attend_f16(const struct attend *a)
{
    attend_typed(false, a);
}
static __attribute__((noinline)) void attend_f32(const struct attend *a)
{
    attend_typed(true, a);
}
