/* simd_avx2.h - eight float lanes under the names that the shared bodies (*_body.h) use. Included by *_avx2.c only. */
#ifndef DEJA_ENGINE_BACKEND_SIMD_AVX2_H
#define DEJA_ENGINE_BACKEND_SIMD_AVX2_H
#include <immintrin.h>
#include <stdint.h>

typedef __m256 vf;
typedef __m256i vi;
enum { VF_LANES = 8 };
#define ISA(name) name##_avx2

static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf vf_set1_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
}
/* Integral values within the type's range. */
static inline void vf_store_i16(int16_t *p, vf a)
{
    __m256i v = _mm256_cvtps_epi32(a);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
static inline void vf_store_i8(int8_t *p, vf a)
{
    __m256i v = _mm256_cvtps_epi32(a);
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(h, h));
}
static inline vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vf vf_sign_of(vf mag, vf sign)
{
    return _mm256_or_ps(mag, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
static inline vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2^n for integral n in [-126,127] */
static inline vf vf_pow2(vf n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
/* a where x >= limit, else 0 */
static inline vf vf_keep_from(vf a, vf x, float limit)
{
    return _mm256_and_ps(a, _mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GE_OQ));
}

static inline float vf_hsum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
static inline float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* Of magnitudes, compared as their bits are: what is no number is above all that are, where a float maximum may lose it. */
static inline vf vf_peak(vf a, vf b)
{
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
static inline float vf_hpeak(vf a)
{
    __m256i q = _mm256_castps_si256(a);
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1))));
}

/* The peaks of lanes 0, 1, 4, 5 and of 2, 3, 6, 7. */
static inline void vf_hpeak_pairs(vf a, float peak[2])
{
    __m256i q = _mm256_castps_si256(a);
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    peak[0] = _mm_cvtss_f32(_mm_castsi128_ps(s));
    peak[1] = _mm_cvtss_f32(_mm_castsi128_ps(_mm_unpackhi_epi32(s, s)));
}
static inline vf vf_set_pairs(float a, float b)
{
    return _mm256_setr_ps(a, a, b, b, a, a, b, b);
}

/* ---- 32-bit lanes ---- */
static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline vi vi_set1(int32_t a)
{
    return _mm256_set1_epi32(a);
}
static inline vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
static inline vf vi_to_vf(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
/* Signed bytes 0 and 2 of each lane as 16-bit numbers; 1 and 3. */
static inline vi vi_even_bytes(vi a)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8);
}
static inline vi vi_odd_bytes(vi a)
{
    return _mm256_srai_epi16(a, 8);
}
/* acc + the two 16-bit products of each lane */
static inline vi vi_dot16(vi acc, vi a, vi b)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
/* Eight nibbles from eight bytes: the low ones (dims 0..7 of 16) or, from dim 8 on, the high ones. */
static inline vf vf_load_u4(const uint8_t *row, int d)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(row + d / 16 * 8));
    if (d % 16) x = _mm_srli_epi16(x, 4);
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_and_si128(x, _mm_set1_epi8(15))));
}

#endif
