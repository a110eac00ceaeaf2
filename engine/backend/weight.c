/* weight.c - matrices in the layout the kernels read: packing at load (in parallel), reading single rows back (embedding),
 * and the huge-page memory they live in. Packing keeps every value exactly: quants and scales are moved, never rounded.
 * Refuses shapes that are not whole blocks. Threading: one thread at a time per backend.
 * Row interleaving as in gemm micro-kernels (Goto & van de Geijn 2008); the memory map is in room.h. */
#include <string.h>

#include "base/mem.h"
#include "engine/backend/quant_unpack.h"
#include "engine/backend/room.h"

/* Weights are cut from big mappings, so that a small matrix does not take a whole huge page of its own. */
struct weight_arena {
    struct weight_arena *next;
    uint8_t *base;
    size_t bytes, used;
    int live;
};
enum { ARENA_STEP_BYTES = 64 << 20, ALIGN = 64, DIM_MAX = 1 << 24, R = PANEL_ROWS };

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
    if (!be->k->panels) return PACK_ROWS;
    if (be->exact) return PACK_F32;
    switch (t) {
    case TENSOR_F32:
        return PACK_F32;
    case TENSOR_F16:
        return PACK_F16;
    case TENSOR_BF16:
        return PACK_BF16;
#define ONE_PACKING(k)                                                                             \
    case TENSOR_##k:                                                                               \
        return PACK_##k;
        EACH_QUANT(ONE_PACKING)
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

static void lay_out(struct weight *w)
{
    if (w->packing == PACK_ROWS) {
        w->panel_rows = 1;
        w->n_panels = w->n_out;
        w->panel_bytes = tensor_row_bytes(w->type, w->n_in);
        return;
    }
    size_t rows = PANEL_ROWS, runs = (size_t)w->n_in / QUANT_RUN;
    w->panel_rows = PANEL_ROWS;
    w->n_panels = (w->n_out + PANEL_ROWS - 1) / PANEL_ROWS;
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
    struct weight w = {.type = type,
                       .packing = packing_of(&widest, type),
                       .n_mats = 1,
                       .n_out = n_out,
                       .n_in = n_in};
    lay_out(&w);
    return weight_bytes(&w);
}

void weight_panel(const struct weight *w, int mat, int panel_i, struct panel *out)
{
    size_t at = (size_t)mat * (size_t)w->n_panels + (size_t)panel_i;
    *out = (struct panel){
        .p = w->panels + at * w->panel_bytes, .n_runs = w->n_in / QUANT_RUN, .n_in = w->n_in};
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

QUANT_INLINE void put_run(const enum packing k, uint8_t *panel, int r, int run,
                          const struct quant_block *b)
{
    const struct run_bytes size = run_bytes(k);
    struct panel_run at = panel_run(k, panel, run);
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
    if (is_k(k)) {
        scale[r] = b->sc[0];
        scale[R + r] = b->sc[1];
        memcpy(super + 2 * r, &b->d, 2);
        if (size.super == 4) memcpy(super + 2 * R + 2 * r, &b->m, 2);
    } else {
        memcpy(scale + 2 * r, &b->d, 2);
        if (size.scale == 4) memcpy(scale + 2 * R + 2 * r, &b->m, 2);
    }
}

/* Everything about the type is known to the compiler: 4 to 6 times as fast as one loop for all types. */
QUANT_INLINE void pack_runs(const enum tensor_type t, const enum packing k, const int n_runs,
                            const uint8_t *row, uint8_t *panel, int r)
{
    const int per = is_k(k) ? 8 : 1;
    const size_t block = tensor_type_bytes(t);
    struct quant_block b;
    for (int run = 0; run < n_runs; run++) {
        quant_unpack_block(t, row + (size_t)(run / per) * block, run % per, &b);
        put_run(k, panel, r, run, &b);
    }
}

#define ONE_PACKER(k)                                                                              \
    static void pack_##k(int n_runs, const uint8_t *row, uint8_t *panel, int r)                    \
    {                                                                                              \
        pack_runs(TENSOR_##k, PACK_##k, n_runs, row, panel, r);                                    \
    }
EACH_QUANT(ONE_PACKER)

static void pack_quant_row(const struct weight *w, uint8_t *panel, int r, const uint8_t *row)
{
    int n_runs = w->n_in / QUANT_RUN;
    switch (w->packing) {
#define CASE_PACKER(k)                                                                             \
    case PACK_##k:                                                                                 \
        pack_##k(n_runs, row, panel, r);                                                           \
        return;
        EACH_QUANT(CASE_PACKER)
    default:
        ASSERT(!"not an integer packing");
    }
}

static void get_run(const struct weight *w, const uint8_t *panel, int r, int run,
                    struct quant_block *b)
{
    struct run_bytes size = run_bytes(w->packing);
    struct panel_run at = panel_run(w->packing, panel, run);
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
    for (int i = task_i * job->panels_per_task; i < end && i < w->n_panels * w->n_mats; i++) {
        uint8_t *panel = w->panels + (size_t)i * w->panel_bytes;
        int first = i % w->n_panels * w->panel_rows;
        const uint8_t *rows =
            job->bytes + ((size_t)(i / w->n_panels) * (size_t)w->n_out + (size_t)first) * row_bytes;
        for (int r = 0; r < w->panel_rows && first + r < w->n_out; r++) {
            const uint8_t *row = rows + (size_t)r * row_bytes;
            if (w->packing == PACK_ROWS)
                memcpy(panel, row, row_bytes);
            else if (packing_is_float(w->packing))
                pack_float_row(w, panel, r, row, tmp);
            else
                pack_quant_row(w, panel, r, row);
        }
    }
}

static enum err check_shape(enum tensor_type type, int n_mats, int n_out, int n_in,
                            struct errmsg *e)
{
    if (!tensor_type_known((uint32_t)type))
        return err_set(e, ERR_UNSUPPORTED, "tensor type %u (%s) cannot be computed with",
                       (unsigned)type, tensor_type_name((uint32_t)type));
    if (n_out < 1 || n_in < 1 || n_out > DIM_MAX || n_in > DIM_MAX)
        return err_set(e, ERR_INVALID, "a matrix of %d x %d: sides between 1 and %d work", n_out,
                       n_in, DIM_MAX);
    if (n_mats < 1 || n_mats > DIM_MAX / n_out)
        return err_set(e, ERR_INVALID, "%d matrices of %d rows: 1 to %d rows in all work", n_mats,
                       n_out, DIM_MAX);
    if (n_in % tensor_type_block(type))
        return err_set(e, ERR_INVALID, "rows of %d elements in %s: a multiple of %d is needed",
                       n_in, tensor_type_name((uint32_t)type), tensor_type_block(type));
    return OK;
}

enum err weight_new(struct weight **out, struct backend *be, enum tensor_type type, int n_out,
                    int n_in, const void *bytes, struct errmsg *e)
{
    struct weight_shape one = {type, 1, n_out, n_in};
    return weight_new_stack(out, be, &one, bytes, e);
}

enum err weight_new_stack(struct weight **out, struct backend *be, const struct weight_shape *s,
                          const void *bytes, struct errmsg *e)
{
    *out = NULL;
    enum err code = check_shape(s->type, s->n_mats, s->n_out, s->n_in, e);
    if (code) return code;
    struct weight *w = xcalloc(1, sizeof *w);
    *w = (struct weight){.type = s->type,
                         .packing = packing_of(be, s->type),
                         .n_mats = s->n_mats,
                         .n_out = s->n_out,
                         .n_in = s->n_in};
    if (be->ops) { /* rows one after the other: a matrix begins where the rows before it end */
        w->be = be;
        code = be->ops->weight_new(be->device, &w->device, s->type, s->n_mats * s->n_out, s->n_in,
                                   bytes, &w->device_bytes, e);
        if (code) {
            mem_free(w);
            return code;
        }
        *out = w;
        return OK;
    }
    lay_out(w);
    w->panels = arena_take(be, weight_bytes(w), &w->arena);
    if (!w->panels) {
        size_t want = weight_bytes(w);
        mem_free(w);
        return err_set(e, ERR_FULL, "no memory for a matrix of %zu bytes", want);
    }
    for (int i = 0; i < pool_threads(be->pool); i++)
        scratch_need(&be->thread[i], (size_t)s->n_in * 4);
    int n_panels = w->n_panels * w->n_mats;
    struct pack_job job = {be, w, bytes, 1 + n_panels / 256};
    pool_run(be->pool, (n_panels + job.panels_per_task - 1) / job.panels_per_task, pack_task, &job);
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
size_t weight_bytes(const struct weight *w)
{
    return w->device ? w->device_bytes : (size_t)w->n_mats * (size_t)w->n_panels * w->panel_bytes;
}

void weight_row(const struct weight *w, int mat, int row_i, float *out)
{
    ASSERT(row_i >= 0 && row_i < w->n_out && mat >= 0 && mat < w->n_mats);
    struct panel p;
    weight_panel(w, mat, row_i / w->panel_rows, &p);
    int r = row_i % w->panel_rows;
    const uint8_t *panel = p.p;
    if (w->packing == PACK_ROWS) {
        dequantise_row(w->type, panel, out, w->n_in);
    } else if (packing_is_float(w->packing)) {
        size_t at = (size_t)r;
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
