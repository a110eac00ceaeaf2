/* engine_private.h - private to engine/: requests, choices, and what the step thread needs from a model (a seam, so that tests can put
 * a pretended one there). Threading: fields under "lock" are guarded by it, everything else belongs to the step thread. */
#ifndef DEJA_ENGINE_ENGINE_PRIVATE_H
#define DEJA_ENGINE_ENGINE_PRIVATE_H
#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/sched/batch.h"
#include "engine/sched/pace.h"
#include "engine/speculate/speculator.h"

struct choice;

/* A model as the step thread sees it. info, gguf, close, draft may be NULL. */
struct engine_forward {
    void *arg;
    void (*forward)(void *arg, const struct model_batch *b, float *logits);
    void (*kv_copy)(void *arg, int32_t dst, int32_t src, int n_tokens);
    /* A block's bytes, block_bytes of them, to and from host memory; NULL with size.n_host == 0. */
    void (*kv_read)(void *arg, int32_t block, void *to);
    void (*kv_write)(void *arg, int32_t block, const void *from);
    size_t block_bytes;
    void (*kv_touch)(void *arg, int part, int n_parts); /* NULL = nothing to touch */
    void (*close)(void *arg);
    /* Tests: what c may say after tokens[n_tokens], instead of the speculator's guess: at most SCHED_DRAFT_MAX ids into out, returns
     * how many. NULL: the speculator's. */
    int (*draft)(void *arg, const struct choice *c, const int32_t *tokens, int n_tokens,
                 int32_t *out);
    struct speculator *speculator; /* NULL = none; the engine's once it is open */
    const struct model_info *info;
    const struct gguf *gguf;
    int n_vocab;
    struct hash128 adapter_id[MODEL_ADAPTERS_MAX]; /* [n_adapters] */
    int n_adapters;
};

/* Sizes with every default resolved. */
struct kv_tier;
struct engine_sizes {
    int n_blocks, block_size, max_len, max_num_seqs, max_batch, queue_max, prompt_rows, draft_rows;
    double step_target_us; /* 0: prompt_rows is fixed */
    int n_host;            /* blocks of the host tier; 0 = none */
    bool prefix_caching;
    const char *disk_dir; /* NULL = no disk tier; it needs a host tier */
    uint64_t disk_bytes;
    const char *kv_format; /* how the model computes and lays out keys and values */
    void (*on_step)(void *arg, int n_rows); /* or NULL */
    void *on_step_arg;
    bool check_every_step; /* tests: sched_check after each plan */
    struct hash128 root;
};

struct choice {
    struct request *request;
    int index, seq; /* seq -1: not handed to the scheduler, or ended */
    int n_generated;
    uint64_t started_us, first_us; /* 0 = not yet */
    int32_t *tokens;               /* [n_limit] prompt and generated */
    struct sampler *sampler;
    struct drafts *drafts; /* NULL without speculation */
    int n_drafted, n_accepted;
    bool forced;                /* the draft in flight is what its form forces */
    struct grammar_state *form; /* where its text stands in the request's grammar; NULL = free */
    bool ended;
};

struct request {
    struct request *next; /* inbox or live list */
    uint64_t id;
    struct prefix_scope scope;
    int32_t adapter; /* -1 = the base model */
    int n_choices, n_live, n_prompt, n_limit, priority;
    bool want_logprobs, ignore_end, cancelled; /* cancelled: under lock */
    bool held; /* step thread: not handed to the scheduler, the disk is still reading for it */
    uint64_t held_until_ms, submitted_us;
    int32_t end_ids[ENGINE_END_IDS_MAX];
    int n_end_ids;
    bool (*on_token)(void *arg, const struct engine_token *t);
    void (*on_end)(void *arg, const struct engine_end *end);
    void *arg;
    struct choice choices[ENGINE_CHOICES_MAX];
};

struct engine {
    struct engine_forward model;
    struct engine_sizes size;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* under lock */
    struct request *inbox, *inbox_last; /* submitted, not yet seen by the step thread */
    struct request *live;               /* handed to the scheduler (the list changes under lock) */
    int n_live_choices;                 /* in inbox and live */
    uint64_t inbox_tokens, next_id;
    bool closing, any_cancelled, disk_done;
    struct engine_stats snapshot; /* what the step thread last published */

    _Atomic uint64_t last_step_ms; /* when the last step ended, or work arrived on an idle engine */
    _Atomic uint64_t last_success_ms;
    _Atomic bool busy;

    /* step thread */
    struct sched *sched;
    struct batch *batch;
    struct choice **by_seq; /* [n_seqs] */
    int n_seqs;
    int32_t *adapters;    /* [max_num_seqs] of the batch's sequences */
    float *logits;        /* [max_num_seqs + draft_rows][n_vocab] */
    float *logits_copy;   /* [n_vocab]: sampling overwrites, forks sample the same row again */
    struct kv_tier *tier; /* NULL: no disk */
    int n_held;           /* choices of held requests */
    uint8_t *host;        /* [n_host][block_bytes] */
    double block_move_us; /* measured; 0 = not yet */
    struct sampler_scratch *scratch;
    struct engine_stats count;     /* counters only */
    double rows_per_s;             /* exponential mean */
    struct speculator *speculator; /* NULL = none */
    struct grammar_run *forms;     /* NULL until a choice has a form */
    struct pace pace;
};

/* engine_open.c */
/* Sizes with every default resolved, from options and the file's header alone. */
MUST enum err engine_resolve_sizes(const struct engine_options *o, struct engine_sizes *s,
                                   struct errmsg *e);
MUST enum err engine_open_with(struct engine **out, const struct engine_forward *model,
                               const struct engine_sizes *size, struct errmsg *e);
/* engine.c */
void request_free(struct request *r);
/* engine_sample.c */
void choice_end(struct engine *g, struct choice *c, enum engine_finish finish, const char *error);
void request_end(struct engine *g, struct request *r, enum engine_finish finish,
                 const char *error); /* all its open choices */
/* The tokens that the plan's rows of g->logits say, to their choices. */
void engine_sample(struct engine *g, const struct sched_plan *plan);
/* engine_step.c */
/* Tells the scheduler how many prompt rows the next step may have. */
void engine_set_rows(struct engine *g);
/* The disk's thread: a job is done. */
void engine_disk_done(void *g);
void *engine_step_main(void *g);

#endif
