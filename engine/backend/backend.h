/* backend.h - the arithmetic of a forward pass: matrices, norms, rope, paged KV and attention, behind some 16 coarse
 * calls. Owns the compute threads, repacked weights, KV bytes and scratch memory. Knows no model architecture, no
 * request, no file; the caller owns the order of the calls and all activations (plain float32 arrays, row-major).
 *
 * Instruction sets: "scalar" (the oracle: float32 activations, double accumulation, slow), "avx2" (int8 activations, AVX2,
 * FMA, F16C), "avx512" (the same with AVX-512 VNNI). Chosen at run time; env DEJA_ISA pins one where the option is NULL.
 * `exact` keeps activations in float32 against dequantised weights and KV in float32 on every instruction set.
 *
 * Determinism: what a row of a result holds depends on that row's inputs only: bit-identical whatever other rows are in the
 * call, however many threads there are. Different instruction sets may differ in the last bits (float) and in how
 * activations are rounded.
 *
 * Shapes are checked with ASSERT: a wrong one is a bug of the caller. Pointers must not overlap unless said so.
 * Threading: one thread at a time per backend (the step thread). weight_free, kv free: not during a call that uses them. */
#ifndef DEJA_ENGINE_BACKEND_BACKEND_H
#define DEJA_ENGINE_BACKEND_BACKEND_H
#include "engine/backend/kv_type.h"
#include "engine/backend/quant.h"

struct backend;
struct weight; /* one matrix [n_out][n_in], y = W x */
struct rope;   /* a table of rotations */
struct kv;     /* paged K and V of every layer */

/* ---- life ---- */
struct backend_options {
    int n_threads; /* 1..64, the caller's thread included; 0 = all cores */
    const char
        *isa; /* "scalar", "avx2", "avx512", or NULL: env DEJA_ISA, else the best this CPU has */
    bool exact;
    const char *
        device; /* NULL or "cpu"; or the name of a registered accelerator ("cuda"): ERR_UNSUPPORTED says why it cannot be used */
};
/* ERR_INVALID: unknown instruction set or thread count; ERR_UNSUPPORTED: this CPU lacks it. *out is NULL then. */
MUST enum err backend_open(struct backend **out, const struct backend_options *opt,
                           struct errmsg *e);
void backend_close(struct backend *be); /* after everything made from it is freed; NULL is fine */
const char *backend_isa_name(const struct backend *be);
int backend_threads(const struct backend *be);
bool backend_is_exact(const struct backend *be);

/* ---- memory of activations ----
 * On an accelerator activations, norms and biases lie in its memory: what the calls below take as f32 arrays must come from
 * backend_floats, and only backend_write and backend_read look inside. Token ids, positions and block tables are the caller's.
 * On the CPU these are plain arrays. */
bool backend_on_device(const struct backend *be);
float *backend_floats(struct backend *be, size_t n);    /* zeroed on the CPU; NULL: no memory */
void backend_floats_free(struct backend *be, float *p); /* NULL is fine */
void backend_write(struct backend *be, float *to, const float *from, size_t n);
/* ERR_UNAVAILABLE: the device failed, now or earlier; host then holds NaNs. */
MUST enum err backend_read(struct backend *be, float *host, const float *from, size_t n,
                           struct errmsg *e);
/* x f32[..][width]: row i becomes row row[i], for ascending row. */
void backend_take_rows(struct backend *be, float *x, int width, const int32_t *row, int n_rows);

/* ---- weights ---- */
/* Copies and repacks (in parallel, into huge pages). bytes: n_out rows of tensor_row_bytes(type, n_in), borrowed for the
 * call, any alignment. n_in is a multiple of the type's block (else ERR_INVALID). ERR_FULL: no memory. */
MUST enum err weight_new(struct weight **out, struct backend *be, enum tensor_type type, int n_out,
                         int n_in, const void *bytes, struct errmsg *e);
