/* engine_sample.c - from logits to tokens, and the end of a choice. Step thread. */
#include <string.h>

#include "base/clock.h"
#include "engine/backend/backend.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"

static void count_time(const struct choice *c, struct engine_end *end)
{
    uint64_t now = clock_us(), started = c->started_us ? c->started_us : now,
             first = c->first_us ? c->first_us : now;
    end->queue_us = started - c->request->submitted_us;
    end->prefill_us = first - started;
    end->decode_us = now - first;
}

static void choice_end(struct engine *g, struct choice *c, enum engine_finish finish,
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
    count_time(c, &end);
    if (c->seq >= 0) {
        end.preemptions = sched_preemptions(g->sched, c->seq);
        end.lost_tokens = sched_lost_tokens(g->sched, c->seq);
        end.cached_tokens = sched_cached_tokens(g->sched, c->seq);
        if (end.cached_tokens > r->n_prompt) end.cached_tokens = r->n_prompt;
        if (c->drafts) speculator_forget(g->speculator, c->drafts);
        sched_remove(g->sched, c->seq);
        g->by_seq[c->seq] = NULL;
        c->seq = -1;
    }
    turns_forget(g, c);
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

void request_end(struct engine *g, struct request *r, enum engine_finish finish, const char *error)
{
    for (int i = 0; i < r->n_choices; i++)
        if (!r->choices[i].ended) choice_end(g, &r->choices[i], finish, error);
}

static bool is_end(const struct request *r, int32_t id)
{
    if (r->ignore_end) return false;
    for (int i = 0; i < r->n_end_ids; i++)
        if (r->end_ids[i] == id) return true;
    return false;
}

struct grammar_run *engine_forms(struct engine *g)
{
    if (!g->forms) g->forms = grammar_run_new(0);
    return g->forms;
}

bool choice_hears(struct engine *g, struct choice *c, const struct sampler_pick_out *pick,
                  enum engine_finish *end)
{
    struct request *r = c->request;
    *end = ENGINE_STOP;
    sampler_accept(c->sampler, pick->token);
    if (!c->n_generated) c->first_us = clock_us();
    if (!c->n_generated++ && !c->index) g->count.prompt_tokens += (uint64_t)r->n_prompt;
    g->count.generated_tokens++;
    if (c->form) ASSERT(grammar_accept(g->forms, c->form, pick->token));
    if (is_end(r, pick->token)) return false;
    struct engine_token t = {.choice = c->index,
                             .id = pick->token,
                             .logprob = pick->logprob,
                             .top = pick->top,
                             .n_top = pick->n_top};
    bool more = !r->on_token || r->on_token(r->arg, &t);
    return more && !(c->form && grammar_must_end(g->forms, c->form));
}

/* c's next token from its row of logits. False: it is the last one, for the reason in *end. */
static bool say(struct engine *g, struct choice *c, float *logits, int32_t *token,
                enum engine_finish *end)
{
    struct sampler_pick_out pick;
    const uint32_t *allowed = c->form ? grammar_mask(engine_forms(g), c->form, NULL) : NULL;
    *end = ENGINE_FAILED;
    if (sampler_pick(c->sampler, g->scratch, logits, allowed, &pick)) return false;
    *token = pick.token;
    return choice_hears(g, c, &pick, end);
}

/* K and V of a tree's accepted path go from the nodes' places to their positions: n tokens of it. */
static void keep_path(struct engine *g, const struct choice *c, const int32_t *said, int n)
{
    struct kv_move moves[SCHED_DRAFT_MAX];
    const kv_block *table = sched_table(g->sched, c->seq);
    int bt = g->size.block_size, base = sched_n_tokens(g->sched, c->seq), n_moves = 0;
    for (int i = 0, node = SCHED_DRAFT_ROOT; i < n; i++) {
        node = sched_draft_child(g->sched, c->seq, node, said[i]);
        ASSERT(node >= i);
        if (node == i) continue;
        int to = base + i, from = base + node;
        moves[n_moves++] = (struct kv_move){table[to / bt], to % bt, table[from / bt], from % bt};
    }
    if (n_moves) g->model.kv_move(g->model.arg, moves, n_moves);
}

void choice_takes(struct engine *g, struct choice *c, const struct spoken *h)
{
    if (h->n_draft) {
        int agreed = h->n - !h->same;
        g->count.drafts++;
        g->count.draft_tokens += (uint64_t)h->n_draft;
        g->count.accepted_tokens += (uint64_t)agreed;
        c->n_drafted += h->n_draft;
        c->n_accepted += agreed;
        if (c->forced) {
            g->count.form_draft_tokens += (uint64_t)h->n_draft;
            g->count.form_accepted_tokens += (uint64_t)agreed;
        }
        keep_path(g, c, h->said, h->n - 1);
    }
    if (c->drafts && !c->forced)
        speculator_heard(g->speculator, c->drafts, h->said, h->n, h->n_draft);
    /* a last token is computed by nobody, or by a step in flight whose row is thrown away */
    if (h->n && (h->more || h->n_draft)) sched_accept(g->sched, c->seq, h->said, h->n);
    if (!h->more)
        choice_end(g, c, h->end, h->end == ENGINE_FAILED ? "the model gave no finite logit" : NULL);
    else if (sched_n_tokens(g->sched, c->seq) >= sched_limit(g->sched, c->seq))
        choice_end(g, c, ENGINE_LENGTH, NULL);
}

/* Samples c's rows[1 + n_draft][n_vocab] along the draft, as long as what is said is in it: the text is the one that would have been said
 * a token a step. */
static void sample(struct engine *g, struct choice *c, float *rows, int n_draft)
{
    int32_t said[SCHED_DRAFT_MAX + 1];
    struct spoken h = {.said = said, .n_draft = n_draft, .same = true};
    int node = SCHED_DRAFT_ROOT;
    do {
        h.more =
            say(g, c, rows + (size_t)(1 + node) * (size_t)g->model.n_vocab, &said[h.n], &h.end);
        if (!h.more && h.end == ENGINE_FAILED) break;
        node = sched_draft_child(g->sched, c->seq, node, said[h.n]);
        h.same = node >= 0;
        h.n++;
    } while (h.more && h.same);
    choice_takes(g, c, &h);
}

/* Samples every finished row; forks of a sequence first, from copies of its logits. */
void engine_sample(struct engine *g, const struct sched_plan *plan)
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
