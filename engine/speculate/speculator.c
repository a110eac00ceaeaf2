/* speculator.c - see speculator.h. Each choice has chances of its own, which start from what drafts have been worth in this engine. */
#include "engine/speculate/speculator.h"

#include <string.h>

#include "base/mem.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/gain.h"

enum {
    PLAIN_EVERY =
        64, /* one step in so many drafts nothing, so that the plain cost is known as of now */
};
static const double choice_share = 0.08, engine_share = 0.01, /* how fast chances move */
    rank_p_min = 0.03f; /* what a draft model thinks less likely does not branch */

struct speculator {
    struct speculator_options o;
    struct step_cost cost;
    struct chances chances; /* of all choices, slowly */
    struct chance
        model; /* that the draft model's likeliest token is right, whatever it is sure of */
    struct draft_count count[DRAFT_SOURCES];
    unsigned n_steps;
};

struct drafts {
    bool begun;
    struct chances chances;
    struct chance model;
    struct gain gain, model_gain;
    struct grown grown; /* the last draft, and what was not worth its rows */
    int32_t modelled[DRAFT_DEPTH_MAX];
    int n_modelled;  /* of the last draft: what the draft model said */
    uint64_t ticket; /* of the draft model; 0 = it has not met this choice */
    int n_expected;
    int32_t expected[];
};

struct speculator *speculator_new(const struct speculator_options *o)
{
    ASSERT(o->n_max >= 1 && o->n_max <= DRAFT_DEPTH_MAX);
    ASSERT(o->branches >= 1 && o->branches <= SPECULATOR_BRANCHES_MAX);
    struct speculator *s = xcalloc(1, sizeof *s);
    s->o = *o;
    chances_init(&s->chances);
    s->model.p = 0.7f;
    return s;
}

void speculator_free(struct speculator *s)
{
    if (!s) return;
    draft_model_close(s->o.model);
    mem_free(s);
}

int speculator_nodes_max(int n_max, int branches)
{
    int n = branches > 1 ? 2 * n_max : n_max;
    return n < DRAFT_NODES_MAX ? n : DRAFT_NODES_MAX;
}

struct drafts *drafts_new(const int32_t *expected, int n_expected)
{
    if (n_expected > LOOKUP_SCAN_MAX) n_expected = LOOKUP_SCAN_MAX; /* an answer begins with it */
    struct drafts *d = try_calloc(1, sizeof *d + (size_t)n_expected * sizeof *expected);
    if (!d) return NULL;
    d->n_expected = n_expected;
    if (n_expected) memcpy(d->expected, expected, (size_t)n_expected * sizeof *expected);
    return d;
}

void drafts_free(struct drafts *d)
{
    mem_free(d);
}

static int sure_of_match(int n)
{
    return n < 5 ? 0 : n < 8 ? 1 : n < 12 ? 2 : n < LOOKUP_MATCH_MAX ? 3 : 4;
}

static int sure_of_share(float p)
{
    return p < 0.15f ? 0 : p < 0.4f ? 1 : p < 0.65f ? 2 : p < 0.9f ? 3 : 4;
}

static enum draft_source source_of(const struct lookup_path *p)
{
    return p->expected ? DRAFT_FROM_EXPECTED : DRAFT_FROM_TEXT;
}

static void add_path(const struct speculator *s, struct drafts *d, const struct lookup_path *p)
{
    for (int i = 0, at = DRAFT_ROOT; i < p->n && at >= DRAFT_ROOT; i++)
        at = grow_node(&d->grown, &d->chances, at, p->tokens[i], source_of(p),
                       sure_of_match(p->match + i), s->o.branches);
}

/* How many tokens the draft model is worth asking for, where the best look-up promises `other` for the first. */
static int model_length(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                        double other, int n_max)
{
    double right[DRAFT_DEPTH_MAX], p = 1;
    struct gain_step g = {step->n_rows, step->n_seqs, 0};
    if (!s->o.model || (double)d->model.p <= other) return 0;
    if (s->o.always) return n_max;
    g.draft_us = draft_model_token_us(s->o.model);
    for (int i = 0; i < n_max; i++)
        right[i] = p *= (double)d->model.p;
    return gain_length(&d->model_gain, &s->cost, &g, right, n_max);
}

static void add_model(struct speculator *s, struct drafts *d, struct lookup_text text, int n)
{
    struct draft_guess guess[DRAFT_DEPTH_MAX];
    if (n) n = draft_model_say(s->o.model, &d->ticket, text.tokens, text.n, guess, n);
    d->n_modelled = n;
    for (int i = 0, at = DRAFT_ROOT; i < n; i++) {
        const struct draft_guess *g = &guess[i];
        d->modelled[i] = g->token[0];
        int next = grow_node(&d->grown, &d->chances, at, g->token[0], DRAFT_FROM_MODEL,
                             sure_of_share(g->p[0]), s->o.branches);
        for (int r = 1; r < s->o.branches && (double)g->p[r] > rank_p_min; r++)
            (void)grow_node(&d->grown, &d->chances, at, g->token[r], DRAFT_FROM_MODEL,
                            sure_of_share(g->p[r]), s->o.branches);
        at = next;
        ASSERT(at >= 0); /* it is the first behind its place, and there is room for all */
    }
}

