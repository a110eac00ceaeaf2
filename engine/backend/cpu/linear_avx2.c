/* linear_avx2.c - linear layers with AVX2, FMA and F16C: 16 output rows a panel (two vectors, so that each activation is fetched
 * once for both), up to 16 columns a tile. Unsigned 4-, 5- and 6-bit weights go straight into maddubs (u8 x s8, pairs summed in 16
 * bits) and several products are summed before they are widened. No 16-bit sum can overflow, as activations are within +-127
 * (-128 where one is no number):
 *   4 bit  15 * 128 * 2 * 8 = 30720     5 bit  31 * 128 * 2 * 4 = 31744     6 bit  63 * 128 * 2 * 2 = 32256     all < 32768
 * The offset of unsigned types is taken off as offset * sum of activations, in integers. Scales of activations are whole multiples
 * of a step of their row (at most SCALE_MAX), so that the madd which widens also scales. A run of 32 has two of them, for the even
 * and for the odd pairs of elements: those meet in the lower and upper 16 bits of a lane, so that one madd serves both.
 *   4 bit  30720 * 2 * 4097 = 251719680 < 2^31, the others: twice as many of as great sums at most
 * 8-bit weights take activations of 16 bits, whose scale is their row's: 32 * 255 * 32768 < 2^31.
 * The multiply ports and the loads are the limit. So integer sums of a few runs are kept (CHUNK) and become floats column block by
 * column block, whose sums stay in registers meanwhile. The order of every float sum is the run order, whatever the tile. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx2.h"

#define INLINE static inline __attribute__((always_inline))
enum { VECTORS = 2, R = PANEL_ROWS, VECTOR = 4 * 8 }; /* rows of a panel; bytes of a vector */
#define TILE_COLS 16

/* v: rows 8 * part and on. Stores under a mask cost as much as a dozen others. */
INLINE void finish(const struct panel_out *o, int c, const int part, __m256 v)
{
    float *out = o->out + (size_t)c * o->out_stride + 8 * part;
    if (o->n_valid == R) {
        if (o->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(o->bias + 8 * part));
        if (o->accumulate) v = _mm256_add_ps(v, _mm256_loadu_ps(out));
        _mm256_storeu_ps(out, v);
        return;
    }
    __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(o->n_valid - 8 * part),
                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if (o->bias) v = _mm256_add_ps(v, _mm256_maskload_ps(o->bias + 8 * part, m));
    if (o->accumulate) v = _mm256_add_ps(v, _mm256_maskload_ps(out, m));
    _mm256_maskstore_ps(out, m, v);
}

#include "engine/backend/cpu/panel_float_body.h"

/* What scales a run of eight rows. */
struct unpacked {
    __m256 d[2]; /* scale; of each 16 elements for Q6_K */
    __m256 m;    /* added minimum, types that have one */
};

INLINE bool has_min(const enum packing k)
{
    return k == PACK_Q4_1 || k == PACK_Q5_1 || k == PACK_Q4_K || k == PACK_Q5_K;
}
INLINE bool five_bits(const enum packing k)
{
    return k == PACK_Q5_0 || k == PACK_Q5_1 || k == PACK_Q5_K;
}
INLINE int offset_bits(const enum packing k)
{
    return k == PACK_Q4_0 ? 3 : k == PACK_Q5_0 ? 4 : k == PACK_Q6_K ? 5 : 7;
}

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE __m256i or_bits(__m256i w, __m256i h, __m256i mask)
{
    return _mm256_or_si256(w, _mm256_and_si256(h, mask));
}

