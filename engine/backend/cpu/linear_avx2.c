/* linear_avx2.c - linear layers with AVX2, FMA and F16C: 8 output rows a panel, up to 4 columns a tile. Unsigned 4-, 5- and 6-bit
 * weights go straight into maddubs (u8 x s8, pairs summed in 16 bits) and several products are summed before they are widened.
 * No 16-bit sum can overflow, as activations are within +-127:
 *   4 bit  15 * 127 * 2 * 4 = 15240     5 bit  31 * 127 * 2 * 4 = 31496     6 bit  63 * 127 * 2 * 2 = 32004     all < 32768
 * 8-bit weights are signed there: |w| times sign(w) a, 128 * 127 * 2 = 32512, widened one by one. The offset of unsigned types
 * is taken off as offset * sum of activations, in integers. The order of every float sum is the run order. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx2.h"

#define INLINE static inline __attribute__((always_inline))
enum { R = 8 }; /* rows of a panel = lanes */
#define TILE_COLS 4

INLINE void finish(const struct panel_out *o, int c, __m256 v)
{
    float *out = o->out + (size_t)c * o->out_stride;
    __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(o->n_valid),
                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if (o->bias) v = _mm256_add_ps(v, _mm256_maskload_ps(o->bias, m));
    if (o->accumulate) v = _mm256_add_ps(v, _mm256_maskload_ps(out, m));
    _mm256_maskstore_ps(out, m, v);
}

#include "engine/backend/cpu/panel_float_body.h"

struct unpacked {
    __m256i w[8]; /* group g of four elements */
    __m256 d[2];  /* scale; of each 16 elements for Q6_K */
    __m256 m;     /* added minimum, types that have one */
};

INLINE bool has_min(const enum packing k)
{
    return k == PACK_Q4_1 || k == PACK_Q5_1 || k == PACK_Q4_K || k == PACK_Q5_K;
}
INLINE bool five_bits(const enum packing k)
{
    return k == PACK_Q5_0 || k == PACK_Q5_1 || k == PACK_Q5_K;
}
INLINE int offset_of(const enum packing k)
{
    return k == PACK_Q4_0   ? 8
           : k == PACK_Q5_0 ? 16
           : k == PACK_Q6_K ? 32
           : k == PACK_Q8_0 ? 128
                            : 0;
}

INLINE void unpack_nibbles(const uint8_t *q, __m256i w[8])
{
    __m256i mask = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(q + 32 * j));
        w[j] = _mm256_and_si256(x, mask);
        w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(x, 4), mask);
    }
}

INLINE __m256i or_bits(__m256i w, __m256i h, __m256i mask)
{
    return _mm256_or_si256(w, _mm256_and_si256(h, mask));
}

INLINE void add_fifth_bit(const uint8_t *high, __m256i w[8])
{
    __m256i h = _mm256_loadu_si256((const __m256i *)high), bit = _mm256_set1_epi8(16);
    w[0] = or_bits(w[0], _mm256_slli_epi16(h, 4), bit);
    w[1] = or_bits(w[1], _mm256_slli_epi16(h, 3), bit);
    w[2] = or_bits(w[2], _mm256_slli_epi16(h, 2), bit);
    w[3] = or_bits(w[3], _mm256_slli_epi16(h, 1), bit);
    w[4] = or_bits(w[4], h, bit);
    w[5] = or_bits(w[5], _mm256_srli_epi16(h, 1), bit);
    w[6] = or_bits(w[6], _mm256_srli_epi16(h, 2), bit);
    w[7] = or_bits(w[7], _mm256_srli_epi16(h, 3), bit);
}

INLINE void add_two_bits(const uint8_t *high, __m256i w[8])
{
    __m256i bits = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(high + 32 * j));
        w[4 * j] = or_bits(w[4 * j], _mm256_slli_epi16(h, 4), bits);
        w[4 * j + 1] = or_bits(w[4 * j + 1], _mm256_slli_epi16(h, 2), bits);
        w[4 * j + 2] = or_bits(w[4 * j + 2], h, bits);
        w[4 * j + 3] = or_bits(w[4 * j + 3], _mm256_srli_epi16(h, 2), bits);
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

INLINE void unpack_scales(const enum packing k, const struct panel_run at, struct unpacked *u)
{
    if (k == PACK_Q4_K || k == PACK_Q5_K) {
        u->d[0] = _mm256_mul_ps(half_floats(at.super), bytes_u8(at.scale));
        u->m = _mm256_sub_ps(_mm256_setzero_ps(),
                             _mm256_mul_ps(half_floats(at.super + 2 * R), bytes_u8(at.scale + R)));
    } else if (k == PACK_Q6_K) {
        __m256 d = half_floats(at.super);
        u->d[0] = _mm256_mul_ps(d, bytes_s8(at.scale));
        u->d[1] = _mm256_mul_ps(d, bytes_s8(at.scale + R));
    } else if (has_min(k)) {
        u->d[0] = half_floats(at.scale);
        u->m = half_floats(at.scale + 2 * R);
    } else {
        u->d[0] = half_floats(at.scale);
    }
}

