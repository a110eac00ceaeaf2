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

/* A mixture of experts in place of gate, up and down; all NULL where a layer has none. */
struct plan_mixture {
    const struct gguf_tensor *router;                       /* [n experts][n_embd] */
    const struct gguf_tensor *gate, *up;                    /* [n experts][n_ff][n_embd] */
    const struct gguf_tensor *down;                         /* [n experts][n_embd][n_ff] */
    const struct gguf_tensor *shared_router;                /* [n_embd] or NULL */
    struct plan_linear shared_gate, shared_up, shared_down; /* as of a dense layer */
};

struct plan_layer {
    const struct gguf_tensor *attn_norm, *ffn_norm; /* [n_embd] */
    const struct gguf_tensor *q_norm, *k_norm;      /* [head_dim], wide: of all heads, or NULL */
    const struct gguf_tensor *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    struct plan_linear q, k, v, attn_out, gate, up, down;
    struct plan_mixture mixture;
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

/* model_experts.c */
struct plan_experts {
    int n, n_used;   /* n 0: a dense model */
    int n_ff;        /* of each expert */
    int n_ff_shared; /* of the shared expert; 0 = there is none */
    bool normalise;  /* the weights of the chosen sum to 1 */
    float scale;     /* and are multiplied by this */
};

/* Which part of a model one rank of a tensor-parallel group has (shard.h); the plan's numbers of heads and widths are then the rank's
 * own, the vocabulary and all else stay whole. n_ranks 0: the whole model. */
struct plan_shard {
    int rank, n_ranks;
    int head_first, kv_first, ff_first, expert_ff_first, shared_ff_first;
    int vocab_first, n_vocab; /* rows of the embedding and of the head */
    int n_head_whole, n_kv_head_whole, n_ff_whole,
        n_widened; /* n_widened: tensors kept in float32 */
    struct shard_tensors *tensors;
};

struct model_plan {
    struct str name; /* general.architecture */
    const struct model_arch *arch;
    int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab, context_length;
    struct plan_rope rope;
    struct plan_experts experts;
    float norm_eps, attention_scale;
    float attn_softcap, final_softcap; /* x -> c tanh(x/c) of scores and of logits; 0 = off */
    uint64_t weight_bytes;
    const struct gguf_tensor *token_embd;  /* [n_vocab][n_embd] */
    const struct gguf_tensor *output;      /* the same, NULL = tied to token_embd */
    const struct gguf_tensor *output_norm; /* [n_embd] */
    struct plan_layer *layers;             /* [n_layer], freed by model_plan_fini */
    struct plan_shard shard;
};

/* On failure *e names the key or tensor and what would be right, and there is nothing to free. */
MUST enum err model_plan_read(struct model_plan *plan, const struct gguf *g, struct errmsg *e);
void model_plan_fini(struct model_plan *plan);

struct tensor_finder;
/* model_rope.c: rope.* keys (head_dim must be there already), then the tensors of factors. "none", "linear", "yarn" and "longrope"
 * are understood, others refused: computing them as something else would be wrong without a sign. */
MUST enum err rope_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e);
MUST enum err rope_plan_find(struct model_plan *p, struct tensor_finder *f);

/* model_experts.c: expert_* keys, then the tensors of a layer's mixture. What would have to be left out of the formula is refused. */
MUST enum err experts_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e);
void experts_plan_find(struct model_plan *p, struct tensor_finder *f, int layer);

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
/* Several matrices in one tensor: dims [cols, rows, n]. */
const struct gguf_tensor *finder_need_stack(struct tensor_finder *f, const char *name, int64_t cols,
                                            int64_t rows, int64_t n);
/* Fails when the file has tensors nobody asked for: it is some other architecture, and would be computed wrongly. */
void finder_no_strangers(struct tensor_finder *f, const char *arch);

/* "ARCH.suffix" read as an integer in [min,max]; missing keys fail unless *out >= 0 holds a default. */
MUST enum err plan_int(const struct gguf *g, struct str arch, const char *suffix, int64_t min,
                       int64_t max, int *out, struct errmsg *e);
MUST enum err plan_float(const struct gguf *g, struct str arch, const char *suffix, float min,
                         float max, float *out, bool optional, struct errmsg *e);
/* A part of the formula that we would have to leave out: the key, where it is there, must hold the value that makes it nothing. */
MUST enum err plan_neutral(const struct gguf *g, struct str arch, const char *suffix, float neutral,
                           struct errmsg *e);
/* blk.LAYER.WHAT.weight [n_out][n_in], and its bias where there is one. */
struct plan_linear plan_find_linear(struct tensor_finder *f, int layer, const char *what, int n_in,
                                    int n_out);

/* f32[n] of a vector tensor of any type; free with mem_free. */
float *tensor_to_f32(const struct gguf_tensor *t);

#endif
