/* quant.c - tensor types and the meaning of their bits. Every reader of quantised rows goes through quant_unpack or
 * what it calls (quant_unpack.h), so a bit layout is written down once. Refuses nothing; callers check sizes. Pure functions, any thread.
 * Source: the GGUF specification; the K types' 6-bit scale packing follows its block descriptions. */
#include "engine/backend/quant.h"

#include <string.h>

#include "engine/backend/quant_unpack.h"

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

/* ---- blocks ---- */
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

void quant_unpack(enum tensor_type t, const void *row, int64_t run, struct quant_block *b)
{
    int per = tensor_type_block(t) / QUANT_RUN;
    ASSERT(per > 0);
    const uint8_t *p = (const uint8_t *)row + (size_t)(run / per) * tensor_type_bytes(t);
    quant_unpack_block(t, p, (int)(run % per), b);
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
            out[i] = f16_to_f32(quant_load16(p + 2 * i));
    } else if (t == TENSOR_BF16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(quant_load16(p + 2 * i));
    } else {
        struct quant_block b;
        for (int64_t r = 0; r < n / QUANT_RUN; r++) {
            quant_unpack(t, row, r, &b);
            quant_values(t, &b, out + r * QUANT_RUN);
        }
    }
}
