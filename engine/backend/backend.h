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
#include "engine/backend/sample.h"

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
        device; /* NULL or "cpu"; or a registered accelerator ("cuda", "cuda:1"): ERR_UNSUPPORTED says why it cannot be used */
    /* How an accelerator multiplies matrices with the rows of long prompts. NULL, "auto": F16 and BF16 matrices by its maker's library,
     * where that is; "own": by no library; "bf16", "fp8", "int8": all but F32 ones by it, rounded to that with a scale a row and a
     * token. */
    const char *products;
};
/* ERR_INVALID: unknown instruction set or thread count; ERR_UNSUPPORTED: this CPU lacks it. *out is NULL then. */
MUST enum err backend_open(struct backend **out, const struct backend_options *opt,
                           struct errmsg *e);
void backend_close(struct backend *be); /* after everything made from it is freed; NULL is fine */
const char *backend_isa_name(const struct backend *be);
int backend_threads(const struct backend *be);
int backend_cores(void); /* that n_threads 0 means */
bool backend_is_exact(const struct backend *be);

/* ---- accelerators ---- */
/* The name of the one that is built in ("cuda"), or NULL. */
const char *backend_device_builtin(void);
/* n devices will be opened as ranks of a group (collective.h): before anything asks for one. It may set environment variables that are
 * not set, so no other thread may be reading them. */
void backend_expect_ranks(int n);
struct backend_device {
    char name[24], model[80]; /* "cuda:0"; what its maker calls it. name empty: the CPU */
    size_t free_bytes, total_bytes;
};
/* What a device is, opened and closed for it. ERR_UNSUPPORTED: it is not built in or cannot be used, in one sentence. */
MUST enum err backend_device_look(const char *device, struct backend_device *out, struct errmsg *e);
const char *backend_device_name(const struct backend *be);  /* "cpu" or "cuda:0" */
const char *backend_device_model(const struct backend *be); /* on the CPU: the instruction set */
/* NULL, or why the device can do nothing any more: a sentence that lives as long as the backend. */
const char *backend_failure(const struct backend *be);

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
/* n_mats matrices of the same shape in one weight, their rows one after the other (the experts of a layer): for backend_moe. */
struct weight_shape {
    enum tensor_type type;
    int n_mats, n_out, n_in;
};
MUST enum err weight_new_stack(struct weight **out, struct backend *be,
                               const struct weight_shape *s, const void *bytes, struct errmsg *e);
void weight_free(struct weight *w); /* NULL is fine */
int weight_n_out(const struct weight *w);
size_t weight_bytes(const struct weight *w); /* memory held, repacked */
/* What weight_bytes will be on the widest instruction set; 0 for a type that cannot be computed with. Any thread. */
size_t weight_bytes_planned(enum tensor_type type, int n_out, int n_in);
/* The same on a device by name (NULL, "cpu": on the CPU). */
size_t weight_bytes_on(const char *device, enum tensor_type type, int n_out, int n_in);

/* out f32[n_rows][n_in] = row id[i] of w, exact values of the stored type; id in [0,n_out), or n_out: zeros, or as backend_submit says.
 * (Also for position and type embeddings.) The same weight may serve as the output head. accumulate: out += . */
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
    /* f32[n_in] > 0, or NULL. Where both sides are rounded to int8 (products "int8"), the input's channels are divided by it before, and
     * the matrices' columns multiplied: the product stays, its rounding changes (calibration.h). Others ignore it. */
    const float *spread;
};
void backend_linear(struct backend *be, const struct linear *l);
/* out f32[n_in]: what the matrices of l see as their row-th input, after what `in` does to it. On the CPU only. */
void backend_linear_input(struct backend *be, const struct linear *l, int row, float *out);

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
/* Bytes one block of all layers will have on an accelerator. ERR_UNSUPPORTED: it keeps no such KV. Any thread. */
MUST enum err kv_block_bytes_on(const char *device, const struct kv_options *o, size_t *bytes,
                                struct errmsg *e);
size_t kv_bytes(const struct kv *kv);

/* Rows of drafts that branch: two of them may have one position, so K and V lie apart from it. Along a path slots ascend, and positions
 * follow one another from `from` on, so that pos = from + bits of mask - 1. A row without a branch lies at its position with
 * from = pos + 1, mask = 0. On the CPU a row's bits are those it has in a chain of its ancestors alone. */
