/* weight.c - matrices in the layout the kernels read: packing at load (in parallel), reading single rows back (embedding),
 * and the huge-page memory they live in. Packing keeps every value exactly: quants and scales are moved, never rounded.
 * Refuses shapes that are not whole blocks. Threading: one thread at a time per backend.
 * Row interleaving as in gemm micro-kernels (Goto & van de Geijn 2008); the memory map is in room.h. */
#include <string.h>

#include "base/mem.h"
#include "engine/backend/room.h"

/* Weights are cut from big mappings, so that a small matrix does not take a whole huge page of its own. */
struct weight_arena {
    struct weight_arena *next;
    uint8_t *base;
    size_t bytes, used;
    int live;
};
enum { ARENA_STEP_BYTES = 64 << 20, ALIGN = 64, DIM_MAX = 1 << 24 };

static uint8_t *arena_take(struct backend *be, size_t n, struct weight_arena **from)
{
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    struct weight_arena *a = be->arena;
    if (!a || a->bytes - a->used < n) {
        size_t bytes = n > ARENA_STEP_BYTES ? n : ARENA_STEP_BYTES;
        uint8_t *base = mem_alloc_huge(bytes);
        if (!base) return NULL;
        a = xcalloc(1, sizeof *a);
        *a = (struct weight_arena){.next = be->arena, .base = base, .bytes = bytes};
        be->arena = a;
    }
    uint8_t *p = a->base + a->used;
    a->used += n;
    a->live++;
    *from = a;
    return p;
}

void weight_arena_free_all(struct backend *be)
{
    for (struct weight_arena *a = be->arena, *next; a; a = next) {
        next = a->next;
        ASSERT(a->live == 0); /* a weight outlives its backend */
        mem_free_huge(a->base, a->bytes);
        mem_free(a);
    }
    be->arena = NULL;
}

/* ---- layout ---- */
bool packing_is_float(enum packing p)
{
    return p == PACK_F32 || p == PACK_F16 || p == PACK_BF16;
}

static enum packing packing_of(const struct backend *be, enum tensor_type t)
{
    if (!be->k->panel_rows) return PACK_ROWS;
    if (be->exact) return PACK_F32;
    switch (t) {
    case TENSOR_F32:
        return PACK_F32;
    case TENSOR_F16:
        return PACK_F16;
    case TENSOR_BF16:
        return PACK_BF16;
    case TENSOR_Q4_0:
        return PACK_Q4_0;
    case TENSOR_Q4_1:
        return PACK_Q4_1;
    case TENSOR_Q5_0:
        return PACK_Q5_0;
    case TENSOR_Q5_1:
        return PACK_Q5_1;
    case TENSOR_Q8_0:
        return PACK_Q8_0;
    case TENSOR_Q4_K:
        return PACK_Q4_K;
    case TENSOR_Q5_K:
        return PACK_Q5_K;
    case TENSOR_Q6_K:
        return PACK_Q6_K;
    }
    ASSERT(!"unknown tensor type");
    return PACK_ROWS;
}

static size_t float_bytes(enum packing p)
{
    return p == PACK_F32 ? 4 : 2;
}