static void grow(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                 struct lookup_text text, int depth)
{
    struct lookup_path path[LOOKUP_PATHS_MAX];
    struct lookup_text expected = {d->expected, d->n_expected};
    int n = 0;
    double best = 0;
    if (s->o.lookup || d->n_expected)
        n = lookup_paths(text, expected, depth, path, s->o.branches > 1 ? LOOKUP_PATHS_MAX : 1);
    if (n) best = (double)d->chances.of[source_of(path)][sure_of_match(path->match)][0].p;
    add_model(s, d, text, model_length(s, d, step, best, depth));
    if (s->o.branches == 1 && d->n_modelled) return;
    for (int i = 0; i < n; i++)
        add_path(s, d, &path[i]);
    grow_sort(&d->grown);
}

/* How many of the grown nodes are worth a row. */
static int nodes_worth(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                       int n_max)
{
    double right[GROW_NODES_MAX];
    int n = d->grown.n < n_max ? d->grown.n : n_max;
    for (int i = 0; i < n; i++)
        right[i] = d->grown.node[i].right;
    struct gain_step g = {step->n_rows, step->n_seqs, 0};
    return s->o.always ? n : gain_length(&d->gain, &s->cost, &g, right, n);
}

void speculator_draft(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                      struct lookup_text text, int n_max, struct draft *out)
{
    if (!d->begun) {
        d->begun = true;
        d->chances = s->chances;
        d->model = s->model;
    }
    out->n = d->grown.n = d->n_modelled = 0;
    int nodes = speculator_nodes_max(s->o.n_max, s->o.branches);
    struct gain_step now = {step->n_rows, step->n_seqs, 0};
    if (n_max > nodes) n_max = nodes;
    if (n_max < 1) return;
    if (!s->o.always && (s->n_steps % PLAIN_EVERY == 0 || gain_hopeless(&now, n_max))) return;
    grow(s, d, step, text, n_max < s->o.n_max ? n_max : s->o.n_max);
    int n = nodes_worth(s, d, step, n_max);
    for (; out->n < n && out->n < DRAFT_NODES_MAX; out->n++) {
        out->token[out->n] = d->grown.node[out->n].token;
        out->parent[out->n] = d->grown.node[out->n].parent;
    }
}

bool speculator_may_draft(struct speculator *s, struct drafts *d,
                          const struct speculator_step *step, struct lookup_text text)
{
    struct draft out;
    struct gain before = d->gain;
    if (s->o.model) return true;
    speculator_draft(s, d, step, text, DRAFT_NODES_MAX, &out);
    if (out.n) d->gain = before; /* the draft itself is still to be asked for */
    return out.n > 0;
}

static void learn_model(struct chance *c, const struct drafts *d, const int32_t *said, int n,
                        double share_min)
{
    for (int i = 0; i < n && i < d->n_modelled; i++) {
        bool right = said[i] == d->modelled[i];
        double share = 1.0 / (c->n + 4);
        if (share < share_min)
            share = share_min;
        else
            c->n++;
        c->p += (float)(share * (right - (double)c->p));
        if (!right) return;
    }
}

static void count(struct speculator *s, const struct drafts *d, const int32_t *said, int n,
                  int n_checked)
{
    for (int i = 0; i < n_checked; i++)
        s->count[d->grown.node[i].source].checked++;
    for (int i = 0, at = DRAFT_ROOT; i < n; i++) {
        int k = at < 0 ? 0 : at + 1;
        while (k < n_checked &&
               (d->grown.node[k].parent != at || d->grown.node[k].token != said[i]))
            k++;
        if (k >= n_checked) return;
        s->count[d->grown.node[k].source].right++;
        at = k;
    }
}

void speculator_heard(struct speculator *s, struct drafts *d, const int32_t *said, int n,
                      int n_checked)
{
    ASSERT(n_checked <= d->grown.n);
    count(s, d, said, n, n_checked);
    grow_learn(&d->grown, &d->chances, said, n, choice_share);
    grow_learn(&d->grown, &s->chances, said, n, engine_share);
    learn_model(&d->model, d, said, n, choice_share);
    learn_model(&s->model, d, said, n, engine_share);
    d->grown.n = d->n_modelled = 0;
}

void speculator_forget(struct speculator *s, struct drafts *d)
{
    if (s->o.model) draft_model_forget(s->o.model, &d->ticket);
}

void speculator_learn(struct speculator *s, int n_rows, double us)
{
    step_cost_learn(&s->cost, n_rows, us);
    s->n_steps++;
}

const struct draft_count *speculator_counts(const struct speculator *s)
{
    return s->count;
}
