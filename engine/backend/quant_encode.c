/* quant_encode.c - float32 rows into quantised ones, for tests and for generated small models. Plain nearest rounding of
 * each block; no search for a better scale, so files made by a good quantiser are a little better than ours.
 * Pure functions, any thread. Source: the same block layouts as quant.c. */
#include <math.h>
#include <string.h>

#include "engine/backend/quant_block.h"

static void store16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static int nearest(float x, int lo, int hi)
{
    if (!(x > (float)lo)) return lo; /* NaN too */
    return x >= (float)hi ? hi : (int)lrintf(x);
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* The element of greatest magnitude, with its sign. */
static float peak(const float *x, int n)
{
    float best = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    return best;
}

static void range(const float *x, int n, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < *lo) *lo = x[i];
        if (x[i] > *hi) *hi = x[i];
    }
}

static void put_nibbles(uint8_t *p, const uint8_t q[32])
{
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void put_high(uint8_t *p, const uint8_t q[32])
{
    uint32_t h = 0;
    for (int i = 0; i < 32; i++)
        h |= (uint32_t)(q[i] >> 4 & 1) << i;
    store16(p, (uint16_t)h);
    store16(p + 2, (uint16_t)(h >> 16));
}

/* Q4_0 and Q5_0: the peak maps to the end of the range that has one step more. */
static void symmetric(const float *x, uint8_t *p, int half)
{
    uint16_t d16 = f32_to_f16(peak(x, 32) / (float)-half);
    float id = inverse(f16_to_f32(d16));
    uint8_t q[32];
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(nearest(x[i] * id, -half, half - 1) + half);
    store16(p, d16);
    if (half == 16) put_high(p + 2, q);
    put_nibbles(p + (half == 16 ? 6 : 2), q);
}

static void with_min(const float *x, uint8_t *p, int top)
{
    float lo, hi;
    range(x, 32, &lo, &hi);
    uint16_t d16 = f32_to_f16((hi - lo) / (float)top), m16 = f32_to_f16(lo);
    float id = inverse(f16_to_f32(d16)), m = f16_to_f32(m16);
    uint8_t q[32];
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)nearest((x[i] - m) * id, 0, top);
    store16(p, d16);
    store16(p + 2, m16);
    if (top == 31) put_high(p + 4, q);
    put_nibbles(p + (top == 31 ? 8 : 4), q);
}

static void eight(const float *x, uint8_t *p)
{
    uint16_t d16 = f32_to_f16(fabsf(peak(x, 32)) / 127);
    float id = inverse(f16_to_f32(d16));
    store16(p, d16);
    for (int i = 0; i < 32; i++)
        p[2 + i] = (uint8_t)(int8_t)nearest(x[i] * id, -127, 127);
}

static void put_scale_min(uint8_t *p, int j, int sc, int mn)
{
    if (j < 4) {
        p[j] = (uint8_t)((p[j] & 0xc0) | sc);
        p[j + 4] = (uint8_t)((p[j + 4] & 0xc0) | mn);
    } else {
        p[j + 4] = (uint8_t)((sc & 15) | (mn & 15) << 4);
        p[j - 4] = (uint8_t)((p[j - 4] & 63) | (sc >> 4) << 6);
        p[j] = (uint8_t)((p[j] & 63) | (mn >> 4) << 6);
    }
}

/* Q4_K (top 15) and Q5_K (top 31). */
static void k45(const float *x, uint8_t *p, int top)
{
    float step[8], low[8], step_max = 0, low_max = 0;
    for (int j = 0; j < 8; j++) {
        float lo, hi;
        range(x + 32 * j, 32, &lo, &hi);
        if (lo > 0) lo = 0;
        step[j] = (hi > lo ? hi - lo : 0) / (float)top;
        low[j] = -lo;
        step_max = fmaxf(step_max, step[j]);
        low_max = fmaxf(low_max, low[j]);
    }
    uint16_t d16 = f32_to_f16(step_max / 63), m16 = f32_to_f16(low_max / 63);
    float d = f16_to_f32(d16), dm = f16_to_f32(m16);
    memset(p, 0, top == 31 ? 176 : 144);
    store16(p, d16);
    store16(p + 2, m16);
    uint8_t *high = p + 16, *quants = p + (top == 31 ? 48 : 16);
    for (int j = 0; j < 8; j++) {
        int sc = nearest(step[j] * inverse(d), 0, 63), mn = nearest(low[j] * inverse(dm), 0, 63);
        put_scale_min(p + 4, j, sc, mn);
        float is = inverse(d * (float)sc), m = dm * (float)mn;
        for (int i = 0; i < 32; i++) {
            int q = nearest((x[32 * j + i] + m) * is, 0, top);
            quants[32 * (j / 2) + i] |= (uint8_t)((q & 15) << (j & 1 ? 4 : 0));
            if (top == 31) high[i] |= (uint8_t)(q >> 4 << j);
        }
    }
}

static void k6(const float *x, uint8_t *p)
{
    float step[16], best = 0;
    for (int j = 0; j < 16; j++) {
        step[j] = peak(x + 16 * j, 16) / -32;
        if (fabsf(step[j]) > fabsf(best)) best = step[j];
    }
    uint16_t d16 = f32_to_f16(best / -128);
    float d = f16_to_f32(d16), id = inverse(d);
    memset(p, 0, 210);
    store16(p + 208, d16);
    for (int j = 0; j < 16; j++) {
        int sc = nearest(step[j] * id, -128, 127);
        p[192 + j] = (uint8_t)(int8_t)sc;
        float is = inverse(d * (float)sc);
        for (int i = 0; i < 16; i++) {
            int e = 16 * j + i, half = e / 128, s = e % 128 / 32, l = e % 32;
            int q = nearest(x[e] * is, -32, 31) + 32;
            p[64 * half + 32 * (s & 1) + l] |= (uint8_t)((q & 15) << (s < 2 ? 0 : 4));
            p[128 + 32 * half + l] |= (uint8_t)(q >> 4 << 2 * s);
        }
    }
}

static void block(enum tensor_type t, const float *x, uint8_t *p)
{
    switch (t) {
    case TENSOR_F32:
        memcpy(p, x, 4);
        return;
    case TENSOR_F16:
        store16(p, f32_to_f16(*x));
        return;
    case TENSOR_BF16:
        store16(p, f32_to_bf16(*x));
        return;
    case TENSOR_Q4_0:
        symmetric(x, p, 8);
        return;
    case TENSOR_Q5_0:
        symmetric(x, p, 16);
        return;
    case TENSOR_Q4_1:
        with_min(x, p, 15);
        return;
    case TENSOR_Q5_1:
        with_min(x, p, 31);
        return;
    case TENSOR_Q8_0:
        eight(x, p);
        return;
    case TENSOR_Q4_K:
        k45(x, p, 15);
        return;
    case TENSOR_Q5_K:
        k45(x, p, 31);
        return;
    case TENSOR_Q6_K:
        k6(x, p);
        return;
    }
    ASSERT(!"unknown tensor type");
}

void quantise_row(enum tensor_type t, const float *x, void *row, int64_t n)
{
    int step = tensor_type_block(t);
    size_t bytes = tensor_type_bytes(t);
    ASSERT(n % step == 0);
    uint8_t *p = row;
    for (int64_t i = 0; i < n; i += step, p += bytes)
        block(t, x + i, p);
}
