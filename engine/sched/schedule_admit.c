/* schedule_admit.c - who may start. A sequence starts only when the whole rest of its prompt and a
 * generation reserve fit into blocks nobody was promised; the promise is kept in sequence.reserved.
 */
#include "engine/sched/sequence.h"

struct need {
    int shared;  /* blocks found in the cache */
    int promise; /* blocks to be taken beyond those */
    int blocks;  /* what leaves the available ones: promise, and shared ones that nobody uses now */
    bool fits;
};

/* Room for all known tokens and the reserve, never more than the sequence may reach. */
static int blocks_wanted(const struct sched *s, const struct sequence *q, int reserve)
{
    int64_t upto = (int64_t)q->n_tokens + reserve;
    if (upto > q->n_limit) upto = q->n_limit;
    int n = blocks_for(s, (int)upto);
    return n < s->blocks_max ? n : s->blocks_max;
}

static struct need need_of(const struct sched *s, const struct sequence *q)
{
    /* resuming needs headroom: twice the reserve, or it would be the next victim */
    int reserve = s->o.reserve_tokens;
    if (q->preemptions && s->n_running) reserve *= 2;
    int n_kept;
    struct need need = {.shared = seq_match(s, q, &n_kept)};
    need.promise = blocks_wanted(s, q, reserve) - need.shared;
    need.blocks = need.promise + n_kept;
    need.fits = blocks_unpromised(s) >= need.blocks;
    return need;
}

static void start(struct sched *s, struct sequence *q, const struct need *need)
{
    queue_remove(s, q);
    /* the shared blocks are adopted right away and use up their part of the promise */
    seq_start(s, q, need->promise + need->shared);
    if (!q->preemptions) s->stats.prefix_query_tokens += (uint64_t)q->n_prompt;
    seq_extend(s, q);
    s->plan.n_admitted++;
}

/* Class whose head is looked at first. */
static enum sched_class class_next(const struct sched *s, uint64_t now_ms, bool *aged)
{
    const struct seq_queue *online = &s->queue[SCHED_ONLINE], *batch = &s->queue[SCHED_BATCH];
    *aged = false;
    if (!batch->n) return SCHED_ONLINE;
    const struct sequence *q = &s->seqs[batch->head];
    *aged = now_ms - q->arrived_ms >= s->o.ageing_ms;
    if (!online->n) return SCHED_BATCH;
    return *aged && s->online_since_aged >= SCHED_AGED_EVERY ? SCHED_BATCH : SCHED_ONLINE;
}

/* Starts the first of a class that fits, looking past at most SCHED_LOOKAHEAD that do not. Those
 * passed by are counted; one that was passed by bypass_max times is not passed by again. *stuck:
 * nobody behind may start either. */
static bool start_one(struct sched *s, enum sched_class class, bool *stuck)
{
    int looked = 0;
    for (int i = s->queue[class].head; i >= 0 && looked < SCHED_LOOKAHEAD;
         i = s->seqs[i].next, looked++) {
        struct sequence *q = seq_at(s, i);
        if (q->preempted_step == s->step) continue;
        if (looked && s->match_budget <= 0)
            return false; /* long prompts behind a stuck one are looked at in a later step */
        struct need need = need_of(s, q);
        s->match_budget -= blocks_for(s, q->n_tokens);
        if (!need.fits) {
            if (q->bypassed < s->o.bypass_max) continue;
            *stuck = true;
            return false;
        }
        for (int k = s->queue[class].head; k != i; k = s->seqs[k].next) {
            s->seqs[k].bypassed++;
            s->stats.bypasses++;
        }
        start(s, q, &need);
        return true;
    }
    return false;
}

/* Makes room for the first online sequence by stopping batch ones. */
static bool displace_for_online(struct sched *s)
{
    int i = s->queue[SCHED_ONLINE].head;
    if (i < 0 || s->seqs[i].preempted_step == s->step) return false;
    struct need need = need_of(s, &s->seqs[i]);
    if (s->n_slots && need.fits) return false;
    return sched_displace(s, need.blocks);
}

void sched_admit(struct sched *s, uint64_t now_ms)
{
    s->match_budget = SCHED_MATCH_BLOCKS;
    for (;;) {
        bool aged, stuck = false;
        enum sched_class first = class_next(s, now_ms, &aged),
                         other = first == SCHED_ONLINE ? SCHED_BATCH : SCHED_ONLINE;
        int batch_head = s->queue[SCHED_BATCH].head;
        if (s->n_slots) {
            if (start_one(s, first, &stuck)) {
                if (first == SCHED_ONLINE) {
                    s->online_since_aged++;
                } else if (aged) {
                    s->online_since_aged = 0;
                    if (s->seqs[batch_head].state == SEQ_RUNNING) s->seqs[batch_head].aged = true;
                }
                continue;
            }
            /* a head that must not be passed by any more holds back the other class too */
            int head = s->queue[first].head;
            if (!stuck && start_one(s, other, &stuck)) {
                if (head >= 0) s->seqs[head].bypassed++;
                continue;
            }
        }
        if (!s->queue[SCHED_ONLINE].n || !displace_for_online(s)) return;
    }
}

/* Forks start with the parent's blocks; the first who writes the shared tail gets a copy. Those for
 * whom there is no slot or no room now become ordinary waiting sequences and will find the blocks
 * in the cache. */
void sched_start_forks(struct sched *s, struct sequence *parent)
{
    while (parent->first_child >= 0) {
        int i = parent->first_child;
        struct sequence *q = seq_at(s, i);
        parent->first_child = q->next;
        q->next = q->prev = q->parent = -1;
        s->n_held--;
        int promise =
            blocks_wanted(s, q, s->o.reserve_tokens) - parent->n_computed / s->o.block_tokens;
        if (!s->n_slots || blocks_unpromised(s) < promise) {
            queue_push_front(s, q); /* its request was admitted before all who wait */
            continue;
        }
        seq_start(s, q, promise);
        for (; q->n_table < parent->n_table; q->n_table++) {
            q->table[q->n_table] = parent->table[q->n_table];
            kv_pool_ref(s->pool, q->table[q->n_table]);
        }
        q->n_computed = parent->n_computed;
        q->chain = parent->chain;
        q->n_chained = parent->n_chained;
        q->planned_step = s->step;
        q->cached_tokens = q->n_computed;
        s->forks[s->plan.n_forks++] = (struct sched_fork){seq_index(s, parent), i};
    }
}
