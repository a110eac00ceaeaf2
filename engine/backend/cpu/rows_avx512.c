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
