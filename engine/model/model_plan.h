/* model_plan.h - what a decoder file says about itself, checked: hyper-parameters and every tensor with the shape the
 * architecture asks for. Costs no memory beyond the list of tensors, so a file can be judged without loading it.
 * Threading: none of its own. Tensors are borrowed from the gguf. Private to engine/model. */
#ifndef DEJA_ENGINE_MODEL_MODEL_PLAN_H
#define DEJA_ENGINE_MODEL_MODEL_PLAN_H
#include "engine/model/arch.h"
#include "engine/model/gguf.h"

enum { MODEL_LAYERS_MAX = 512 };

struct plan_linear {                  /* y = W x + b */
    const struct gguf_tensor *weight; /* [n_out rows][n_in] */
    const struct gguf_tensor *bias;   /* [n_out] or NULL */
};

struct plan_layer {
    const struct gguf_tensor *attn_norm, *ffn_norm;           /* [n_embd] */
    const struct gguf_tensor *q_norm, *k_norm;                /* [head_dim] or NULL */
    const struct gguf_tensor *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    struct plan_linear q, k, v, attn_out, gate, up, down;
    int window;      /* attention sees so many positions, its own included; 0 = all */
    bool local_rope; /* turns by model_plan.local_rope_base */
};

/* How positions become angles: see rope_plan_read. */
enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONG };
struct plan_rope {
    int dims; /* leading dimensions of a head that turn */
    double base, local_base;
    enum rope_scaling scaling;
    double factor;                   /* linear, yarn: how far positions are stretched */
    int original_context;            /* yarn, longrope */
    float beta_fast, beta_slow;      /* yarn: turns over original_context */
    float magnitude;                 /* of a turned vector */
    const struct gguf_tensor *freqs; /* [dims/2] divides frequencies, or NULL */
    const struct gguf_tensor *f_short,
        *f_long; /* longrope: the same up to and over original_context */
};

struct model_plan {
    struct str name; /* general.architecture */
    const struct model_arch *arch;
    int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab, context_length;
    struct plan_rope rope;
    float norm_eps, attention_scale;
    float attn_softcap, final_softcap; /* x -> c tanh(x/c) of scores and of logits; 0 = off */
    uint64_t weight_bytes;
    const struct gguf_tensor *token_embd;  /* [n_vocab][n_embd] */
    const struct gguf_tensor *output;      /* the same, NULL = tied to token_embd */
    const struct gguf_tensor *output_norm; /* [n_embd] */
    struct plan_layer *layers;             /* [n_layer], freed by model_plan_fini */
};

/* On failure *e names the key or tensor and what would be right, and there is nothing to free. */
MUST enum err model_plan_read(struct model_plan *plan, const struct gguf *g, struct errmsg *e);
void model_plan_fini(struct model_plan *plan);

struct tensor_finder;
/* model_rope.c: rope.* keys (head_dim must be there already), then the tensors of factors. "none", "linear", "yarn" and "longrope"
 * are understood, others refused: computing them as something else would be wrong without a sign. */
MUST enum err rope_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e);
MUST enum err rope_plan_find(struct model_plan *p, struct tensor_finder *f);

/* Looks up a tensor of the wanted shape; shared with the encoder. cols = row length; rows 0 = a vector. Counts it in
 * *n_found so that strangers can be noticed. Missing: ERR_NOT_FOUND when optional (silently), else with a message. */
struct tensor_finder {
    const struct gguf *g;
    size_t n_found;
    uint64_t n_bytes;
    struct errmsg *e;
    enum err code; /* first failure; later calls do nothing */
};
const struct gguf_tensor *finder_need(struct tensor_finder *f, const char *name, int64_t cols,
                                      int64_t rows);
const struct gguf_tensor *finder_want(struct tensor_finder *f, const char *name, int64_t cols,
                                      int64_t rows);
/* Fails when the file has tensors nobody asked for: it is some other architecture, and would be computed wrongly. */
void finder_no_strangers(struct tensor_finder *f, const char *arch);

/* "ARCH.suffix" read as an integer in [min,max]; missing keys fail unless *out >= 0 holds a default. */
MUST enum err plan_int(const struct gguf *g, struct str arch, const char *suffix, int64_t min,
                       int64_t max, int *out, struct errmsg *e);
MUST enum err plan_float(const struct gguf *g, struct str arch, const char *suffix, float min,
                         float max, float *out, bool optional, struct errmsg *e);

/* f32[n] of a vector tensor of any type; free with mem_free. */
float *tensor_to_f32(const struct gguf_tensor *t);

#endif
