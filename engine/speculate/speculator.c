/* speculator.c - see speculator.h. Each choice has one gain a way of drafting, which starts from what such drafts have been worth in this
 * engine so far. */
#include "engine/speculate/speculator.h"

#include <string.h>

#include "base/mem.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/gain.h"
#include "engine/speculate/lookup.h"

enum {
    DRAFT_MAX = 15,
    PLAIN_EVERY = 64, /* one step in so many drafts nothing, so that the plain cost is known as of now */
};
enum source { FROM_LOOKUP, FROM_MODEL, N_SOURCES };

struct speculator {
    struct speculator_options o;
    struct step_cost cost;
    double chance[N_SOURCES]; /* of all choices, slowly */
    unsigned n_steps;
};

struct drafts {
    struct gain gain[N_SOURCES];
    bool begun;
    enum source last;
    uint64_t ticket; /* of the draft model; 0 = it has not met this choice */
    int n_expected;
    int32_t expected[];
};

struct speculator *speculator_new(const struct speculator_options *o)
{
    ASSERT(o->n_max >= 1 && o->n_max <= DRAFT_MAX);
    struct speculator *s = xcalloc(1, sizeof *s);
    s->o = *o;
    s->chance[FROM_LOOKUP] = 0.6;
    s->chance[FROM_MODEL] = 0.7;
    return s;
}

void speculator_free(struct speculator *s)
{
    if (!s) return;
    draft_model_close(s->o.model);
    mem_free(s);
}

struct drafts *drafts_new(const int32_t *expected, int n_expected)
{
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

static int length_of(struct speculator *s, struct drafts *d, enum source from,
                     const struct speculator_step *step, int n_max)
{
    struct gain_step g = {step->n_rows, step->n_seqs, 0};
    if (from == FROM_MODEL) g.draft_us = draft_model_token_us(s->o.model);
    d->last = from;
    return s->o.always ? n_max : gain_length(&d->gain[from], &s->cost, &g, n_max);
}

int speculator_draft(struct speculator *s, struct drafts *d, const struct speculator_step *step,
                     const int32_t *tokens, int n_tokens, int32_t *out, int n_max)
{
    if (!d->begun) {
        for (int i = 0; i < N_SOURCES; i++)
            gain_init(&d->gain[i], s->chance[i]);
        d->begun = true;
    }
    if (n_max > s->o.n_max) n_max = s->o.n_max;
    if (n_max < 1 || (s->n_steps % PLAIN_EVERY == 0 && !s->o.always)) return 0;
    if (s->o.lookup || d->n_expected) {
        struct lookup_text expected = {d->expected, d->n_expected};
        struct lookup_found f = lookup_draft(tokens, n_tokens, expected, out, n_max);
        if (f.n) return length_of(s, d, FROM_LOOKUP, step, f.n);
    }
    if (!s->o.model) return 0;
    int n = length_of(s, d, FROM_MODEL, step, n_max);
    return n ? draft_model_say(s->o.model, &d->ticket, tokens, n_tokens, out, n) : 0;
}

void speculator_checked(struct speculator *s, struct drafts *d, int n, int n_right)
{
    if (!n) return;
    gain_learn(&d->gain[d->last], n, n_right);
    for (int i = 0; i < n && i <= n_right; i++)
        s->chance[d->last] += 0.01 * ((i < n_right) - s->chance[d->last]);
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
