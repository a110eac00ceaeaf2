/* sequence.c - queues of waiting sequences, and the blocks of running ones: taking, sharing,
 * copying, letting go. */
#include "engine/sched/sequence.h"

void queue_push_back(struct sched *s, struct sequence *q)
{
    struct seq_queue *list = &s->queue[q->class];
    int i = seq_index(s, q);
    q->next = -1;
    q->prev = list->tail;
    if (list->tail < 0)
        list->head = i;
    else
        s->seqs[list->tail].next = i;
    list->tail = i;
    list->n++;
    q->state = SEQ_WAITING;
}

void queue_push_front(struct sched *s, struct sequence *q)
{
    struct seq_queue *list = &s->queue[q->class];
    int i = seq_index(s, q);
    q->prev = -1;
    q->next = list->head;
    if (list->head < 0)
        list->tail = i;
    else
        s->seqs[list->head].prev = i;
    list->head = i;
    list->n++;
    q->state = SEQ_WAITING;
}

void queue_remove(struct sched *s, struct sequence *q)
{
    struct seq_queue *list = &s->queue[q->class];
    ASSERT(q->state == SEQ_WAITING);
    if (q->prev < 0)
        list->head = q->next;
    else
        s->seqs[q->prev].next = q->next;
    if (q->next < 0)
        list->tail = q->prev;
    else
        s->seqs[q->next].prev = q->prev;
    list->n--;
    q->next = q->prev = -1;
}

void seq_start(struct sched *s, struct sequence *q, int reserved)
{
    ASSERT(s->n_slots > 0 && reserved >= 0);
    q->state = SEQ_RUNNING;
    q->slot = s->slots[--s->n_slots];
    q->table = s->tables + (size_t)q->slot * (size_t)s->blocks_max;
    q->n_table = q->n_computed = q->n_chained = 0;
    q->chain = prefix_cache_start(s->cache, &q->scope);
    q->reserved = reserved;
    q->planned_step = 0;
    q->loading = false;
    q->n_tokens_resumed = q->n_tokens;
    s->n_reserved += reserved;
    s->running[s->n_running++] = seq_index(s, q);
}

void seq_release(struct sched *s, struct sequence *q)
{
    ASSERT(q->state == SEQ_RUNNING);
    for (int i = q->n_table; i-- > 0;)
        kv_pool_unref(s->pool, q->table[i]);
    s->n_reserved -= q->reserved;
    q->reserved = q->n_table = q->n_computed = q->n_chained = q->n_draft = 0;
    s->slots[s->n_slots++] = q->slot;
    q->slot = -1;
    q->table = NULL;
    int i = 0, self = seq_index(s, q);
    while (s->running[i] != self)
        i++;
    for (s->n_running--; i < s->n_running; i++)
        s->running[i] = s->running[i + 1];
}

static void use_promise(struct sched *s, struct sequence *q)
{
    if (!q->reserved) return;
    q->reserved--;
    s->n_reserved--;
}

bool seq_take_block(struct sched *s, struct sequence *q, kv_block *out)
{
    bool evicted;
    if (!q->reserved && blocks_unpromised(s) <= 0) return false;
    if (kv_pool_take(s->pool, out, &evicted) != OK) return false;
    if (evicted) {
        moves_spill(s, *out);
        prefix_cache_forget(s->cache, *out);
    }
    use_promise(s, q);
    return true;
}

bool seq_secure(struct sched *s, struct sequence *q, int pos)
{
    int bt = s->o.block_tokens, i = pos / bt;
    kv_block fresh;
    ASSERT(pos >= q->n_computed && i <= q->n_table && i < s->blocks_max);
    if (i < q->n_table) {
        kv_block b = q->table[i];
        if (kv_pool_users(s->pool, b) == 1) {
            ASSERT(!kv_pool_is_cached(s->pool, b)); /* a block being filled is in no cache */
            return true;
        }
        if (!moves_copy_room(s) || !seq_take_block(s, q, &fresh)) return false;
        moves_copy(s, fresh, b, pos % bt);
        kv_pool_unref(s->pool, b);
        q->table[i] = fresh;
        return true;
    }
    if (!seq_take_block(s, q, &fresh)) return false;
    q->table[q->n_table++] = fresh;
    return true;
}

void seq_enter(struct sched *s, kv_block b, const struct block_name *name)
{
    if (!prefix_cache_enter(s->cache, b, name->id, name->parent, name->tokens, s->step)) return;
    kv_pool_set_cached(s->pool, b, true);
    if (!s->fresh || s->is_fresh[b]) return;
    s->is_fresh[b] = true;
    s->fresh[(s->first_fresh + s->n_fresh++) % s->o.n_blocks] = b;
}

void seq_advance(struct sched *s, struct sequence *q, int n)
{
    q->n_computed += n;
    ASSERT(q->n_computed <= q->n_tokens && blocks_for(s, q->n_computed) <= q->n_table);
    q->planned_step = s->step;
    seq_chain(s, q);
}

