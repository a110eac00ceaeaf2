/* arch.h - in what the decoder architectures differ from llama: one row each, read by the plan and by the forward pass.
 * A new architecture is a row here plus whatever no other row needed before. Threading: constant data.
 * Sources: Touvron et al. 2023 (llama); Jiang et al. 2024 (Mixtral); Qwen2 report 2024; Muennighoff et al. 2024 (OLMoE); Qwen3
 * report 2025 (QK norm); Gemma 2 report 2024 (four norms, soft caps, alternating windows); Gemma 3 report 2025 (5 local : 1 global
 * layers, two rope bases). Key names: the GGUF specification (ggml project, docs/gguf.md) and what its converters write. */
#ifndef DEJA_ENGINE_MODEL_ARCH_H
#define DEJA_ENGINE_MODEL_ARCH_H
#include "base/str.h"

struct model_arch {
    const char *name;  /* general.architecture */
    bool half_split;   /* rope turns pairs (i, i + dims/2) instead of (2i, 2i + 1) */
    bool qkv_bias;     /* attn_{q,k,v}.bias must be there (where false they may) */
    bool qk_norm;      /* RMS norm of every head of q and k before rope */
    bool qk_norm_wide; /* RMS norm of all of q and of all of k instead */
    enum {
        EXPERTS_NONE,
        EXPERTS_MAYBE,
        EXPERTS_ALWAYS
    } experts;             /* whether feed-forwards are mixtures */
    bool experts_sum_to_1; /* the weights of the chosen experts do, when the file does not say */
    bool shared_expert;    /* one more expert that every row passes, behind a gate of its own */
    bool post_norms;   /* what attention and feed-forward give is normalised before it is added */
    bool gelu;         /* feed-forward gate: GELU (tanh) instead of SiLU */
    bool embed_scaled; /* embeddings times sqrt(n_embd) */
    int window_period; /* every so many-th layer sees everything, the others a window; 0 = all alike */
    int window;        /* its length when the file does not say; 0 = none then */
    float local_base; /* rope base of window layers, never scaled; 0 = the same as the others' */
    float attn_softcap, final_softcap; /* when the file does not say; 0 = none */
    bool has_softcaps;                 /* the file may say */
    int wide_scale_layers; /* the model of so many layers scales scores by sqrt(n_head / n_embd), not by
                            * 1/sqrt(head_dim); 0 = none does */
};

/* NULL: not one of ours. Static. */
const struct model_arch *model_arch_find(struct str name);
/* "llama, qwen2 and ..." for messages. */
const char *model_arch_names(void);

#endif
