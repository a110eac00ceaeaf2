/* rows_avx512.c - rows_body.h over sixteen lanes. */
#include "engine/backend/cpu/cpu.h"
#include "engine/backend/cpu/simd_avx512.h"

static inline void store_q(const vf v[2], int8_t *out, int32_t sum[2])
{
    for (int i = 0; i < 2; i++) {
        /* what is no number becomes the least int: sums of that would overflow */
        __m512i q = _mm512_max_epi32(_mm512_cvtps_epi32(v[i]), _mm512_set1_epi32(-128));
        _mm_storeu_si128((__m128i *)(out + 16 * i), _mm512_cvtsepi32_epi8(q));
        sum[i] = _mm512_reduce_add_epi32(q);
    }
}

#define ROWS_BODY
#include "engine/backend/cpu/rows_body.h"

void act_avx512(const struct act_in *in, const struct act_row *out, float *tmp)
{
    act(in, out, tmp);
}
void rmsnorm_avx512(const float *x, const float *weight, float eps, int n, float *out)
{
    rmsnorm(x, weight, eps, n, out);
}
void layernorm_avx512(const float *x, const float *add, const struct layernorm *p, int n,
                      float *out)
{
    layernorm(x, add, p, n, out);
}
void rope_avx512(const struct rope_row *r, const float *x, float *out)
{
    rope(r, x, out);
}
void to_f16_avx512(const float *x, uint16_t *out, int n)
{
    to_f16(x, out, n);
}
uint16_t to_i8_avx512(const float *x, int8_t *out, int n)
{
    return to_i8(x, out, n);
}
void to_u4_avx512(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min)
{
    to_u4(x, out, n, scale, min);
}
float to_i16_avx512(const float *x, int16_t *out, int n)
{
    return to_i16(x, out, n);
}
