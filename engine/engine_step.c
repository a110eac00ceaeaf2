/* engine_step.c - the step thread: takes what was submitted or cancelled, lets the scheduler plan,
 * runs the model once, samples, calls back. Nothing else touches the scheduler, the KV blocks or
 * the samplers. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_private.h"

static void end_choice(struct engine *g, struct choice *c, enum engine_finish finish,
                       const char *error)
{
    struct request *r = c->request;
    ASSERT(!c->ended);
    struct engine_end end = {.choice = c->index,
                             .finish = finish,
                             .prompt_tokens = r->n_prompt,
                             .completion_tokens = c->n_generated,
                             .drafted_tokens = c->n_drafted,
                             .accepted_tokens = c->n_accepted,
                             .error = error};
    if (c->seq >= 0) {
        end.cached_tokens = sched_cached_tokens(g->sched, c->seq);
        if (end.cached_tokens > r->n_prompt) end.cached_tokens = r->n_prompt;
        if (c->drafts) speculator_forget(g->speculator, c->drafts);
        sched_remove(g->sched, c->seq);
        g->by_seq[c->seq] = NULL;
        c->seq = -1;
    }
    c->ended = true;
    r->n_live--;
    switch (finish) {
    case ENGINE_STOP:
    case ENGINE_LENGTH:
        g->count.finished++;
        atomic_store(&g->last_success_ms, clock_ms());
        break;
    case ENGINE_CANCELLED:
        g->count.cancelled++;
        break;
    case ENGINE_FAILED:
        g->count.failed++;
        break;
    }
    if (r->on_end) r->on_end(r->arg, &end);
}

static void end_request(struct engine *g, struct request *r, enum engine_finish finish,
                        const char *error)
{
    for (int i = 0; i < r->n_choices; i++)
        if (!r->choices[i].ended) end_choice(g, &r->choices[i], finish, error);
}

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
            end_request(g, r, ENGINE_FAILED, "the scheduler refused the request");
            return;
        }
        g->by_seq[c->seq] = c;
    }
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

/* Waits while there is nothing to do; puts the inbox in front of the live list, of which *old was
 * the head. False: closing. */
static bool take_inbox(struct engine *g, struct request **old, bool *cancels)
{
    pthread_mutex_lock(&g->lock);
    while (!g->closing && !g->inbox && !g->live) {
        atomic_store(&g->busy, false);
        pthread_cond_wait(&g->wake, &g->lock);
    }
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
        if (cancelled && r->n_live) end_request(g, r, ENGINE_CANCELLED, NULL);
    }
}

static bool is_end(const struct request *r, int32_t id)
{
    if (r->ignore_end) return false;
    for (int i = 0; i < r->n_end_ids; i++)
        if (r->end_ids[i] == id) return true;
    return false;
}

/* c's next token from its row of logits. False: it is the last one, for the reason in *end. */
static bool say(struct engine *g, struct choice *c, float *logits, int32_t *token,
                enum engine_finish *end)
{
    struct request *r = c->request;
    struct sampler_pick_out pick;
    *end = ENGINE_FAILED;
    if (sampler_pick(c->sampler, g->scratch, logits, NULL, &pick)) return false;
    *token = pick.token;
    *end = ENGINE_STOP;
    sampler_accept(c->sampler, pick.token);
    if (!c->n_generated++ && !c->index) g->count.prompt_tokens += (uint64_t)r->n_prompt;
    g->count.generated_tokens++;
    if (is_end(r, pick.token)) return false;
    struct engine_token t = {.choice = c->index,
                             .id = pick.token,
                             .logprob = pick.logprob,
                             .top = pick.top,
                             .n_top = pick.n_top};
    return !r->on_token || r->on_token(r->arg, &t);
}

/* Samples c's rows[1 + n_draft][n_vocab] in order, as long as what is said is what was drafted: the text is the one that would have
 * been said a token a step. */
static void sample(struct engine *g, struct choice *c, float *rows, int n_draft)
{
    int32_t said[SCHED_DRAFT_MAX + 1];
    const int32_t *draft = sched_tokens(g->sched, c->seq) + sched_n_tokens(g->sched, c->seq);
    enum engine_finish end;
    bool more, same = true;
    int n = 0;
    do {
        more = say(g, c, rows + (size_t)n * (size_t)g->model.n_vocab, &said[n], &end);
        if (!more && end == ENGINE_FAILED) break;
        same = n < n_draft && said[n] == draft[n];
        n++;
    } while (more && same);
    if (n_draft) {
        g->count.drafts++;
        g->count.draft_tokens += (uint64_t)n_draft;
        g->count.accepted_tokens += (uint64_t)(n - !same);
        c->n_drafted += n_draft;
        c->n_accepted += n - !same;
        if (c->drafts) speculator_checked(g->speculator, c->drafts, n_draft, n - !same);
    }
    if (n) sched_accept(g->sched, c->seq, said, n);
    if (!more)
        end_choice(g, c, end, end == ENGINE_FAILED ? "the model gave no finite logit" : NULL);
    else if (sched_n_tokens(g->sched, c->seq) >= sched_limit(g->sched, c->seq))
        end_choice(g, c, ENGINE_LENGTH, NULL);
}

