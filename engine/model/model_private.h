/* model_private.h - what model_load.c, model_rope.c, kv_spread.c and model_forward.c share; for no other file. */
#ifndef DEJA_ENGINE_MODEL_MODEL_PRIVATE_H
#define DEJA_ENGINE_MODEL_MODEL_PRIVATE_H
#include "engine/backend/backend.h"
#include "engine/model/gguf.h"
#include "engine/model/lora.h"
#include "engine/model/model.h"
#include "engine/model/model_plan.h"

struct matrix {
    struct weight *weight; /* [n_out][n_in] */
    float *bias;           /* [n_out] or NULL */
};

struct layer {
    float *attn_norm, *ffn_norm;           /* [n_embd] */
    float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    float *q_norm, *k_norm;                /* [head_dim] or NULL */
    float *k_spread;                       /* [n_kv_head*head_dim] or NULL: kv_spread.c */
    struct matrix q, k, v, attn_out, gate, up, down;
};

struct model {
    struct model_info info;
    struct model_plan plan; /* tensors stay valid: they lie in gguf */
    char *arch, *name;
    struct gguf *gguf;
    struct backend *be;
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
    float *gate, *up; /* [rows][n_ff] */
    float *logits;    /* [rows][n_vocab] on a device, else NULL */
    bool no_memory;   /* a vector did not fit on the device */
    float *back;      /* [rows][n_embd] or NULL: what is normalised before it joins x */
    int32_t *out_pos,
        *out_seq; /* [rows] positions and sequences of the rows whose logits are wanted */

    struct lora *adapters[MODEL_ADAPTERS_MAX];
    int n_adapters;
    struct lora_scratch lora_scratch; /* all NULL without adapters */
    struct lora_rows lora_rows;       /* of the pass: n_groups 0 when nobody wants any */
};

/* model_rope.c: rotations of positions 0..pos_max-1; local: of the layers with a base of their own. */
MUST enum err model_rope_new(struct rope **out, const struct model_plan *p, int pos_max, bool local,
                             struct errmsg *e);

/* kv_spread.c: f32[n_kv_head*head_dim] > 0, for struct rope_store; k_norm and k_bias may be NULL. Free with mem_free. */
float *kv_spread_new(const struct model_plan *p, const struct plan_layer *l, const float *attn_norm,
                     const float *k_norm, const float *k_bias);

#endif
