/* scheduler.c - life of the scheduler and its sequences, and the order of one step. */
#include "engine/sched/scheduler.h"

#include <string.h>

#include "base/mem.h"
#include "engine/sched/sequence.h"

struct sched *sched_new(const struct sched_options *o)
{
    ASSERT(o->n_blocks > 0 && o->block_tokens > 0 && o->max_running > 0 && o->max_waiting > 0);
    ASSERT(o->max_batch_rows >= o->max_running && o->max_len > 1);
    struct sched *s = xcalloc(1, sizeof *s);
    s->o = *o;
    if (!s->o.reserve_tokens) s->o.reserve_tokens = 64;
    if (!s->o.bypass_max) s->o.bypass_max = 8;
    if (!s->o.ageing_ms) s->o.ageing_ms = 30000;
    size_t max_running = (size_t)o->max_running;
    int by_len = blocks_for(s, o->max_len);
    s->blocks_max = by_len < o->n_blocks ? by_len : o->n_blocks;
    s->pool = kv_pool_new(o->n_blocks);
    s->cache = prefix_cache_new(o->n_blocks, o->block_tokens, o->hash_seed, o->root);
    s->n_seqs = o->max_running + o->max_waiting;
    s->seqs = xcalloc((size_t)s->n_seqs, sizeof *s->seqs);
    for (int i = 0; i < s->n_seqs; i++)
        s->seqs[i].next = i + 1 < s->n_seqs ? i + 1 : -1;
    s->queue[0] = s->queue[1] = (struct seq_queue){-1, -1, 0};
    s->running = xcalloc(max_running, sizeof *s->running);
    s->scratch = xcalloc(max_running, sizeof *s->scratch);
    s->slots = xcalloc(max_running, sizeof *s->slots);
    for (int i = o->max_running; i-- > 0;)
        s->slots[s->n_slots++] = i;
    s->tables = xcalloc(max_running * (size_t)s->blocks_max, sizeof *s->tables);
    s->spans = xcalloc(max_running, sizeof *s->spans);
    s->forks = xcalloc(max_running, sizeof *s->forks);
    if (o->n_host && o->prefix_caching)
        s->host = shelf_new(o->n_host, o->block_tokens, o->hash_seed, o->root);
    if (o->track_fresh) {
        s->fresh = xcalloc((size_t)o->n_blocks, sizeof *s->fresh);
        s->is_fresh = xcalloc((size_t)o->n_blocks, sizeof *s->is_fresh);
    }
    s->copies_max = 3 * o->max_running;
    s->moves_max =
        s->copies_max +
        (s->host ? 2 * SCHED_LOADS_MAX + blocks_for(s, o->max_batch_rows) + 2 * o->max_running : 0);
    s->moves = xcalloc((size_t)s->moves_max, sizeof *s->moves);
    return s;
}

void sched_watch(struct sched *s, void (*changed)(void *arg, bool entered, struct hash128 id),
                 void *arg)
{
    prefix_cache_watch(s->cache, changed, arg);
}

void sched_free(struct sched *s)
{
    if (!s) return;
    kv_pool_free(s->pool);
    prefix_cache_free(s->cache);
    mem_free(s->seqs);
    mem_free(s->running);
    mem_free(s->scratch);
    mem_free(s->slots);
    mem_free(s->tables);
    mem_free(s->spans);
    mem_free(s->forks);
    mem_free(s->moves);
    shelf_free(s->host);
    mem_free(s->fresh);
    mem_free(s->is_fresh);
    mem_free(s);
}

static void hold_fork(struct sched *s, struct sequence *q, int parent_i)
{
    struct sequence *parent = seq_at(s, parent_i);
    int *link = &parent->first_child;
    while (*link >= 0)
        link = &s->seqs[*link].next;
    *link = seq_index(s, q);
    q->state = SEQ_HELD;
    q->parent = parent_i;
    s->n_held++;
}

