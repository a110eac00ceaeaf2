/* launch.h - the launches of each kernel family, for the files of this folder and their tests. All pointers are device memory unless
 * said so; every call only enqueues on the stream; what a kernel did wrong shows at the next synchronisation.
 * Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_LAUNCH_H
#define DEJA_ENGINE_BACKEND_CUDA_LAUNCH_H
#include <cuda_runtime.h>

#include "engine/backend/cuda/pack.h"

struct packed { /* device pointers; passed to kernels by value */
    const uint8_t *q, *high, *scale, *super;
    int n_out, n_in, n_runs;
};

enum act_in { ACT_PLAIN, ACT_RMSNORM, ACT_SILU_MUL, ACT_GELU_MUL, ACT_GELU };

struct act_args {
    enum act_in in;
    const float *x, *x2, *norm; /* f32[..][n]; x2 for *_MUL; norm f32[n] */
    float eps;
    int n;
    const int32_t *row; /* which rows of x, or NULL */
    /* out: any of them may be NULL */
    int8_t *q;    /* [rows][n]; n is a multiple of 16 */
    float *d, *s; /* [rows][n / 16]: scale; scale times the sum of q */
    uint16_t *h;  /* f16 [rows][n], clamped to its range */
    float *f;     /* [rows][n] */
};

/* linear.cu */
void launch_act(const struct act_args &a, int n_rows, cudaStream_t s);
/* The forms of the activations a product of this shape reads. */
struct act_forms {
    bool q, h, f;
};
struct act_forms linear_forms(enum tensor_type t, int n_in, int n_cols);
struct product {
    enum tensor_type type;
    struct packed w;
    /* as linear_forms asks; the others may be NULL */
    const int8_t *q;
    const float *d, *s, *f;
    const uint16_t *h;
    int n_cols;
    const float *bias;
    bool accumulate;
    float *out; /* f32[n_cols][n_out] */
};
void launch_product(const struct product &p, cudaStream_t s);

/* rows.cu */
void launch_embed(enum tensor_type t, const struct packed &w, const int32_t *id, int n_rows,
                  bool accumulate, float *out, cudaStream_t s);
void launch_norm(const float *x, const float *weight, float eps, int n_rows, int n, float *out,
                 cudaStream_t s);
void launch_add(const float *x, size_t n, float *inout, cudaStream_t s);
void launch_scale(float factor, size_t n, float *inout, cudaStream_t s);
/* out f32[n_rows][width] = x[row[i]]; not in place */
void launch_gather(const float *x, const int32_t *row, int n_rows, int width, float *out,
                   cudaStream_t s);
struct kv_view;
void launch_kv_copy(const struct kv_view &kv, int n_layers, size_t layer_bytes, int dst, int src,
                    int n_tokens, cudaStream_t s);

/* kv.cuh, attention.cuh */
enum gpu_kv_type { GPU_KV_F16, GPU_KV_INT8, GPU_KV_E4M3 };
struct kv_view { /* of one layer */
    enum gpu_kv_type type;
    int n_heads, head_dim, block_tokens; /* head_dim a multiple of 8, at most 256 */
    size_t block_bytes, head_bytes, v_at, scale_at;
    uint8_t *layer;
};
/* All but layer. */
struct kv_view kv_view_of(enum gpu_kv_type type, int n_heads, int head_dim, int block_tokens);
struct rope_view {
    const float *cos_sin; /* f32[pos][dims/2][2] or NULL: no rotation */
    int dims;
    bool half_split;
};
struct rows_view {            /* of a step, on the device */
    const int32_t *pos, *seq; /* [n_rows] */
    const int32_t *table;     /* [n_seqs][table_stride] */
    int table_stride;
};
struct rope_store_args {
    struct kv_view kv;
    struct rope_view rope;
    struct rows_view rows;
    int n_heads;
    float *q;           /* f32[n_rows][n_heads][head_dim], turned in place */
    const float *k, *v; /* f32[n_rows][kv heads][head_dim] */
};
void launch_rope_store(const struct rope_store_args &a, int n_rows, cudaStream_t s);

enum { ATTEND_SPLIT = 512, ATTEND_VECTORS = 16 };
struct attend_tile {            /* up to 16 query vectors (row, head) of one sequence */
    int row, vector, n_vectors; /* first row; vectors of the group to skip in it */
    int seq, from, to,
        n_splits; /* tokens any of them may see; split i begins at from + i * ATTEND_SPLIT */
};
struct attend_args {
    struct kv_view kv;
    struct rows_view rows;
    const struct attend_tile *tiles; /* device */
    int n_heads, window, splits_max;
    float scale, softcap;
    const float *q; /* f32[n_rows][n_heads][head_dim] */
    float *part_o,
        *part_stats; /* scratch f32[n_rows * n_heads][splits_max][head_dim] and [..][2] */
    float *out;
};
/* Host side: tiles of a step, in memory of the caller (at most attend_tiles_max). n_splits_of_row [n_rows] is for the merge. */
int attend_tiles_max(int n_rows, int group);
int attend_plan(int n_rows, const int32_t *pos, const int32_t *seq, int group, int window,
                struct attend_tile *tiles, int32_t *n_splits_of_row, int *splits_max);
/* n_splits_of_row on the device. */
void launch_attention(const struct attend_args &a, int n_tiles, int n_rows,
                      const int32_t *n_splits_of_row, cudaStream_t s);

#endif