/* The unsigned weights of elements 16 * half and on: w[g] holds four elements of each row. */
INLINE void unpack_half(const enum packing k, const struct panel_run at, const int half,
                        const int part, __m256i w[4])
{
    __m256i mask = _mm256_set1_epi8(15), bit = _mm256_set1_epi8(16), bits = _mm256_set1_epi8(0x30);
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i x = load(at.q + 4 * R * g + VECTOR * part);
        w[g] = _mm256_and_si256(half ? _mm256_srli_epi16(x, 4) : x, mask);
    }
    if (five_bits(k)) {
        __m256i h = load(at.high + VECTOR * part);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            w[g] = or_bits(w[g], half ? _mm256_srli_epi16(h, g) : _mm256_slli_epi16(h, 4 - g), bit);
    }
    if (k == PACK_Q6_K) {
        __m256i h = load(at.high + 4 * R * half + VECTOR * part);
        w[0] = or_bits(w[0], _mm256_slli_epi16(h, 4), bits);
        w[1] = or_bits(w[1], _mm256_slli_epi16(h, 2), bits);
        w[2] = or_bits(w[2], h, bits);
        w[3] = or_bits(w[3], _mm256_srli_epi16(h, 2), bits);
    }
}

INLINE __m256 half_floats(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE __m256 bytes_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE __m256 bytes_s8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE void unpack_scales(const enum packing k, struct panel_run at, const int part,
                          struct unpacked *u)
{
    at.super += 16 * part;
    if (k == PACK_Q4_K || k == PACK_Q5_K) {
        at.scale += 8 * part;
        u->d[0] = _mm256_mul_ps(half_floats(at.super), bytes_u8(at.scale));
        u->m = _mm256_sub_ps(_mm256_setzero_ps(),
                             _mm256_mul_ps(half_floats(at.super + 2 * R), bytes_u8(at.scale + R)));
    } else if (k == PACK_Q6_K) {
        at.scale += 8 * part;
        __m256 d = half_floats(at.super);
        u->d[0] = _mm256_mul_ps(d, bytes_s8(at.scale));
        u->d[1] = _mm256_mul_ps(d, bytes_s8(at.scale + R));
    } else {
        at.scale += 16 * part;
        u->d[0] = half_floats(at.scale);
        if (has_min(k)) u->m = half_floats(at.scale + 2 * R);
    }
}

INLINE __m256i four(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

/* What the half's 16 products sum to in both vectors, not yet scaled and in 16 bits; scaled for Q6_K. */
INLINE void half_run(const enum packing k, const __m256i w[VECTORS][4], const int8_t *q,
                     const __m256i d, __m256i sum[VECTORS])
{
    __m256i x0 = four(q), x1 = four(q + 4), x2 = four(q + 8), x3 = four(q + 12);
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        __m256i a =
            _mm256_add_epi16(_mm256_maddubs_epi16(w[v][0], x0), _mm256_maddubs_epi16(w[v][1], x1));
        __m256i b =
            _mm256_add_epi16(_mm256_maddubs_epi16(w[v][2], x2), _mm256_maddubs_epi16(w[v][3], x3));
        sum[v] = k == PACK_Q6_K ? _mm256_add_epi32(_mm256_madd_epi16(a, d), _mm256_madd_epi16(b, d))
                                : _mm256_add_epi16(a, b);
    }
}

/* A run's scaled sum from the 16-bit ones of its halves. */
INLINE __m256i join(const enum packing k, __m256i low, __m256i high, const __m256i d)
{
    if (!five_bits(k)) return _mm256_madd_epi16(_mm256_add_epi16(low, high), d);
    return _mm256_add_epi32(_mm256_madd_epi16(low, d), _mm256_madd_epi16(high, d));
}

/* The weights of one element, decoded; neighbouring columns often leave out the same ones. */
struct element {
    int at;
    __m256 w[VECTORS];
};

INLINE void decode_element(const enum packing k, const struct panel *p, struct element *x)
{
    int run = x->at / QUANT_RUN, e = x->at % QUANT_RUN, g = e / 4, shift = e % 4 * 8;
    struct panel_run at = panel_run(k, p->p, run);
    const uint8_t *lane = at.q + (k == PACK_Q8_0 ? g : g & 3) * 4 * R;
    int low = k == PACK_Q8_0 ? shift : shift + (g < 4 ? 0 : 4);
    for (int v = 0; v < VECTORS; v++) {
        const uint8_t *high = at.high + VECTOR * v;
        __m256i q =
            _mm256_and_si256(_mm256_srl_epi32(load(lane + VECTOR * v), _mm_cvtsi32_si128(low)),
                             _mm256_set1_epi32(k == PACK_Q8_0 ? 255 : 15));
        if (five_bits(k)) {
            __m256i h = _mm256_srl_epi32(load(high), _mm_cvtsi32_si128(shift + g));
            q = _mm256_or_si256(q, _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(1)), 4));
        } else if (k == PACK_Q6_K) {
            __m256i h = load(high + g / 4 * 4 * R);
            h = _mm256_srl_epi32(h, _mm_cvtsi32_si128(shift + 2 * (g & 3)));
            q = _mm256_or_si256(q, _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(3)), 4));
        }
        struct unpacked u;
        unpack_scales(k, at, v, &u);
        if (!has_min(k)) q = _mm256_sub_epi32(q, _mm256_set1_epi32(1 << offset_bits(k)));
        __m256 w = _mm256_cvtepi32_ps(q), d = k == PACK_Q6_K && e >= 16 ? u.d[1] : u.d[0];
        x->w[v] = has_min(k) ? _mm256_fmadd_ps(w, d, u.m) : _mm256_mul_ps(w, d);
    }
}

