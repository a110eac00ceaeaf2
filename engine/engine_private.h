/* engine_private.h - private to engine/: requests, choices, and what the step thread needs from a model (a seam, so that tests can put
 * a pretended one there). Threading: fields under "lock" are guarded by it, everything else belongs to the step thread. */
#ifndef DEJA_ENGINE_ENGINE_PRIVATE_H
#define DEJA_ENGINE_ENGINE_PRIVATE_H
#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "engine/move_cost.h"
#include "engine/sched/batch.h"
#include "engine/sched/pace.h"
#include "engine/speculate/speculator.h"

struct choice;
struct turns;
struct reserve;

/* A model as the step thread sees it. info, gguf, close, draft may be NULL. */
struct engine_forward {
    void *arg;
    void (*forward)(void *arg, const struct model_batch *b, float *logits);
    void (*kv_copy)(void *arg, int32_t dst, int32_t src, int n_tokens);
    void (*kv_move)(void *arg, const struct kv_move *moves, int n); /* kv_move_tokens */
    /* A block's bytes, block_bytes of them, to and from host memory; NULL with size.n_host == 0. What was read is a block only as long as
     * there is no failure. */
    void (*kv_read)(void *arg, int32_t block, void *to);
    void (*kv_write)(void *arg, int32_t block, const void *from);
    size_t block_bytes;
    void (*kv_touch)(void *arg, int part, int n_parts); /* NULL = nothing to touch */
    void (*close)(void *arg);
    /* model_submit and model_wait: the logits of the last pass stay where they are (forward gets NULL for them), and up to FLIGHTS_MAX
     * steps are on their way. NULL: logits come to the host. ERR_UNAVAILABLE: the device failed. */
    enum err (*submit)(void *arg, const struct sample_row *row, int n, struct errmsg *e);
    enum err (*wait)(void *arg, struct sampler_pick_out *out, struct errmsg *e);
    const char *(*failure)(void *arg); /* of the device: NULL or a sentence; NULL = cannot fail */
    const char *device, *device_model; /* NULL = "cpu", "" */
    /* Tests: what c may say after tokens[n_tokens], instead of the speculator's guess, into *out. NULL: the speculator's. */
    void (*draft)(void *arg, const struct choice *c, const int32_t *tokens, int n_tokens,
                  struct draft *out);
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
    bool prefix_caching, wait_each_step;
    const char *disk_dir; /* NULL = no disk tier; it needs a host tier */
    uint64_t disk_bytes;
    const char *kv_format; /* how the model computes and lays out keys and values */
    void (*on_step)(void *arg, int n_rows); /* or NULL */
    void (*on_import_room)(void *arg);      /* or NULL */
    void *on_step_arg;
    uint64_t hash_seed;        /* 0 = at random */
    struct announce *announce; /* NULL = nobody */
    bool check_every_step;     /* tests: sched_check after each plan */
    struct hash128 root;
};

enum { FLIGHTS_MAX = 2 /* steps submitted and not heard */ };
struct step_facts { /* of a step, for when it is over */
    uint64_t start_us;
    int n_rows, n_prompt;
    bool moved;
};
/* Why a step was not submitted before the picks of the one before were heard. */
enum step_wait { WAIT_NOTHING, WAIT_FORM, WAIT_DRAFT };

struct kv_export;
struct kv_import;
struct choice {
    struct request *request;
    int index, seq;        /* seq -1: not handed to the scheduler, or ended */
    int turn[FLIGHTS_MAX]; /* engine_turns.c: 0, or where it stands in a step in flight, plus 1 */
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
    struct kv_export *export; /* kv_transfer.c; NULL = its blocks stay here */
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
    bool closing, any_cancelled, disk_done, export_room;
    struct kv_import *imports, *imports_last; /* kv_transfer.c */
    int n_imports, n_exported;                /* the second: blocks handed out and not given back */
    bool imports_full;
    struct engine_stats snapshot; /* what the step thread last published */

    _Atomic uint64_t last_step_ms; /* when the last step ended, or work arrived on an idle engine */
    _Atomic uint64_t last_success_ms;
    _Atomic bool busy;
    const char *_Atomic lost; /* set once, on the step thread */

