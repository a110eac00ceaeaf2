/* schedule_preempt.c - who has to stop when blocks or slots run out. Victims are chosen by what is
 * lost, not by arrival: lowest class first, then the fewest computed tokens that nobody else keeps.
 * One that was resumed and has not generated a block since is spared while there is another choice,
 * so that two sequences cannot keep throwing each other out. */
#include "engine/sched/sequence.h"

/* Computed tokens that stopping q would throw away: what others also use stays. */
static int lost_tokens(const struct sched *s, const struct sequence *q)
{
    int shared = 0;
    for (int i = 0; i < q->n_table; i++)
        shared += kv_pool_users(s->pool, q->table[i]) > 1;
    int lost = q->n_computed - shared * s->o.block_tokens;
    return lost > 0 ? lost : 0;
}

static bool spared(const struct sched *s, const struct sequence *q)
{
    return q->preemptions > 0 && q->n_tokens < q->n_tokens_resumed + s->o.block_tokens;
}

static bool displaceable(const struct sequence *q)
{
    return q->class == SCHED_BATCH && !q->aged;
}

/* True when a should stop rather than b; the later admitted one wins a tie. */
static bool stops_first(const struct sched *s, const struct sequence *a, const struct sequence *b)
{
    bool spare_a = spared(s, a), spare_b = spared(s, b);
    if (spare_a != spare_b) return spare_b;
    if (displaceable(a) != displaceable(b)) return displaceable(a);
    return lost_tokens(s, a) <= lost_tokens(s, b);
}

int sched_victim(const struct sched *s, bool batch_only)
{
    int best = -1;
    for (int i = 0; i < s->n_running; i++) {
        const struct sequence *q = seq_at(s, s->running[i]);
        if (batch_only && (!displaceable(q) || spared(s, q))) continue;
        if (q->planned_step == s->step) continue; /* its rows are in the plan already */
        if (best < 0 || stops_first(s, q, seq_at(s, best))) best = s->running[i];
    }
    return best;
}

void sched_preempt(struct sched *s, struct sequence *q)
{
    s->stats.preemptions++;
    s->plan.n_preempted++;
    q->preemptions++;
    q->preempted_step = s->step;
    if (q->n_computed > q->n_had) q->n_had = q->n_computed;
    seq_release(s, q);
    queue_push_front(s, q);
}

bool sched_displace(struct sched *s, int need_blocks)
{
    int gain = 0, n = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct sequence *q = seq_at(s, s->running[i]);
        if (!displaceable(q) || spared(s, q) || q->planned_step == s->step) continue;
        n++;
        gain += q->reserved;
        for (int b = 0; b < q->n_table; b++)
            gain += kv_pool_users(s->pool, q->table[b]) == 1;
    }
    /* all or nothing: stopping somebody without making room would help nobody */
    if (!n || blocks_unpromised(s) + gain < need_blocks) return false;
    do {
        int victim = sched_victim(s, true);
        if (victim < 0) return false;
        sched_preempt(s, seq_at(s, victim));
        s->stats.displaced++;
    } while (blocks_unpromised(s) < need_blocks);
    return true;
}
