/* sequence.h - private to engine/sched: one sequence's life between sched_add and sched_remove, and the scheduler's own state.
 * Threading: engine thread only. */
#ifndef DEJA_ENGINE_SCHED_SEQUENCE_H
#define DEJA_ENGINE_SCHED_SEQUENCE_H
#include "engine/sched/scheduler.h"
#include "engine/sched/shelf.h"

enum seq_state {
    SEQ_UNUSED,
    SEQ_HELD,    /* a fork whose parent has not finished its prompt */
    SEQ_WAITING, /* in a class queue */
    SEQ_RUNNING  /* has a slot and blocks */
};

struct sequence {
    enum seq_state state;
    enum sched_class class;
    int next, prev;          /* unused stack, class queue, or the parent's held forks; -1 ends */
    int parent, first_child; /* held forks; -1 none */
    int32_t *tokens;
    int n_prompt, n_tokens, n_limit;
    bool promised; /* the last token is not known yet: sched_promise */
    struct prefix_scope scope;
    uint64_t arrived_ms;
    int bypassed, preemptions;
    bool aged;               /* admitted by ageing: no longer displaced by online sequences */
    uint64_t preempted_step; /* not admitted again in the same step */
    /* while running */
    int slot;
    kv_block *table; /* [blocks_max], row of sched.tables */
    int n_table,
        n_computed; /* blocks held; positions whose keys are stored (or planned in this step) */
    int reserved;   /* blocks promised and not yet taken */
    struct hash128 chain; /* identity of block n_chained-1, or the start */
    int n_chained;        /* whole blocks that are computed and whose tokens are known */
    uint64_t planned_step;
    int n_tokens_resumed; /* n_tokens when it was last admitted */
    int n_had;            /* positions that were computed when it was last stopped */
    int lost_tokens;      /* of those: computed again */
    bool
        loading; /* more of it is on the host than one step may load: it computes nothing until that is here */
    int n_draft; /* proposed tokens, in tokens[n_tokens..]; after planning: those computed in this step */
    int8_t draft_parent[SCHED_DRAFT_MAX];
    int table_before, reserved_before; /* n_table and reserved without the draft's blocks */
    int cached_tokens;
};

struct seq_queue {
    int head, tail, n;
};

enum {
    SCHED_LOOKAHEAD = 16,      /* waiting sequences looked at for one that fits */
    SCHED_MATCH_BLOCKS = 1024, /* blocks hashed per step to look for room, about 60 us */
    SCHED_AGED_EVERY = 4,      /* online admissions between two aged ones */
    SCHED_LOADS_MIN = 4,       /* blocks loaded in one step, at least and at most */
    SCHED_LOADS_MAX = 128,
    SCHED_LOAD_US =
        8000 /* time loads may take of a step: well under the 35 ms that a stream may stall */
};

struct sched {
    struct sched_options o;
    int blocks_max; /* of one sequence */
    struct kv_pool *pool;
    struct prefix_cache *cache;
    struct shelf *host; /* NULL: no host tier */
    kv_block *
        fresh; /* ring [n_blocks] of blocks entered in the cache, each at most once; NULL: nobody asks */
    bool *is_fresh; /* [n_blocks] */
    int first_fresh, n_fresh;
    double block_move_us, token_us;
    int loads_left;        /* of this step */
    struct sequence *seqs; /* [n_seqs] */
    int n_seqs, unused;    /* stack of unused ones */
    int n_held;
    struct seq_queue queue[2]; /* by class */
    int *running;              /* [max_running] in order of admission */
    int n_running;
    int *slots; /* stack of free slots */
    int n_slots;
    kv_block *tables; /* [max_running][blocks_max] */
    int n_reserved;   /* sum over running */
    int online_since_aged, match_budget;
    int prompt_rows_beside, prompt_rows_alone; /* 0 = no bound */
    uint64_t step;
    int *scratch; /* [max_running] */
    struct sched_plan plan;
    struct sched_span *spans; /* [max_running] */
    struct sched_fork *forks; /* [max_running] */
    struct sched_move *moves; /* [moves_max] */
    int moves_max, n_copies, copies_max;
    struct sched_stats stats;
};

