/* attend_body.h - attention of up to 12 queries over one part (at most 256 positions) of one KV head, over the lanes of simd_*.h.
 * Three passes: scores (tokens side by side in the lanes, no horizontal sums), softmax, weighted sum of V. Each query's sums run
 * over dimensions and positions in ascending order, so they do not depend on which queries share the pass. int8 K is multiplied
 * with 16-bit queries in integers: rounding a query to 8 bits would cost as much as rounding K.
 * Source: online softmax, Milakov & Gimelshein 2018; parts merged as in Dao et al. 2023. */
#include "engine/backend/cpu/rows_body.h"

/* Element i of float K or V. */
INLINE vf load_float(const enum kv_format f, const void *base, size_t i)
{
    return f == KV_FORMAT_F32 ? vf_load((const float *)base + i)
                              : vf_load_f16((const uint16_t *)base + i);
}
INLINE const void *at_byte(const void *head, size_t at)
{
    return (const char *)head + at;
}
INLINE const uint16_t *half_at(const void *head, size_t at)
{
    return (const uint16_t *)at_byte(head, at);
}

/* One or two groups of VF_LANES tokens: their K, the scales of it, and where their scores go in a query's row. */
struct group {
    const void *k[2];
    const uint16_t *scale[2];
    int at[2];
};

INLINE void store_scores(const int n, const int g, const struct attend *a, int first,
                         const struct group *to, vf acc[2][ATTEND_QUERIES_MAX])
{
    for (int j = 0; j < g; j++)
        for (int i = 0; i < n; i++)
            vf_store(a->score + (first + i) * a->score_stride + to->at[j], acc[j][i]);
}

/* Scores of n queries (from first on) with g groups. */
INLINE void score_float(const int n, const int g, const enum kv_format f, const struct attend *a,
                        int first, const struct group *to)
{
    vf acc[2][ATTEND_QUERIES_MAX];
    for (int j = 0; j < g; j++)
        for (int i = 0; i < n; i++)
            acc[j][i] = vf_zero();
    const float *q = a->q + first;
    for (int d = 0; d < a->kv->head_dim; d++, q += a->n_queries) {
        vf k0 = load_float(f, to->k[0], (size_t)d * (size_t)a->kv->lanes);
        vf k1 = g > 1 ? load_float(f, to->k[1], (size_t)d * (size_t)a->kv->lanes) : k0;
#pragma GCC unroll 12
        for (int i = 0; i < n; i++) {
            vf qi = vf_set1(q[i]);
            acc[0][i] = vf_fma(qi, k0, acc[0][i]);
            if (g > 1) acc[1][i] = vf_fma(qi, k1, acc[1][i]);
        }
    }
    store_scores(n, g, a, first, to, acc);
}

INLINE int32_t pair_of(const int16_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return v;
}

/* The same with int8 K and 16-bit queries: integer sums, exact; then the scales. */
INLINE void score_int(const int n, const int g, const struct attend *a, int first,
                      const struct group *to)
{
    vi acc[2][ATTEND_QUERIES_MAX];
    for (int j = 0; j < g; j++)
        for (int i = 0; i < n; i++)
            acc[j][i] = vi_zero();
    const int16_t *q = a->q16 + 4 * first;
    size_t step = (size_t)a->kv->lanes * 4;
    for (int d = 0; d < a->kv->head_dim / 4; d++, q += 4 * a->n_queries) {
        vi k0 = vi_load(at_byte(to->k[0], (size_t)d * step)),
           k1 = g > 1 ? vi_load(at_byte(to->k[1], (size_t)d * step)) : k0;
        vi even[2] = {vi_even_bytes(k0), vi_even_bytes(k1)},
           odd[2] = {vi_odd_bytes(k0), vi_odd_bytes(k1)};
#pragma GCC unroll 12
        for (int i = 0; i < n; i++) {
            vi qe = vi_set1(pair_of(q + 4 * i)), qo = vi_set1(pair_of(q + 4 * i + 2));
            for (int j = 0; j < g; j++)
                acc[j][i] = vi_dot16(vi_dot16(acc[j][i], even[j], qe), odd[j], qo);
        }
    }
    vf score[2][ATTEND_QUERIES_MAX];
    for (int j = 0; j < g; j++) {
        vf scale = vf_load_f16(to->scale[j]);
        for (int i = 0; i < n; i++)
            score[j][i] = vf_mul(vi_to_vf(acc[j][i]), vf_mul(scale, vf_set1(a->q_step[first + i])));
    }
    store_scores(n, g, a, first, to, score);
}

