/* room.h - what the files of the backend share: the structs behind backend.h and the table of kernels an instruction set
 * provides. Private to engine/backend. */
#ifndef DEJA_ENGINE_BACKEND_ROOM_H
#define DEJA_ENGINE_BACKEND_ROOM_H
#include "engine/backend/backend.h"
#include "engine/backend/collective.h"
#include "engine/backend/device.h"
#include "engine/backend/kv_layout.h"
#include "engine/backend/pool.h"
#include "engine/backend/quant_block.h"

/* ---- packed weights ----
 * Rows are grouped into panels of R = 16 (one or two vectors, a lane a row). A panel is one stream in the order a kernel reads it
 * (two interleaved streams a panel cost half the memory bandwidth: 13.8 against 33.5 GB/s measured). For each run of 32 inputs:
 *   q      [groups][R][4] : 4 neighbouring elements of one row make one 32-bit lane. 4-, 5- and 6-bit types keep groups
 *          0..3 in low and 4..7 in high nibbles of 4 vectors; 8-bit types have 8 vectors; everything unsigned
 *   high   [R][4] bytes, bit g = fifth bit in group g (5 bit); or 2 x [R][4], two bits a group (6 bit)
 *   scale  {d f16[R], m f16[R]} | {sc u8[R], min u8[R]} (Q4_K, Q5_K) | {s8[R], s8[R]} (Q6_K)
 * and before every 8 runs of a K type: super {d f16[R], dmin f16[R]} (dmin not for Q6_K).
 * Float weights: n_in x [R] of f32, f16 or bf16. The scalar set keeps the file's rows as they are. */
enum packing {
    PACK_ROWS,
    PACK_Q4_0,
    PACK_Q4_1,
    PACK_Q5_0,
    PACK_Q5_1,
    PACK_Q8_0,
    PACK_Q4_K,
    PACK_Q5_K,
    PACK_Q6_K,
    PACK_F32,
    PACK_F16,
    PACK_BF16,
};

/* Bytes a row takes in one run, per part; super: per 8 runs. */
struct run_bytes {
    int q, high, scale, super;
};
static inline struct run_bytes run_bytes(enum packing p)
{
    switch (p) {
    case PACK_Q4_0:
        return (struct run_bytes){16, 0, 2, 0};
    case PACK_Q4_1:
        return (struct run_bytes){16, 0, 4, 0};
    case PACK_Q5_0:
        return (struct run_bytes){16, 4, 2, 0};
    case PACK_Q5_1:
        return (struct run_bytes){16, 4, 4, 0};
    case PACK_Q8_0:
        return (struct run_bytes){32, 0, 2, 0};
    case PACK_Q4_K:
        return (struct run_bytes){16, 0, 2, 4};
    case PACK_Q5_K:
        return (struct run_bytes){16, 4, 2, 4};
    case PACK_Q6_K:
        return (struct run_bytes){16, 8, 2, 2};
    default:
        return (struct run_bytes){0, 0, 0, 0};
    }
}

enum { PANEL_ROWS = 16 }; /* R on every instruction set that has panels */
struct weight_arena;
struct weight {
    enum tensor_type type;
    enum packing packing;
    int n_mats, n_out, n_in;  /* matrices of n_out rows, one after the other */
    int panel_rows, n_panels; /* of one matrix: each begins with a panel of its own */
    size_t panel_bytes;       /* stride; PACK_ROWS: bytes of a row */
    uint8_t *panels;
    struct weight_arena *arena;
    void *
        device; /* on an accelerator: its own; then the fields above but sizes and type are unused */
    struct backend *be;
    size_t device_bytes;
};

/* One panel as kernels see it. */
struct panel {
    const uint8_t *p;
    int n_runs; /* n_in / 32; float packings: unused */
    int n_in;
};

/* One run of a panel. */
struct panel_run {
    const uint8_t *q, *high, *scale, *super;
};
static inline struct panel_run panel_run(enum packing packing, const uint8_t *panel, int run)
{
    struct run_bytes b = run_bytes(packing);
    int rows = PANEL_ROWS, record = (b.q + b.high + b.scale) * rows, super = b.super * rows;
    const uint8_t *group = panel + (size_t)(run / 8) * (size_t)(8 * record + super);
    const uint8_t *q = group + super + (size_t)(run % 8) * (size_t)record;
    return (struct panel_run){q, q + b.q * rows, q + (b.q + b.high) * rows, group};
}