INLINE __m256i four(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256i widen(__m256i s16)
{
    return _mm256_madd_epi16(s16, _mm256_set1_epi16(1));
}
INLINE __m256i two(const struct unpacked *u, int g, const int8_t *q)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(u->w[g], four(q + 4 * g)),
                            _mm256_maddubs_epi16(u->w[g + 1], four(q + 4 * g + 4)));
}

/* One column's 32 activations. */
struct column {
    const int8_t *q;
    const float *d, *s;
    const int32_t *neg;
};

/* The sum of 16 products from group g on, in float32. */
INLINE __m256 half_run(const enum packing k, const struct unpacked *u, const int g,
                       const struct column x)
{
    __m256i a = two(u, g, x.q), b = two(u, g + 2, x.q);
    __m256i sum =
        k == PACK_Q6_K ? _mm256_add_epi32(widen(a), widen(b)) : widen(_mm256_add_epi16(a, b));
    if (!has_min(k)) sum = _mm256_add_epi32(sum, _mm256_set1_epi32(x.neg[g / 4] * offset_of(k)));
    return _mm256_cvtepi32_ps(sum);
}

/* acc + scale * sum over the run, for one column; 4-, 5- and 6-bit types. */
INLINE __m256 run_dot(const enum packing k, const struct unpacked *u, const struct column x,
                      __m256 acc)
{
    __m256 fa = half_run(k, u, 0, x), d0 = _mm256_broadcast_ss(x.d);
    __m256 fb = _mm256_mul_ps(half_run(k, u, 4, x), _mm256_broadcast_ss(x.d + 1));
    if (k == PACK_Q6_K) {
        acc = _mm256_fmadd_ps(u->d[0], _mm256_mul_ps(fa, d0), acc);
        return _mm256_fmadd_ps(u->d[1], fb, acc);
    }
    acc = _mm256_fmadd_ps(u->d[0], _mm256_fmadd_ps(fa, d0, fb), acc);
    return has_min(k) ? _mm256_fmadd_ps(u->m, _mm256_broadcast_ss(x.s), acc) : acc;
}

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* acc + what the elements left out of rounding add: their weights, decoded, times their float32 values. */
INLINE __m256 add_outliers(const enum packing k, const struct panel *p, const struct outliers *o,
                           __m256 acc)
{
    for (int i = 0; i < o->n; i++) {
        int run = o->at[i] / QUANT_RUN, e = o->at[i] % QUANT_RUN, g = e / 4, shift = e % 4 * 8;
        struct panel_run at = panel_run(k, R, p->p, run);
        const uint8_t *lane = at.q + (k == PACK_Q8_0 ? g : g & 3) * 4 * R;
        int low = k == PACK_Q8_0 ? shift : shift + (g < 4 ? 0 : 4);
        __m256i q = _mm256_and_si256(_mm256_srl_epi32(load(lane), _mm_cvtsi32_si128(low)),
                                     _mm256_set1_epi32(k == PACK_Q8_0 ? 255 : 15));
        if (k == PACK_Q5_0 || k == PACK_Q5_1 || k == PACK_Q5_K) {
            __m256i h = _mm256_srl_epi32(load(at.high), _mm_cvtsi32_si128(shift + g));
            q = _mm256_or_si256(q, _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(1)), 4));
        } else if (k == PACK_Q6_K) {
            __m256i h = load(at.high + g / 4 * 4 * R);
            h = _mm256_srl_epi32(h, _mm_cvtsi32_si128(shift + 2 * (g & 3)));
            q = _mm256_or_si256(q, _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(3)), 4));
        }
        struct unpacked u;
        unpack_scales(k, at, &u);
        if (!has_min(k)) q = _mm256_sub_epi32(q, _mm256_set1_epi32(offset_of(k)));
        __m256 w = _mm256_cvtepi32_ps(q), d = k == PACK_Q6_K && e >= 16 ? u.d[1] : u.d[0];
        w = has_min(k) ? _mm256_fmadd_ps(w, d, u.m) : _mm256_mul_ps(w, d);
        acc = _mm256_fmadd_ps(w, _mm256_set1_ps(o->x[i]), acc);
    }
    return acc;
}

