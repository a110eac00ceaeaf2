/* pretend_device.h - the pretended model of pretend.h on a pretended accelerator: it samples itself, ids may name its last picks, and what
 * it picked is told by wait alone, in order. It fails when told to. */
#ifndef DEJA_TESTS_PRETEND_DEVICE_H
#define DEJA_TESTS_PRETEND_DEVICE_H
#include "tests/unit/engine/pretend.h"

enum { PICKS_MAX = 128, STEPS_FLYING = 2 };

struct pretend_device {
    struct pretend model; /* first: its calls get it as their argument */
    float logits[PICKS_MAX * VOCAB];
    int32_t last[PICKS_MAX]; /* picks of the last submission */
    int n_last;
    int32_t flying[STEPS_FLYING][PICKS_MAX];
    int n_picks[STEPS_FLYING], first, n_flying;
    _Atomic int submitted, most_flying, fails_after; /* submissions; 0 = never */
    _Atomic bool failed;
};

static inline void device_forward(void *arg, const struct model_batch *b, float *logits)
{
    struct pretend_device *d = arg;
    int32_t token[PICKS_MAX * 4];
    struct model_batch known = *b;
    ASSERT(!logits && b->n_rows <= PICKS_MAX * 4 && b->n_out <= PICKS_MAX &&
           d->n_flying < STEPS_FLYING);
    for (int i = 0; i < b->n_rows; i++) {
        ASSERT(b->token[i] >= 0 || -1 - b->token[i] < d->n_last);
        token[i] = b->token[i] >= 0 ? b->token[i] : d->last[-1 - b->token[i]];
    }
    known.token = token;
    pretend_forward(&d->model, &known, d->logits);
}

static inline void device_penalise(const struct sample_row *r, float *l, int n)
{
    *l = *l > 0 ? *l / r->repetition_penalty : *l * r->repetition_penalty;
    if (n) *l -= r->presence_penalty + r->frequency_penalty * (float)n;
}

static inline int32_t device_pick(const struct sample_row *r, const float *logits,
                                  const int32_t *before)
{
    int unheard = r->unheard ? before[r->unheard - 1] : -1;
    float x[VOCAB];
    int best = -1;
    double total = 0;
    for (int v = 0; v < VOCAB; v++) {
        bool may = !r->allowed || (r->allowed[v / 32] >> v % 32 & 1);
        x[v] = may ? logits[v] : -INFINITY;
    }
    for (int i = 0; i < r->n_seen; i++) {
        const struct sampler_seen *s = &r->seen[i];
        if (s->token < 0) continue;
        int n = s->n_generated + (s->token == unheard);
        if (s->token == unheard) unheard = -1;
        device_penalise(r, &x[s->token], n);
    }
    if (unheard >= 0) device_penalise(r, &x[unheard], 1);
    for (int v = 0; v < VOCAB; v++)
        if (isfinite(x[v]) && (best < 0 || x[v] > x[best])) best = v;
    if (best < 0 || r->temperature <= 0) return best;
    float most = x[best];
    for (int v = 0; v < VOCAB; v++)
        total += x[v] = isfinite(x[v]) ? expf((x[v] - most) / r->temperature) : 0;
    double left = r->draw * total;
    for (int v = 0; v < VOCAB; v++) {
        if (x[v] <= 0) continue;
        best = v;
        left -= x[v];
        if (left < 0) break;
    }
    return best;
}

static inline enum err device_submit(void *arg, const struct sample_row *row, int n,
                                     struct errmsg *e)
{
    struct pretend_device *d = arg;
    ASSERT(d->n_flying < STEPS_FLYING && n <= PICKS_MAX);
    if (d->fails_after && ++d->submitted > d->fails_after) d->failed = true;
    if (d->failed) return err_set(e, ERR_UNAVAILABLE, "pretended to fail");
    int at = (d->first + d->n_flying++) % STEPS_FLYING;
    for (int i = 0; i < n; i++)
        d->flying[at][i] = device_pick(&row[i], d->logits + row[i].logits * VOCAB, d->last);
    memcpy(d->last, d->flying[at], (size_t)n * sizeof *d->last);
    d->n_last = d->n_picks[at] = n;
    if (d->n_flying > d->most_flying) d->most_flying = d->n_flying;
    return OK;
}

static inline enum err device_wait(void *arg, struct sampler_pick_out *out, struct errmsg *e)
{
    struct pretend_device *d = arg;
    ASSERT(d->n_flying > 0);
    int at = d->first;
    d->first = (at + 1) % STEPS_FLYING;
    d->n_flying--;
    if (d->failed) return err_set(e, ERR_UNAVAILABLE, "pretended to fail");
    for (int i = 0; i < d->n_picks[at]; i++)
        out[i] = (struct sampler_pick_out){.token = d->flying[at][i]};
    return OK;
}

static inline const char *device_failure(void *arg)
{
    return ((struct pretend_device *)arg)->failed ? "pretended to fail" : NULL;
}

static inline struct engine *open_on_device(struct pretend_device *d, struct engine_sizes s)
{
    memset(d, 0, sizeof *d);
    sizes_for_tests(&s);
    d->model.kv = fake_kv_new(s.n_blocks, 0, s.block_size, VOCAB);
    struct engine_forward f = forward_of(&d->model, &s);
    f.forward = device_forward;
    f.submit = device_submit;
    f.wait = device_wait;
    f.failure = device_failure;
    struct engine *g = NULL;
    struct errmsg e = {0};
    CHECK_INT(engine_open_with(&g, &f, &s, &e), OK);
    return g;
}

#endif