/* One copy a type; rare enough for a call. */
#define ONE_ELEMENT(k)                                                                             \
    static __attribute__((noinline)) void element_##k(const struct panel *p, struct element *x)    \
    {                                                                                              \
        decode_element(PACK_##k, p, x);                                                            \
    }
EACH_QUANT(ONE_ELEMENT)

INLINE void element_of(const enum packing k, const struct panel *p, struct element *x)
{
    switch (k) {
#define CASE_ELEMENT(k)                                                                            \
    case PACK_##k:                                                                                 \
        element_##k(p, x);                                                                         \
        return;
        EACH_QUANT(CASE_ELEMENT)
    default:
        return;
    }
}

/* Sums become values; elements left out of rounding add their weight times their float32 value. */
INLINE void finish_all(const enum packing k, const int n, const struct panel *p,
                       const struct act_tile *t, const float *steps, const struct panel_out *o,
                       __m256 acc[TILE_COLS][VECTORS])
{
    struct element known[OUTLIERS_MAX];
    for (int i = 0; i < OUTLIERS_MAX; i++)
        known[i].at = -1;
    for (int c = 0; c < n; c++) {
        const struct outliers *left = &t->outliers[c];
        __m256 step = _mm256_broadcast_ss(steps + c), sum[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            sum[v] = _mm256_mul_ps(acc[c][v], step);
        for (int i = 0; i < left->n; i++) {
            if (known[i].at != left->at[i]) {
                known[i].at = left->at[i];
                element_of(k, p, &known[i]);
            }
            for (int v = 0; v < VECTORS; v++)
                sum[v] = _mm256_fmadd_ps(known[i].w[v], _mm256_set1_ps(left->x[i]), sum[v]);
        }
        for (int v = 0; v < VECTORS; v++)
            finish(o, c, v, sum[v]);
    }
}

INLINE __m256i offset_of(const enum packing k, const int32_t *neg)
{
    return _mm256_slli_epi32(_mm256_set1_epi32(*neg), offset_bits(k));
}

/* ---- few columns, and Q6_K: each run goes into the float sums at once ---- */
/* One column's acc + scale * what a run sums to; high, low: its halves. */
INLINE void add_run(const enum packing k, const struct unpacked u[VECTORS], const float *s,
                    const int32_t *neg, const __m256i d, const __m256i low[VECTORS],
                    const __m256i high[VECTORS], __m256 acc[VECTORS])
{
    __m256i all = _mm256_setzero_si256(), second = all;
    if (!has_min(k)) all = offset_of(k, neg);
    if (k == PACK_Q6_K) second = offset_of(k, neg + 1);
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        if (k == PACK_Q6_K) { /* its halves have scales of their own */
            __m256i a = _mm256_add_epi32(low[v], _mm256_sub_epi32(all, second));
            __m256i b = _mm256_add_epi32(high[v], second);
            acc[v] = _mm256_fmadd_ps(u[v].d[0], _mm256_cvtepi32_ps(a), acc[v]);
            acc[v] = _mm256_fmadd_ps(u[v].d[1], _mm256_cvtepi32_ps(b), acc[v]);
            continue;
        }
        __m256i sum = join(k, low[v], high[v], d);
        if (!has_min(k)) sum = _mm256_add_epi32(sum, all);
        acc[v] = _mm256_fmadd_ps(u[v].d[0], _mm256_cvtepi32_ps(sum), acc[v]);
        if (has_min(k)) acc[v] = _mm256_fmadd_ps(u[v].m, _mm256_broadcast_ss(s), acc[v]);
    }
}

INLINE void few_columns(const enum packing k, const int n, const struct panel *p,
                        const struct act_tile *t, __m256 acc[TILE_COLS][VECTORS])
{
    const int8_t *q = t->q;
    const int32_t *scale = t->k, *neg = t->neg;
    const float *s = t->s;
    for (int run = 0; run < p->n_runs;
         run++, q += n * QUANT_RUN, scale += n, s += n, neg += 2 * n) {
        struct panel_run at = panel_run(k, p->p, run);
        struct unpacked u[VECTORS];
        __m256i high[TILE_COLS][VECTORS], low[VECTORS], w[VECTORS][4];
        /* half after half: a half's weights for both vectors and one column's sums fit the 16 registers */
        for (int v = 0; v < VECTORS; v++)
            unpack_half(k, at, 1, v, w[v]);
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            half_run(k, w, q + c * QUANT_RUN + 16, _mm256_set1_epi32(scale[c]), high[c]);
        for (int v = 0; v < VECTORS; v++) {
            unpack_scales(k, at, v, &u[v]);
            unpack_half(k, at, 0, v, w[v]);
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++) {
            __m256i d = _mm256_set1_epi32(scale[c]);
            half_run(k, w, q + c * QUANT_RUN, d, low);
            add_run(k, u, s + c, neg + 2 * c, d, low, high[c], acc[c]);
        }
    }
}

/* ---- many columns ---- */
enum { MANY_COLS = 4, CHUNK = 6, BLOCK_COLS = 4 };
struct chunk {
    struct unpacked u[CHUNK][VECTORS];
    __m256i sum[CHUNK][TILE_COLS][VECTORS];
};

/* Scaled integer sums of a run. Both loops keep eight vectors of weights in registers; unrolled more than this they do not. */
INLINE void run_sums(const enum packing k, const int n, const struct panel_run at, const int8_t *q,
                     const int32_t *scale, const int32_t *neg, __m256i sum[TILE_COLS][VECTORS])
{
    __m256i w[VECTORS][4], high[TILE_COLS][VECTORS], none = _mm256_setzero_si256();
    for (int v = 0; v < VECTORS; v++)
        unpack_half(k, at, 1, v, w[v]);
#pragma GCC unroll 2
    for (int c = 0; c < n; c++)
        half_run(k, w, q + c * QUANT_RUN + 16, none, high[c]);
    for (int v = 0; v < VECTORS; v++)
        unpack_half(k, at, 0, v, w[v]);
#pragma GCC unroll 2
    for (int c = 0; c < n; c++) {
        __m256i d = _mm256_set1_epi32(scale[c]), low[VECTORS];
        half_run(k, w, q + c * QUANT_RUN, none, low);
        for (int v = 0; v < VECTORS; v++) {
            __m256i all = join(k, low[v], high[c][v], d);
            sum[c][v] = has_min(k) ? all : _mm256_add_epi32(all, offset_of(k, neg + 2 * c));
        }
    }
}

/* acc + scales * sums of the first m runs of a chunk, for a block of columns from c0 on. */
INLINE void add_block(const enum packing k, const int n, const int block, const int c0, int m,
                      const struct chunk *h, const float *s, __m256 acc[TILE_COLS][VECTORS])
{
    __m256 a[BLOCK_COLS][VECTORS];
#pragma GCC unroll 4
    for (int c = 0; c < block; c++)
        a[c][0] = acc[c0 + c][0], a[c][1] = acc[c0 + c][1];
    for (int r = 0; r < m; r++) {
#pragma GCC unroll 4
        for (int c = 0; c < block; c++)
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                __m256 sum = _mm256_cvtepi32_ps(h->sum[r][c0 + c][v]);
                a[c][v] = _mm256_fmadd_ps(h->u[r][v].d[0], sum, a[c][v]);
                if (!has_min(k)) continue;
                sum = _mm256_broadcast_ss(s + r * n + c0 + c);
                a[c][v] = _mm256_fmadd_ps(h->u[r][v].m, sum, a[c][v]);
            }
    }
#pragma GCC unroll 4
    for (int c = 0; c < block; c++)
        acc[c0 + c][0] = a[c][0], acc[c0 + c][1] = a[c][1];
}

