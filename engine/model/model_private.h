/* model_private.h - what model_load.c, model_experts.c, model_rope.c, model_spread.c, kv_spread.c, calibrate.c and model_forward.c share;
 * for no other file. */
#ifndef DEJA_ENGINE_MODEL_MODEL_PRIVATE_H
#define DEJA_ENGINE_MODEL_MODEL_PRIVATE_H
#include "engine/backend/backend.h"
#include "engine/backend/collective.h"
#include "engine/model/gguf.h"
#include "engine/model/lora.h"
#include "engine/model/model.h"
#include "engine/model/model_plan.h"

struct matrix {
    struct weight *weight; /* [n_out][n_in] */
    float *bias;           /* [n_out] or NULL */
};

/* See plan_mixture. All NULL in a dense layer. */
struct mixture {
    struct weight *router;           /* float32 */
    struct weight *gate, *up, *down; /* a matrix an expert */
    struct weight *shared_router;    /* float32 [1][n_embd] or NULL */
    struct matrix shared_gate, shared_up, shared_down;
};

struct layer {
    float *attn_norm, *ffn_norm;           /* [n_embd] */
    float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    float *q_norm, *k_norm;                /* [head_dim], wide: of all heads, or NULL */
    float *k_spread;                       /* [n_kv_head*head_dim] or NULL: kv_spread.c */
    struct matrix q, k, v, attn_out, gate, up, down;
    struct mixture mixture;
};

struct model {
    struct model_info info;
    struct hash128 file_hash;
    struct model_plan plan; /* tensors stay valid: they lie in gguf */
    char *arch, *name;
    struct gguf *gguf;
    struct backend *be;
    /* tensor parallelism: the group and this model's rank in it; NULL: alone */
    struct collective *group;
    int rank;
    struct model_ranks *ranks; /* of rank 0: who the others are, and the group's owner */
    int32_t *vocab_row;        /* [rows] rows of the embedding's part; its end: another rank's */
    float *logits_part;        /* [rows][most columns of a rank] */
    struct rope *rope, *rope_local; /* local: NULL unless a layer has its own base */
    struct kv *kv;
    char kv_format[64];
    int n_blocks, block_tokens, max_rows, max_seqs, context_max;
    enum kv_type kv_type;

    struct layer *layers;      /* [n_layer] */
    struct weight *token_embd; /* [n_vocab][n_embd]; also the output head when tied */
    struct weight *output;     /* NULL = tied */
    float *output_norm;        /* [n_embd] */

    /* activations of one pass; rows = max_rows */
    float *x;         /* [rows][n_embd] residual stream */
    float *q, *att;   /* [rows][n_head*head_dim] */
    float *k, *v;     /* [rows][n_kv_head*head_dim] */
    float *gate, *up; /* [rows][n_ff]; of mixtures [rows * n_used][n_ff], and [rows][n_ff_shared] */
    struct {          /* of mixtures, else NULL */
        float *normed, *shared; /* [rows][n_embd]; shared NULL without a shared expert */
        float *logits;          /* [rows][experts.n] of the router */
        float *shared_logit;    /* [rows] */
        float *down;            /* [rows * n_used][n_embd] */
    } moe;
    float *logits;  /* [rows][n_vocab] on the device of rank 0, else NULL */
    bool no_memory; /* a vector did not fit on the device */
    float *back;    /* [rows][n_embd] or NULL: what is normalised before it joins x */
    /* model_spread.c: f32[channels of the product's input] for struct linear, by calibration_place; NULL without a calibration */
    float **spread;
    /* calibrate.c: told of every product of a pass before it is computed; NULL = nobody */
    void (*watch)(void *arg, const struct linear *l, int place);
    void *watch_arg;
    int32_t *out_pos,
        *out_seq; /* [rows] positions and sequences of the rows whose logits are wanted */
    int32_t *out_slot, *out_from; /* [rows] the same of trees: struct kv_tree */
    uint64_t *out_mask;           /* [rows] */
    struct kv_tree tree;          /* of the pass */

