/* scheduler.h - decides, step by step, which tokens of which sequences are computed, and in which KV blocks they live.
 * A step: one row for every decoding sequence, then admissions, then prompt chunks with what is left of the row budget.
 *  - Admission needs room for the whole rest of the prompt plus a reserve for generation, so that a sequence whose first chunk fits
 *    does not run dry half way. Order: class, then arrival; a preempted sequence keeps its place at the front. A sequence that does not fit
 *    may be overtaken a bounded number of times. Batch sequences that waited ageing_ms get every fifth admission.
 *  - Prompt rows go to the shortest rest first, but a quarter of them always to the longest admitted.
 *  - When blocks run out the victim is of the lowest class, then the one with the least work to lose; one that was resumed and
 *    has not got on since is spared. Its full blocks stay findable: in the pool until they are taken, then in host memory when carrying
 *    them there and back is faster than computing them. What is found nowhere is computed again.
 *  - Full blocks are entered in the prefix cache as soon as their computation is planned: the model stores a batch's keys before anyone
 *    attends to them, so sequences of one step may already share. The last token is always computed.
 *  - Running ahead: a step may be planned before the tokens of the step before are known (sched_promise).
 *  - Speculation: a decoding sequence may be given a draft, a chain or a tree; its rows are computed behind the sequence's own, out of
 *    what rows and blocks are left when everybody else is served: node i of a tree lies in the i-th place behind the sequence's tokens,
 *    at the position its depth says. What is in doubt is in no cache; what is rejected leaves no trace.
 * Knows nothing of text, sampling, the model. Pure: time is an argument, no allocation after sched_new, no thread.
 * Source: Orca (Yu et al. 2022), PagedAttention (Kwon et al. 2023), Sarathi-Serve (Agrawal et al. 2024). */
#ifndef DEJA_ENGINE_SCHED_SCHEDULER_H
#define DEJA_ENGINE_SCHED_SCHEDULER_H
#include "engine/sched/prefix_cache.h"
#include "engine/sched/shelf.h"

struct sched;

enum sched_class { SCHED_ONLINE, SCHED_BATCH };

struct sched_options {
    int n_blocks, block_tokens;
    int max_running;    /* sequences holding blocks at a time */
    int max_waiting;    /* sequences waiting (ERR_FULL beyond) */
    int max_batch_rows; /* rows of one step; at least max_running */
    int max_len;        /* tokens of one sequence, prompt and generated */
    int draft_rows_max; /* draft rows of one step, all sequences together; 0 = no speculation */
    int reserve_tokens; /* generation room promised at admission; 0 = 64 */
    int bypass_max;     /* how often a sequence that does not fit may be overtaken; 0 = 8 */
    uint64_t ageing_ms; /* a batch sequence older than this is treated as aged; 0 = 30000 */
    bool prefix_caching;
    int n_host;          /* blocks that host memory holds beside the pool; 0 = no such tier */
    bool track_fresh;    /* sched_next_fresh is asked */
    uint64_t hash_seed;  /* secret of this process */
    struct hash128 root; /* identity of the model file */
};

struct sched *sched_new(const struct sched_options *o); /* ASSERTs on ranges; never NULL */
void sched_free(struct sched *s);

struct sched_request {
    int32_t *
        tokens; /* [n_limit] borrowed until sched_remove; the first n_prompt are the prompt, sched_accept writes the rest */
    int n_prompt;              /* >= 1 */
    int n_limit;               /* prompt + tokens to generate; > n_prompt */
    struct prefix_scope scope; /* whose blocks it may share */
    enum sched_class class;
    int fork_of; /* -1, or a sequence with the same prompt that has not started: share its computation */
};
/* ERR_TOO_LARGE: the prompt can never fit (pool or max_len). ERR_FULL: too many waiting. *limit_out (may be NULL) gets n_limit clamped to
 * max_len and to the pool. Nothing has changed on failure. */
MUST enum err sched_add(struct sched *s, const struct sched_request *r, uint64_t now_ms,
                        int *seq_out, int *limit_out);
/* In any state: frees its blocks at once. Held forks of it become ordinary waiting sequences. */
void sched_remove(struct sched *s, int seq);
/* After the step that asked for it (span.sample or a fork): tokens[n] follow, 1 <= n <= span.n_draft + 1. All but the last are a path of
 * the draft from its root, whose K and V lie at their positions by now; the last is what the model says there. Blocks past the accepted
 * end are let go. */
void sched_accept(struct sched *s, int seq, const int32_t *tokens, int n);
/* Instead, when the step asked for a token but is not over: the next sched_step goes on as if it were there, which stand_in < 0 holds the
 * place of (the plan's rows have it for a token). sched_accept of one token brings it, before the step after that one; until
 * then no block that it belongs to is in the prefix cache. Not for a sequence with a draft in flight. */
void sched_promise(struct sched *s, int seq, int32_t stand_in);