INLINE void add_chunk(const enum packing k, const int n, int m, const struct chunk *h,
                      const float *s, __m256 acc[TILE_COLS][VECTORS])
{
    const int block = n % BLOCK_COLS ? 3 : BLOCK_COLS;
    for (int c = 0; c < n; c += block)
        add_block(k, n, block, c, m, h, s, acc);
}

INLINE void many_columns(const enum packing k, const int n, const struct panel *p,
                         const struct act_tile *t, __m256 acc[TILE_COLS][VECTORS])
{
    struct chunk h;
    const int8_t *q = t->q;
    const int32_t *scale = t->k, *neg = t->neg;
    const float *s = t->s;
    for (int run = 0, m; run < p->n_runs; run += m, s += m * n) {
        m = p->n_runs - run < CHUNK ? p->n_runs - run : CHUNK;
        for (int r = 0; r < m; r++, q += n * QUANT_RUN, scale += n, neg += 2 * n) {
            struct panel_run at = panel_run(k, p->p, run + r);
            for (int v = 0; v < VECTORS; v++)
                unpack_scales(k, at, v, &h.u[r][v]);
            run_sums(k, n, at, q, scale, neg, h.sum[r]);
        }
        add_chunk(k, n, m, &h, s, acc);
    }
}

INLINE void int_columns(const enum packing k, const int n, const struct panel *p,
                        const struct act_tile *t, const struct panel_out *o)
{
    __m256 acc[TILE_COLS][VECTORS];
    for (int c = 0; c < n; c++)
        acc[c][0] = acc[c][1] = _mm256_setzero_ps();
    if (n < MANY_COLS || k == PACK_Q6_K)
        few_columns(k, n, p, t, acc);
    else
        many_columns(k, n, p, t, acc);
    finish_all(k, n, p, t, t->step, o, acc);
}

