/* pair_net_dot.c - the inner product that a pair net spends its time in, for the instruction set its encoder works with: one loop over
 * lanes, which the compiler makes vectors of. */
#include <string.h>

#include "engine/model/pair_net_private.h"

enum { LANES = 64 };

__attribute__((always_inline)) static inline float dot(const float *a, const float *b, int n)
{
    float sum[LANES] = {0}, total = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[i + l] * b[i + l];
    for (int width = LANES / 2; width >= 16; width /= 2)
        for (int l = 0; l < width; l++)
            sum[l] += sum[l + width];
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++)
            sum[l] += a[i + l] * b[i + l];
    for (int l = 0; l < 16; l++)
        total += sum[l];
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

static float dot_scalar(const float *a, const float *b, int n)
{
    return dot(a, b, n);
}
__attribute__((target("avx2,fma"))) static float dot_avx2(const float *a, const float *b, int n)
{
    return dot(a, b, n);
}
__attribute__((target("avx512f"))) static float dot_avx512(const float *a, const float *b, int n)
{
    return dot(a, b, n);
}

pair_dot *pair_dot_for(const char *isa)
{
    bool scalar = !strcmp(isa, "scalar"), narrow = !strncmp(isa, "avx2", 4);
    if (!scalar && !narrow && __builtin_cpu_supports("avx512f")) return dot_avx512;
    bool fast = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return !scalar && fast ? dot_avx2 : dot_scalar;
}
