/* engine.h - batched inference over one model: submit prompts, get tokens. One step thread owns the model and every KV block; each
 * step schedules (pure, engine/sched), runs one flattened batch (decodes + prefill chunks), samples, calls back.
 * Knows nothing of HTTP, chat templates or JSON.
 * Threading: engine_submit, engine_cancel, engine_stats from any thread; callbacks run on the step thread and must be short
 * (hand over to a loop).
 * Source: Orca (iteration-level scheduling, Yu et al. 2022), vLLM (Kwon et al. 2023), Sarathi-Serve (chunked prefill, 2024). */
#ifndef DEJA_ENGINE_ENGINE_H
#define DEJA_ENGINE_ENGINE_H
#include "base/prefix_hash.h"
#include "engine/model/model.h"
#include "engine/model/sampler.h"

struct engine;
struct engine_request;
struct grammar;
struct announce;
struct block_name;
struct kv_head;

/* A LoRA adapter that requests may pick; strings are borrowed while the engine opens. */
struct engine_adapter {
    struct str name, path;
    float scale; /* times the file's own strength */
};

struct engine_options {
    const char *model_path;
    const struct engine_adapter *adapters; /* [n_adapters], at most MODEL_ADAPTERS_MAX */
    int n_adapters;
    int n_threads;              /* 0 = all cores */
    int max_model_len;          /* 0 = the model's context */
    int max_num_seqs;           /* sequences decoding together; 0 = 16 */
    int max_num_batched_tokens; /* rows of one step; 0 = 256 */
    int block_size;             /* 0 = 16 */
    uint64_t kv_bytes;          /* KV pool; 0 = 512 MiB, at least one full-length sequence */
    enum kv_type kv_type;       /* 0 = float16 */
    bool prefix_caching;
    bool
        wait_each_step; /* where a device samples: no step is submitted before the last one's tokens are heard */
    const char *disk_dir; /* folder for blocks that outlive the process; NULL or "" = none */
    uint64_t disk_bytes;  /* most it may hold */
    uint64_t swap_bytes;  /* host memory for blocks that the pool gives up; 0 = none */
    int prompt_rows_decoding; /* rows prompt chunks may take while others decode; 0 = as many as end within step_target_ms */
    int step_target_ms; /* 0 = 30: bounds the gap between two tokens of a stream while prompts are read */
    int queue_max; /* waiting choices; 0 = 256 -> ERR_FULL */
    struct engine_speculation {
        int n_max;    /* tokens guessed ahead and checked together, 0..15; 0 = no speculation */
        int branches; /* tokens guessed behind one place, 1..3; more than 1: trees. 0 = 1 */
        bool lookup;  /* guess from repeats in the sequence itself */
        bool always;  /* as many as possible, whatever it costs: for measuring */
        const char *draft_path; /* smaller model with the same vocabulary; NULL = none */
    } speculation;
    const char *isa;
    const char *device;          /* NULL or "cpu"; "auto"; or an accelerator, "cuda" or "cuda:1" */
    const char *gpu_products;    /* NULL: "auto"; see backend_options */
    const char *gpu_calibration; /* NULL: none; see model_options */
    int tensor_parallel; /* ranks that compute the model together, see model_options; 0 = 1 */
    double gpu_memory_utilization; /* share of its memory the engine may hold; 0 = 0.9 */
    bool exact;
    uint64_t hash_seed; /* keys the identities of KV blocks; 0 = at random */
    struct announce
        *announce; /* is told which blocks there are; outlives the engine; NULL = nobody */
    bool
        imports; /* engine_import is called: there is host memory for it, whatever swap_bytes says */
    void (*on_step)(void *arg, int n_rows); /* step thread, after every step; NULL = nobody asks */
    void (*on_import_room)(
        void *arg); /* step thread: engine_import said false, and there is room again */
    void *on_step_arg;
};

enum engine_finish { ENGINE_STOP, ENGINE_LENGTH, ENGINE_CANCELLED, ENGINE_FAILED };

struct engine_token {
    int choice; /* 0..n-1 */
    int32_t id;
    float logprob; /* log-softmax of the raw logits at id; 0 unless sampling.n_top_logprobs >= 0 */
    const struct sampler_top *top; /* [n_top], borrowed during the call */
    int n_top;
};
struct engine_end {
    int choice;
    enum engine_finish finish;
    int prompt_tokens, cached_tokens, completion_tokens;
    int drafted_tokens, accepted_tokens; /* guessed and checked; of these said */
    int preemptions,
        lost_tokens; /* stopped for lack of blocks so often; tokens computed again because of it */
    uint64_t queue_us, prefill_us,
        decode_us; /* submission to first row, to first token, to the end; 0 where it did not come */
    const char *error; /* a sentence for ENGINE_FAILED, else NULL */
};

enum {
    ENGINE_CHOICES_MAX = 16,
    ENGINE_END_IDS_MAX = 64,
    ENGINE_EXPORT_WINDOW = 8,
    ENGINE_EXPORTED_MAX = 64
};

