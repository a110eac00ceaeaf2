/* engine_step.c - the step thread: takes what was submitted or cancelled, lets the scheduler plan,
 * runs the model once, samples, calls back. Nothing else touches the scheduler, the KV blocks or
 * the samplers. */
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"
#include "engine/kv_tier.h"
#include "engine/kv_transfer.h"
#include "engine/reserve.h"

enum {
    IDLE_MS = 50,
    HOLD_MS =
        2000, /* longest time a request waits for the disk: computing a long prompt takes about as much */
    SAVE_US = 700,
    RESERVE_AFTER_STEPS =
        64, /* or when nothing is left to do: not beside the pass that makes the server ready */
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
    double us = g->move.us;
    int n = us > 0 ? (int)(SAVE_US / us) : 1;
    return kv_tier_save(g->tier, n < 1 ? 1 : n) > 0;
}

/* Frees requests whose choices have all ended and whose blocks nobody waits for. */
static void reap(struct engine *g)
{
    struct request *gone = NULL;
    pthread_mutex_lock(&g->lock);
    for (struct request **link = &g->live; *link;) {
        struct request *r = *link;
        if (r->n_live || !kv_export_is_over(r)) {
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

static bool computes(const struct engine *g)
{
    for (const struct request *r = g->live; r; r = r->next)
        if (r->n_live) return true;
    return false;
}

/* Under the lock: sleeps until a request, a cancel, another engine or the disk wants something; at most IDLE_MS when requests are held,
 * for their time may be up. */
static void sleep_idle(struct engine *g)
{
    uint64_t until = clock_us() + IDLE_MS * 1000;
    if (!computes(g)) atomic_store(&g->busy, false);
    while (!g->closing && !g->inbox && !g->any_cancelled && !g->disk_done && !g->export_room &&
           !g->imports_full) {
        if (!g->live)
            pthread_cond_wait(&g->wake, &g->lock);
        else if (!timed_wait(&g->wake, &g->lock, until))
            break;
    }
    g->disk_done = g->export_room = false;
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
        if (!cancelled) continue;
        kv_export_end(r);
        if (!r->n_live) continue;
        g->n_held -= n_open(r);
        r->held = false;
        request_end(g, r, ENGINE_CANCELLED, NULL);
    }
}

/* Who has been stopped gets no draft: it would take rows that those who run could use. */
static bool decodes(const struct engine *g, const struct choice *c)
{
    return c->seq >= 0 && c->n_generated > 0 && sched_may_draft(g->sched, c->seq);
}

/* What a form forces is sure, so it is worth its rows whatever a speculator thinks. */
static void draft(struct engine *g, struct choice *c, const struct speculator_step *step,
                  struct draft *out)
{
    const int32_t *tokens = sched_tokens(g->sched, c->seq);
    int n = sched_n_tokens(g->sched, c->seq), left = sched_limit(g->sched, c->seq) - n - 1;
    if (left > SCHED_DRAFT_MAX) left = SCHED_DRAFT_MAX;
    out->n = c->form ? grammar_draft(g->forms, c->form, out->token, left) : 0;
    c->forced = out->n > 0;
    for (int i = 0; i < out->n; i++)
        out->parent[i] = (int8_t)(i - 1);
    if (c->forced) return;
    if (g->model.draft)
        g->model.draft(g->model.arg, c, tokens, n, out);
    else if (g->speculator)
        speculator_draft(g->speculator, c->drafts, step, (struct lookup_text){tokens, n}, left,
                         out);
}

bool engine_may_draft(struct engine *g, struct choice *c, int n_seqs)
{
    struct speculator_step step = {n_seqs, n_seqs};
    if (!g->size.draft_rows) return false;
    if (g->model.draft || !g->speculator) return g->model.draft != NULL;
    struct lookup_text text = {sched_tokens(g->sched, c->seq), sched_n_tokens(g->sched, c->seq)};
    return speculator_may_draft(g->speculator, c->drafts, &step, text);
}

static void propose(struct engine *g)
{
    _Static_assert((int)SCHED_DRAFT_MAX == (int)DRAFT_NODES_MAX, "a draft is what a step may take");
    struct draft d;
    struct speculator_step step = {0, 0};
    for (const struct request *r = g->live; r; r = r->next)
        for (int i = 0; i < r->n_choices; i++)
            step.n_seqs += decodes(g, &r->choices[i]);
    step.n_rows = step.n_seqs;
    for (struct request *r = g->live; r; r = r->next)
        for (int i = 0; i < r->n_choices; i++) {
            struct choice *c = &r->choices[i];
            if (!decodes(g, c) || step.n_rows - step.n_seqs >= g->size.draft_rows) continue;
            draft(g, c, &step, &d);
            sched_draft(g->sched, c->seq, d.token, d.parent, d.n);
            step.n_rows += d.n;
        }
}

static const char *failure_of(const struct engine *g)
{
    return g->model.failure ? g->model.failure(g->model.arg) : NULL;
}

static uint8_t *host_block(const struct engine *g, int slot)
{
    return g->host + (size_t)slot * g->model.block_bytes;
}

/* False: the device failed, and blocks that were to be read from it are none. */
static bool move_blocks(struct engine *g, const struct sched_plan *plan)
{
    void *model = g->model.arg;
    int n_carried = 0, n_untimed = turns_flying(g) > 0; /* the first waits for the step in flight */
    uint64_t start_us = clock_us();
    for (int i = 0; i < plan->n_moves; i++) {
        const struct sched_move *m = &plan->moves[i];
        if (n_carried == 1 && n_untimed) start_us = clock_us();
        switch (m->kind) {
        case SCHED_COPY:
            g->model.kv_copy(model, m->dst, m->src, m->n_tokens);
            break;
        case SCHED_SPILL:
            g->model.kv_read(model, m->src, host_block(g, m->dst));
            if (failure_of(g)) return false;
            break;
        case SCHED_LOAD:
            g->model.kv_write(model, m->dst, host_block(g, m->src));
            break;
        }
        n_carried += m->kind != SCHED_COPY;
    }
    if (!n_carried)
        move_cost_untried(&g->move);
    else if (n_carried == plan->n_moves && n_carried > n_untimed) /* a clean measurement or none */
        move_cost_told(&g->move, (double)(clock_us() - start_us) / (n_carried - n_untimed));
    return true;
}

static void forward(struct engine *g, const struct sched_plan *plan, const struct step_facts *facts)
{
    struct batch *b = g->batch;
    if (!move_blocks(g, plan) || !plan->n_rows) return;
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
    if (b->has_tree) mb.slot = b->slot, mb.tree_from = b->tree_from, mb.tree_mask = b->tree_mask;
    if (g->model.submit) turns_begin(g, plan, facts, &mb);
    g->model.forward(g->model.arg, &mb, g->model.submit ? NULL : g->logits);
}

/* The device is gone, and every KV block with it: nobody's text can go on. True: it is so. */
static bool end_if_lost(struct engine *g)
{
    const char *why = failure_of(g);
    if (!why) return false;
    if (!atomic_load(&g->lost)) log_error("engine", "%s; all requests fail", why);
    atomic_store(&g->lost, why);
    for (struct request *r = g->live; r; r = r->next) {
        g->n_held -= n_open(r);
        r->held = false;
        request_end(g, r, ENGINE_FAILED, why);
    }
    return true;
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
    c->kv_tokens = (uint64_t)st.blocks_used * (uint64_t)g->size.block_size - st.slack_tokens;
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
    if (g->speculator) {
        const struct draft_count *from = speculator_counts(g->speculator);
        c->text_draft_tokens = from[DRAFT_FROM_TEXT].checked;
        c->text_accepted_tokens = from[DRAFT_FROM_TEXT].right;
        c->expected_draft_tokens = from[DRAFT_FROM_EXPECTED].checked;
        c->expected_accepted_tokens = from[DRAFT_FROM_EXPECTED].right;
        c->model_draft_tokens = from[DRAFT_FROM_MODEL].checked;
        c->model_accepted_tokens = from[DRAFT_FROM_MODEL].right;
    }
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

static struct step_facts facts_of(const struct engine *g, const struct sched_plan *plan,
                                  uint64_t start_us)
{
    struct step_facts f = {
        .start_us = start_us, .n_rows = plan->n_rows, .moved = plan->n_moves > 0};
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        bool prompt = span->from < g->by_seq[span->seq]->request->n_prompt;
        if (prompt || span->n - span->n_draft > 1) f.n_prompt += span->n;
    }
    return f;
}

/* A step like f took us. */
static void keep_pace(struct engine *g, const struct step_facts *f, double us)
{
    double now = us > 0 ? f->n_rows * 1e6 / us : 0;
    g->rows_per_s = g->rows_per_s > 0 ? 0.95 * g->rows_per_s + 0.05 * now : now;
    pace_learn(&g->pace, f->n_rows - f->n_prompt, f->n_prompt, us);
    if (g->speculator && !f->n_prompt && !f->moved) speculator_learn(g->speculator, f->n_rows, us);
    engine_set_rows(g);
    sched_set_costs(g->sched, g->move.us, g->rows_per_s > 0 ? 1e6 / g->rows_per_s : 0);
}

static void tell_step(struct engine *g, const struct step_facts *f)
{
    if (g->size.on_step) g->size.on_step(g->size.on_step_arg, f->n_rows);
    atomic_store(&g->last_step_ms, clock_ms());
}

/* The device works on one step at a time: this one began when it was submitted, or when the one before was over. */
void engine_step_over(struct engine *g, const struct step_facts *f)
{
    uint64_t now = clock_us(), from = f->start_us > g->over_us ? f->start_us : g->over_us;
    g->over_us = now;
    keep_pace(g, f, (double)(now - from));
    tell_step(g, f);
}

/* The next step is under way before the one in flight is heard, unless the host must hear that first. False: there was nothing to do. */
static bool step(struct engine *g)
{
    bool ahead = turns_go_ahead(g);
    if (!ahead && turns_flying(g)) turns_finish(g);
    if (end_if_lost(g)) return true;
    if (g->size.draft_rows && !ahead) propose(g);
    uint64_t planned_us = clock_us();
    const struct sched_plan *plan = sched_step(g->sched, clock_ms());
    if (g->size.check_every_step) ASSERT(!sched_check(g->sched));
    if (!plan->n_rows && !plan->n_moves && !ahead) return false;
    note_starts(g, plan);
    struct step_facts facts = facts_of(g, plan, planned_us);
    forward(g, plan, &facts);
    if (end_if_lost(g)) return true;
    if (g->model.submit) {
        if (plan->n_rows) turns_submit(g);
        if (ahead) turns_finish(g);
        (void)end_if_lost(g);
    } else if (plan->n_rows) {
        keep_pace(g, &facts, (double)(clock_us() - planned_us));
        engine_sample(g, plan);
        tell_step(g, &facts);
    }
    return true;
}

static void touch_kv(void *arg, int part, int n_parts)
{
    struct engine *g = arg;
    g->model.kv_touch(g->model.arg, part, n_parts);
}

static void touch_host(void *arg, int part, int n_parts)
{
    struct engine *g = arg;
    size_t bytes = (size_t)g->size.n_host * g->model.block_bytes,
           from = bytes / (size_t)n_parts * (size_t)part;
    mem_touch(g->host + from, part + 1 < n_parts ? bytes / (size_t)n_parts : bytes - from);
}

/* All memory that requests may use is asked for early: what the operator sees soon after the start is what it will be. */
static void reserve_memory(struct engine *g)
{
    struct reserve_area areas[2];
    int n = 0;
    if (g->model.kv_touch)
        areas[n++] = (struct reserve_area){
            touch_kv, g, reserve_pieces((size_t)g->size.n_blocks * g->model.block_bytes)};
    if (g->host)
        areas[n++] = (struct reserve_area){
            touch_host, g, reserve_pieces((size_t)g->size.n_host * g->model.block_bytes)};
    g->reserve = n ? reserve_start(areas, n) : NULL;
    mem_touch(g->logits, (size_t)g->batch->out_max * (size_t)g->model.n_vocab * sizeof(float));
}

void *engine_step_main(void *arg)
{
    struct engine *g = arg;
    struct request *old;
    bool cancels, idle = true, reserved = false;
    int steps = 0;
    (void)prctl(PR_SET_NAME, "deja-step");
    while (take_inbox(g, idle, &old, &cancels)) {
        kv_transfer_import(g);
        for (struct request *r = g->live; r != old; r = r->next)
            start_or_hold(g, r);
        if (g->tier) poll_disk(g);
        if (cancels) end_cancelled(g);
        idle = !g->live || !step(g);
        if (!computes(g)) turns_drain(g); /* nobody hears it */
        if (kv_transfer_export(g)) idle = false;
        if (g->tier && save_blocks(g)) idle = false;
        publish(g); /* before reap: who has seen the last on_end sees its effect */
        reap(g);
        steps += !idle;
        if (reserved || !steps || (g->live && steps < RESERVE_AFTER_STEPS)) continue;
        reserved = true;
        reserve_memory(g);
    }
    reserve_stop(g->reserve);
    for (struct request *r = g->live; r; r = r->next) {
        if (r->n_live) request_end(g, r, ENGINE_CANCELLED, NULL);
        kv_export_end(r);
    }
    turns_drain(g);
    reap(g);
    return NULL;
}