/* Samples every finished row; forks of a sequence first, from copies of its logits. */
static void sample_all(struct engine *g, const struct sched_plan *plan)
{
    size_t n_vocab = (size_t)g->model.n_vocab;
    float *row = g->logits;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        if (!span->sample) continue;
        for (int f = 0; f < plan->n_forks; f++) {
            if (plan->forks[f].parent != span->seq) continue;
            memcpy(g->logits_copy, row, n_vocab * sizeof *row);
            sample(g, g->by_seq[plan->forks[f].child], g->logits_copy, 0);
        }
        sample(g, g->by_seq[span->seq], row, span->n_draft);
        row += (size_t)(1 + span->n_draft) * n_vocab;
    }
}

static bool decodes(const struct choice *c)
{
    return c->seq >= 0 && c->n_generated > 0;
}

static int draft(struct engine *g, const struct choice *c, const struct speculator_step *step,
                 int32_t *out)
{
    const int32_t *tokens = sched_tokens(g->sched, c->seq);
    int n = sched_n_tokens(g->sched, c->seq), left = sched_limit(g->sched, c->seq) - n - 1;
    if (g->model.draft) return g->model.draft(g->model.arg, c, tokens, n, out);
    if (left > SCHED_DRAFT_MAX) left = SCHED_DRAFT_MAX;
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
    for (const struct request *r = g->live; r; r = r->next)
        for (int i = 0; i < r->n_choices; i++) {
            const struct choice *c = &r->choices[i];
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
    struct model_batch mb = {.n_rows = b->n_rows,
                             .token = b->token,
                             .pos = b->pos,
                             .seq = b->seq,
                             .n_seqs = b->n_seqs,
                             .block_table = b->block_table,
                             .n_out = b->n_out,
                             .out_row = b->out_row};
    g->model.forward(g->model.arg, &mb, g->logits);
}

static void publish(struct engine *g)
{
    struct sched_stats st;
    sched_stats(g->sched, &st);
    struct engine_stats *c = &g->count;
    c->running = st.running;
    c->waiting = st.waiting;
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
    c->waiting_prompt_tokens = st.waiting_tokens;
    c->drain_tokens_per_s = g->rows_per_s;
    pthread_mutex_lock(&g->lock);
    g->snapshot = *c;
    pthread_mutex_unlock(&g->lock);
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
    if (!g->size.prompt_rows) sched_set_prompt_rows(g->sched, pace_rows(&g->pace));
}

static void step(struct engine *g)
{
    uint64_t start_us = clock_us();
    if (g->model.draft || g->speculator) propose(g);
    uint64_t planned_us = clock_us();
    const struct sched_plan *plan = sched_step(g->sched, clock_ms());
    if (g->size.check_every_step) ASSERT(!sched_check(g->sched));
    if (!plan->n_rows && !plan->n_moves) return;
    forward(g, plan);
    uint64_t us = clock_us() - start_us;
    if (!plan->n_rows) return;
    double now = us ? plan->n_rows * 1e6 / (double)us : 0;
    g->rows_per_s = g->rows_per_s > 0 ? 0.95 * g->rows_per_s + 0.05 * now : now;
    keep_pace(g, plan, (double)(clock_us() - planned_us));
    sched_set_costs(g->sched, g->block_move_us, g->rows_per_s > 0 ? 1e6 / g->rows_per_s : 0);
    sample_all(g, plan);
    atomic_store(&g->last_step_ms, clock_ms());
}

void *engine_step_main(void *arg)
{
    struct engine *g = arg;
    struct request *old;
    bool cancels;
    while (take_inbox(g, &old, &cancels)) {
        for (struct request *r = g->live; r != old; r = r->next)
            start_request(g, r);
        if (cancels) end_cancelled(g);
        step(g);
        publish(g); /* before reap: who has seen the last on_end sees its effect */
        reap(g);
    }
    for (struct request *r = g->live; r; r = r->next)
        if (r->n_live) end_request(g, r, ENGINE_CANCELLED, NULL);
    reap(g);
    return NULL;
}
