/* emu_warp.cpp - warp operations of emu.hpp: shuffles, votes, matrix products, ldmatrix, and the small float formats.
 * Source of the fragment layouts: PTX ISA 8.x, "Matrix fragments for mma.m16n8k16 / m16n8k32" and "ldmatrix". */
#include "tests/cuda_emu/emu.hpp"

namespace emu
{
void shuffle_all(void *const *arg)
{
    for (int i = 0; i < WARP; i++) {
        shuffle *s = (shuffle *)arg[i];
        if (!s) continue;
        const shuffle *from = (const shuffle *)arg[s->from & (WARP - 1)];
        s->out =
            from ? from->in : ~0ull; /* a lane outside the mask: undefined, shown as all ones */
    }
}

struct vote {
    int predicate;
    unsigned out;
};
static void ballot_all(void *const *arg)
{
    unsigned bits = 0;
    for (int i = 0; i < WARP; i++)
        if (arg[i] && ((const vote *)arg[i])->predicate) bits |= 1u << i;
    for (int i = 0; i < WARP; i++)
        if (arg[i]) ((vote *)arg[i])->out = bits;
}
unsigned ballot(site where, unsigned mask, int predicate)
{
    vote v = {predicate, 0};
    warp_meet(where, mask, ballot_all, &v);
    return v.out;
}

/* ---- float formats ---- */
float f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(1024 + mantissa), exponent - 25)
                            : ldexpf((float)mantissa, -24));
}

/* Round to nearest even by steps of the format's own spacing. */
static double to_step(double x, int exponent_min, int mantissa_bits)
{
    int exponent;
    if (x == 0) return 0;
    frexp(x, &exponent);
    int e = exponent - 1 < exponent_min ? exponent_min : exponent - 1;
    double step = ldexp(1.0, e - mantissa_bits);
    return nearbyint(x / step) * step;
}

uint16_t to_f16(float x)
{
    uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) return 0x7e00;
    double r = to_step(fabs((double)x), -14, 10);
    if (r >= 65520 || std::isinf(x)) return (uint16_t)(sign | 0x7c00);
    if (r > 65504) return (uint16_t)(sign | 0x7c00);
    if (r < ldexp(1.0, -14)) return (uint16_t)(sign | (uint16_t)ldexp(r, 24));
    int e;
    frexp(r, &e);
    return (uint16_t)(sign | (e - 1 + 15) << 10 | ((int)ldexp(r, 10 - (e - 1)) & 1023));
}

/* OCP 8-bit floating point, E4M3: no infinity, 0x7f is NaN, largest 448. */
float e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float sign = bits & 0x80 ? -1.0f : 1.0f;
    if (exponent == 15 && mantissa == 7) return NAN;
    return sign *
           (exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9));
}
uint8_t to_e4m3(float x)
{
    uint8_t sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) return 0x7f;
    double r = to_step(fabs((double)x), -6, 3);
    if (r > 448) r = 448; /* saturating, as the conversions used do */
    if (r < ldexp(1.0, -6)) return (uint8_t)(sign | (uint8_t)ldexp(r, 9));
    int e;
    frexp(r, &e);
    return (uint8_t)(sign | (e - 1 + 7) << 3 | ((int)ldexp(r, 3 - (e - 1)) & 7));
}

/* ---- matrix products: D[16][8] += A[16][K] B[K][8] ---- */
template <int K, int BITS> struct operands {
    double a[16][K], b[K][8];
};

/* K = 16 of 16 bits or 32 of 8 bits: a register holds `per` neighbouring k; registers of A go rows +8, then k + K/2. */
template <int K, int BITS, class Value>
static void gather(void *const *arg, operands<K, BITS> *o, Value value)
{
    enum { PER = 32 / BITS };
    for (int l = 0; l < WARP; l++) {
        const mma *m = (const mma *)arg[l];
        int group = l / 4, within = l % 4;
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < PER; e++)
                o->a[group + r % 2 * 8][within * PER + e + r / 2 * (K / 2)] =
                    value(m->a[r] >> BITS * e);
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < PER; e++)
                o->b[within * PER + e + r * (K / 2)][group] = value(m->b[r] >> BITS * e);
    }
}

template <int K, int BITS> static void multiply_float(void *const *arg, const operands<K, BITS> &o)
{
    for (int l = 0; l < WARP; l++)
        for (int r = 0; r < 4; r++) {
            int row = l / 4 + r / 2 * 8, col = l % 4 * 2 + r % 2;
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += o.a[row][k] * o.b[k][col];
            ((const mma *)arg[l])->f[r] += (float)sum;
        }
}

void mma_f16_all(void *const *arg)
{
    operands<16, 16> o;
    gather<16, 16>(arg, &o, [](unsigned v) { return (double)f16((uint16_t)v); });
    multiply_float(arg, o);
}
void mma_bf16_all(void *const *arg)
{
    operands<16, 16> o;
    gather<16, 16>(arg, &o, [](unsigned v) { return (double)__uint_as_float(v << 16); });
    multiply_float(arg, o);
}
void mma_e4m3_all(void *const *arg)
{
    operands<32, 8> o;
    gather<32, 8>(arg, &o, [](unsigned v) { return (double)e4m3((uint8_t)v); });
    multiply_float(arg, o);
}
void mma_s8_all(void *const *arg)
{
    operands<32, 8> o;
    gather<32, 8>(arg, &o, [](unsigned v) { return (double)(int8_t)v; });
    for (int l = 0; l < WARP; l++)
        for (int r = 0; r < 4; r++) {
            int row = l / 4 + r / 2 * 8, col = l % 4 * 2 + r % 2;
            double sum = 0;
            for (int k = 0; k < 32; k++)
                sum += o.a[row][k] * o.b[k][col];
            ((const mma *)arg[l])->i[r] += (int32_t)sum;
        }
}

/* Four 8x8 matrices of 16-bit elements; lane 8i + j gives the address of row j of matrix i. */
void ldmatrix_all(void *const *arg)
{
    for (int l = 0; l < WARP; l++) {
        const ldmatrix *m = (const ldmatrix *)arg[l];
        for (int i = 0; i < 4; i++) {
            uint16_t two[2];
            for (int e = 0; e < 2; e++) {
                int row = m->transposed ? l % 4 * 2 + e : l / 4;
                int col = m->transposed ? l / 4 : l % 4 * 2 + e;
                const ldmatrix *owner = (const ldmatrix *)arg[8 * i + row];
                two[e] = ((const uint16_t *)owner->row)[col];
            }
            m->r[i] = (unsigned)two[1] << 16 | two[0];
        }
    }
}
} // namespace emu
