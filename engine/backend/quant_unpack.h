/* quant_unpack.h - the bit layouts of quantised blocks, as functions that a packer compiles once for each type. Private to the backend;
 * others call quant_unpack. Any thread. Source: see quant.c. */
#ifndef DEJA_ENGINE_BACKEND_QUANT_UNPACK_H
#define DEJA_ENGINE_BACKEND_QUANT_UNPACK_H
#include <string.h>

#include "engine/backend/quant_block.h"

#define QUANT_INLINE static inline __attribute__((always_inline))

QUANT_INLINE uint16_t quant_load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Elements i and i+16 share byte i. */
QUANT_INLINE void quant_nibbles_16(const uint8_t *p, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

QUANT_INLINE void quant_high_bits(const uint8_t *p, uint8_t *q)
{
    uint32_t h = (uint32_t)quant_load16(p) | (uint32_t)quant_load16(p + 2) << 16;
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((h >> i & 1) << 4);
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes. */
QUANT_INLINE void quant_scale_min(const uint8_t *p, int j, uint8_t out[2])
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
QUANT_INLINE void quant_unpack_k45(const uint8_t *p, const uint8_t *high, const uint8_t *low, int j,
                                   struct quant_block *b)
{
    b->d = quant_load16(p);
    b->m = quant_load16(p + 2);
    quant_scale_min(p + 4, j, b->sc);
    const uint8_t *l = low + 32 * (j / 2);
    for (int i = 0; i < 32; i++) {
        b->q[i] = j & 1 ? l[i] >> 4 : l[i] & 15;
        if (high) b->q[i] |= (uint8_t)((high[i] >> j & 1) << 4);
    }
}

QUANT_INLINE void quant_unpack_k6(const uint8_t *p, int j, struct quant_block *b)
{
    int half = j / 4, s = j % 4; /* 128 elements a half, four runs in it */
    const uint8_t *low = p + 64 * half + 32 * (s & 1), *high = p + 128 + 32 * half;
    for (int i = 0; i < 32; i++) {
        int l = s < 2 ? low[i] & 15 : low[i] >> 4;
        b->q[i] = (uint8_t)(l | (high[i] >> 2 * s & 3) << 4);
    }
    memcpy(b->sc, p + 192 + 8 * half + 2 * s, 2);
    b->d = quant_load16(p + 208);
}

/* Run j of the block at p. */
QUANT_INLINE void quant_unpack_block(const enum tensor_type t, const uint8_t *p, int j,
                                     struct quant_block *b)
{
    memset(b, 0, sizeof *b);
    switch (t) {
    case TENSOR_Q4_K:
        quant_unpack_k45(p, NULL, p + 16, j, b);
        return;
    case TENSOR_Q5_K:
        quant_unpack_k45(p, p + 16, p + 48, j, b);
        return;
    case TENSOR_Q6_K:
        quant_unpack_k6(p, j, b);
        return;
    default:
        break;
    }
    b->d = quant_load16(p);
    p += 2;
    if (quant_has_min(t)) {
        b->m = quant_load16(p);
        p += 2;
    }
    if (t == TENSOR_Q8_0) {
        for (int i = 0; i < QUANT_RUN; i++)
            b->q[i] = p[i] ^ 0x80;
        return;
    }
    const bool five = t == TENSOR_Q5_0 || t == TENSOR_Q5_1;
    quant_nibbles_16(p + (five ? 4 : 0), b->q);
    if (five) quant_high_bits(p, b->q);
}

#endif