    /* step thread */
    struct sched *sched;
    struct batch *batch;
    struct choice **by_seq; /* [n_seqs] */
    int n_seqs;
    int32_t *adapters;       /* [max_num_seqs] of the batch's sequences */
    float *logits;           /* [max_num_seqs + draft_rows][n_vocab] */
    float *logits_copy;      /* [n_vocab]: sampling overwrites, forks sample the same row again */
    uint64_t hash_seed;      /* in use */
    struct kv_tier *tier;    /* NULL: no disk */
    int n_held;              /* choices of held requests */
    uint8_t *host;           /* [n_host][block_bytes] */
    struct reserve *reserve; /* NULL: not yet */
    struct move_cost move;   /* between pool and host */
    struct sampler_scratch *scratch;
    struct turns *turns;           /* NULL until a device samples */
    struct engine_stats count;     /* counters only */
    double rows_per_s;             /* exponential mean */
    uint64_t over_us;              /* when a device ended its last step */
    struct speculator *speculator; /* NULL = none */
    struct grammar_run *forms;     /* NULL until a choice has a form */
    struct pace pace;
};

/* engine_open.c */
/* Sizes with every default resolved, from options and the file's header alone. */
struct model_plan;
/* What the file says of the model, or of the first rank's part of it: the largest. */
MUST enum err engine_plan_read(struct model_plan *plan, const struct gguf *file,
                               const struct engine_options *o, struct errmsg *e);
MUST enum err engine_resolve_sizes(const struct engine_options *o, struct engine_sizes *s,
                                   struct errmsg *e);
MUST enum err engine_open_with(struct engine **out, const struct engine_forward *model,
                               const struct engine_sizes *size, struct errmsg *e);
/* engine_device.c */
/* The device of o for this model, with o->kv_bytes filled where the plan decides it; o->device is NULL for the CPU afterwards, else what
 * out->device holds. may_fall_back: "auto" was asked, so a failure to open it is answered by the CPU. */
struct engine_place {
    char device[24];
    bool may_fall_back;
};
/* Whether code speaks of the device and not of the model or an option. */
bool engine_place_denies(enum err code);
MUST enum err engine_place_choose(struct engine_place *out, struct engine_options *o,
                                  struct errmsg *e);
/* engine.c */
void request_free(struct request *r);
/* engine_sample.c */
void request_end(struct engine *g, struct request *r, enum engine_finish finish,
                 const char *error); /* all its open choices */
/* The tokens that the plan's rows of g->logits say, to their choices. */
void engine_sample(struct engine *g, const struct sched_plan *plan);
/* For engine_turns.c: c's next token, picked from its row, is told. False: it is the last one, for the reason in *end. */
bool choice_hears(struct engine *g, struct choice *c, const struct sampler_pick_out *pick,
                  enum engine_finish *end);
/* What became of n_draft drafted rows of which n tokens were said, same: all of them as drafted; more: c goes on, else it ends for *end. */
struct spoken {
    const int32_t *said;
    int n, n_draft;
    bool more, same;
    enum engine_finish end;
};
void choice_takes(struct engine *g, struct choice *c, const struct spoken *h);
struct grammar_run *engine_forms(struct engine *g);
/* engine_turns.c: where the device samples. What plan's rows say is listed before the forward pass (batch is told, for one copy of
 * everything), and submitted after it; a step without drafts is then in flight. */
void turns_begin(struct engine *g, const struct sched_plan *plan, const struct step_facts *facts,
                 struct model_batch *batch);
void turns_submit(struct engine *g);
int turns_flying(const struct engine *g);
/* The oldest step in flight is waited for and heard. */
void turns_finish(struct engine *g);
void turns_drain(struct engine *g); /* all of them */
/* True: one step is in flight, nobody must hear it before the next one is planned, and its tokens are promised to the scheduler. */
bool turns_go_ahead(struct engine *g);
void turns_forget(struct engine *g, struct choice *c); /* c has ended */
void turns_free(struct turns *t);
/* engine_step.c */
/* A step that was submitted is over. */
void engine_step_over(struct engine *g, const struct step_facts *f);
/* Whether c, one of n_seqs, may have a draft once the token it is about to say is known. */
bool engine_may_draft(struct engine *g, struct choice *c, int n_seqs);
/* Tells the scheduler how many prompt rows the next step may have. */
void engine_set_rows(struct engine *g);
/* The disk's thread: a job is done. */
void engine_disk_done(void *g);
void *engine_step_main(void *g);

#endif