enum err sched_add(struct sched *s, const struct sched_request *r, uint64_t now_ms, int *seq_out,
                   int *limit_out)
{
    ASSERT(r->n_prompt > 0 && r->n_limit > r->n_prompt);
    int64_t pool = (int64_t)s->o.n_blocks * s->o.block_tokens;
    int64_t most = pool < s->o.max_len ? pool : s->o.max_len;
    if (r->n_prompt >= most) return ERR_TOO_LARGE;
    if (s->unused < 0 || s->queue[0].n + s->queue[1].n + s->n_held >= s->o.max_waiting)
        return ERR_FULL;
    int i = s->unused;
    struct sequence *q = &s->seqs[i];
    s->unused = q->next;
    *q = (struct sequence){.class = r->class,
                           .next = -1,
                           .prev = -1,
                           .parent = -1,
                           .first_child = -1,
                           .tokens = r->tokens,
                           .n_prompt = r->n_prompt,
                           .n_tokens = r->n_prompt,
                           .scope = r->scope,
                           .arrived_ms = now_ms,
                           .slot = -1};
    q->n_limit = r->n_limit < most ? r->n_limit : (int)most;
    if (r->fork_of < 0)
        queue_push_back(s, q);
    else
        hold_fork(s, q, r->fork_of);
    *seq_out = i;
    if (limit_out) *limit_out = q->n_limit;
    return OK;
}

static void unhold(struct sched *s, struct sequence *q)
{
    int *link = &seq_at(s, q->parent)->first_child;
    while (*link != seq_index(s, q))
        link = &s->seqs[*link].next;
    *link = q->next;
    s->n_held--;
}

void sched_remove(struct sched *s, int seq)
{
    struct sequence *q = seq_at(s, seq);
    while (q->first_child >= 0) {
        struct sequence *child = seq_at(s, q->first_child);
        q->first_child = child->next;
        child->parent = -1;
        s->n_held--;
        queue_push_front(s, child);
    }
    if (q->state == SEQ_WAITING) queue_remove(s, q);
    if (q->state == SEQ_HELD) unhold(s, q);
    if (q->state == SEQ_RUNNING) seq_release(s, q);
    q->state = SEQ_UNUSED;
    q->next = s->unused;
    s->unused = seq;
}

bool sched_may_draft(const struct sched *s, int seq)
{
    const struct sequence *q = seq_at(s, seq);
    return q->state == SEQ_RUNNING && seq_rest(q) == 1 && q->first_child < 0 && !q->promised;
}

void sched_draft(struct sched *s, int seq, const int32_t *tokens, const int8_t *parent, int n)
{
    struct sequence *q = seq_at(s, seq);
    ASSERT(n >= 0 && n <= SCHED_DRAFT_MAX);
    int room = q->n_limit - q->n_tokens - 1; /* one more always follows */
    if (!sched_may_draft(s, seq)) return;
    q->n_draft = n < room ? n : room;
    memcpy(q->tokens + q->n_tokens, tokens, (size_t)q->n_draft * sizeof *tokens);
    for (int i = 0; i < q->n_draft; i++) {
        q->draft_parent[i] = parent ? parent[i] : (int8_t)(i - 1);
        ASSERT(q->draft_parent[i] >= SCHED_DRAFT_ROOT && q->draft_parent[i] < i);
        for (int k = 0; k < i; k++)
            ASSERT(q->draft_parent[k] != q->draft_parent[i] || tokens[k] != tokens[i]);
    }
}

int sched_draft_child(const struct sched *s, int seq, int node, int32_t token)
{
    const struct sequence *q = seq_at(s, seq);
    for (int i = node < 0 ? 0 : node + 1; i < q->n_draft; i++)
        if (q->draft_parent[i] == node && q->tokens[q->n_tokens + i] == token) return i;
    return SCHED_DRAFT_NONE;
}