enum { KV_TREE_NODES = 64 };
struct kv_tree {
    const int32_t *slot; /* [n_rows] where K and V of the row lie in its block table */
    const int32_t
        *from; /* [n_rows] >= 1: the row sees what lies before it (within the window) .. */
    const uint64_t *
        mask; /* [n_rows] .. and what lies at from + i where bit i is set: its ancestors and itself */
};
/* Which position of which sequence each row is. Arrays borrowed for the call. */
struct kv_rows {
    int n_rows;
    const int32_t *pos; /* [n_rows] >= 0 */
    const int32_t *seq; /* [n_rows] index into block_table */
    const int32_t *const
        *block_table;           /* per sequence: physical block of positions [i*block_tokens, ..) */
    const struct kv_tree *tree; /* NULL: every row lies at its position and sees all up to it */
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
/* One token's K and V of all layers to another place: what was accepted of a tree goes to its position. In order; a later move may
 * overwrite what an earlier one has read, and no place is written before it is read. */
struct kv_move {
    int32_t dst_block, dst_at, src_block, src_at; /* *_at: 0..block_tokens-1 */
};
void kv_move_tokens(struct kv *kv, const struct kv_move *moves, int n);
/* The part-th of n_parts parts of the store: has the kernel give its pages now (mem_touch). Any thread, also while the store is used. */
void kv_touch(struct kv *kv, int part, int n_parts);
/* Element types and layout, for telling stored blocks apart: changes with either. Static text. */
const char *kv_layout_name(const struct kv *kv);
/* Bytes of one block (all layers), for swapping to host memory or disk. to/from hold kv_block_bytes(kv) bytes. */
size_t kv_block_bytes(const struct kv *kv);
void kv_block_read(const struct kv *kv, int block, void *to);
void kv_block_write(struct kv *kv, int block, const void *from);

/* ---- sampling ---- */
/* logits f32[..][n_vocab] of the device, which a softcap > 0 bends first (x -> cap tanh(x / cap)). One pick a row. */
struct sample {
    const float *logits;
    int n_vocab;
    float softcap;
    const struct sample_row *row; /* [n_rows], may be none */
    int n_rows;
};
/* For accelerators only: the end of a step, which is all that was called since the last one. submit returns at once; the picks stay on the
 * device, where the ids of the next step's backend_embed may name them (-1 - i: the i-th of the last submission), and come to the host
 * with wait. Up to BACKEND_FLIGHTS steps may be submitted and not waited for; with so many there is nothing to call but wait, which is
 * about the oldest: out[n_rows] of its submission, token -1: no finite logit was left. Whatever else hands something to the host
 * waits for everything. ERR_UNAVAILABLE: the device failed, now or earlier; a failed submission is not to be waited for. */
enum { BACKEND_FLIGHTS = 2 };
MUST enum err backend_submit(struct backend *be, const struct sample *s, struct errmsg *e);
MUST enum err backend_wait(struct backend *be, struct sampler_pick_out *out, struct errmsg *e);

/* ---- recorded steps ---- */
/* A pass whose every row wants logits (decoding) is the same row of launches each time: an accelerator records it once for each number of
 * rows and length of tables, rounded up, and then replays it. begin takes the place of backend_set_rows; *n_rows is the number of rows
 * the following calls must be made for, the last of them padding. True: it was replayed, and there is nothing to call. After the calls,
 * end; false: nothing of them has run, make them again. On the CPU: begin is false, end is true. */
struct backend_step {
    const struct kv_rows *rows;
    const int32_t *token; /* of backend_embed: the only one of the pass */
    /* What backend_submit will be called with after it, where that is known: it crosses over in the same copy. NULL = not known. */
    const struct sample *sample;
    const int *window; /* [n_windows] the different windows of its attention calls */
    int n_windows;
    int group;    /* query heads a KV head */
    int rows_max; /* what the caller's arrays hold */
};
enum { BACKEND_WINDOWS_MAX = 2 };
bool backend_step_begin(struct backend *be, const struct kv *kv, const struct backend_step *s,
                        int *n_rows);
bool backend_step_end(struct backend *be);

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
