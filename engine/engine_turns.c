/* engine_turns.c - sampling where the device does it, and the steps that are in flight there. Step thread.
 * A step without drafts is one submission: a row of each choice is picked from, and the picks stay on the device, where the next step
 * reads them. So that one may be planned and submitted (its tokens promised to the scheduler) before the picks of this one are heard: the
 * device never waits for the host. What the host decides about a token (a stop string, the end, a cancel) comes a step late, then the
 * choice's row of the step in flight is heard by nobody; its blocks may be taken at once, for the device works in order.
 * Drafts are checked in rounds, with nothing in flight: all choices take turns, one row of each goes to the device, what it picked is
 * heard, and those whose token was the drafted one go on with their next row. So every pick sees the penalties, the form and the draw it
 * would have seen on the host. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine_private.h"
#include "engine/grammar/grammar.h"

struct turn {
    struct choice *choice; /* NULL: it has ended */
    int row, node;         /* its first row of logits; where in its draft it stands */
    struct spoken spoken;
    int32_t said[SCHED_DRAFT_MAX + 1];
    bool on;
};

struct flight {        /* a step until it is heard */
    struct turn *turn; /* [cap], in the order in which the host would sample them */
    int n;
    bool drafts;
    struct step_facts facts;
};

struct turns {
    struct flight flight[FLIGHTS_MAX]; /* the oldest is flight[first] */
    int first, n_flying, cap;
    struct sample_row *row; /* [cap] */
    struct sampler_pick_out *pick;
    int *of;         /* [cap]: whose turn row[i] is */
    uint32_t *masks; /* [n_masks][words]: of choices with a form */
    int n_masks, words;
};

void turns_free(struct turns *t)
{
    if (!t) return;
    for (int i = 0; i < FLIGHTS_MAX; i++)
        mem_free(t->flight[i].turn);
    mem_free(t->row);
    mem_free(t->pick);
    mem_free(t->of);
    mem_free(t->masks);
    mem_free(t);
}

/* A step has at most as many turns as sequences run. */
static struct turns *turns_of(struct engine *g)
{
    struct turns *t = g->turns;
    if (t) return t;
    size_t n = (size_t)g->size.max_num_seqs;
    t = g->turns = xcalloc(1, sizeof *t);
    t->words = (g->model.n_vocab + 31) / 32;
    t->cap = g->size.max_num_seqs;
    for (int i = 0; i < FLIGHTS_MAX; i++)
        t->flight[i].turn = xcalloc(n, sizeof *t->flight[i].turn);
    t->row = xcalloc(n, sizeof *t->row);
    t->pick = xcalloc(n, sizeof *t->pick);
    t->of = xcalloc(n, sizeof *t->of);
    return t;
}

int turns_flying(const struct engine *g)
{
    return g->turns ? g->turns->n_flying : 0;
}

void turns_forget(struct engine *g, struct choice *c)
{
    for (int i = 0; i < FLIGHTS_MAX; i++) {
        if (c->turn[i]) g->turns->flight[i].turn[c->turn[i] - 1].choice = NULL;
        c->turn[i] = 0;
    }
}

static void add(struct turns *t, int slot, struct choice *c, int row, int n_draft)
{
    struct flight *f = &t->flight[slot];
    ASSERT(f->n < t->cap);
    struct turn *turn = &f->turn[f->n++];
    turn->choice = c;
    turn->row = row;
    turn->node = SCHED_DRAFT_ROOT;
    turn->spoken = (struct spoken){.said = turn->said, .n_draft = n_draft, .same = true};
    turn->on = true;
    c->turn[slot] = f->n;
    f->drafts |= n_draft > 0;
}

/* Forks of a sequence come before it and read its row. */
static struct flight *list(struct engine *g, const struct sched_plan *plan)
{
    struct turns *t = turns_of(g);
    ASSERT(t->n_flying < FLIGHTS_MAX);
    int row = 0, slot = (t->first + t->n_flying) % FLIGHTS_MAX;
    struct flight *f = &t->flight[slot];
    f->n = 0;
    f->drafts = false;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        if (!span->sample) continue;
        for (int k = 0; k < plan->n_forks; k++)
            if (plan->forks[k].parent == span->seq)
                add(t, slot, g->by_seq[plan->forks[k].child], row, 0);
        add(t, slot, g->by_seq[span->seq], row, span->n_draft);
        row += 1 + span->n_draft;
    }
    return f;
}

/* The mask of c's form, where it stays until the round is over. */
static const uint32_t *mask_of(struct engine *g, struct turns *t, struct choice *c, int i)
{
    size_t bytes = (size_t)t->words * sizeof *t->masks;
    if (!c->form) return NULL;
    if (t->n_masks < t->cap) {
        mem_free(t->masks);
        t->masks = xmalloc((size_t)t->cap * bytes);
        t->n_masks = t->cap;
    }
    uint32_t *to = t->masks + (size_t)i * (size_t)t->words;
    memcpy(to, grammar_mask(engine_forms(g), c->form, NULL), bytes);
    return to;
}