int sched_draft_parent(const struct sched *s, int seq, int node)
{
    const struct sequence *q = seq_at(s, seq);
    ASSERT(node >= 0 && node < q->n_draft);
    return q->draft_parent[node];
}

void sched_promise(struct sched *s, int seq, int32_t stand_in)
{
    struct sequence *q = seq_at(s, seq);
    ASSERT(q->state == SEQ_RUNNING && q->n_computed == q->n_tokens && q->n_tokens < q->n_limit);
    ASSERT(stand_in < 0 && !q->promised && !q->n_draft);
    q->tokens[q->n_tokens++] = stand_in;
    q->promised = true;
}

/* What was promised is here. A sequence that was stopped meanwhile has it when it resumes. */
static void keep_promise(struct sched *s, struct sequence *q, int32_t token)
{
    q->tokens[q->n_tokens - 1] = token;
    q->promised = false;
    if (q->state == SEQ_RUNNING) seq_chain(s, q);
}

void sched_accept(struct sched *s, int seq, const int32_t *tokens, int n)
{
    struct sequence *q = seq_at(s, seq);
    if (q->promised) {
        ASSERT(n == 1);
        keep_promise(s, q, tokens[0]);
        return;
    }
    ASSERT(q->state == SEQ_RUNNING && q->n_computed == q->n_tokens && q->n_tokens < q->n_limit);
    ASSERT(n >= 1 && n <= q->n_draft + 1);
    for (int i = 0, node = SCHED_DRAFT_ROOT; i < n - 1; i++) {
        node = sched_draft_child(s, seq, node, tokens[i]);
        ASSERT(node >= 0);
    }
    memcpy(q->tokens + q->n_tokens, tokens, (size_t)(n - 1) * sizeof *tokens);
    q->n_tokens += n - 1;
    seq_advance(s, q, n - 1);
    seq_settle_draft(s, q);
    q->tokens[q->n_tokens++] = tokens[n - 1];
}

static void plan_span(struct sched *s, struct sequence *q, int n)
{
    int from = q->n_computed;
    seq_advance(s, q, n);
    if (from < q->n_had) {
        int lost = (q->n_computed < q->n_had ? q->n_computed : q->n_had) - from;
        q->lost_tokens += lost;
        s->stats.lost_tokens += (uint64_t)lost;
    }
    s->spans[s->plan.n_spans++] =
        (struct sched_span){seq_index(s, q), from, n, q->n_computed == q->n_tokens, 0, false};
    s->plan.n_rows += n;
    if (q->n_computed == q->n_tokens && q->first_child >= 0) sched_start_forks(s, q);
}

/* Every sequence that decodes gets its block; whoever must stop for that stops now, before anything
 * is planned. The ids of those looked at are left in scratch. */
static int secure_decodes(struct sched *s)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++)
        if (seq_rest(seq_at(s, s->running[i])) == 1) s->scratch[n++] = s->running[i];
    for (int i = 0; i < n; i++) {
        struct sequence *q = seq_at(s, s->scratch[i]);
        while (q->state == SEQ_RUNNING && !seq_secure(s, q, q->n_computed)) {
            int victim = sched_victim(s, false);
            ASSERT(victim >= 0 &&
                   s->n_running > 1); /* alone, a sequence fits: sched_add saw to it */
            sched_preempt(s, seq_at(s, victim));
        }
    }
    return n;
}

/* Blocks for the next n positions; returns for how many there are blocks. */
static int secure_chunk(struct sched *s, struct sequence *q, int n)
{
    int bt = s->o.block_tokens, from = q->n_computed, have = 0;
    while (have < n && seq_secure(s, q, from + have))
        have = ((from + have) / bt + 1) * bt - from;
    return have < n ? have : n;
}