/* ---- activations on their way in ----
 * Rows are cut into tiles of at most tile_cols columns; a tile of w columns starting at row c0 lies at c0 * n_in and is
 * interleaved so that a kernel walks one pointer: q and q16 [run][w][32], d and neg [run][w][2], k, s and neg16 [run][w],
 * f [n_in][w].
 * int8 has a scale for every 16 elements, and up to 4 elements a row are taken out and multiplied in float32: those that
 * coarsen the rounding of the rest most. Mean divergence (KL) from float32 on SmolLM2-135M, five chats: a scale for 32 0.0051,
 * for 16 0.0025, with outliers taken out 0.0010 (about one a row; 8 would give 0.0006). */
enum { TILE_COLS_MAX = 16, ACT_GROUP = 16, OUTLIERS_MAX = 4, SCALE_MAX = 4096 };
struct outliers {
    int32_t n, at[OUTLIERS_MAX]; /* element of the row */
    float x[OUTLIERS_MAX];
};
struct act_tile {
    int width;
    const int8_t *q;
    const float *d;     /* scale of each 16 elements */
    const float *s;     /* sum of d * q over the run */
    const int32_t *neg; /* minus the sum of each 16 q */
    /* Instead, where scales are whole numbers of up to SCALE_MAX steps (AVX2): the 16 that share one are the even or the odd pairs
     * of elements of a run. k: odd << 16 | even; s: sum of k * q; neg: minus the sum of k * q over the run, and over its
     * elements 16 and on */
    const int32_t *k;
    const float *step; /* [width] what one step is worth */
    /* For 8-bit weights there, 16-bit activations with one scale for their row; every four in the order 0 2 1 3 */
    const int16_t *q16;
    const int32_t *neg16;            /* minus 128 times the sum over the run */
    const float *step16;             /* [width] */
    const struct outliers *outliers; /* [width] */
    const float *f;
};
/* Where one row of a tile goes; the same layout, writable, already moved to the row's column. */
struct act_row {
    int width, n_in;
    int8_t *q;           /* NULL: not wanted */
    float *d, *s, *step; /* step: of this row */
    int32_t *neg, *k;
    int16_t *q16; /* NULL: not wanted */
    int32_t *neg16;
    float *step16;             /* of this row */
    struct outliers *outliers; /* of this row */
    float *f;                  /* NULL: not wanted */
};
/* The caller's x after the transform of enum linear_in, one row. */
struct act_in {
    enum linear_in in;
    const float *x, *x2, *norm_weight;
    float eps;
    int n;
};
/* What becomes of a panel's sums: out[c * out_stride + r] for r < n_valid. */
struct panel_out {
    float *out;
    size_t out_stride;
    int n_valid;
    const float *bias; /* f32[n_valid] or NULL */
    bool accumulate;
};

/* ---- attention ---- */
enum {
    ATTEND_QUERIES_MAX = 12,
    ATTEND_PART = 256, /* positions of one pass, rounded down to whole blocks */
    ATTEND_HEAD_MAX = 256,
    ATTEND_SLOTS = ATTEND_PART + 2 * KV_TREE_NODES, /* places of one pass: a tree's lie further */
    ATTEND_SCORE_STRIDE =
        ATTEND_SLOTS +
        32, /* floats between the scores of two queries; the last vector may spill over */
};
/* Of a tree's row: its positions from..from+n-1 lie at slot[i] instead. All count from the pass's first_pos. */
struct attend_path {
    int from, n;                 /* n 0: every position lies in its place */
    int16_t slot[KV_TREE_NODES]; /* ascending, slot[i] >= from + i */
};
struct attend {
    const struct kv_layout *kv;
    const void *const *block; /* [n_blocks] start of the head's part */
    int n_blocks;
    int first_pos;  /* position of block[0]'s first token */
    int n_queries;  /* 1..ATTEND_QUERIES_MAX */
    const float *q; /* f32[head_dim][n_queries], already scaled */
    /* where K is int8 and the instruction set has to_i16: q rounded, [head_dim/4][n_queries][4] in the order 0 2 1 3, and what
     * one step is worth */
    const int16_t *q16;
    const float *q_step;      /* [n_queries] */
    const int32_t *from, *to; /* per query: sees positions from..to, to < first_pos + ATTEND_PART */
    const struct attend_path *const *path; /* [n_queries]; NULL: no row of the pass has one */
    float softcap;
    float *score;     /* scratch f32[n_queries][ATTEND_SCORE_STRIDE] */
    int score_stride; /* ATTEND_SCORE_STRIDE */
    float *max, *sum; /* out, per query; max is -inf and sum 0 where nothing was seen */
    float *acc;       /* out f32[n_queries][head_dim], not divided by sum */
};

