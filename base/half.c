/* half.c - see half.h. */
#include "base/half.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, frac = h & 0x3ff;
    if (exp == 31) return float_of_bits(sign | 0x7f800000u | frac << 13);
    if (exp) return float_of_bits(sign | (exp + 112) << 23 | frac << 13);
    float f = (float)frac * 0x1p-24f; /* subnormal: exact in float32 */
    return sign ? -f : f;
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of_float(f), sign = (u >> 16) & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00);  /* NaN */
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds past 65504 */
    if (mag < 0x38800000u) { /* subnormal half: let float addition do the rounding */
        float r =
            float_of_bits(mag) + 0.5f; /* ulp of [0.5,1) is 2^-24 = the half's smallest step */
        return (uint16_t)(sign | (bits_of_float(r) - bits_of_float(0.5f)));
    }
    uint32_t r = mag - (112u << 23);
    r += 0xfff + ((r >> 13) & 1); /* nearest even */
    return (uint16_t)(sign | r >> 13);
}

float bf16_to_f32(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of_float(f);
    if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

bool f16_is_native(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d; /* clang's __builtin_cpu_supports does not know F16C */
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
#else
    return false;
#endif
}
