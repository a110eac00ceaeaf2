/* linear_avx512.c - linear layers with AVX-512 VNNI: 16 output rows a panel, up to 8 columns a tile, vpdpbusd of unsigned weights
 * with signed activations summed in 32 bits (no saturation at any width). Weights are unsigned with an offset (8, 16, 32,
 * 128); the accumulator starts at minus offset * sum of activations, so the sum is exact. Nibbles are unpacked once per
 * tile of columns. The order of every float sum is the run order, whatever the tile's width.
 * Roofline here: 156 of 235 GMAC/s a thread in the first prototype; docs/speed.md. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx512.h"

#define INLINE static inline __attribute__((always_inline))
enum { VECTORS = 1, R = PANEL_ROWS }; /* rows of a panel = lanes */
#define TILE_COLS 16

INLINE void finish(const struct panel_out *o, int c, int part, __m512 v)
{
    float *out = o->out + (size_t)c * o->out_stride + R * part;
    __mmask16 m = (__mmask16)((1u << o->n_valid) - 1);
    if (o->bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, o->bias));
    if (o->accumulate) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, out));
    _mm512_mask_storeu_ps(out, m, v);
}

#include "engine/backend/cpu/panel_float_body.h"

struct unpacked {
    __m512i w[8]; /* group g of four elements */
    __m512 d[2];  /* scale; of each 16 elements for Q6_K */
    __m512 m;     /* added minimum, types that have one */
};

INLINE bool has_min(const enum packing k)
{
    return k == PACK_Q4_1 || k == PACK_Q5_1 || k == PACK_Q4_K || k == PACK_Q5_K;
}
INLINE int offset_bits(const enum packing k)
{
    return k == PACK_Q4_0 ? 3 : k == PACK_Q5_0 ? 4 : k == PACK_Q6_K ? 5 : 7;
}

INLINE void unpack_nibbles(const uint8_t *q, __m512i w[8])
{
    __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i x = _mm512_loadu_si512(q + 64 * j);
        w[j] = _mm512_and_si512(x, mask);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
    }
}

/* w | (h & mask) */
#define OR_BITS(w, h, mask) _mm512_ternarylogic_epi32(w, h, mask, 0xF8)

INLINE void add_fifth_bit(const uint8_t *high, __m512i w[8])
{
    __m512i h = _mm512_loadu_si512(high), bit = _mm512_set1_epi8(16);
    w[0] = OR_BITS(w[0], _mm512_slli_epi16(h, 4), bit);
    w[1] = OR_BITS(w[1], _mm512_slli_epi16(h, 3), bit);
    w[2] = OR_BITS(w[2], _mm512_slli_epi16(h, 2), bit);
    w[3] = OR_BITS(w[3], _mm512_slli_epi16(h, 1), bit);
    w[4] = OR_BITS(w[4], h, bit);
    w[5] = OR_BITS(w[5], _mm512_srli_epi16(h, 1), bit);
    w[6] = OR_BITS(w[6], _mm512_srli_epi16(h, 2), bit);
    w[7] = OR_BITS(w[7], _mm512_srli_epi16(h, 3), bit);
}

INLINE void add_two_bits(const uint8_t *high, __m512i w[8])
{
    __m512i bits = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m512i h = _mm512_loadu_si512(high + 64 * j);
        w[4 * j] = OR_BITS(w[4 * j], _mm512_slli_epi16(h, 4), bits);
        w[4 * j + 1] = OR_BITS(w[4 * j + 1], _mm512_slli_epi16(h, 2), bits);
        w[4 * j + 2] = OR_BITS(w[4 * j + 2], h, bits);
        w[4 * j + 3] = OR_BITS(w[4 * j + 3], _mm512_srli_epi16(h, 2), bits);
    }
}