static size_t round_line(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void lay_out(struct weight *w, int panel_rows)
{
    if (w->packing == PACK_ROWS) {
        w->panel_rows = 1;
        w->n_panels = w->n_out;
        w->panel_bytes = tensor_row_bytes(w->type, w->n_in);
        return;
    }
    size_t rows = (size_t)panel_rows, runs = (size_t)w->n_in / QUANT_RUN;
    w->panel_rows = panel_rows;
    w->n_panels = (w->n_out + panel_rows - 1) / panel_rows;
    if (packing_is_float(w->packing)) {
        w->panel_bytes = round_line((size_t)w->n_in * rows * float_bytes(w->packing));
        return;
    }
    struct run_bytes b = run_bytes(w->packing);
    w->panel_bytes = round_line(runs * rows * (size_t)(b.q + b.high + b.scale) +
                                (runs + 7) / 8 * rows * (size_t)b.super);
}

size_t weight_bytes_planned(enum tensor_type type, int n_out, int n_in)
{
    if (!tensor_type_known((uint32_t)type)) return 0;
    const struct backend widest = {.k = &kernels_avx512};
    struct weight w = {
        .type = type, .packing = packing_of(&widest, type), .n_out = n_out, .n_in = n_in};
    lay_out(&w, kernels_avx512.panel_rows);
    return weight_bytes(&w);
}

void weight_panel(const struct weight *w, int panel_i, struct panel *out)
{
    *out = (struct panel){.p = w->panels + (size_t)panel_i * w->panel_bytes,
                          .n_runs = w->n_in / QUANT_RUN,
                          .n_in = w->n_in};
}

/* ---- one run of one row in a panel ---- */
static bool is_k(enum packing p)
{
    return p == PACK_Q4_K || p == PACK_Q5_K || p == PACK_Q6_K;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static void store32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

static void put_run(const struct weight *w, uint8_t *panel, int r, int run,
                    const struct quant_block *b)
{
    struct run_bytes size = run_bytes(w->packing);
    int R = w->panel_rows;
    struct panel_run at = panel_run(w->packing, R, panel, run);
    uint8_t *q = panel + (at.q - panel), *high = panel + (at.high - panel);
    uint8_t *scale = panel + (at.scale - panel), *super = panel + (at.super - panel);
    uint32_t bits[2] = {0, 0};
    for (int g = 0; g < 8; g++) { /* four elements at a time: one lane */
        uint32_t x = load32(b->q + 4 * g);
        if (size.q == 32)
            store32(q + g * 4 * R + 4 * r, x);
        else if (g < 4)
            store32(q + g * 4 * R + 4 * r,
                    (x & 0x0f0f0f0fu) | (load32(b->q + 16 + 4 * g) & 0x0f0f0f0fu) << 4);
        if (size.high == 4) bits[0] |= (x >> 4 & 0x01010101u) << g;
        if (size.high == 8) bits[g / 4] |= (x >> 4 & 0x03030303u) << 2 * (g & 3);
    }
    for (int i = 0; i < size.high / 4; i++)
        store32(high + i * 4 * R + 4 * r, bits[i]);
    if (is_k(w->packing)) {
        scale[r] = b->sc[0];
        scale[R + r] = b->sc[1];
        memcpy(super + 2 * r, &b->d, 2);
        if (size.super == 4) memcpy(super + 2 * R + 2 * r, &b->m, 2);
    } else {
        memcpy(scale + 2 * r, &b->d, 2);
        if (size.scale == 4) memcpy(scale + 2 * R + 2 * r, &b->m, 2);
    }
}

static void get_run(const struct weight *w, const uint8_t *panel, int r, int run,
                    struct quant_block *b)
{
    struct run_bytes size = run_bytes(w->packing);
    int R = w->panel_rows;
    struct panel_run at = panel_run(w->packing, R, panel, run);
    const uint8_t *q = at.q, *high = at.high, *scale = at.scale, *super = at.super;
    memset(b, 0, sizeof *b);
    for (int e = 0; e < QUANT_RUN; e++) {
        int g = e / 4, lane = r * 4 + e % 4;
        if (size.q == 32)
            b->q[e] = q[g * 4 * R + lane];
        else
            b->q[e] = q[(g & 3) * 4 * R + lane] >> (g < 4 ? 0 : 4) & 15;
        if (size.high == 4) b->q[e] |= (uint8_t)((high[lane] >> g & 1) << 4);
        if (size.high == 8)
            b->q[e] |= (uint8_t)((high[(g / 4) * 4 * R + lane] >> 2 * (g & 3) & 3) << 4);
    }
    if (is_k(w->packing)) {
        b->sc[0] = scale[r];
        b->sc[1] = scale[R + r];
        memcpy(&b->d, super + 2 * r, 2);
        if (size.super == 4) memcpy(&b->m, super + 2 * R + 2 * r, 2);
    } else {
        memcpy(&b->d, scale + 2 * r, 2);
        if (size.scale == 4) memcpy(&b->m, scale + 2 * R + 2 * r, 2);
    }
}

static void pack_float_row(const struct weight *w, uint8_t *panel, int r, const uint8_t *row,
                           float *tmp)
{
    int R = w->panel_rows;
    if (w->packing == PACK_F32) {
        dequantise_row(w->type, row, tmp, w->n_in);
        for (int i = 0; i < w->n_in; i++)
            memcpy(panel + 4 * ((size_t)i * (size_t)R + (size_t)r), tmp + i, 4);
    } else {
        for (int i = 0; i < w->n_in; i++)
            memcpy(panel + 2 * ((size_t)i * (size_t)R + (size_t)r), row + 2 * i, 2);
    }
}

struct pack_job {
    struct backend *be;
    struct weight *w;
    const uint8_t *bytes;
    int panels_per_task;
};

static void pack_task(void *arg, int task_i, int thread_i)
{
    struct pack_job *job = arg;
    struct weight *w = job->w;
    size_t row_bytes = tensor_row_bytes(w->type, w->n_in);
    float *tmp = (float *)job->be->thread[thread_i].p;
    int end = (task_i + 1) * job->panels_per_task;
    for (int i = task_i * job->panels_per_task; i < end && i < w->n_panels; i++) {
        uint8_t *panel = w->panels + (size_t)i * w->panel_bytes;
        for (int r = 0; r < w->panel_rows && i * w->panel_rows + r < w->n_out; r++) {
            const uint8_t *row = job->bytes + (size_t)(i * w->panel_rows + r) * row_bytes;
            struct quant_block b;
            if (w->packing == PACK_ROWS)
                memcpy(panel, row, row_bytes);
            else if (packing_is_float(w->packing))
                pack_float_row(w, panel, r, row, tmp);
            else
                for (int run = 0; run < w->n_in / QUANT_RUN; run++) {
                    quant_unpack(w->type, row, run, &b);
                    put_run(w, panel, r, run, &b);
                }
        }
    }
}

enum err weight_new(struct weight **out, struct backend *be, enum tensor_type type, int n_out,
                    int n_in, const void *bytes, struct errmsg *e)
{
    *out = NULL;
    if (!tensor_type_known((uint32_t)type))
        return err_set(e, ERR_UNSUPPORTED, "tensor type %u (%s) cannot be computed with",
                       (unsigned)type, tensor_type_name((uint32_t)type));
    if (n_out < 1 || n_in < 1 || n_out > DIM_MAX || n_in > DIM_MAX)
        return err_set(e, ERR_INVALID, "a matrix of %d x %d: sides between 1 and %d work", n_out,
                       n_in, DIM_MAX);
    if (n_in % tensor_type_block(type))
        return err_set(e, ERR_INVALID, "rows of %d elements in %s: a multiple of %d is needed",
                       n_in, tensor_type_name((uint32_t)type), tensor_type_block(type));
    struct weight *w = xcalloc(1, sizeof *w);
    *w = (struct weight){
        .type = type, .packing = packing_of(be, type), .n_out = n_out, .n_in = n_in};
    if (be->ops) {
        w->be = be;
        enum err code = be->ops->weight_new(be->device, &w->device, type, n_out, n_in, bytes,
                                            &w->device_bytes, e);
        if (code) {
            mem_free(w);
            return code;
        }
        *out = w;
        return OK;
    }
    lay_out(w, be->k->panel_rows);
    w->panels = arena_take(be, (size_t)w->n_panels * w->panel_bytes, &w->arena);
    if (!w->panels) {
        size_t want = weight_bytes(w);
        mem_free(w);
        return err_set(e, ERR_FULL, "no memory for a matrix of %zu bytes", want);
    }
    for (int i = 0; i < pool_threads(be->pool); i++)
        scratch_need(&be->thread[i], (size_t)n_in * 4);
    struct pack_job job = {be, w, bytes, 1 + w->n_panels / 256};
    pool_run(be->pool, (w->n_panels + job.panels_per_task - 1) / job.panels_per_task, pack_task,
             &job);
    *out = w;
    return OK;
}

void weight_free(struct weight *w)
{
    if (!w) return;
    if (w->device)
        w->be->ops->weight_free(w->be->device, w->device);
    else
        w->arena->live--;
    mem_free(w);
}

int weight_n_out(const struct weight *w)
{
    return w->n_out;
}
int weight_n_in(const struct weight *w)
{
    return w->n_in;
}
size_t weight_bytes(const struct weight *w)
{
    return w->device ? w->device_bytes : (size_t)w->n_panels * w->panel_bytes;
}

void weight_row(const struct weight *w, int row_i, float *out)
{
    ASSERT(row_i >= 0 && row_i < w->n_out);
    int r = row_i % w->panel_rows;
    const uint8_t *panel = w->panels + (size_t)(row_i / w->panel_rows) * w->panel_bytes;
    if (w->packing == PACK_ROWS) {
        dequantise_row(w->type, panel, out, w->n_in);
    } else if (packing_is_float(w->packing)) {
        size_t at = (size_t)r, R = (size_t)w->panel_rows;
        uint16_t h;
        for (int i = 0; i < w->n_in; i++, at += R) {
            if (w->packing == PACK_F32) {
                memcpy(out + i, panel + 4 * at, 4);
                continue;
            }
            memcpy(&h, panel + 2 * at, 2);
            out[i] = w->packing == PACK_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        }
    } else {
        struct quant_block b;
        for (int run = 0; run < w->n_in / QUANT_RUN; run++) {
            get_run(w, panel, r, run, &b);
            quant_values(w->type, &b, out + run * QUANT_RUN);
        }
    }
}