void weight_free(struct weight *w); /* NULL is fine */
int weight_n_out(const struct weight *w);
int weight_n_in(const struct weight *w);
size_t weight_bytes(const struct weight *w); /* memory held, repacked */
/* What weight_bytes will be on the widest instruction set; 0 for a type that cannot be computed with. Any thread. */
size_t weight_bytes_planned(enum tensor_type type, int n_out, int n_in);

/* out f32[n_rows][n_in] = row id[i] of w, exact values of the stored type; id in [0,n_out). (Also for position and type
 * embeddings.) The same weight may serve as the output head. accumulate: out += . */
void backend_embed(struct backend *be, const struct weight *w, const int32_t *id, int n_rows,
                   bool accumulate, float *out);

/* ---- linear layers ---- */
/* What happens to x on its way in, fused with its rounding to int8 (x itself is not changed). */
enum linear_in {
    LINEAR_PLAIN,
    LINEAR_RMSNORM,  /* x / sqrt(mean(x^2) + eps) * norm_weight */
    LINEAR_SILU_MUL, /* silu(x) * x2: gated feed-forward (x = gate, x2 = up) */
    LINEAR_GELU_MUL, /* gelu_tanh(x) * x2 (gemma) */
    LINEAR_GELU,     /* 0.5 x (1 + erf(x / sqrt 2)) (bert) */
};
enum { LINEAR_WEIGHTS_MAX = 4 };
struct linear {
    int n_weights; /* 1..LINEAR_WEIGHTS_MAX; all with the same n_in (fused QKV, gate + up) */
    const struct weight *weight[LINEAR_WEIGHTS_MAX];
    const float *bias[LINEAR_WEIGHTS_MAX]; /* f32[n_out] or NULL */
    float *out[LINEAR_WEIGHTS_MAX];        /* f32[n_rows][n_out] */
    bool accumulate;                       /* out += instead of out = (residual) */
    enum linear_in in;
    const float *x;           /* f32[..][n_in] */
    const float *x2;          /* f32[..][n_in], LINEAR_*_MUL only */
    const float *norm_weight; /* f32[n_in], LINEAR_RMSNORM only */
    float eps;
    int n_rows;
    const int32_t *row; /* [n_rows] rows of x to take, or NULL: 0..n_rows-1 */
};
void backend_linear(struct backend *be, const struct linear *l);

/* ---- rows of plain numbers ---- x and out may be the same array */
/* out[i] = x[i] / sqrt(mean(x[i]^2) + eps) * weight. Per-head norms: n_rows = rows * heads, n = head_dim. */
void backend_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n_rows,
                     int n, float *out);
struct layernorm {
    const float *weight, *bias; /* f32[n] */
    float eps;
    const float *add; /* f32[n_rows][n] added to x before the norm (residual), or NULL */
};
void backend_layernorm(struct backend *be, const float *x, const struct layernorm *p, int n_rows,
                       int n, float *out);
void backend_add(struct backend *be, const float *x, size_t n, float *inout); /* inout += x */
void backend_scale(struct backend *be, float factor, size_t n, float *inout);

/* ---- rope ---- */
struct rope_options {
    double base;               /* 10000, 1e5, 1e6 .. */
    double linear_scale;       /* positions are divided by it; 0 means 1 */
    int dims;                  /* leading dimensions of a head that turn; even, <= head_dim */
    int pos_max;               /* positions 0..pos_max-1 */
    bool half_split;           /* pairs (i, i + dims/2) (qwen2, gemma); false: (2i, 2i+1) (llama) */
    const float *freq_factors; /* f32[dims/2] divides each frequency, or NULL */
    float magnitude;           /* what is turned also grows by it (yarn, longrope); 0 means 1 */
};
/* ERR_FULL: no memory for the table (pos_max * dims * 4 bytes). */
MUST enum err rope_new(struct rope **out, const struct rope_options *o, struct errmsg *e);
void rope_free(struct rope *r);

