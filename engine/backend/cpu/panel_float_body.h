/* panel_float_body.h - a panel of float weights (f32, f16, bf16) against a tile of float32 columns, over the lanes of simd_*.h;
 * the file that includes it says how many VECTORS a panel has and finishes sums by finish().
 * Even and odd input elements have an accumulator each (latency of the fused multiply-add); the order of the sum is the same for
 * every tile width. */
#include "engine/backend/room.h"

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

INLINE vf load_weight(const enum packing packing, const uint8_t *p, int i)
{
    if (packing == PACK_F32) return vf_load((const float *)p + (size_t)i * VF_LANES * VECTORS);
    const uint16_t *h = (const uint16_t *)p + (size_t)i * VF_LANES * VECTORS;
    return packing == PACK_F16 ? vf_load_f16(h) : vf_load_bf16(h);
}

INLINE void float_columns(const enum packing packing, const int n, const struct panel *p,
                          const struct act_tile *t, const struct panel_out *o, const int part)
{
    const uint8_t *w = p->p + (size_t)part * VF_LANES * (packing == PACK_F32 ? 4 : 2);
    vf acc[2][TILE_COLS_MAX];
    for (int c = 0; c < n; c++)
        acc[0][c] = acc[1][c] = vf_zero();
    const float *x = t->f;
    int i = 0;
    for (; i + 2 <= p->n_in; i += 2, x += 2 * n) {
        vf w0 = load_weight(packing, w, i), w1 = load_weight(packing, w, i + 1);
#pragma GCC unroll 8
        for (int c = 0; c < n; c++) {
            acc[0][c] = vf_fma(w0, vf_set1(x[c]), acc[0][c]);
            acc[1][c] = vf_fma(w1, vf_set1(x[n + c]), acc[1][c]);
        }
    }
    if (i < p->n_in)
        for (int c = 0; c < n; c++)
            acc[0][c] = vf_fma(load_weight(packing, w, i), vf_set1(x[c]), acc[0][c]);
    for (int c = 0; c < n; c++)
        finish(o, c, part, vf_add(acc[0][c], acc[1][c]));
}

INLINE void float_width(const enum packing packing, const struct panel *p, const struct act_tile *t,
                        const struct panel_out *o, const int part)
{
    switch (t->width) {
    case 1:
        float_columns(packing, 1, p, t, o, part);
        return;
    case 2:
        float_columns(packing, 2, p, t, o, part);
        return;
    case 3:
        float_columns(packing, 3, p, t, o, part);
        return;
    case 4:
        float_columns(packing, 4, p, t, o, part);
        return;
#if TILE_COLS > 4
    case 6:
        float_columns(packing, 6, p, t, o, part);
        return;
    case 8:
        float_columns(packing, 8, p, t, o, part);
        return;
#endif
    default:
        ASSERT(!"tile width");
    }
}

static void panel_float(enum packing packing, const struct panel *p, const struct act_tile *t,
                        const struct panel_out *o)
{
    switch (packing) {
    case PACK_F32:
        for (int part = 0; part < VECTORS; part++)
            float_width(PACK_F32, p, t, o, part);
        return;
    case PACK_F16:
        for (int part = 0; part < VECTORS; part++)
            float_width(PACK_F16, p, t, o, part);
        return;
    case PACK_BF16:
        for (int part = 0; part < VECTORS; part++)
            float_width(PACK_BF16, p, t, o, part);
        return;
    default:
        ASSERT(!"not a float packing");
    }
}