/* Sequences with prompt to compute, shortest rest first, longest admitted first among equals. */
static int collect_prompts(struct sched *s)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct sequence *q = seq_at(s, s->running[i]);
        if (q->planned_step == s->step || !seq_rest(q)) continue;
        seq_extend(s, q);
        if (q->loading) continue;
        int k = n++;
        for (; k > 0 && seq_rest(seq_at(s, s->scratch[k - 1])) > seq_rest(q); k--)
            s->scratch[k] = s->scratch[k - 1];
        s->scratch[k] = s->running[i];
    }
    return n;
}

static int first_admitted(const struct sched *s)
{
    for (int i = 0; i < s->n_running; i++) {
        const struct sequence *q = seq_at(s, s->running[i]);
        if (q->planned_step != s->step && seq_rest(q) && !q->loading) return s->running[i];
    }
    return -1;
}

static void plan_prompts(struct sched *s, int rows)
{
    int bt = s->o.block_tokens, n_prompts = collect_prompts(s), oldest = first_admitted(s),
        share = 0;
    if (oldest >= 0) {
        share = rows / 4 > bt ? rows / 4 : bt;
        int rest = seq_rest(seq_at(s, oldest));
        share = share < rest ? share : rest;
    }
    for (int i = 0; i < n_prompts && rows > 0; i++) {
        int id = s->scratch[i];
        struct sequence *q = seq_at(s, id);
        if (id == oldest) share = 0;
        seq_extend(s, q); /* those before it in this step may have computed what it needs */
        if (q->loading) continue;
        int n = seq_rest(q), room = rows - share;
        if (n > room) {
            n = room;
            int over =
                (q->n_computed + n) % bt; /* end on a whole block, so that others can use it */
            if (n > over) n -= over;
        }
        if (n > 0) n = secure_chunk(s, q, n);
        if (n <= 0) continue;
        rows -= n;
        plan_span(s, q, n);
    }
}

/* The first n_spans spans are those of decoding sequences. Drafts get what is left when all others are served, in equal
 * parts, so that one that is sure of itself does not crowd out the rest. */
static void plan_drafts(struct sched *s, int n_spans)
{
    int rows = s->o.max_batch_rows - s->plan.n_rows, n_drafts = 0;
    if (rows > s->o.draft_rows_max) rows = s->o.draft_rows_max;
    for (int i = 0; i < n_spans; i++)
        n_drafts += s->seqs[s->spans[i].seq].n_draft > 0;
    for (int i = 0; i < n_spans; i++) {
        struct sequence *q = seq_at(s, s->spans[i].seq);
        if (!q->n_draft) continue;
        int n = rows / n_drafts--;
        if (n > q->n_draft) n = q->n_draft;
        if (q->first_child >= 0) n = 0;
        q->n_draft = n > 0 ? seq_secure_draft(s, q, n) : 0;
        rows -= q->n_draft;
        s->spans[i].n_draft = q->n_draft;
        for (int k = 0; k < q->n_draft; k++)
            s->spans[i].tree |= q->draft_parent[k] != k - 1;
        s->spans[i].n += q->n_draft;
        s->plan.n_rows += q->n_draft;
        s->stats.draft_rows += (uint64_t)q->n_draft;
    }
}

static int loads_of_a_step(const struct sched *s)
{
    double n = s->block_move_us > 0 ? SCHED_LOAD_US / s->block_move_us : SCHED_LOADS_MAX;
    return n < SCHED_LOADS_MIN ? SCHED_LOADS_MIN : n > SCHED_LOADS_MAX ? SCHED_LOADS_MAX : (int)n;
}