/* One copy a type; rare enough for a call. */
#define ONE_OUTLIERS(k)                                                                            \
    static __attribute__((noinline))                                                               \
    __m256 outliers_##k(const struct panel *p, const struct outliers *o, __m256 acc)               \
    {                                                                                              \
        return add_outliers(PACK_##k, p, o, acc);                                                  \
    }
EACH_INT_PACKING(ONE_OUTLIERS)

INLINE __m256 outliers_of(const enum packing k, const struct panel *p, const struct outliers *o,
                          __m256 acc)
{
    switch (k) {
#define CASE_OUTLIERS(k)                                                                           \
    case PACK_##k:                                                                                 \
        return outliers_##k(p, o, acc);
        EACH_INT_PACKING(CASE_OUTLIERS)
    default:
        return acc;
    }
}

INLINE void int_columns(const enum packing k, const int n, const struct panel *p,
                        const struct act_tile *t, const struct panel_out *o)
{
    __m256 acc[TILE_COLS];
    for (int c = 0; c < n; c++)
        acc[c] = _mm256_setzero_ps();
    const int8_t *q = t->q;
    const float *d = t->d, *s = t->s;
    const int32_t *neg = t->neg;
    for (int run = 0; run < p->n_runs;
         run++, q += n * QUANT_RUN, d += 2 * n, s += n, neg += 2 * n) {
        struct unpacked u;
        struct panel_run at = panel_run(k, R, p->p, run);
        unpack_nibbles(at.q, u.w);
        if (five_bits(k)) add_fifth_bit(at.high, u.w);
        if (k == PACK_Q6_K) add_two_bits(at.high, u.w);
        unpack_scales(k, at, &u);
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
            acc[c] = run_dot(
                k, &u, (struct column){q + c * QUANT_RUN, d + 2 * c, s + c, neg + 2 * c}, acc[c]);
    }
    for (int c = 0; c < n; c++)
        finish(o, c, t->outliers[c].n ? outliers_of(k, p, &t->outliers[c], acc[c]) : acc[c]);
}

/* Sums of 16 products from group g on, for n columns: |w| and its sign are made once for all of them. */
INLINE void half_int8(const int n, const int8_t *q, const uint8_t *w, __m256i sum[TILE_COLS])
{
    for (int c = 0; c < n; c++)
        sum[c] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(w + 32 * g)),
                                     _mm256_set1_epi8((char)0x80));
        __m256i mag = _mm256_abs_epi8(v);
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
            sum[c] = _mm256_add_epi32(
                sum[c], widen(_mm256_maddubs_epi16(
                            mag, _mm256_sign_epi8(four(q + c * QUANT_RUN + 4 * g), v))));
    }
}

INLINE void int8_columns(const int n, const struct panel *p, const struct act_tile *t,
                         const struct panel_out *o)
{
    __m256 acc[TILE_COLS], f[TILE_COLS];
    for (int c = 0; c < n; c++)
        acc[c] = _mm256_setzero_ps();
    const int8_t *q = t->q;
    const float *d = t->d;
    for (int run = 0; run < p->n_runs; run++, q += n * QUANT_RUN, d += 2 * n) {
        struct panel_run at = panel_run(PACK_Q8_0, R, p->p, run);
        __m256i sum[TILE_COLS];
        half_int8(n, q + 16, at.q + 16 * R, sum);
        for (int c = 0; c < n; c++)
            f[c] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[c]), _mm256_broadcast_ss(d + 2 * c + 1));
        half_int8(n, q, at.q, sum);
        __m256 dw = half_floats(at.scale);
        for (int c = 0; c < n; c++) {
            f[c] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[c]), _mm256_broadcast_ss(d + 2 * c), f[c]);
            acc[c] = _mm256_fmadd_ps(dw, f[c], acc[c]);
        }
    }
    for (int c = 0; c < n; c++)
        finish(o, c,
               t->outliers[c].n ? outliers_of(PACK_Q8_0, p, &t->outliers[c], acc[c]) : acc[c]);
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
    default:
        ASSERT(!"tile width");
    }
}

#define ONE(k)                                                                                     \
    static __attribute__((noinline)) void int_##k(const struct panel *p, const struct act_tile *t, \
                                                  const struct panel_out *o)                       \
    {                                                                                              \
        int_width(PACK_##k, p, t, o);                                                              \
    }
EACH_INT_PACKING(ONE)

static void panel_int(enum packing packing, const struct panel *p, const struct act_tile *t,
                      const struct panel_out *o)
{
    switch (packing) {
#define CASE_PANEL(k)                                                                              \
    case PACK_##k:                                                                                 \
        int_##k(p, t, o);                                                                          \
        return;
        EACH_INT_PACKING(CASE_PANEL)
    default:
        ASSERT(!"not an integer packing");
    }
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .panel_rows = R,
    .tile_cols = TILE_COLS,
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
