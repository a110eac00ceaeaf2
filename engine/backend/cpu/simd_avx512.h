/* simd_avx512.h - sixteen float lanes under the names that the shared bodies (*_body.h) use. Included by *_avx512.c only. */
#ifndef DEJA_ENGINE_BACKEND_SIMD_AVX512_H
#define DEJA_ENGINE_BACKEND_SIMD_AVX512_H
#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512i vi;
enum { VF_LANES = 16 };
#define ISA(name) name##_avx512

static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
static inline void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vf_set1_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p));
}
/* Integral values within the type's range. */
static inline void vf_store_i16(int16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
}
static inline void vf_store_i8(int8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}
static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_abs(vf a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
static inline vf vf_sign_of(vf mag, vf sign)
{
    return _mm512_or_ps(mag, _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
}
static inline vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2^n for integral n in [-126,127] */
static inline vf vf_pow2(vf n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
/* a where x >= limit, else 0 */
static inline vf vf_keep_from(vf a, vf x, float limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GE_OQ), a);
}

/* The same shape as the 8-lane form: halves first. */
static inline float vf_hsum(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
static inline float vf_hmax(vf a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* Of magnitudes, compared as their bits are: what is no number is above all that are, where a float maximum may lose it. */
static inline vf vf_peak(vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
static inline float vf_hpeak(vf a)
{
    __m512i q = _mm512_castps_si512(a);
    __m256i h = _mm256_max_epi32(_mm512_castsi512_si256(q), _mm512_extracti32x8_epi32(q, 1));
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1))));
}

/* ---- 32-bit lanes ---- */
static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline vi vi_set1(int32_t a)
{
    return _mm512_set1_epi32(a);
}
static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
static inline vf vi_to_vf(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
/* Signed bytes 0 and 2 of each lane as 16-bit numbers; 1 and 3. */
static inline vi vi_even_bytes(vi a)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8);
}
static inline vi vi_odd_bytes(vi a)
{
    return _mm512_srai_epi16(a, 8);
}
/* acc + the two 16-bit products of each lane */
static inline vi vi_dot16(vi acc, vi a, vi b)
{
    return _mm512_dpwssd_epi32(acc, a, b);
}
/* Sixteen nibbles from eight bytes: first the low ones. */
static inline vf vf_load_u4(const uint8_t *row, int d)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(row + d / 16 * 8));
    x = _mm_unpacklo_epi64(x, _mm_srli_epi16(x, 4));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(x, _mm_set1_epi8(15))));
}

#endif
