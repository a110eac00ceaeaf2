/* schedule_moves.c - copies between blocks, and between blocks and host memory. The engine executes them in the order in which they
 * were planned, so a block or slot may be taken over in the same step by whoever comes later. */
#include "engine/sched/sequence.h"

static void add_move(struct sched *s, struct sched_move m)
{
    ASSERT(s->plan.n_moves < s->moves_max);
    s->moves[s->plan.n_moves++] = m;
}

bool moves_copy_room(const struct sched *s)
{
    return s->n_copies < s->copies_max;
}

void moves_copy(struct sched *s, kv_block dst, kv_block src, int n_tokens)
{
    if (dst == src) return; /* the source itself was evicted and taken: the bytes are in place */
    ASSERT(moves_copy_room(s));
    s->n_copies++;
    s->stats.copies++;
    add_move(s, (struct sched_move){SCHED_COPY, dst, src, n_tokens});
}

/* Whether n moves cost less than computing a block. */
static bool moves_pay(const struct sched *s, int n)
{
    return s->host && n * s->block_move_us <= s->token_us * s->o.block_tokens;
}

/* Room for n spills and loads beside all copies of the step. */
static bool carry_room(const struct sched *s, int n)
{
    return s->plan.n_moves - s->n_copies + n <= s->moves_max - s->copies_max;
}

void moves_spill(struct sched *s, kv_block b)
{
    struct block_name name;
    if (!moves_pay(s, 2) || !prefix_cache_name(s->cache, b, &name)) return;
    shelf_slot slot = shelf_find(s->host, &name);
    if (slot != SHELF_NO_SLOT) {
        shelf_touch(s->host, slot);
        return;
    }
    if (!carry_room(s, 1) || (slot = shelf_take(s->host)) == SHELF_NO_SLOT) return;
    if (shelf_enter(s->host, slot, &name)) {
        s->stats.spills++;
        add_move(s, (struct sched_move){SCHED_SPILL, slot, b, s->o.block_tokens});
    }
    shelf_unpin(s->host, slot);
}

/* A fresh block at the end of q's table gets the slot's bytes. */
static kv_block load(struct sched *s, struct sequence *q, shelf_slot slot)
{
    kv_block fresh;
    shelf_pin(s->host, slot); /* making room for it must not cost it its own place */
    bool taken = carry_room(s, 2) && seq_take_block(s, q, &fresh); /* which may spill */
    if (taken) {
        q->table[q->n_table++] = fresh;
        add_move(s, (struct sched_move){SCHED_LOAD, fresh, slot, s->o.block_tokens});
        s->stats.loads++;
        s->loads_left--;
    }
    shelf_unpin(s->host, slot);
    return taken ? fresh : KV_NO_BLOCK;
}

static void count_hit(struct sched *s, const struct sequence *q, int n)
{
    if (!q->preemptions) s->stats.host_hit_tokens += (uint64_t)n;
}

bool moves_load(struct sched *s, struct sequence *q, const struct block_name *name)
{
    shelf_slot slot = moves_pay(s, 1) ? shelf_find(s->host, name) : SHELF_NO_SLOT;
    if (slot == SHELF_NO_SLOT) return false;
    if (s->loads_left <= 0) {
        q->loading = true;
        return false;
    }
    kv_block b = load(s, q, slot);
    if (b == KV_NO_BLOCK) return false;
    seq_enter(s, b, name);
    count_hit(s, q, s->o.block_tokens);
    return true;
}

bool moves_load_part(struct sched *s, struct sequence *q, int n, int *n_same)
{
    int there;
    if (!moves_pay(s, 1) || s->loads_left <= 0) return false;
    shelf_slot slot = shelf_find_partial(s->host, q->chain, q->tokens + q->n_computed, n, &there);
    if (slot == SHELF_NO_SLOT || there <= *n_same || load(s, q, slot) == KV_NO_BLOCK) return false;
    *n_same = there;
    count_hit(s, q, there);
    return true;
}
