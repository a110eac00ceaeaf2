/* engine_step.c - the step thread: takes what was submitted or cancelled, lets the scheduler plan,
 * runs the model once, samples, calls back. Nothing else touches the scheduler, the KV blocks or
 * the samplers. */
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"
#include "engine/kv_tier.h"

enum {
    IDLE_MS = 50,
    HOLD_MS =
        2000, /* longest time a request waits for the disk: computing a long prompt takes about as much */
    SAVE_US = 700,
    ALONE_US = 500000 /* a step of prompts only: newcomers and cancels wait for it */
};

/* Hands a request's choices to the scheduler; the second and later ones share the first one's
 * prompt. */
static void start_request(struct engine *g, struct request *r)
{
    for (int i = 0; i < r->n_choices; i++) {
        struct choice *c = &r->choices[i];
        struct sched_request q = {.tokens = c->tokens,
                                  .n_prompt = r->n_prompt,
                                  .n_limit = r->n_limit,
                                  .scope = r->scope,
                                  .class = r->priority ? SCHED_BATCH : SCHED_ONLINE,
                                  .fork_of = i ? r->choices[0].seq : -1};
        if (sched_add(g->sched, &q, clock_ms(), &c->seq, NULL)) {
            /* engine_submit has checked size and room, so this is a bug; the others must not suffer
             * for it */
            log_error("engine", "request id=%llu was refused by the scheduler",
                      (unsigned long long)r->id);
            c->seq = -1;
            request_end(g, r, ENGINE_FAILED, "the scheduler refused the request");
            return;
        }
        g->by_seq[c->seq] = c;
    }
}

static int n_open(const struct request *r)
{
    return r->held ? r->n_live : 0;
}

/* Hands r to the scheduler once the disk has brought what it has of its beginning, or its time is up. */
static void start_or_hold(struct engine *g, struct request *r)
{
    uint64_t now = clock_ms();
    if (!r->held_until_ms) r->held_until_ms = now + HOLD_MS;
    g->n_held -= n_open(r);
    r->held = g->tier && r->n_live && now < r->held_until_ms &&
              kv_tier_fetch(g->tier, &r->scope, r->choices[0].tokens, r->n_prompt) > 0;
    g->n_held += n_open(r);
    if (!r->held && r->n_live) start_request(g, r);
}

/* What the disk has done since; held requests are looked at again when that may concern them. */
static void poll_disk(struct engine *g)
{
    bool news = kv_tier_poll(g->tier);
    if (!g->n_held) return;
    for (struct request *r = g->live; r; r = r->next)
        if (r->held && (news || clock_ms() >= r->held_until_ms)) start_or_hold(g, r);
}

/* Blocks that became full go to the disk, as many as are copied in less than a millisecond. */
static bool save_blocks(struct engine *g)
{
    double us = g->block_move_us;
    int n = us > 0 ? (int)(SAVE_US / us) : 1;
    return kv_tier_save(g->tier, n < 1 ? 1 : n) > 0;
}

/* Frees requests whose choices have all ended. */
static void reap(struct engine *g)
{
    struct request *gone = NULL;
    pthread_mutex_lock(&g->lock);
    for (struct request **link = &g->live; *link;) {
        struct request *r = *link;
        if (r->n_live) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        r->next = gone;
        gone = r;
        g->n_live_choices -= r->n_choices;
    }
    pthread_mutex_unlock(&g->lock);
    for (struct request *next; gone; gone = next) {
        next = gone->next;
        request_free(gone);
    }
}

