/* launch.h - the launches of each kernel family, for the files of this folder and their tests. All pointers are device memory unless
 * said so; every call only enqueues on the stream; what a kernel did wrong shows at the next synchronisation.
 * Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_LAUNCH_H
#define DEJA_ENGINE_BACKEND_CUDA_LAUNCH_H
#include <cuda_runtime.h>

#include "engine/backend/cuda/attend_plan.h"
#include "engine/backend/cuda/pack.h"
#include "engine/backend/sample.h"

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

/* rows.cu: cudaSuccess when this program has kernels for the current device. */
cudaError_t kernels_fit();

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
enum { KV_MOVES = 32 }; /* of one launch */
struct kv_view;
void launch_kv_copy(const struct kv_view &kv, int n_layers, size_t layer_bytes, int dst, int src,
                    int n_tokens, cudaStream_t s);
struct kv_place {
    int32_t dst_block, dst_at, src_block, src_at;
};
struct kv_move_list {
    int n;
    struct kv_place move[KV_MOVES];
};
void launch_kv_move(const struct kv_view &kv, int n_layers, size_t layer_bytes,
                    const struct kv_move_list &list, cudaStream_t s);

/* kv.cuh, attention.cuh */
enum gpu_kv_type { GPU_KV_F16, GPU_KV_INT8, GPU_KV_K8V4 };
enum { GPU_V4_GROUP = 32 }; /* dimensions of V that share a scale and a minimum in k8v4 */
struct kv_view {            /* of one layer */
    enum gpu_kv_type type;
    int n_heads, head_dim, block_tokens; /* head_dim a multiple of 8, at most 256 */
    int k_bytes, v_bytes,
        v_scale_bytes; /* of one token and head; K's scale is a float wherever there is one */
    size_t block_bytes, head_bytes, v_at, scale_at, v_scale_at;
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
    /* of a tree of drafts, else NULL: where a row's K and V lie (else at pos); a row sees tokens before tree_from, and tree_from + i
     * where bit i of tree_mask says so (its own included; mask 0: all up to pos) */
    const int32_t *slot, *tree_from;
    const uint64_t *tree_mask;
};
struct rope_store_args {
    struct kv_view kv;
    struct rope_view rope;
    struct rows_view rows;
    int n_heads;
    float *q;            /* f32[n_rows][n_heads][head_dim], turned in place */
    const float *k, *v;  /* f32[n_rows][kv heads][head_dim] */
    const float *spread; /* f32[kv heads][head_dim] or NULL: K is divided by it, q multiplied */
};
void launch_rope_store(const struct rope_store_args &a, int n_rows, cudaStream_t s);

/* sample.cuh */
struct sample_params { /* struct sample_row with places in `words` instead of pointers */
    int logits, top_k, n_top;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int bias_at, n_bias, seen_at, n_seen, allowed_at; /* pairs, pairs, bits; allowed_at -1 = all */
    int unheard;                                      /* as in sample_row, of before */
    double draw;
};
struct sample_head {
    int32_t token;
    float logprob;
};
struct sample_top {
    int32_t n;
    struct sample_head top[SAMPLER_TOP_LOGPROBS_MAX];
};
struct sample_args {
    const float *logits;
    int n_vocab;
    float softcap;
    const struct sample_params *params; /* [rows] */
    const int32_t *words;
    const struct sample_head *before; /* picks of the last submission, or NULL */
    float *work;                      /* scratch f32[rows][n_vocab] */
    struct sample_head *head;         /* out [rows] */
    struct sample_top *top;           /* out [rows] where n_top >= 0 */
};
void launch_sample(const struct sample_args &a, int n_rows, cudaStream_t s);

struct attend_maps;
struct attend_args {
    struct kv_view kv;
    struct rows_view rows;
    const struct attend_tile *tiles;   /* set by launch_attention */
    const int32_t *members, *n_splits; /* of the plan, on the device */
    int n_heads, window, splits_max;
    float scale, softcap;
    const float *q; /* f32[n_rows][n_heads][head_dim] */
    float *part_o,
        *part_stats; /* scratch f32[n_rows * n_heads][splits_max][head_dim] and [..][2] */
    float *out;
    size_t first_vector; /* row * n_heads + head that the scratch and n_splits begin with */
    const struct attend_maps *maps; /* on the host; NULL: large tiles by attention.cuh too */
    int layer;                      /* of the maps; kv is that layer's */
};
struct attend_tiles_of { /* a plan's, on the device */
    const struct attend_tile *few, *many;
    int n_few, n_many;
};
/* n_rows from the row of first_vector on, with their tiles. Anything but cudaSuccess: the device has less shared memory than a kernel
 * needs, and out is not whole. */
cudaError_t launch_attention(const struct attend_args &a, const struct attend_tiles_of &tiles,
                             int n_rows, cudaStream_t s);

#endif