INLINE __m512 half_floats(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE __m512 bytes_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE __m512 bytes_s8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE void unpack_scales(const enum packing k, const struct panel_run at, struct unpacked *u)
{
    if (k == PACK_Q4_K || k == PACK_Q5_K) {
        u->d[0] = _mm512_mul_ps(half_floats(at.super), bytes_u8(at.scale));
        u->m = _mm512_sub_ps(_mm512_setzero_ps(),
                             _mm512_mul_ps(half_floats(at.super + 2 * R), bytes_u8(at.scale + R)));
    } else if (k == PACK_Q6_K) {
        __m512 d = half_floats(at.super);
        u->d[0] = _mm512_mul_ps(d, bytes_s8(at.scale));
        u->d[1] = _mm512_mul_ps(d, bytes_s8(at.scale + R));
    } else if (has_min(k)) {
        u->d[0] = half_floats(at.scale);
        u->m = half_floats(at.scale + 2 * R);
    } else {
        u->d[0] = half_floats(at.scale);
    }
}

INLINE void unpack(const enum packing k, const struct panel_run at, struct unpacked *u)
{
    if (k == PACK_Q8_0) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            u->w[j] = _mm512_loadu_si512(at.q + 64 * j);
    } else {
        unpack_nibbles(at.q, u->w);
    }
    if (k == PACK_Q5_0 || k == PACK_Q5_1 || k == PACK_Q5_K) add_fifth_bit(at.high, u->w);
    if (k == PACK_Q6_K) add_two_bits(at.high, u->w);
    unpack_scales(k, at, u);
}

INLINE __m512i four(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

/* One column's 32 activations. */
struct column {
    const int8_t *q;
    const float *d, *s;
    const int32_t *neg;
};

/* acc + scale * sum over the run, for one column. */
INLINE __m512 run_dot(const enum packing k, const struct unpacked *u, const struct column x,
                      __m512 acc)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    if (!has_min(k)) {
        a = _mm512_slli_epi32(_mm512_set1_epi32(x.neg[0]), (unsigned)offset_bits(k));
        b = _mm512_slli_epi32(_mm512_set1_epi32(x.neg[1]), (unsigned)offset_bits(k));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        a = _mm512_dpbusd_epi32(a, u->w[j], four(x.q + 4 * j));
        b = _mm512_dpbusd_epi32(b, u->w[j + 4], four(x.q + 16 + 4 * j));
    }
    __m512 fa = _mm512_cvtepi32_ps(a),
           fb = _mm512_mul_ps(_mm512_cvtepi32_ps(b), _mm512_set1_ps(x.d[1]));
    if (k == PACK_Q6_K) {
        acc = _mm512_fmadd_ps(u->d[0], _mm512_mul_ps(fa, _mm512_set1_ps(x.d[0])), acc);
        return _mm512_fmadd_ps(u->d[1], fb, acc);
    }
    acc = _mm512_fmadd_ps(u->d[0], _mm512_fmadd_ps(fa, _mm512_set1_ps(x.d[0]), fb), acc);
    return has_min(k) ? _mm512_fmadd_ps(u->m, _mm512_set1_ps(*x.s), acc) : acc;
}

/* acc + what the elements left out of rounding add: their weights, decoded, times their float32 values. */
INLINE __m512 add_outliers(const enum packing k, const struct panel *p, const struct outliers *o,
                           __m512 acc)
{
    for (int i = 0; i < o->n; i++) {
        int run = o->at[i] / QUANT_RUN, e = o->at[i] % QUANT_RUN, g = e / 4, shift = e % 4 * 8;
        struct panel_run at = panel_run(k, p->p, run);
        const uint8_t *lane = at.q + (k == PACK_Q8_0 ? g : g & 3) * 4 * R;
        int low = k == PACK_Q8_0 ? shift : shift + (g < 4 ? 0 : 4);
        __m512i q =
            _mm512_and_si512(_mm512_srl_epi32(_mm512_loadu_si512(lane), _mm_cvtsi32_si128(low)),
                             _mm512_set1_epi32(k == PACK_Q8_0 ? 255 : 15));
        if (k == PACK_Q5_0 || k == PACK_Q5_1 || k == PACK_Q5_K) {
            __m512i h = _mm512_srl_epi32(_mm512_loadu_si512(at.high), _mm_cvtsi32_si128(shift + g));
            q = _mm512_or_si512(q, _mm512_slli_epi32(_mm512_and_si512(h, _mm512_set1_epi32(1)), 4));
        } else if (k == PACK_Q6_K) {
            __m512i h = _mm512_loadu_si512(at.high + g / 4 * 4 * R);
            h = _mm512_srl_epi32(h, _mm_cvtsi32_si128(shift + 2 * (g & 3)));
            q = _mm512_or_si512(q, _mm512_slli_epi32(_mm512_and_si512(h, _mm512_set1_epi32(3)), 4));
        }
        struct unpacked u;
        unpack_scales(k, at, &u);
        if (!has_min(k)) q = _mm512_sub_epi32(q, _mm512_set1_epi32(1 << offset_bits(k)));
        __m512 w = _mm512_cvtepi32_ps(q), d = k == PACK_Q6_K && e >= 16 ? u.d[1] : u.d[0];
        w = has_min(k) ? _mm512_fmadd_ps(w, d, u.m) : _mm512_mul_ps(w, d);
        acc = _mm512_fmadd_ps(w, _mm512_set1_ps(o->x[i]), acc);
    }
    return acc;
}