struct rope_row {
    const float *cos_sin; /* [dims/2][2] of the row's position, or NULL */
    int dims, head_dim;
    bool half_split;
};

/* ---- what an instruction set provides ---- */
struct kernels {
    const char *name;
    bool panels;               /* false: weights stay rows (scalar) */
    int tile_cols, other_cols; /* other_cols: where some weight is neither Q4_1 nor Q4_K */
    bool int16_for_q8;         /* Q8_0 weights take act_tile.q16 */
    /* x through in, then into the wanted forms. tmp f32[act_tmp_floats(n_in)]. */
    void (*act)(const struct act_in *in, const struct act_row *out, float *tmp);
    void (*rmsnorm)(const float *x, const float *weight, float eps, int n, float *out);
    void (*layernorm)(const float *x, const float *add, const struct layernorm *p, int n,
                      float *out); /* add: this row's, or NULL */
    /* out for each column of the tile */
    void (*panel_int)(enum packing packing, const struct panel *p, const struct act_tile *t,
                      const struct panel_out *o);
    void (*panel_float)(enum packing packing, const struct panel *p, const struct act_tile *t,
                        const struct panel_out *o);
    void (*attend)(const struct attend *a);
    void (*rope)(const struct rope_row *r, const float *x, float *out); /* one head; x may be out */
    /* Rounding for the KV store; n is a multiple of 8 and at most ATTEND_HEAD_MAX. Results are float16. */
    void (*to_f16)(const float *x, uint16_t *out, int n);
    uint16_t (*to_i8)(const float *x, int8_t *out, int n); /* the scale: x ~ out * scale */
    void (*to_u4)(const float *x, uint8_t *out, int n, uint16_t *scale,
                  uint16_t *min); /* x ~ out * scale + min, out 0..15, n at most KV_V4_GROUP */
    /* Rounding of a query: x ~ out * returned value. NULL: attend takes float queries only. */
    float (*to_i16)(const float *x, int16_t *out, int n);
};
extern const struct kernels kernels_scalar, kernels_avx2, kernels_avx512;

/* Grows only; 64-byte aligned. */
struct scratch {
    char *raw, *p;
    size_t bytes;
};
void *scratch_need(struct scratch *s, size_t bytes);
void scratch_free(struct scratch *s);

struct backend {
    const struct device_ops *ops; /* NULL on the CPU */
    void *device;
    char device_name[24];     /* "cuda:0" */
    struct collective *group; /* collective.h; NULL: alone */
    int rank;                 /* in it */
    const struct kernels *k;
    struct pool *pool;
    bool exact;
    struct scratch act_q, act_d, act_s, act_neg, act_step, act_outliers, act_f; /* linear.c */
    struct scratch act_q16, act_neg16, act_step16;                              /* linear.c */
    struct scratch cuts;                                                        /* linear.c */
    struct scratch pairs;                                                       /* moe.c */
    struct scratch part, kv_f32, tiles, segments;                               /* attention.c */
    struct scratch thread[POOL_THREADS_MAX];
    struct weight_arena *arena; /* newest first */
    size_t arena_step_bytes;
};

static inline size_t act_tmp_floats(int n_in)
{
    return (size_t)n_in + 3 * ((size_t)n_in / ACT_GROUP) + 16;
}
bool packing_is_float(enum packing p);
/* Rows [first, first + n) of a linear layer's activations and outputs, which the mat-th matrix of each weight multiplies. */
struct row_group {
    int first, n, mat;
};
/* backend_linear on the CPU with several matrices a weight. Groups follow one another without gaps over all rows; none is empty. */
void linear_groups(struct backend *be, const struct linear *l, const struct row_group *groups,
                   int n_groups);
/* One output row of a PACK_ROWS weight for the columns of a group; act f32[n_rows][n_in], tmp f32[n_in]. */
void linear_row_scalar(const struct linear *l, int weight_i, int row_i, const struct row_group *g,
                       const float *act, float *tmp);
void weight_panel(const struct weight *w, int mat, int panel_i, struct panel *out);
/* Exact values of one row. */
void weight_row(const struct weight *w, int mat, int row_i, float *out);
void weight_arena_free_all(struct backend *be);

#endif