/* Before sched_step: tokens[n], copied, may follow what seq has so far: token i behind token parent[i] < i, or behind the sequence where
 * that is SCHED_DRAFT_ROOT; those behind one place differ. parent NULL: a chain. For a running sequence of which only the last token
 * is not computed and that holds back no forks; others, and what would go past the limit, are passed over in silence. Replaces
 * an earlier draft. The step uses a beginning of it, maybe none (span.n_draft), and forgets the rest. */
enum { SCHED_DRAFT_MAX = 31, SCHED_DRAFT_ROOT = -1, SCHED_DRAFT_NONE = -2 };
void sched_draft(struct sched *s, int seq, const int32_t *tokens, const int8_t *parent, int n);
bool sched_may_draft(const struct sched *s, int seq); /* whether a draft of it would be taken */
/* Of the draft in the step: which of its tokens is `token` behind `node` (or the sequence: SCHED_DRAFT_ROOT); SCHED_DRAFT_NONE: none. */
int sched_draft_child(const struct sched *s, int seq, int node, int32_t token);
int sched_draft_parent(const struct sched *s, int seq, int node);

struct sched_span { /* positions from..from+n-1 of seq are computed in this step */
    int seq, from, n;
    bool sample; /* the logits of the last 1 + n_draft of them are wanted */
    int n_draft; /* the last n_draft are a draft's tokens */
    bool tree;   /* of which some do not follow the one before them: positions end earlier */
};
struct sched_fork { /* child starts from the logits of this parent's span */
    int parent, child;
};
/* Executed in order, before the forward pass: a later one may overwrite what an earlier one has read. */
enum sched_move_kind {
    SCHED_COPY,  /* the first n_tokens of block src to block dst */
    SCHED_SPILL, /* block src to host slot dst */
    SCHED_LOAD   /* host slot src to block dst */
};
struct sched_move {
    enum sched_move_kind kind;
    int32_t dst, src;
    int n_tokens; /* SCHED_COPY */
};
struct sched_plan {
    const struct sched_span *spans;
    const struct sched_fork *forks;
    const struct sched_move *moves;
    int n_spans, n_forks, n_moves, n_rows;
    int n_preempted, n_admitted;
};
/* Borrowed until the next call. n_rows 0: nothing to do (nothing waits that could run). */
const struct sched_plan *sched_step(struct sched *s, uint64_t now_ms);
/* What the engine measured: one block to or from host memory, one prompt token computed. Blocks go to the host only while there and
 * back is faster than computing them again, and come from there only while that is. Unknown (0) counts as fast. */
void sched_set_costs(struct sched *s, double block_move_us, double token_us);
/* Rows that prompt chunks may take in a step with decoding sequences, and in one without; 0 = no bound but max_batch_rows. */
void sched_set_prompt_rows(struct sched *s, int beside_decodes, int alone);

/* Of a live sequence. */
const int32_t *sched_tokens(const struct sched *s, int seq);
const kv_block *sched_table(const struct sched *s,
                            int seq); /* valid in the step it is planned in */
int sched_n_tokens(const struct sched *s, int seq);
int sched_limit(const struct sched *s, int seq);
int sched_cached_tokens(const struct sched *s,
                        int seq); /* prompt tokens that were not computed for it */

/* For the disk tier, which lies beside the scheduler: what it caches and under which names. */
const struct prefix_cache *sched_cache(const struct sched *s);
struct shelf *sched_host(struct sched *s); /* NULL: none */
/* As prefix_cache_watch, for blocks of the pool; those of the host: shelf_watch(sched_host()). */
void sched_watch(struct sched *s, void (*changed)(void *arg, bool entered, struct hash128 id),
                 void *arg);
struct shelf *sched_shelf_new(const struct sched *s, int n_slots); /* for names of this scheduler */
int sched_block_tokens(const struct sched *s);
/* With track_fresh: a block that was entered in the cache since it was last asked for, and is still there; its bytes are, too, once the
 * step that
 * computed it is over. False: none is left. *name is borrowed until the next call of anything. */
bool sched_next_fresh(struct sched *s, kv_block *b, struct block_name *name);
bool sched_has_fresh(const struct sched *s); /* perhaps of blocks that are gone */

int sched_preemptions(const struct sched *s, int seq); /* how often it was stopped */
int sched_lost_tokens(const struct sched *s, int seq); /* tokens computed again because of that */

struct sched_stats {
    int running, waiting, blocks_total, blocks_used, blocks_kept;
    uint64_t steps, rows, preemptions, lost_tokens, prefix_query_tokens,
        prefix_hit_tokens /* in the pool; those on the host: host_hit_tokens */, copies, bypasses,
        displaced, draft_rows, spills, loads, host_hit_tokens;
    int host_total, host_used;
    uint64_t waiting_tokens; /* prompt tokens of waiting sequences */
    uint64_t slack_tokens;   /* positions of running sequences' blocks that hold nothing yet */
};
void sched_stats(const struct sched *s, struct sched_stats *out);

/* NULL, or the invariant that does not hold. For tests and debug builds; walks everything. */
const char *sched_check(const struct sched *s);

#endif