    struct lora *adapters[MODEL_ADAPTERS_MAX];
    int n_adapters;
    struct lora_scratch lora_scratch; /* all NULL without adapters */
    struct lora_rows lora_rows;       /* of the pass: n_groups 0 when nobody wants any */
};

/* model_rope.c: rotations of positions 0..pos_max-1; local: of the layers with a base of their own. */
MUST enum err model_rope_new(struct rope **out, const struct model_plan *p, int pos_max, bool local,
                             struct errmsg *e);

/* model_load.c: a matrix of the file on the backend, the values of a tensor where the backend computes (NULL without one), rows of
 * activations. */
MUST enum err model_load_weight(struct model *m, struct weight **out, const struct gguf_tensor *t,
                                struct errmsg *e);
MUST enum err model_load_matrix(struct model *m, struct matrix *out, const struct plan_linear *p,
                                struct errmsg *e);
float *model_rows(struct model *m, int n);
void model_free_matrix(struct model *m, struct matrix *w);

/* model_spread.c: what a calibration file says about this model, to where the backend computes. */
MUST enum err spreads_load(struct model *m, const char *path, struct errmsg *e);
void spreads_free(struct model *m);
struct calibration_shape;
void calibration_shape_of(const struct model *m, struct calibration_shape *out);

/* One model of the file, or with m->group m->rank's part of it. m is then to be closed, also after a failure. */
MUST enum err model_open_rank(struct model *m, const char *path, const struct model_options *o,
                              struct errmsg *e);
void model_close_rank(struct model *m);

/* model_forward.c: a pass, of a rank in step with the others. wants_rows false: the logits stay on the device. */
void model_forward_rank(struct model *m, const struct model_batch *b, float *logits,
                        bool wants_rows);
void model_warm_rank(struct model *m);
/* After a projection whose results the ranks have parts of: x f32[n_rows][n_embd]. */
void model_sum_ranks(struct model *m, float *x, int n_rows);

/* model_ranks.c: rank 0 on the caller's thread, each other one on a thread of its own. first is a new model. *out is set also on failure:
 * first is to be closed then, as after success, between model_ranks_stop and model_ranks_free. */
struct model_ranks;
MUST enum err model_ranks_open(struct model_ranks **out, struct model *first, const char *path,
                               const struct model_options *o, struct errmsg *e);
/* Closes all but the first; free, when the first is closed too. NULL is fine. */
void model_ranks_stop(struct model_ranks *r);
void model_ranks_free(struct model_ranks *r);
int model_ranks_count(const struct model_ranks *r); /* NULL: 1 */
/* first: the model of rank 0 */
struct model *model_ranks_at(struct model *first, int rank);
const char *model_ranks_device(const struct model_ranks *r);
void model_ranks_forward(struct model *first, const struct model_batch *b, float *logits);
void model_ranks_warm(struct model *first);
/* A block of all KV heads from and to what the ranks have of it. */
size_t model_ranks_block_bytes(const struct model *first);
void model_ranks_kv_read(const struct model *first, int32_t block, void *to);
void model_ranks_kv_write(const struct model *first, int32_t block, const void *from);

/* model_experts.c */
MUST enum err experts_load(struct model *m, struct mixture *x, const struct plan_mixture *p,
                           struct errmsg *e);
void experts_free(struct model *m, struct mixture *x);
/* False: no memory. */
bool experts_make_memory(struct model *m);
void experts_free_memory(struct model *m);
/* x += the mixture of rmsnorm(x). */
void experts_forward(struct model *m, const struct layer *l, int n_rows);

/* kv_spread.c: f32[n_kv_head*head_dim] > 0, for struct rope_store; k_norm and k_bias may be NULL. Free with mem_free. */
float *kv_spread_new(const struct model_plan *p, const struct plan_layer *l, const float *attn_norm,
                     const float *k_norm, const float *k_bias);

#endif