struct engine_submit_options {
    const int32_t *prompt; /* [n_prompt] token ids, copied; 1 <= n_prompt < max_model_len */
    int n_prompt;
    int n;          /* choices, 1..16: share prompt blocks, copy-on-write tail */
    int max_tokens; /* clamped so that prompt + max_tokens <= max_model_len; <= 0 = as many as fit */
    struct sampler_params sampling; /* biases are copied; choice i uses seed + i */
    int adapter;                    /* 0 = the base model, i = the i-th adapter of engine_options */
    struct hash128
        salt;     /* prefix-cache users share blocks within one adapter and one salt (zero = all) */
    int priority; /* 0 = online, 1 = batch */
    /* What the answer will probably be (n_expected may be 0), copied: guesses are taken from it; it changes speed, never text. */
    const int32_t *expected;
    int n_expected;
    /* Token ids that end a choice (counted in completion_tokens, never passed to on_token); copied, at most ENGINE_END_IDS_MAX. */
    const int32_t *end_ids;
    int n_end_ids;
    bool ignore_end;
    /* Every choice's text has this form; NULL = free. A reference is taken. End tokens are those of its vocabulary (ignore_end has no
     * say), and a choice whose text must end there ends without one. */
    struct grammar *grammar;
    /* Step thread. on_token: return false to stop this choice here with ENGINE_STOP (a stop string was completed).
     * on_end: once per choice, the last call for it; after the last choice's on_end the request is gone. */
    bool (*on_token)(void *arg, const struct engine_token *t);
    void (*on_end)(void *arg, const struct engine_end *end);
    /* Step thread; NULL = not wanted. Each full block of the prompt from number export_from on, in order, as soon as it is computed: name
     * is borrowed, bytes[block_bytes] are the callee's (mem_free). ENGINE_EXPORT_WINDOW of them, then as many as engine_export_more
     * says. on_exported: once, when nothing more will come; the request is gone after it and the last on_end, whichever is later. */
    void (*on_block)(void *arg, int index, const struct block_name *name, void *bytes);
    void (*on_exported)(void *arg);
    int export_from;
    void *arg;
};

MUST enum err engine_open(struct engine **out, const struct engine_options *o, struct errmsg *e);
/* Cancels everything (each choice gets its on_end), joins the step thread. */
void engine_close(struct engine *g);
const struct model_info *engine_model(const struct engine *g);
const struct gguf *engine_gguf(const struct engine *g);
int engine_max_len(const struct engine *g); /* tokens of prompt and answer together */
int engine_block_size(const struct engine *g);
/* Where it computes ("cpu", "cuda:0") and on what; borrowed. */
const char *engine_device(const struct engine *g);
const char *engine_device_model(const struct engine *g);
/* NULL, or why the device computes nothing any more (a sentence, borrowed): all requests fail with it. Any thread. */
const char *engine_lost(struct engine *g);
/* Where the block identities of requests without salt begin: adapter 0 = the base model, i = the i-th of engine_options. */
struct prefix_origin engine_prefix_origin(const struct engine *g, int adapter);

/* ERR_TOO_LARGE: prompt too long, with all the numbers in *e. ERR_FULL: queue full, retry later. ERR_RANGE: a sampling value, a bias's
 * or prompt's token id. ERR_CLOSED: closing. Callbacks may come before this returns. On OK *id_out may be cancelled until the
 * last on_end. */
MUST enum err engine_submit(struct engine *g, const struct engine_submit_options *o,
                            uint64_t *id_out, struct errmsg *e);
/* By id: idempotent, unknown ids are ignored. on_end(ENGINE_CANCELLED) follows within one step; blocks are free then. */
void engine_cancel(struct engine *g, uint64_t id);

/* n of the blocks handed out for this request are no longer held, whether sent or thrown away: as many more may come. For every block, also
 * when the request is gone: all requests together have ENGINE_EXPORTED_MAX out, and each one in any case. Any thread. */
void engine_export_more(struct engine *g, uint64_t id, int n);
/* A block that another engine computed, its bytes and name checked: the next prompt submitted finds it, unless host memory is short. Takes
 * bytes[block_bytes] (mem_free). Only where engine_can_import. False: enough for now, wait for on_import_room. Any thread. */
bool engine_import(struct engine *g, const struct block_name *name, void *bytes);
bool engine_can_import(const struct engine *g);
int engine_host_blocks(const struct engine *g);
/* What its blocks are computed with, as the disk tier's files say it; the seed is 0. */
void engine_kv_head(const struct engine *g, struct kv_head *out);

struct engine_stats {
    int running, waiting, max_num_seqs;
    int blocks_total, blocks_used, blocks_cached; /* cached = unreferenced but holding a prefix */
    uint64_t
        kv_tokens; /* tokens in the used blocks: what is missing to blocks_used * block size is unfilled ends */
    uint64_t steps, prompt_tokens, generated_tokens, prefix_query_tokens, prefix_hit_tokens,
        preemptions, cancelled, finished, failed;
    int host_blocks, host_blocks_used; /* the host tier */
    uint64_t lost_tokens;              /* computed again after a preemption */
    int disk_blocks, disk_blocks_used; /* the disk tier */
    uint64_t disk_saved_blocks, disk_fetched_blocks, disk_damaged_blocks, disk_failed_writes;
    uint64_t host_hit_tokens, spilled_blocks, loaded_blocks;
    uint64_t exported_blocks, imported_blocks; /* to and from other engines */
    uint64_t drafts, draft_tokens,
        accepted_tokens; /* drafts that ran, their tokens, those the model agreed with */
    /* of these by where they came from: repeats, the text the client expects, a draft model, what a form forces */
    uint64_t text_draft_tokens, text_accepted_tokens, expected_draft_tokens,
        expected_accepted_tokens, model_draft_tokens, model_accepted_tokens, form_draft_tokens,
        form_accepted_tokens;
    /* Where a device samples: steps submitted before the picks of the one before were heard; and those that had to wait, because of a
     * request's form or a draft that was to be made. */
    uint64_t ahead_steps, waited_form_steps, waited_draft_steps;
    uint64_t step_age_ms;      /* since the last step ended while work was waiting; 0 when idle */
    uint64_t last_success_ms;  /* clock_ms of the last finished choice, 0 = never */
    double drain_tokens_per_s; /* measured, for retry-after */
    uint64_t waiting_prompt_tokens;
};
void engine_stats(struct engine *g, struct engine_stats *out);

#endif