/* ---- 8-bit weights ---- */
/* Elements 4 * g and on of both vectors' rows as 16-bit numbers: bytes 0 and 2 of each lane, then 1 and 3. */
INLINE void unpack_bytes(const uint8_t *at, const int g, __m256i w[2][VECTORS])
{
    for (int v = 0; v < VECTORS; v++) {
        __m256i x = load(at + 4 * R * g + VECTOR * v);
        w[0][v] = _mm256_and_si256(x, _mm256_set1_epi16(255));
        w[1][v] = _mm256_srli_epi16(x, 8);
    }
}
INLINE __m256i pair(const int16_t *q)
{
    return four((const int8_t *)q);
}

INLINE void int8_few(const int n, const uint8_t *at, const int16_t *q, const int32_t *neg,
                     __m256i sum[TILE_COLS][VECTORS])
{
    for (int c = 0; c < n; c++)
        sum[c][0] = sum[c][1] = _mm256_set1_epi32(neg[c]);
#pragma GCC unroll 4
    for (int g = 0; g < QUANT_RUN / 4; g++) {
        __m256i w[2][VECTORS];
        unpack_bytes(at, g, w);
        for (int c = 0; c < n; c++)
            for (int i = 0; i < 2; i++) {
                __m256i x = pair(q + c * QUANT_RUN + 4 * g + 2 * i);
                for (int v = 0; v < VECTORS; v++)
                    sum[c][v] = _mm256_add_epi32(sum[c][v], _mm256_madd_epi16(w[i][v], x));
            }
    }
}