/* sequence.c: what moves a sequence and its blocks. */
static inline struct sequence *seq_at(const struct sched *s, int i)
{
    ASSERT(i >= 0 && i < s->n_seqs && s->seqs[i].state != SEQ_UNUSED);
    return &s->seqs[i];
}
static inline int seq_index(const struct sched *s, const struct sequence *q)
{
    return (int)(q - s->seqs);
}
/* Positions to compute. A sequence at its limit (its last token is promised) has none: it only waits for that token. */
static inline int seq_rest(const struct sequence *q)
{
    return q->n_tokens < q->n_limit ? q->n_tokens - q->n_computed : 0;
}
/* Whole blocks of which everything is computed and known. */
static inline int seq_whole(const struct sched *s, const struct sequence *q)
{
    int known = q->n_tokens - q->promised;
    return (q->n_computed < known ? q->n_computed : known) / s->o.block_tokens;
}
static inline int blocks_for(const struct sched *s, int n_tokens)
{
    return (n_tokens + s->o.block_tokens - 1) / s->o.block_tokens;
}
/* Blocks nobody has been promised. */
static inline int blocks_unpromised(const struct sched *s)
{
    return kv_pool_available(s->pool) - s->n_reserved;
}

void queue_push_back(struct sched *s, struct sequence *q);
void queue_push_front(struct sched *s, struct sequence *q);
void queue_remove(struct sched *s, struct sequence *q);

/* WAITING or HELD -> RUNNING with an empty table; there must be a free slot. */
void seq_start(struct sched *s, struct sequence *q, int reserved);
/* RUNNING -> holding nothing (state is the caller's to set). Last blocks are let go first, so that beginnings outlive ends. */
void seq_release(struct sched *s, struct sequence *q);
/* Takes a block from the promise or from what nobody was promised. False: none. */
bool seq_take_block(struct sched *s, struct sequence *q, kv_block *out);
/* Makes the block of position pos (the next one to be computed) exist and be q's alone. False: no block, nothing changed. */
bool seq_secure(struct sched *s, struct sequence *q, int pos);
/* The next n positions are computed in this step: enters blocks that become full. */
void seq_advance(struct sched *s, struct sequence *q, int n);
/* Enters whole blocks that are not yet. */
void seq_chain(struct sched *s, struct sequence *q);
/* Blocks for the n positions after the computed ones, taken for a draft; returns for how many there are. */
int seq_secure_draft(struct sched *s, struct sequence *q, int n);
/* After the accepted positions were advanced over: lets go of the blocks past them, and makes the promise good again. */
void seq_settle_draft(struct sched *s, struct sequence *q);
/* Enters q's full block b, or not when another one stands for the same tokens. */
void seq_enter(struct sched *s, kv_block b, const struct block_name *name);
/* Adopts cached blocks after what is computed, and copies the beginning of one that matches in part. */
void seq_extend(struct sched *s, struct sequence *q);
/* Blocks of the cache that admission would share; *n_kept of them have no user now. */
int seq_match(const struct sched *s, const struct sequence *q, int *n_kept);

/* schedule_moves.c: what is carried between blocks and the host before the forward pass. */
bool moves_copy_room(const struct sched *s);
/* There must be room. */
void moves_copy(struct sched *s, kv_block dst, kv_block src, int n_tokens);
/* b is about to be overwritten: keeps what it holds on the host, when that pays. */
void moves_spill(struct sched *s, kv_block b);
/* Has q's next block, which must begin where it stands, brought from the host. */
bool moves_load(struct sched *s, struct sequence *q, const struct block_name *name);
/* As much of q's next block as a block on the host shares with it: what the host has beyond *n_same positions; at most n. */
bool moves_load_part(struct sched *s, struct sequence *q, int n, int *n_same);

/* schedule_admit.c */
void sched_admit(struct sched *s, uint64_t now_ms);
void sched_start_forks(struct sched *s, struct sequence *parent);
/* schedule_preempt.c */
/* The running sequence to stop first (of batch class and not aged when batch_only), -1 when there is none. */
int sched_victim(const struct sched *s, bool batch_only);
void sched_preempt(struct sched *s, struct sequence *q);
bool sched_displace(struct sched *s, int need_blocks);

#endif