void engine_disk_done(void *arg)
{
    struct engine *g = arg;
    pthread_mutex_lock(&g->lock);
    g->disk_done = true;
    pthread_cond_signal(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

/* Under the lock: sleeps until a request, a cancel or the disk wants something; at most IDLE_MS when requests are held, for their
 * time may be up. */
static void sleep_idle(struct engine *g)
{
    struct timespec by;
    if (!g->live) atomic_store(&g->busy, false);
    clock_gettime(CLOCK_MONOTONIC, &by);
    by.tv_nsec += IDLE_MS * 1000000L;
    by.tv_sec += by.tv_nsec / 1000000000L;
    by.tv_nsec %= 1000000000L;
    while (!g->closing && !g->inbox && !g->any_cancelled && !g->disk_done) {
        if (!g->live)
            pthread_cond_wait(&g->wake, &g->lock);
        else if (pthread_cond_timedwait(&g->wake, &g->lock, &by))
            break;
    }
    g->disk_done = false;
}

/* Waits while there is nothing to do; puts the inbox in front of the live list, of which *old was
 * the head. False: closing. */
static bool take_inbox(struct engine *g, bool idle, struct request **old, bool *cancels)
{
    pthread_mutex_lock(&g->lock);
    if (idle || !g->live) sleep_idle(g);
    if (!atomic_load(&g->busy)) {
        atomic_store(&g->last_step_ms, clock_ms());
        atomic_store(&g->busy, true);
    }
    *old = g->live;
    if (g->inbox) {
        g->inbox_last->next = g->live;
        g->live = g->inbox;
    }
    g->inbox = g->inbox_last = NULL;
    g->inbox_tokens = 0;
    *cancels = g->any_cancelled;
    g->any_cancelled = false;
    bool go = !g->closing;
    pthread_mutex_unlock(&g->lock);
    return go;
}

/* Only this thread changes the live list, so it may be walked without the lock; the flag is read
 * under it. */
static void end_cancelled(struct engine *g)
{
    for (struct request *r = g->live; r; r = r->next) {
        pthread_mutex_lock(&g->lock);
        bool cancelled = r->cancelled;
        pthread_mutex_unlock(&g->lock);
        if (!cancelled || !r->n_live) continue;
        g->n_held -= n_open(r);
        r->held = false;
        request_end(g, r, ENGINE_CANCELLED, NULL);
    }
}

static bool decodes(const struct choice *c)
{
    return c->seq >= 0 && c->n_generated > 0;
}

/* What a form forces is sure, so it is worth its rows whatever a speculator thinks. */
static int draft(struct engine *g, struct choice *c, const struct speculator_step *step,
                 int32_t *out)
{
    const int32_t *tokens = sched_tokens(g->sched, c->seq);
    int n = sched_n_tokens(g->sched, c->seq), left = sched_limit(g->sched, c->seq) - n - 1;
    if (left > SCHED_DRAFT_MAX) left = SCHED_DRAFT_MAX;
    int n_forced = c->form ? grammar_draft(g->forms, c->form, out, left) : 0;
    c->forced = n_forced > 0;
    if (c->forced) return n_forced;
    if (g->model.draft) return g->model.draft(g->model.arg, c, tokens, n, out);
    if (!g->speculator) return 0;
    return speculator_draft(g->speculator, c->drafts, step, tokens, n, out, left);
}

static void propose(struct engine *g)
{
    int32_t tokens[SCHED_DRAFT_MAX];
    struct speculator_step step = {0, 0};
    for (const struct request *r = g->live; r; r = r->next)
        for (int i = 0; i < r->n_choices; i++)
            step.n_seqs += decodes(&r->choices[i]);
    step.n_rows = step.n_seqs;
    for (struct request *r = g->live; r; r = r->next)
        for (int i = 0; i < r->n_choices; i++) {
            struct choice *c = &r->choices[i];
            if (!decodes(c) || step.n_rows - step.n_seqs >= g->size.draft_rows) continue;
            int n = draft(g, c, &step, tokens);
            sched_draft(g->sched, c->seq, tokens, n);
            step.n_rows += n;
        }
}

static uint8_t *host_block(const struct engine *g, int slot)
{
    return g->host + (size_t)slot * g->model.block_bytes;
}

static void move_blocks(struct engine *g, const struct sched_plan *plan)
{
    void *model = g->model.arg;
    int n_carried = 0;
    uint64_t start_us = clock_us();
    for (int i = 0; i < plan->n_moves; i++) {
        const struct sched_move *m = &plan->moves[i];
        switch (m->kind) {
        case SCHED_COPY:
            g->model.kv_copy(model, m->dst, m->src, m->n_tokens);
            break;
        case SCHED_SPILL:
            g->model.kv_read(model, m->src, host_block(g, m->dst));
            break;
        case SCHED_LOAD:
            g->model.kv_write(model, m->dst, host_block(g, m->src));
            break;
        }
        n_carried += m->kind != SCHED_COPY;
    }
    if (!n_carried || n_carried < plan->n_moves) return; /* a clean measurement or none */
    double us = (double)(clock_us() - start_us) / n_carried;
    g->block_move_us = g->block_move_us > 0 ? 0.9 * g->block_move_us + 0.1 * us : us;
}

static void forward(struct engine *g, const struct sched_plan *plan)
{
    struct batch *b = g->batch;
    move_blocks(g, plan);
    if (!plan->n_rows) return;
    batch_fill(b, g->sched, plan);
    for (int i = 0; i < plan->n_spans; i++)
        g->adapters[i] = g->by_seq[plan->spans[i].seq]->request->adapter;
    struct model_batch mb = {.n_rows = b->n_rows,
                             .token = b->token,
                             .pos = b->pos,
                             .seq = b->seq,
                             .n_seqs = b->n_seqs,
                             .block_table = b->block_table,
                             .n_out = b->n_out,
                             .out_row = b->out_row,
                             .adapter = g->adapters};
    g->model.forward(g->model.arg, &mb, g->logits);
}

static void publish(struct engine *g)
{
    struct sched_stats st;
    sched_stats(g->sched, &st);
    struct engine_stats *c = &g->count;
    c->running = st.running;
    c->waiting = st.waiting + g->n_held;
    c->max_num_seqs = g->size.max_num_seqs;
    c->blocks_total = st.blocks_total;
    c->blocks_used = st.blocks_used;
    c->blocks_cached = st.blocks_kept;
    c->steps = st.steps;
    c->prefix_query_tokens = st.prefix_query_tokens;
    c->prefix_hit_tokens = st.prefix_hit_tokens;
    c->preemptions = st.preemptions;
    c->lost_tokens = st.lost_tokens;
    c->host_blocks = st.host_total;
    c->host_blocks_used = st.host_used;
    c->host_hit_tokens = st.host_hit_tokens;
    c->spilled_blocks = st.spills;
    c->loaded_blocks = st.loads;
    if (g->tier) kv_tier_stats(g->tier, c);
    c->waiting_prompt_tokens = st.waiting_tokens;
    c->drain_tokens_per_s = g->rows_per_s;
    pthread_mutex_lock(&g->lock);
    g->snapshot = *c;
    pthread_mutex_unlock(&g->lock);
}

/* Forks have no rows of their own until they decode: they start with their parent's end. */
static void note_starts(struct engine *g, const struct sched_plan *plan)
{
    uint64_t now = clock_us();
    for (int i = 0; i < plan->n_spans; i++) {
        struct choice *c = g->by_seq[plan->spans[i].seq];
        if (!c->started_us) c->started_us = now;
    }
    for (int i = 0; i < plan->n_forks; i++) {
        struct choice *c = g->by_seq[plan->forks[i].child];
        if (!c->started_us) c->started_us = now;
    }
}

void engine_set_rows(struct engine *g)
{
    int n = g->size.prompt_rows ? g->size.prompt_rows : pace_rows(&g->pace);
    sched_set_prompt_rows(g->sched, n, pace_rows_alone(&g->pace, ALONE_US));
}

static void keep_pace(struct engine *g, const struct sched_plan *plan, double us)
{
    int n_prompt = 0;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        if (span->n - span->n_draft > 1 || !g->by_seq[span->seq]->n_generated) n_prompt += span->n;
    }
    pace_learn(&g->pace, plan->n_rows - n_prompt, n_prompt, us);
    if (g->speculator && !n_prompt && !plan->n_moves)
        speculator_learn(g->speculator, plan->n_rows, us);
    engine_set_rows(g);
}

/* False: there was nothing to do. */
static bool step(struct engine *g)
{
    uint64_t start_us = clock_us();
    if (g->size.draft_rows) propose(g);
    uint64_t planned_us = clock_us();
    const struct sched_plan *plan = sched_step(g->sched, clock_ms());
    if (g->size.check_every_step) ASSERT(!sched_check(g->sched));
    if (!plan->n_rows && !plan->n_moves) return false;
    note_starts(g, plan);
    forward(g, plan);
    uint64_t us = clock_us() - start_us;
    if (!plan->n_rows) return true;
    double now = us ? plan->n_rows * 1e6 / (double)us : 0;
    g->rows_per_s = g->rows_per_s > 0 ? 0.95 * g->rows_per_s + 0.05 * now : now;
    keep_pace(g, plan, (double)(clock_us() - planned_us));
    sched_set_costs(g->sched, g->block_move_us, g->rows_per_s > 0 ? 1e6 / g->rows_per_s : 0);
    engine_sample(g, plan);
    if (g->size.on_step) g->size.on_step(g->size.on_step_arg, plan->n_rows);
    atomic_store(&g->last_step_ms, clock_ms());
    return true;
}

/* All memory that requests will use is asked for before the first of them: what the operator sees at the start is what it will be. Zeroing
 * pages is the kernel's work and takes about 0.2 s a GiB on one core, so two threads share it. */
static void *touch_half(void *arg)
{
    struct engine *g = arg;
    if (g->model.kv_touch) g->model.kv_touch(g->model.arg, 1, 2);
    return NULL;
}

static void touch_memory(struct engine *g)
{
    pthread_t other;
    bool two = !pthread_create(&other, NULL, touch_half, g);
    if (g->model.kv_touch) g->model.kv_touch(g->model.arg, 0, 2);
    if (!two) touch_half(g);
    mem_touch(g->host, (size_t)g->size.n_host * g->model.block_bytes);
    mem_touch(g->logits, (size_t)g->batch->out_max * (size_t)g->model.n_vocab * sizeof(float));
    if (two) pthread_join(other, NULL);
}

void *engine_step_main(void *arg)
{
    struct engine *g = arg;
    struct request *old;
    bool cancels, idle = true;
    (void)prctl(PR_SET_NAME, "deja-step");
    touch_memory(g);
    while (take_inbox(g, idle, &old, &cancels)) {
        for (struct request *r = g->live; r != old; r = r->next)
            start_or_hold(g, r);
        if (g->tier) poll_disk(g);
        if (cancels) end_cancelled(g);
        idle = !g->live || !step(g);
        if (g->tier && save_blocks(g)) idle = false;
        publish(g); /* before reap: who has seen the last on_end sees its effect */
        reap(g);
    }
    for (struct request *r = g->live; r; r = r->next)
        if (r->n_live) request_end(g, r, ENGINE_CANCELLED, NULL);
    reap(g);
    return NULL;
}
