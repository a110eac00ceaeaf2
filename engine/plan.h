/* plan.h - the arithmetic of memory and speed: what an engine with these sizes will hold, how many sequences that is, and which speeds a
 * machine cannot exceed with it. From a GGUF file's header alone.
 * Pure, but plan_of and plan_ways; any thread.
 * Source of the speed bounds: roofline model, Williams et al. 2009. */
#ifndef DEJA_ENGINE_PLAN_H
#define DEJA_ENGINE_PLAN_H
#include "base/buf.h"
#include "engine/engine_private.h"
#include "engine/model/model_plan.h"

enum plan_term {
    PLAN_WEIGHTS,
    PLAN_KV,
    PLAN_ACTIVATIONS, /* of the largest step */
    PLAN_LOGITS,      /* and the sampler's work memory */
    PLAN_ROPE,
    PLAN_VOCABULARY,
    PLAN_SWAP,    /* blocks kept in host memory */
    PLAN_PROGRAM, /* code, libraries, small things */
    PLAN_TERMS
};
extern const char *const plan_term_names[PLAN_TERMS];

struct plan_machine {
    uint64_t memory_bytes;               /* what may be used */
    double read_bytes_per_s, macs_per_s; /* measured; 0 = unknown */
};

struct plan {
    const char *model, *arch;
    uint64_t bytes[PLAN_TERMS], total;
    const char *device; /* the accelerator that holds device_bytes of total; NULL = none */
    int n_ranks; /* that compute together, each on a device of its own: bytes count all of them */
    uint64_t device_bytes; /* of each: weights, KV, activations, logits, rotations */
    uint64_t kv_bytes_per_token,
        read_per_token; /* read_per_token: weights that every decoding step streams */
    uint64_t
        expert_bytes; /* of all experts, of which a step streams those that one of its tokens chose */
    int n_experts, n_experts_used;        /* of each layer; 0: a dense model */
    double parameters, active_parameters; /* of matrices; active: that take part in one token */
    double macs_per_token;
    int max_len, max_num_seqs, max_batch, block_size, n_blocks;
    int64_t kv_tokens;
    int full_length_seqs; /* guaranteed at once, each max_len long */
};

/* The same engine with other options, planned with them. */
struct plan_way {
    char flags[64]; /* "" or " --NAME VALUE..." */
    struct plan plan;
};
enum { PLAN_WAYS_MAX = 3 };

/* s: engine_resolve_sizes of o and this file. */
void plan_make(struct plan *out, const struct model_plan *m, const struct engine_sizes *s,
               const struct engine_options *o, const struct gguf *g);
/* Bounds of decoding n_seqs sequences of n_context tokens together, and of reading a prompt: tokens a second over all. */
double plan_decode_bound(const struct plan *p, const struct plan_machine *m, int n_seqs,
                         int n_context);
double plan_prefill_bound(const struct plan *p, const struct plan_machine *m);
/* plan_make of o's file, whose header it reads; o->device is chosen. */
MUST enum err plan_of(struct plan *out, const struct engine_options *o, struct errmsg *e);
/* What p, planned from o, may be changed to when it does not fit: out[0] as it is (its KV cache can be smaller), then with smaller KV, then
 * with fewer sequences and rows at once, each as far as o leaves it open. Returns how many, up to PLAN_WAYS_MAX. */
int plan_ways(struct plan_way out[PLAN_WAYS_MAX], const struct plan *p,
              const struct engine_options *o);

/* A table for people, or one JSON object. When total exceeds the memory the table says which term is too big, and which of ways[n_ways]
 * fit with how large a KV cache. */
void plan_write_text(const struct plan *p, const struct plan_machine *m,
                     const struct plan_way *ways, int n_ways, struct buf *out);
void plan_write_json(const struct plan *p, const struct plan_machine *m, struct buf *out);

#endif
