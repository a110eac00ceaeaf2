/* rows_avx2.c - rows_body.h over eight lanes. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx2.h"

/* Sum of the 16 signed bytes of each half. */
static inline void byte_sums(__m256i q, int32_t sum[2])
{
    /* |1| * q in pairs, then pairs of those: s16 cannot overflow (2 * 127) */
    __m256i s =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    s = _mm256_hadd_epi32(s, s);
    s = _mm256_hadd_epi32(s, s);
    sum[0] = _mm256_extract_epi32(s, 0);
    sum[1] = _mm256_extract_epi32(s, 4);
}

static inline void store_q(const vf v[4], int8_t *out, int32_t sum[2])
{
    __m256i a = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
    __m256i b = _mm256_packs_epi32(_mm256_cvtps_epi32(v[2]), _mm256_cvtps_epi32(v[3]));
    /* packs works inside 128-bit halves: put the eight groups of four back in order */
    __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)out, q);
    byte_sums(q, sum);
}

#define ROWS_BODY
#include "engine/backend/cpu/rows_body.h"

void act_avx2(const struct act_in *in, const struct act_row *out, float *tmp)
{
    act(in, out, tmp);
}
void rmsnorm_avx2(const float *x, const float *weight, float eps, int n, float *out)
{
    rmsnorm(x, weight, eps, n, out);
}
void layernorm_avx2(const float *x, const float *add, const struct layernorm *p, int n, float *out)
{
    layernorm(x, add, p, n, out);
}
void rope_avx2(const struct rope_row *r, const float *x, float *out)
{
    rope(r, x, out);
}
void to_f16_avx2(const float *x, uint16_t *out, int n)
{
    to_f16(x, out, n);
}
uint16_t to_i8_avx2(const float *x, int8_t *out, int n)
{
    return to_i8(x, out, n);
}
void to_u4_avx2(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min)
{
    to_u4(x, out, n, scale, min);
}
float to_i16_avx2(const float *x, int16_t *out, int n)
{
    return to_i16(x, out, n);
}