void seq_chain(struct sched *s, struct sequence *q)
{
    int bt = s->o.block_tokens, n = seq_whole(s, q);
    for (; q->n_chained < n; q->n_chained++) {
        if (!s->o.prefix_caching) continue;
        const int32_t *tokens = q->tokens + q->n_chained * bt;
        struct block_name name = {prefix_cache_chain(s->cache, q->chain, tokens), q->chain, tokens};
        seq_enter(s, q->table[q->n_chained], &name);
        q->chain = name.id;
    }
}

int seq_secure_draft(struct sched *s, struct sequence *q, int n)
{
    int bt = s->o.block_tokens, have = q->n_table * bt - q->n_computed;
    q->table_before = q->n_table;
    q->reserved_before = q->reserved;
    for (; have < n && q->n_table < s->blocks_max; have += bt)
        if (!seq_secure(s, q, q->n_computed + have)) break;
    return have < n ? have : n;
}

void seq_settle_draft(struct sched *s, struct sequence *q)
{
    if (!q->n_draft) return;
    int used = blocks_for(s, q->n_computed) - q->table_before;
    if (used < 0) used = 0;
    while (q->n_table > q->table_before + used)
        kv_pool_unref(s->pool, q->table[--q->n_table]);
    int reserved = q->reserved_before > used ? q->reserved_before - used : 0;
    s->n_reserved += reserved - q->reserved;
    q->reserved = reserved;
    q->n_draft = 0;
}

/* A whole block is in q's table now, in place of an own one that was begun. */
static void adopted(struct sequence *q, int bt, struct hash128 id)
{
    q->chain = id;
    q->n_chained++;
    q->n_computed = q->n_chained * bt;
}

/* The next whole block from the cache; an own one that was begun is let go for it. */
static bool adopt_block(struct sched *s, struct sequence *q)
{
    int bt = s->o.block_tokens, i = q->n_computed / bt;
    if ((i + 1) * bt > q->n_tokens - 1) return false;
    const int32_t *tokens = q->tokens + i * bt;
    struct block_name name = {prefix_cache_chain(s->cache, q->chain, tokens), q->chain, tokens};
    kv_block b = prefix_cache_find(s->cache, name.id, name.parent, tokens);
    bool own = i < q->n_table;
    if (b == KV_NO_BLOCK) {
        if (own || !moves_load(s, q, &name)) return false;
        adopted(q, bt, name.id);
        return true;
    }
    if (!own && !q->reserved && !kv_pool_users(s->pool, b) && blocks_unpromised(s) <= 0)
        return false;
    kv_pool_ref(s->pool, b);
    if (own) {
        kv_pool_unref(s->pool, q->table[i]);
        q->table[i] = b;
    } else {
        use_promise(s, q);
        q->table[q->n_table++] = b;
    }
    adopted(q, bt, name.id);
    return true;
}

static void adopt_part(struct sched *s, struct sequence *q)
{
    int bt = s->o.block_tokens, i = q->n_computed / bt, n_same;
    int n = q->n_tokens - 1 - q->n_computed;
    if (n > bt - 1) n = bt - 1; /* whole blocks are adopt_block's business */
    if (q->n_computed % bt || i < q->n_table || n <= 0 || !moves_copy_room(s)) return;
    kv_block fresh,
        b = prefix_cache_find_partial(s->cache, q->chain, q->tokens + i * bt, n, s->step, &n_same);
    if (moves_load_part(s, q, n, &n_same)) {
        q->n_computed += n_same;
        return;
    }
    if (b == KV_NO_BLOCK || !seq_take_block(s, q, &fresh)) return;
    moves_copy(s, fresh, b, n_same);
    q->table[q->n_table++] = fresh;
    q->n_computed += n_same;
}

void seq_extend(struct sched *s, struct sequence *q)
{
    if (!s->o.prefix_caching) return;
    int before = q->n_computed;
    uint64_t host_before = s->stats.host_hit_tokens;
    q->loading = false;
    while (adopt_block(s, q))
        ;
    if (!q->loading) adopt_part(s, q);
    if (q->preemptions) return; /* finding one's own blocks again is not a hit */
    int hit = q->n_computed - before;
    q->cached_tokens += hit;
    s->stats.prefix_hit_tokens += (uint64_t)hit - (s->stats.host_hit_tokens - host_before);
}

int seq_match(const struct sched *s, const struct sequence *q, int *n_kept)
{
    int bt = s->o.block_tokens, n = 0;
    *n_kept = 0;
    if (!s->o.prefix_caching) return 0;
    struct hash128 parent = prefix_cache_start(s->cache, &q->scope);
    for (; (n + 1) * bt <= q->n_tokens - 1; n++) {
        struct hash128 id = prefix_cache_chain(s->cache, parent, q->tokens + n * bt);
        kv_block b = prefix_cache_find(s->cache, id, parent, q->tokens + n * bt);
        if (b == KV_NO_BLOCK) break;
        *n_kept += !kv_pool_users(s->pool, b);
        parent = id;
    }
    return n;
}
