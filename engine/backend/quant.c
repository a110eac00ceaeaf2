/* quant.c - tensor types and the meaning of their bits. Every reader of quantised rows goes through quant_unpack, so a bit
 * layout is written down once. Refuses nothing; callers check sizes. Pure functions, any thread.
 * Source: the GGUF specification; the K types' 6-bit scale packing follows its block descriptions. */
#include "engine/backend/quant.h"

#include <string.h>

#include "engine/backend/quant_block.h"

struct type_row {
    uint32_t id;
    const char *name;
    int block;
    int bytes; /* 0: known by name only */
};
static const struct type_row types[] = {
    {TENSOR_F32, "F32", 1, 4},
    {TENSOR_F16, "F16", 1, 2},
    {TENSOR_Q4_0, "Q4_0", 32, 18},
    {TENSOR_Q4_1, "Q4_1", 32, 20},
    {TENSOR_Q5_0, "Q5_0", 32, 22},
    {TENSOR_Q5_1, "Q5_1", 32, 24},
    {TENSOR_Q8_0, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 0},
    {10, "Q2_K", 256, 0},
    {11, "Q3_K", 256, 0},
    {TENSOR_Q4_K, "Q4_K", 256, 144},
    {TENSOR_Q5_K, "Q5_K", 256, 176},
    {TENSOR_Q6_K, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 0},
    {16, "IQ2_XXS", 256, 0},
    {17, "IQ2_XS", 256, 0},
    {18, "IQ3_XXS", 256, 0},
    {19, "IQ1_S", 256, 0},
    {20, "IQ4_NL", 32, 0},
    {21, "IQ3_S", 256, 0},
    {22, "IQ2_S", 256, 0},
    {23, "IQ4_XS", 256, 0},
    {24, "I8", 1, 0},
    {25, "I16", 1, 0},
    {26, "I32", 1, 0},
    {27, "I64", 1, 0},
    {28, "F64", 1, 0},
    {29, "IQ1_M", 256, 0},
    {TENSOR_BF16, "BF16", 1, 2},
    {34, "TQ1_0", 256, 0},
    {35, "TQ2_0", 256, 0},
    {39, "MXFP4", 32, 0},
};

static const struct type_row *find(uint32_t id)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

static const struct type_row *known(enum tensor_type t)
{
    const struct type_row *r = find((uint32_t)t);
    ASSERT(r && r->bytes);
    return r;
}

bool tensor_type_known(uint32_t id)
{
    const struct type_row *r = find(id);
    return r && r->bytes;
}

const char *tensor_type_name(uint32_t id)
{
    const struct type_row *r = find(id);
    return r ? r->name : "unknown";
}

int tensor_type_block(enum tensor_type t)
{
    return known(t)->block;
}
size_t tensor_type_bytes(enum tensor_type t)
{
    return (size_t)known(t)->bytes;
}

size_t tensor_row_bytes(enum tensor_type t, int64_t n)
{
    const struct type_row *r = known(t);
    ASSERT(n >= 0 && n % r->block == 0);
    return (size_t)(n / r->block) * (size_t)r->bytes;
}

/* ---- 16-bit floats ---- */
static float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
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

/* ---- blocks ---- */
static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

bool quant_is_float(enum tensor_type t)
{
    return tensor_type_block(t) == 1;
}

int quant_offset(enum tensor_type t)
{
    switch (t) {
    case TENSOR_Q4_0:
        return 8;
    case TENSOR_Q5_0:
        return 16;
    case TENSOR_Q6_K:
        return 32;
    case TENSOR_Q8_0:
        return 128;
    default:
        return 0;
    }
}

bool quant_has_min(enum tensor_type t)
{
    return t == TENSOR_Q4_1 || t == TENSOR_Q5_1 || t == TENSOR_Q4_K || t == TENSOR_Q5_K;
}