INLINE void score_group(const int n, const int g, const enum kv_format f, const struct attend *a,
                        int first, const struct group *to)
{
    if (kv_format_has_int8_k(f))
        score_int(n, g, a, first, to);
    else
        score_float(n, g, f, a, first, to);
}

/* All token groups of the part. Groups are stored in ascending order: lanes that pad a short block are overwritten by the next. */
INLINE void score_part(const int n, const enum kv_format f, const struct attend *a, int first)
{
    const struct kv_layout *l = a->kv;
    int per_block = l->lanes / VF_LANES, n_groups = a->n_blocks * per_block, pair = n <= 4 ? 2 : 1;
    size_t lane_bytes = f == KV_FORMAT_F16 ? 2 : 4;
    for (int i = 0; i < n_groups; i += pair) {
        struct group to = {0};
        int g = i + pair <= n_groups ? pair : 1;
        for (int j = 0; j < g; j++) {
            int lane = (i + j) % per_block * VF_LANES, b = (i + j) / per_block;
            to.k[j] = at_byte(a->block[b], (size_t)lane * lane_bytes);
            to.scale[j] = half_at(a->block[b], l->k_scale_at) + lane;
            to.at[j] = b * l->block_tokens + lane;
        }
        if (n <= 4 && g == 2)
            score_group(n, 2, f, a, first, &to);
        else
            score_group(n, 1, f, a, first, &to);
    }
}

/* Scores of a tree's row go where its positions are, as if it lay in a chain .. */
static void pull_path(const struct attend *a, int query)
{
    const struct attend_path *p = a->path[query];
    float *s = a->score + query * a->score_stride, in_order[KV_TREE_NODES];
    for (int i = 0; i < p->n; i++)
        in_order[i] = s[p->slot[i]];
    for (int i = 0; i < p->n; i++)
        s[p->from + i] = in_order[i];
}

/* .. and the weights back to where V lies; the rest of n slots weighs nothing. Slots ascend along a path, so the sum over V has the
 * order it has in a chain. */