/* Eight elements after eight, whose weights stay in registers while the columns pass by. */
INLINE void int8_many(const int n, const uint8_t *at, const int16_t *q, const int32_t *neg,
                      __m256i sum[TILE_COLS][VECTORS])
{
    for (int part = 0; part < QUANT_RUN / 8; part++) {
        __m256i w[4][VECTORS];
        unpack_bytes(at, 2 * part, w);
        unpack_bytes(at, 2 * part + 1, w + 2);
#pragma GCC unroll 2
        for (int c = 0; c < n; c++) {
            const int16_t *x = q + c * QUANT_RUN + 8 * part;
            __m256i x0 = pair(x), x1 = pair(x + 2), x2 = pair(x + 4), x3 = pair(x + 6);
            for (int v = 0; v < VECTORS; v++) {
                __m256i a = _mm256_add_epi32(_mm256_madd_epi16(w[0][v], x0),
                                             _mm256_madd_epi16(w[1][v], x1));
                __m256i b = _mm256_add_epi32(_mm256_madd_epi16(w[2][v], x2),
                                             _mm256_madd_epi16(w[3][v], x3));
                __m256i before = part ? sum[c][v] : _mm256_set1_epi32(neg[c]);
                sum[c][v] = _mm256_add_epi32(_mm256_add_epi32(a, b), before);
            }
        }
    }
}

INLINE void int8_columns(const int n, const struct panel *p, const struct act_tile *t,
                         const struct panel_out *o)
{
    const enum packing K = PACK_Q8_0;
    __m256 acc[TILE_COLS][VECTORS];
    struct chunk h;
    for (int c = 0; c < n; c++)
        acc[c][0] = acc[c][1] = _mm256_setzero_ps();
    const int16_t *q = t->q16;
    const int32_t *neg = t->neg16;
    for (int run = 0, m; run < p->n_runs; run += m) {
        m = n < MANY_COLS ? 1 : p->n_runs - run < CHUNK ? p->n_runs - run : CHUNK;
        for (int r = 0; r < m; r++, q += n * QUANT_RUN, neg += n) {
            struct panel_run at = panel_run(K, p->p, run + r);
            for (int v = 0; v < VECTORS; v++)
                unpack_scales(K, at, v, &h.u[r][v]);
            if (n < MANY_COLS)
                int8_few(n, at.q, q, neg, h.sum[r]);
            else
                int8_many(n, at.q, q, neg, h.sum[r]);
        }
        if (n < MANY_COLS)
            add_block(K, n, n, 0, m, &h, NULL, acc);
        else
            add_chunk(K, n, m, &h, NULL, acc);
    }
    finish_all(K, n, p, t, t->step16, o, acc);
}

#define COLUMNS(n) k == PACK_Q8_0 ? int8_columns(n, p, t, o) : int_columns(k, n, p, t, o)
INLINE void int_width(const enum packing k, const struct panel *p, const struct act_tile *t,
                      const struct panel_out *o)
{
    switch (t->width) {
    case 1:
        COLUMNS(1);
        return;
    case 2:
        COLUMNS(2);
        return;
    case 3:
        COLUMNS(3);
        return;
    case 4:
        COLUMNS(4);
        return;
    case 16:
        COLUMNS(16);
        return;
    case 8:
        COLUMNS(8);
        return;
    case 6:
        COLUMNS(6);
        return;
    default:
        ASSERT(!"tile width");
    }
}

#include "engine/backend/cpu/panel_int_body.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .panels = true,
    .tile_cols = TILE_COLS,
    .other_cols = TILE_COLS,
    .int16_for_q8 = true,
    .act = act_avx2,
    .rmsnorm = rmsnorm_avx2,
    .layernorm = layernorm_avx2,
    .panel_int = panel_int,
    .panel_float = panel_float,
    .attend = attend_avx2,
    .rope = rope_avx2,
    .to_f16 = to_f16_avx2,
    .to_i8 = to_i8_avx2,
    .to_u4 = to_u4_avx2,
    .to_i16 = to_i16_avx2,
};