/* Elements i and i+16 share byte i. */
static void nibbles_16(const uint8_t *p, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

static void high_bits(const uint8_t *p, uint8_t *q)
{
    uint32_t h = (uint32_t)load16(p) | (uint32_t)load16(p + 2) << 16;
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((h >> i & 1) << 4);
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes. */
static void scale_min(const uint8_t *p, int j, uint8_t out[2])
{
    if (j < 4) {
        out[0] = p[j] & 63;
        out[1] = p[j + 4] & 63;
    } else {
        out[0] = (uint8_t)((p[j + 4] & 15) | (p[j - 4] >> 6) << 4);
        out[1] = (uint8_t)(p[j + 4] >> 4 | (p[j] >> 6) << 4);
    }
}

/* Q4_K (high NULL) and Q5_K: 32 bytes carry runs 2c (low nibbles) and 2c+1. */
static void unpack_k45(const uint8_t *p, const uint8_t *high, const uint8_t *low, int j,
                       struct quant_block *b)
{
    b->d = load16(p);
    b->m = load16(p + 2);
    scale_min(p + 4, j, b->sc);
    const uint8_t *l = low + 32 * (j / 2);
    for (int i = 0; i < 32; i++) {
        b->q[i] = j & 1 ? l[i] >> 4 : l[i] & 15;
        if (high) b->q[i] |= (uint8_t)((high[i] >> j & 1) << 4);
    }
}

static void unpack_k6(const uint8_t *p, int j, struct quant_block *b)
{
    int half = j / 4, s = j % 4; /* 128 elements a half, four runs in it */
    const uint8_t *low = p + 64 * half + 32 * (s & 1), *high = p + 128 + 32 * half;
    for (int i = 0; i < 32; i++) {
        int l = s < 2 ? low[i] & 15 : low[i] >> 4;
        b->q[i] = (uint8_t)(l | (high[i] >> 2 * s & 3) << 4);
    }
    memcpy(b->sc, p + 192 + 8 * half + 2 * s, 2);
    b->d = load16(p + 208);
}

void quant_unpack(enum tensor_type t, const void *row, int64_t run, struct quant_block *b)
{
    int per = tensor_type_block(t) / QUANT_RUN;
    ASSERT(per > 0);
    const uint8_t *p = (const uint8_t *)row + (size_t)(run / per) * tensor_type_bytes(t);
    int j = (int)(run % per);
    memset(b, 0, sizeof *b);
    switch (t) {
    case TENSOR_Q4_K:
        unpack_k45(p, NULL, p + 16, j, b);
        return;
    case TENSOR_Q5_K:
        unpack_k45(p, p + 16, p + 48, j, b);
        return;
    case TENSOR_Q6_K:
        unpack_k6(p, j, b);
        return;
    default:
        break;
    }
    b->d = load16(p);
    p += 2;
    if (quant_has_min(t)) {
        b->m = load16(p);
        p += 2;
    }
    if (t == TENSOR_Q8_0) {
        for (int i = 0; i < QUANT_RUN; i++)
            b->q[i] = p[i] ^ 0x80;
        return;
    }
    bool five = t == TENSOR_Q5_0 || t == TENSOR_Q5_1;
    nibbles_16(p + (five ? 4 : 0), b->q);
    if (five) high_bits(p, b->q);
}

void quant_values(enum tensor_type t, const struct quant_block *b, float out[QUANT_RUN])
{
    float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
    float scale[2] = {d, d}, min = m;
    if (t == TENSOR_Q4_K || t == TENSOR_Q5_K) {
        scale[0] = scale[1] = d * (float)b->sc[0];
        min = -(m * (float)b->sc[1]);
    } else if (t == TENSOR_Q6_K) {
        for (int h = 0; h < 2; h++)
            scale[h] = d * (float)(int8_t)b->sc[h];
    }
    int offset = quant_offset(t);
    bool has_min = quant_has_min(t);
    for (int i = 0; i < QUANT_RUN; i++) {
        float v = scale[i / 16] * (float)(b->q[i] - offset);
        out[i] = has_min ? v + min : v;
    }
}

void dequantise_row(enum tensor_type t, const void *row, float *out, int64_t n)
{
    ASSERT(n % tensor_type_block(t) == 0);
    const uint8_t *p = row;
    if (t == TENSOR_F32) {
        memcpy(out, row, (size_t)n * 4);
    } else if (t == TENSOR_F16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(load16(p + 2 * i));
    } else if (t == TENSOR_BF16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load16(p + 2 * i));
    } else {
        struct quant_block b;
        for (int64_t r = 0; r < n / QUANT_RUN; r++) {
            quant_unpack(t, row, r, &b);
            quant_values(t, &b, out + r * QUANT_RUN);
        }
    }
}