static void push_path(const struct attend *a, int query, int n)
{
    const struct attend_path *p = a->path[query];
    float *s = a->score + query * a->score_stride, in_order[KV_TREE_NODES];
    if (!p->n) return;
    for (int i = 0; i < p->n; i++)
        in_order[i] = s[p->from + i];
    for (int i = p->from; i < n; i++)
        s[i] = 0;
    for (int i = 0; i < p->n; i++)
        s[p->slot[i]] = in_order[i];
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

/* Weights of int8 V take its scales in. Blocks that are no whole vectors (tiny ones) go token by token. */
static void scale_weights(const struct attend *a, int query, int n)
{
    float *s = a->score + query * a->score_stride;
    int bt = a->kv->block_tokens;
    for (int b = 0; b * bt < n; b++, s += bt) {
        const uint16_t *scale = half_at(a->block[b], a->kv->v_scale_at);
        int i = 0;
        for (; i + VF_LANES <= bt; i += VF_LANES)
            vf_store(s + i, vf_mul(vf_load(s + i), vf_load_f16(scale + i)));
        for (; i < bt; i++)
            s[i] *= f16_to_f32(scale[i]);
    }
}

/* V of token t of a block from dimension d on; int8 without its scale. */
INLINE vf load_v(const enum kv_format f, const struct kv_layout *l, const void *head, int t, int d)
{
    const void *v = at_byte(head, l->v_at);
    size_t at = (size_t)t * (size_t)l->head_dim + (size_t)d;
    if (f == KV_FORMAT_INT8) return vf_load_i8((const int8_t *)v + at);
    if (f != KV_FORMAT_K8V4) return load_float(f, v, at);
    vf q = vf_load_u4((const uint8_t *)v + (size_t)t * kv_v4_row_bytes(l->head_dim), d);
    size_t group = (size_t)(d / KV_V4_GROUP) * (size_t)l->lanes + (size_t)t;
    return vf_fma(q, vf_set1_f16(half_at(head, l->v_scale_at) + group),
                  vf_set1_f16(half_at(head, l->v_min_at) + group));
}

/* dc vectors of V's dimensions from d0 on, for n queries. */
INLINE void gather(const int n, const int dc, const enum kv_format f, const struct attend *a,
                   int first, int d0, int n_tokens)
{
    vf acc[ATTEND_QUERIES_MAX][4];
    for (int i = 0; i < n; i++)
        for (int c = 0; c < dc; c++)
            acc[i][c] = vf_zero();
    const float *p = a->score + first * a->score_stride;
    for (int b = 0, bt = a->kv->block_tokens; b * bt < n_tokens; b++) {
        int left = n_tokens - b * bt, m = left < bt ? left : bt;
        for (int t = 0; t < m; t++, p++) {
            vf v[4];
            for (int c = 0; c < dc; c++)
                v[c] = load_v(f, a->kv, a->block[b], t, d0 + c * VF_LANES);
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
            vf_store(a->acc + (first + i) * a->kv->head_dim + d0 + c * VF_LANES, acc[i][c]);
}

INLINE void gather_part(const int n, const enum kv_format f, const struct attend *a, int first,
                        int n_tokens)
{
    const int dc = n <= 3 ? 4 : n <= 6 ? 2 : 1;
    int d = 0;
    for (; d + dc * VF_LANES <= a->kv->head_dim; d += dc * VF_LANES)
        gather(n, dc, f, a, first, d, n_tokens);
    for (; d < a->kv->head_dim; d += VF_LANES)
        gather(n, 1, f, a, first, d, n_tokens);
}

/* Slots some query of the pass sees: the last one bounds the work (and what may be read of V). */
static int tokens_needed(const struct attend *a)
{
    int last = -1, whole = a->n_blocks * a->kv->block_tokens;
    for (int i = 0; i < a->n_queries; i++) {
        const struct attend_path *p = a->path ? a->path[i] : NULL;
        int to = p && p->n ? p->slot[p->n - 1] : a->to[i] - a->first_pos;
        if (to > last) last = to;
    }
    return last + 1 < whole ? last + 1 : whole;
}

INLINE void attend_typed(const enum kv_format f, const struct attend *a)
{
    ASSERT(a->score_stride == ATTEND_SCORE_STRIDE && a->kv->lanes % VF_LANES == 0 &&
           a->kv->head_dim % VF_LANES == 0);
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
#define SCORE(n) score_part(n, f, a, first), first += n
#define GATHER(n) gather_part(n, f, a, first, n_tokens), first += n
    PIECES(SCORE)
    for (int i = 0; i < a->n_queries; i++) {
        if (a->path) pull_path(a, i);
        soften(a, i, n_tokens);
        if (a->path) push_path(a, i, n_tokens);
        if (f == KV_FORMAT_INT8) scale_weights(a, i, n_tokens);
    }
    PIECES(GATHER)
#undef SCORE
#undef GATHER
#undef PIECES
}

/* Not inlined into each other: copies of everything would share one frame. */
#define ONE_FORMAT(name, format)                                                                   \
    static __attribute__((noinline)) void name(const struct attend *a)                             \
    {                                                                                              \
        attend_typed(format, a);                                                                   \
    }
ONE_FORMAT(attend_f32, KV_FORMAT_F32)
ONE_FORMAT(attend_f16, KV_FORMAT_F16)
ONE_FORMAT(attend_int8, KV_FORMAT_INT8)
ONE_FORMAT(attend_k8v4, KV_FORMAT_K8V4)

static void attend_any(const struct attend *a)
{
    switch (a->kv->format) {
    case KV_FORMAT_F32:
        attend_f32(a);
        return;
    case KV_FORMAT_F16:
        attend_f16(a);
        return;
    case KV_FORMAT_INT8:
        attend_int8(a);
        return;
    case KV_FORMAT_K8V4:
        attend_k8v4(a);
        return;
    }
}
