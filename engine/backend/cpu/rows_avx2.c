/* rows_avx2.c - rows_body.h over eight lanes. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx2.h"

/* Sum of the eight lanes' halves. */
static inline void half_sums(__m256i s, int32_t sum[2])
{
    s = _mm256_hadd_epi32(s, s);
    s = _mm256_hadd_epi32(s, s);
    sum[0] = _mm256_extract_epi32(s, 0);
    sum[1] = _mm256_extract_epi32(s, 4);
}

/* sum: of each half's bytes times the two numbers in k, the lower one for the even pairs. */
static inline void store_q(const vf v[4], int32_t k, int8_t *out, int32_t sum[2])
{
    __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
    __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3]));
    /* packs works inside 128-bit halves: put the eight groups of four back in order */
    __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)out, q);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q); /* |1| * q: at most 2 * 128 */
    half_sums(_mm256_madd_epi16(pairs, _mm256_set1_epi32(k)), sum);
}

/* 32 values times inverse as 16-bit numbers, every four in the order 0 2 1 3; their sum. */
static inline int32_t store_q16(const float *x, float inverse, int16_t *out)
{
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < 2; i++) {
        __m256 scale = _mm256_set1_ps(inverse);
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(vf_load(x + 16 * i), scale));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(vf_load(x + 16 * i + 8), scale));
        __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(q, _mm256_set1_epi16(1)));
        q = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(q, 0xd8), 0xd8);
        _mm256_storeu_si256((__m256i *)(out + 16 * i), q);
    }
    int32_t sum[2];
    half_sums(total, sum);
    return sum[0] + sum[1];
}

#define ROWS_BODY
#define WHOLE_SCALES
#include "engine/backend/cpu/rows_body.h"
