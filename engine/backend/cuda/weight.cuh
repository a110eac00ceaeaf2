/* weight.cuh - reads runs of 32 packed weights (pack.h) in a kernel. Every quantised type becomes the same thing: 32 small integers in
 * eight words of four bytes, and for each half of the run a scale and a minimum: value = scale * q + min.
 * The type is a template argument: a kernel is instantiated once a type. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_WEIGHT_CUH
#define DEJA_ENGINE_BACKEND_CUDA_WEIGHT_CUH
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/launch.h"

template <int TYPE> struct weight_traits {
    static constexpr bool wide = TYPE == TENSOR_Q8_0;
    static constexpr bool five = TYPE == TENSOR_Q5_0 || TYPE == TENSOR_Q5_1 || TYPE == TENSOR_Q5_K;
    static constexpr bool six = TYPE == TENSOR_Q6_K;
    static constexpr bool k = TYPE == TENSOR_Q4_K || TYPE == TENSOR_Q5_K || six;
    static constexpr bool has_min = TYPE == TENSOR_Q4_1 || TYPE == TENSOR_Q5_1;
    static constexpr int offset = TYPE == TENSOR_Q4_0 ? 8 : TYPE == TENSOR_Q5_0 ? 16 : six ? 32 : 0;
};

struct weight_run {
    int w[8]; /* element 4i + j in byte j of w[i]; signed for Q8_0, else not negative */
    float scale[2], min[2]; /* of elements 0..15 and 16..31 */
};

/* run_i = row * n_runs + run */
template <int TYPE>
DEVICE void run_scales(const struct packed &p, size_t run_i, struct weight_run *out)
{
    typedef weight_traits<TYPE> t;
    if (t::k) {
        const uint8_t *sc = p.scale + run_i * 2;
        const uint16_t *super = (const uint16_t *)(p.super + run_i / 8 * 4);
        float d = f16_float(super[0]);
        if (t::six) {
            out->scale[0] = d * (float)(int8_t)sc[0];
            out->scale[1] = d * (float)(int8_t)sc[1];
        } else {
            out->scale[0] = out->scale[1] = d * (float)sc[0];
            out->min[0] = out->min[1] = -(f16_float(super[1]) * (float)sc[1]);
        }
    } else if (t::has_min) {
        const uint16_t *s = (const uint16_t *)(p.scale + run_i * 4);
        out->scale[0] = out->scale[1] = f16_float(s[0]);
        out->min[0] = out->min[1] = f16_float(s[1]);
    } else {
        out->scale[0] = out->scale[1] = f16_float(*(const uint16_t *)(p.scale + run_i * 2));
    }
    if (t::six || (!t::k && !t::has_min))
        for (int h = 0; h < 2; h++)
            out->min[h] = -(float)t::offset * out->scale[h];
}

/* Four bits to four bytes, each 0 or 1. */
DEVICE unsigned spread_bits(unsigned four)
{
    return (four * 0x00204081u) & 0x01010101u;
}
/* Four pairs of bits to four bytes, each 0..3. */
DEVICE unsigned spread_pairs(unsigned eight)
{
    return (eight | eight << 6 | eight << 12 | eight << 18) & 0x03030303u;
}

template <int TYPE>
DEVICE void run_take(const struct packed &p, size_t run_i, struct weight_run *out)
{
    typedef weight_traits<TYPE> t;
    run_scales<TYPE>(p, run_i, out);
    if (t::wide) {
        const int4 *q = (const int4 *)(p.q + run_i * 32);
        int4 a = q[0], b = q[1];
        out->w[0] = a.x, out->w[1] = a.y, out->w[2] = a.z, out->w[3] = a.w;
        out->w[4] = b.x, out->w[5] = b.y, out->w[6] = b.z, out->w[7] = b.w;
        return;
    }
    uint4 q = *(const uint4 *)(p.q + run_i * 16);
    unsigned word[4] = {q.x, q.y, q.z, q.w};
    for (int i = 0; i < 4; i++) {
        out->w[i] = (int)(word[i] & 0x0f0f0f0fu);
        out->w[i + 4] = (int)(word[i] >> 4 & 0x0f0f0f0fu);
    }
    if (t::five) {
        unsigned high = *(const unsigned *)(p.high + run_i * 4);
        for (int i = 0; i < 8; i++)
            out->w[i] |= (int)(spread_bits(high >> 4 * i & 15) << 4);
    }
    if (t::six) {
        uint2 high = *(const uint2 *)(p.high + run_i * 8);
        for (int i = 0; i < 8; i++)
            out->w[i] |= (int)(spread_pairs((i < 4 ? high.x : high.y) >> i % 4 * 8 & 255) << 4);
    }
}

/* One element of a row. */
template <int TYPE> DEVICE float weight_value(const struct packed &p, size_t row, int e)
{
    typedef weight_traits<TYPE> t;
    size_t at = row * (size_t)p.n_in + (size_t)e;
    if (TYPE == TENSOR_F32) return ((const float *)p.q)[at];
    if (TYPE == TENSOR_F16) return f16_float(((const uint16_t *)p.q)[at]);
    if (TYPE == TENSOR_BF16) return bf16_float(((const uint16_t *)p.q)[at]);
    size_t run_i = row * (size_t)p.n_runs + (size_t)(e / 32);
    int i = e % 32, q;
    struct weight_run s;
    run_scales<TYPE>(p, run_i, &s);
    if (t::wide)
        q = (int)(int8_t)p.q[run_i * 32 + (size_t)i];
    else
        q = p.q[run_i * 16 + (size_t)(i % 16)] >> i / 16 * 4 & 15;
    if (t::five) q |= (p.high[run_i * 4 + (size_t)(i / 8)] >> i % 8 & 1) << 4;
    if (t::six) q |= (p.high[run_i * 8 + (size_t)(i / 4)] >> i % 4 * 2 & 3) << 4;
    return s.scale[i / 16] * (float)q + s.min[i / 16];
}

#endif
