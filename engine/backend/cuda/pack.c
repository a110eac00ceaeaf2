/* pack.c - see pack.h. Plain C: a build without CUDA compiles it too, and the tests read it back. */
#include "engine/backend/cuda/pack.h"

#include <string.h>

#include "engine/backend/quant_block.h"

static size_t plane(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at = (here + bytes + 255) / 256 * 256;
    return here;
}

enum err pack_layout_of(enum tensor_type t, int n_out, int n_in, struct pack_layout *out,
                        struct errmsg *e)
{
    if (n_in % tensor_type_block(t))
        return err_set(e, ERR_UNSUPPORTED, "rows of %d elements in %s", n_in, tensor_type_name(t));
    *out = (struct pack_layout){.type = t, .n_out = n_out, .n_in = n_in};
    size_t at = 0;
    if (quant_is_float(t)) {
        out->q_bytes = (int)tensor_type_bytes(t);
        plane(&at, (size_t)n_out * (size_t)n_in * (size_t)out->q_bytes);
        out->bytes = at;
        return OK;
    }
    bool k = tensor_type_block(t) == 256;
    out->n_runs = n_in / QUANT_RUN;
    out->q_bytes = t == TENSOR_Q8_0 ? 32 : 16;
    out->high_bytes = t == TENSOR_Q6_K                                           ? 8
                      : t == TENSOR_Q5_0 || t == TENSOR_Q5_1 || t == TENSOR_Q5_K ? 4
                                                                                 : 0;
    out->scale_bytes = !k && quant_has_min(t) ? 4 : 2;
    out->super_bytes = k ? 4 : 0;
    size_t runs = (size_t)n_out * (size_t)out->n_runs;
    plane(&at, runs * (size_t)out->q_bytes);
    out->high_at = plane(&at, runs * (size_t)out->high_bytes);
    out->scale_at = plane(&at, runs * (size_t)out->scale_bytes);
    out->super_at = plane(&at, runs / 8 * (size_t)out->super_bytes);
    out->bytes = at;
    return OK;
}

static void pack_run(const struct pack_layout *l, const struct quant_block *b, size_t run,
                     uint8_t *to)
{
    uint8_t *q = to + run * (size_t)l->q_bytes,
            *high = to + l->high_at + run * (size_t)l->high_bytes,
            *scale = to + l->scale_at + run * (size_t)l->scale_bytes;
    if (l->type == TENSOR_Q8_0) {
        for (int i = 0; i < QUANT_RUN; i++)
            q[i] = b->q[i] ^ 0x80;
    } else {
        for (int i = 0; i < 16; i++)
            q[i] = (uint8_t)((b->q[i] & 15) | (b->q[i + 16] & 15) << 4);
    }
    for (int i = 0; i < QUANT_RUN; i++) {
        if (l->high_bytes == 4) high[i / 8] |= (uint8_t)((b->q[i] >> 4 & 1) << i % 8);
        if (l->high_bytes == 8) high[i / 4] |= (uint8_t)((b->q[i] >> 4 & 3) << i % 4 * 2);
    }
    if (l->super_bytes) {
        memcpy(scale, b->sc, 2);
        memcpy(to + l->super_at + run / 8 * 4, &b->d, 2);
        memcpy(to + l->super_at + run / 8 * 4 + 2, &b->m, 2);
    } else {
        memcpy(scale, &b->d, 2);
        if (l->scale_bytes == 4) memcpy(scale + 2, &b->m, 2);
    }
}

void pack_rows(const struct pack_layout *l, const void *rows, uint8_t *to)
{
    size_t row_bytes = tensor_row_bytes(l->type, l->n_in);
    memset(to, 0, l->bytes);
    if (!l->n_runs) {
        memcpy(to, rows, (size_t)l->n_out * row_bytes);
        return;
    }
    for (int o = 0; o < l->n_out; o++)
        for (int r = 0; r < l->n_runs; r++) {
            struct quant_block b = {.m = 0};
            quant_unpack(l->type, (const uint8_t *)rows + (size_t)o * row_bytes, r, &b);
            pack_run(l, &b, (size_t)o * (size_t)l->n_runs + (size_t)r, to);
        }
}