static int gather(struct engine *g, struct turns *t, const struct flight *f)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        const struct turn *turn = &f->turn[i];
        if (!turn->on) continue;
        sampler_hand_over(turn->choice->sampler, &t->row[n]);
        t->row[n].logits = turn->row + 1 + turn->node;
        if (t->n_flying && sampler_remembers(turn->choice->sampler))
            t->row[n].unheard = turn->choice->turn[t->first]; /* as the device counts its picks */
        t->row[n].allowed = mask_of(g, t, turn->choice, n);
        t->of[n++] = i;
    }
    return n;
}

static void hear(struct engine *g, struct turn *turn, const struct sampler_pick_out *pick)
{
    struct spoken *h = &turn->spoken;
    struct choice *c = turn->choice;
    turn->on = false;
    h->end = ENGINE_FAILED;
    h->more = false;
    if (pick->token < 0) return;
    h->more = choice_hears(g, c, pick, &h->end);
    turn->said[h->n] = pick->token;
    turn->node = sched_draft_child(g->sched, c->seq, turn->node, pick->token);
    h->same = turn->node >= 0;
    h->n++;
    turn->on = h->more && h->same;
}

/* What all turns of f have said becomes part of their sequences. */
static void settle(struct engine *g, struct turns *t, struct flight *f)
{
    for (int i = 0; i < f->n; i++) {
        struct choice *c = f->turn[i].choice;
        if (!c) continue;
        c->turn[f - t->flight] = 0;
        choice_takes(g, c, &f->turn[i].spoken);
    }
    f->n = 0;
}

static void take_rounds(struct engine *g, struct turns *t, struct flight *f)
{
    struct errmsg e = {0};
    for (int n; (n = gather(g, t, f)) > 0;) {
        /* a device that fails is seen before the next step, which ends all requests with its sentence */
        if (g->model.submit(g->model.arg, t->row, n, &e) ||
            g->model.wait(g->model.arg, t->pick, &e))
            return;
        for (int i = 0; i < n; i++)
            hear(g, &f->turn[t->of[i]], &t->pick[i]);
    }
    settle(g, t, f);
    engine_step_over(g, &f->facts);
}

void turns_begin(struct engine *g, const struct sched_plan *plan, const struct step_facts *facts,
                 struct model_batch *batch)
{
    struct flight *f = list(g, plan);
    f->facts = *facts;
    if (f->drafts) return;
    batch->n_pick = gather(g, g->turns, f);
    batch->pick = g->turns->row;
}

void turns_submit(struct engine *g)
{
    struct turns *t = g->turns;
    struct errmsg e = {0};
    struct flight *f = &t->flight[(t->first + t->n_flying) % FLIGHTS_MAX];
    if (f->drafts)
        take_rounds(g, t, f);
    else if (!g->model.submit(g->model.arg, t->row, f->n, &e))
        t->n_flying++;
}

void turns_finish(struct engine *g)
{
    struct turns *t = g->turns;
    struct flight *f = &t->flight[t->first];
    struct errmsg e = {0};
    ASSERT(t->n_flying > 0);
    enum err code = g->model.wait(g->model.arg, t->pick, &e);
    t->first = (t->first + 1) % FLIGHTS_MAX;
    t->n_flying--;
    if (code) return; /* as above */
    for (int i = 0; i < f->n; i++)
        if (f->turn[i].choice) hear(g, &f->turn[i], &t->pick[i]);
    settle(g, t, f);
    engine_step_over(g, &f->facts);
}

void turns_drain(struct engine *g)
{
    while (turns_flying(g))
        turns_finish(g);
}

/* Why the host must hear what c says before it says more. */
static enum step_wait waits_for(struct engine *g, struct choice *c, int n_seqs)
{
    if (c->form) return WAIT_FORM;
    return engine_may_draft(g, c, n_seqs) ? WAIT_DRAFT : WAIT_NOTHING;
}

bool turns_go_ahead(struct engine *g)
{
    struct turns *t = g->turns;
    if (!t || !t->n_flying || g->size.wait_each_step) return false;
    const struct flight *f = &t->flight[t->first];
    for (int i = 0; i < f->n; i++) {
        struct choice *c = f->turn[i].choice;
        enum step_wait why = c ? waits_for(g, c, f->n) : WAIT_NOTHING;
        g->count.waited_form_steps += why == WAIT_FORM;
        g->count.waited_draft_steps += why == WAIT_DRAFT;
        if (why != WAIT_NOTHING) return false;
    }
    for (int i = 0; i < f->n; i++) /* the device finds the i-th pick of the step before */
        if (f->turn[i].choice) sched_promise(g->sched, f->turn[i].choice->seq, -1 - i);
    g->count.ahead_steps++;
    return true;
}