/* One copy a type; rare enough for a call. */
#define ONE_OUTLIERS(k)                                                                            \
    static __attribute__((noinline))                                                               \
    __m512 outliers_##k(const struct panel *p, const struct outliers *o, __m512 acc)               \
    {                                                                                              \
        return add_outliers(PACK_##k, p, o, acc);                                                  \
    }
EACH_QUANT(ONE_OUTLIERS)

INLINE __m512 outliers_of(const enum packing k, const struct panel *p, const struct outliers *o,
                          __m512 acc)
{
    switch (k) {
#define CASE_OUTLIERS(k)                                                                           \
    case PACK_##k:                                                                                 \
        return outliers_##k(p, o, acc);
        EACH_QUANT(CASE_OUTLIERS)
    default:
        return acc;
    }
}

INLINE void int_columns(const enum packing k, const int n, const struct panel *p,
                        const struct act_tile *t, const struct panel_out *o)
{
    __m512 acc[TILE_COLS_MAX];
    for (int c = 0; c < n; c++)
        acc[c] = _mm512_setzero_ps();
    const int8_t *q = t->q;
    const float *d = t->d, *s = t->s;
    const int32_t *neg = t->neg;
    for (int run = 0; run < p->n_runs;
         run++, q += n * QUANT_RUN, d += 2 * n, s += n, neg += 2 * n) {
        struct unpacked u;
        unpack(k, panel_run(k, p->p, run), &u);
#pragma GCC unroll 16
        for (int c = 0; c < n; c++)
            acc[c] = run_dot(
                k, &u, (struct column){q + c * QUANT_RUN, d + 2 * c, s + c, neg + 2 * c}, acc[c]);
    }
    for (int c = 0; c < n; c++)
        finish(o, c, 0, t->outliers[c].n ? outliers_of(k, p, &t->outliers[c], acc[c]) : acc[c]);
}

INLINE void int_width(const enum packing k, const struct panel *p, const struct act_tile *t,
                      const struct panel_out *o)
{
    switch (t->width) {
    case 1:
        int_columns(k, 1, p, t, o);
        return;
    case 2:
        int_columns(k, 2, p, t, o);
        return;
    case 3:
        int_columns(k, 3, p, t, o);
        return;
    case 4:
        int_columns(k, 4, p, t, o);
        return;
    case 6:
        int_columns(k, 6, p, t, o);
        return;
    case 8:
        int_columns(k, 8, p, t, o);
        return;
    case 16:
        int_columns(k, 16, p, t, o);
        return;
    default:
        ASSERT(!"tile width");
    }
}

#include "engine/backend/cpu/panel_int_body.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .panels = true,
    .tile_cols = TILE_COLS,
    .other_cols = 8,
    .act = act_avx512,
    .rmsnorm = rmsnorm_avx512,
    .layernorm = layernorm_avx512,
    .panel_int = panel_int,
    .panel_float = panel_float,
    .attend = attend_avx512,
    .rope = rope_avx512,
    .to_f16 = to_f16_avx512,
    .to_i8 = to_i8_avx512,
    .to_u4 = to_u4_avx512,
    .to_i16 = to_i16_avx512,
};
