/* scheduler_check.c - what must hold between any two calls, checked by walking everything. Debug
 * builds and tests. */
#include "engine/sched/sequence.h"

static const char *check_running(const struct sched *s, int *n_reserved)
{
    int bt = s->o.block_tokens;
    for (int i = 0; i < s->n_running; i++) {
        const struct sequence *q = &s->seqs[s->running[i]];
        if (q->state != SEQ_RUNNING) return "the running list holds a sequence that does not run";
        if (q->n_computed > q->n_tokens || q->n_tokens > q->n_limit)
            return "a sequence is longer than its limit";
        if (q->n_computed > q->n_table * bt) return "a computed position has no block";
        if (q->n_chained != seq_whole(s, q)) return "chain and computed positions disagree";
        if (q->reserved < 0) return "a negative promise";
        *n_reserved += q->reserved;
    }
    return NULL;
}

/* Users of a block = tables that name it. Quadratic; pools are small where this runs. */
static const char *check_users(const struct sched *s)
{
    for (kv_block b = 0; b < kv_pool_size(s->pool); b++) {
        int named = 0;
        for (int i = 0; i < s->n_running; i++) {
            const struct sequence *q = &s->seqs[s->running[i]];
            for (int k = 0; k < q->n_table; k++) {
                if (q->table[k] != b) continue;
                named++;
                bool filling = (k + 1) * s->o.block_tokens > q->n_computed;
                if (filling && kv_pool_is_cached(s->pool, b))
                    return "a block that is not full is cached";
            }
        }
        if (named != kv_pool_users(s->pool, b))
            return "a block's users are not the tables that name it";
    }
    return NULL;
}

static const char *check_lists(const struct sched *s)
{
    int seen = 0, held = 0;
    for (int c = 0; c < 2; c++) {
        int n = 0, before = -1;
        for (int i = s->queue[c].head; i >= 0; i = s->seqs[i].next) {
            const struct sequence *q = &s->seqs[i];
            if (q->state != SEQ_WAITING || (int)q->class != c || q->prev != before)
                return "a class queue is broken";
            if (++n > s->n_seqs) return "a class queue has a cycle";
            before = i;
        }
        if (n != s->queue[c].n || before != s->queue[c].tail)
            return "a class queue's length or end is wrong";
        seen += n;
    }
    for (int i = 0; i < s->n_seqs; i++) {
        const struct sequence *q = &s->seqs[i];
        if (q->state == SEQ_UNUSED) continue;
        for (int c = q->first_child; c >= 0; c = s->seqs[c].next, held++)
            if (s->seqs[c].state != SEQ_HELD || s->seqs[c].parent != i)
                return "a held fork is not its parent's";
    }
    if (held != s->n_held) return "held forks are miscounted";
    seen += held + s->n_running;
    for (int i = s->unused; i >= 0; i = s->seqs[i].next) {
        if (s->seqs[i].state != SEQ_UNUSED) return "a live sequence is in the unused stack";
        if (++seen > s->n_seqs) return "a sequence is in two places";
    }
    return seen == s->n_seqs ? NULL : "a sequence is in no place";
}

const char *sched_check(const struct sched *s)
{
    int n_reserved = 0;
    const char *why = kv_pool_check(s->pool);
    if (!why) why = prefix_cache_check(s->cache, s->pool);
    if (!why && s->host) why = shelf_check(s->host);
    if (!why) why = check_running(s, &n_reserved);
    if (!why) why = check_users(s);
    if (!why) why = check_lists(s);
    if (why) return why;
    if (n_reserved != s->n_reserved) return "promises are miscounted";
    if (n_reserved > kv_pool_available(s->pool)) return "more is promised than there is";
    if (s->n_running + s->n_slots != s->o.max_running) return "slots are miscounted";
    return NULL;
}