/* ---- paged KV ---- */
struct kv_options {
    int n_layers, n_kv_heads, head_dim; /* head_dim: multiple of 8, at most 256 */
    int n_blocks, block_tokens;         /* block_tokens 1..256 */
    enum kv_type type;                  /* exact mode keeps float32 and takes KV_F16 only */
};
/* Inside a block, K and V of one KV head are contiguous. ERR_FULL: no memory. ERR_INVALID: a rounded type in exact mode. */
MUST enum err kv_new(struct kv **out, struct backend *be, const struct kv_options *o,
                     struct errmsg *e);
void kv_free(struct kv *kv);
size_t kv_bytes(const struct kv *kv);

/* Which position of which sequence each row is. Arrays borrowed for the call. */
struct kv_rows {
    int n_rows;
    const int32_t *pos; /* [n_rows] >= 0 */
    const int32_t *seq; /* [n_rows] index into block_table */
    const int32_t *const
        *block_table; /* per sequence: physical block of positions [i*block_tokens, ..) */
};
/* Tells which rows the next backend_rope_store and backend_attention calls are about (an accelerator fetches them once). The arrays
 * stay the caller's until the next such call. Not needed on the CPU. */
void backend_set_rows(struct backend *be, const struct kv *kv, const struct kv_rows *rows);
/* Turns q f32[n_rows][n_heads*head_dim] in place and k f32[n_rows][n_kv_heads*head_dim] on its way into the store; stores k and v.
 * rope NULL: no rotation. */
struct rope_store {
    const struct rope *rope;
    int layer, n_heads; /* query heads, a multiple of n_kv_heads */
    float *q;
    const float *k, *v;
    /* f32[n_kv_heads*head_dim] > 0, or NULL: the turned K is stored divided by it and the turned q multiplied, which changes no score
     * but makes channels alike before they are rounded. The same for both of a pair. */
    const float *spread;
};
void backend_rope_store(struct backend *be, struct kv *kv, const struct kv_rows *rows,
                        const struct rope_store *p);

/* Causal attention of every row over positions 0..pos of its sequence, which must have been stored (its own included).
 * out f32[n_rows][n_heads*head_dim]. */
struct attention {
    int layer, n_heads;
    const float *q; /* f32[n_rows][n_heads*head_dim] */
    float scale;    /* usually 1/sqrt(head_dim) */
    int window;     /* only the last `window` positions (own included); 0 = all */
    float softcap;  /* scores become softcap * tanh(score / softcap); 0 = off */
    float *out;
};
void backend_attention(struct backend *be, const struct kv *kv, const struct kv_rows *rows,
                       const struct attention *p);

/* The first n_tokens positions of block src to block dst, all layers (copy-on-write of a shared tail). */
void kv_copy(struct kv *kv, int dst_block, int src_block, int n_tokens);
/* The part-th of n_parts parts of the store: has the kernel give its pages now (mem_touch). Parts may be touched on different threads,
 * before
 * anybody uses the store. */
void kv_touch(struct kv *kv, int part, int n_parts);
/* Element types and layout, for telling stored blocks apart: changes with either. Static text. */
const char *kv_layout_name(const struct kv *kv);
/* Bytes of one block (all layers), for swapping to host memory or disk. to/from hold kv_block_bytes(kv) bytes. */
size_t kv_block_bytes(const struct kv *kv);
void kv_block_read(const struct kv *kv, int block, void *to);
void kv_block_write(struct kv *kv, int block, const void *from);

/* ---- encoders ---- */
/* Bidirectional attention inside each segment. q,k,v,out f32[sum of lengths][n_heads*head_dim]; segment i has
 * length[i] > 0 rows, in order. */
struct attention_full {
    const float *q, *k, *v;
    const int32_t *length; /* [n_segments] */
    int n_segments, n_heads, head_dim;
    float scale;
    float *out;
};
void backend_attention_full(struct backend *be, const struct attention_full *p);

#endif