const struct sched_plan *sched_step(struct sched *s, uint64_t now_ms)
{
    s->step++;
    s->plan = (struct sched_plan){.spans = s->spans, .forks = s->forks, .moves = s->moves};
    s->n_copies = 0;
    s->loads_left = loads_of_a_step(s);
    int n_decodes = secure_decodes(s);
    sched_admit(
        s, now_ms); /* may displace a decoding sequence: nothing is planned before it has decided */
    for (int i = 0; i < n_decodes; i++) {
        struct sequence *q = seq_at(s, s->scratch[i]);
        if (q->state == SEQ_RUNNING) plan_span(s, q, 1);
    }
    int rows = s->o.max_batch_rows - s->plan.n_rows;
    int most = s->plan.n_rows ? s->prompt_rows_beside : s->prompt_rows_alone;
    if (most && rows > most) rows = most;
    int n_spans = s->plan.n_spans;
    if (rows > 0) plan_prompts(s, rows);
    plan_drafts(s, n_spans);
    s->stats.steps++;
    s->stats.rows += (uint64_t)s->plan.n_rows;
    return &s->plan;
}

void sched_set_costs(struct sched *s, double block_move_us, double token_us)
{
    s->block_move_us = block_move_us;
    s->token_us = token_us;
}
void sched_set_prompt_rows(struct sched *s, int beside_decodes, int alone)
{
    s->prompt_rows_beside = beside_decodes;
    s->prompt_rows_alone = alone;
}
const int32_t *sched_tokens(const struct sched *s, int seq)
{
    return seq_at(s, seq)->tokens;
}
const kv_block *sched_table(const struct sched *s, int seq)
{
    return seq_at(s, seq)->table;
}
int sched_n_tokens(const struct sched *s, int seq)
{
    return seq_at(s, seq)->n_tokens;
}
int sched_limit(const struct sched *s, int seq)
{
    return seq_at(s, seq)->n_limit;
}
int sched_cached_tokens(const struct sched *s, int seq)
{
    return seq_at(s, seq)->cached_tokens;
}

int sched_preemptions(const struct sched *s, int seq)
{
    return seq_at(s, seq)->preemptions;
}
int sched_lost_tokens(const struct sched *s, int seq)
{
    return seq_at(s, seq)->lost_tokens;
}

void sched_stats(const struct sched *s, struct sched_stats *out)
{
    *out = s->stats;
    out->running = s->n_running;
    out->waiting = s->queue[0].n + s->queue[1].n + s->n_held;
    out->blocks_total = kv_pool_size(s->pool);
    out->blocks_kept = kv_pool_n_kept(s->pool);
    out->blocks_used = out->blocks_total - kv_pool_available(s->pool);
    out->host_total = s->host ? shelf_size(s->host) : 0;
    out->host_used = s->host ? shelf_count(s->host) : 0;
    out->slack_tokens = 0;
    for (int i = 0; i < s->n_running; i++) {
        const struct sequence *q = &s->seqs[s->running[i]];
        out->slack_tokens += (uint64_t)(q->n_table * s->o.block_tokens - q->n_computed);
    }
    out->waiting_tokens = 0;
    for (int c = 0; c < 2; c++)
        for (int i = s->queue[c].head; i >= 0; i = s->seqs[i].next)
            out->waiting_tokens += (uint64_t)s->seqs[i].n_tokens;
}

const struct prefix_cache *sched_cache(const struct sched *s)
{
    return s->cache;
}
struct shelf *sched_host(struct sched *s)
{
    return s->host;
}
struct shelf *sched_shelf_new(const struct sched *s, int n_slots)
{
    return shelf_new(n_slots, s->o.block_tokens, s->o.hash_seed, s->o.root);
}
int sched_block_tokens(const struct sched *s)
{
    return s->o.block_tokens;
}

bool sched_has_fresh(const struct sched *s)
{
    return s->n_fresh > 0;
}

bool sched_next_fresh(struct sched *s, kv_block *b, struct block_name *name)
{
    while (s->n_fresh) {
        *b = s->fresh[s->first_fresh];
        s->first_fresh = (s->first_fresh + 1) % s->o.n_blocks;
        s->n_fresh--;
        s->is_fresh[*b] = false;
        if (prefix_cache_name(s->cache, *b, name)) return true;
    }
    return false;
}
