/* calibrate.c - see calibrate.h. */
#include "cache/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/bound.h"
#include "cache/logistic.h"

enum { BIAS, WEIGHT, COSINE, N_NUMBERS = LOGISTIC_N, FOLDS = 20 };
#define COSINE_ZERO 0.9  /* where the cosine adds nothing */
#define COSINE_UNIT 0.05 /* of the fit: about the spread of what is found near */
#define WEIGHT_MIN 0.05
#define TOP_SHARE 0.1 /* of the pairs that differ: about there lies the threshold */
#define Z_95 1.96
#define BELOW 1e-6 /* a step between scores, for what must stand on one side */

/* Before anything is known: the shipped verifier. The fit's units. */
static const struct logistic_prior shipped = {.mean = {0, 1, 0}, .variance = {4, 1, 4}};

struct model {
    double b[N_NUMBERS];
};

static double cosine_of(double cosine)
{
    return (cosine - COSINE_ZERO) / COSINE_UNIT;
}

static struct logistic_case case_of(const struct calibrate_pair *p, int fold)
{
    return (struct logistic_case){
        .x = {1, logistic_logit(p->verifier), cosine_of(p->cosine)}, .yes = p->right, .fold = fold};
}

static double score(const struct model *m, const struct calibrate_pair *p)
{
    struct logistic_case c = case_of(p, 0);
    return m->b[BIAS] + m->b[WEIGHT] * c.x[WEIGHT] + m->b[COSINE] * c.x[COSINE];
}

bool weighing_is_plain(const struct weighing *w)
{
    return w->bias == 0 && w->weight == 1 && w->cosine == 0;
}

double weighing_probability(const struct weighing *w, double verifier, double cosine)
{
    if (weighing_is_plain(w)) return verifier;
    return logistic_sigmoid(w->bias + w->weight * logistic_logit(verifier) +
                            w->cosine * 100 * (cosine - COSINE_ZERO));
}

/* ---- the fit */
/* Without the pairs of one fold; -1: with all. */
static struct model fit(const struct logistic_case *cases, size_t n, int fold)
{
    bool fixed[N_NUMBERS] = {false, false, false};
    struct model m;
    memcpy(m.b, shipped.mean, sizeof m.b);
    logistic_fit(m.b, fixed, &shipped, cases, n, fold);
    if (m.b[WEIGHT] < WEIGHT_MIN) m.b[WEIGHT] = WEIGHT_MIN, fixed[WEIGHT] = true;
    if (m.b[COSINE] < 0) m.b[COSINE] = 0, fixed[COSINE] = true;
    if (fixed[WEIGHT] || fixed[COSINE]) logistic_fit(m.b, fixed, &shipped, cases, n, fold);
    return m;
}

/* ---- the threshold */
static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Where the pairs that differ come near being served: the mean of the likeliest of them, as a pair. */
static struct calibrate_pair border(const struct model *m, const struct calibrate_pair *pairs,
                                    size_t n, size_t n_wrong, double *room)
{
    size_t count = 0, top = (size_t)(TOP_SHARE * (double)n_wrong);
    double logit = 0, cosine = 0, used = 0;
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].right && !pairs[i].refused) room[count++] = score(m, &pairs[i]);
    if (!count) return (struct calibrate_pair){.verifier = 0.5, .cosine = COSINE_ZERO};
    qsort(room, count, sizeof *room, falling);
    if (top < 3) top = 3;
    if (top > count) top = count;
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].right || pairs[i].refused || score(m, &pairs[i]) < room[top - 1]) continue;
        logit += logistic_logit(pairs[i].verifier);
        cosine += pairs[i].cosine;
        used++;
    }
    return (struct calibrate_pair){.verifier = logistic_sigmoid(logit / used),
                                   .cosine = cosine / used};
}

/* The fold's model on the whole one's scale: equal at the border, and as steep. */
static struct model on_scale_of(const struct model *whole, struct model m,
                                const struct calibrate_pair *at)
{
    double steep = hypot(whole->b[WEIGHT], whole->b[COSINE]) / hypot(m.b[WEIGHT], m.b[COSINE]);
    m.b[WEIGHT] *= steep;
    m.b[COSINE] *= steep;
    m.b[BIAS] += score(whole, at) - score(&m, at);
    return m;
}

/* Of scores[n], falling: m-th highest, m counted from 1 and any number between. What is less is 1 but for its last digit. */
static double rank_at(const double *scores, size_t n, double m)
{
    m = fmax(m, 1);
    size_t i = (size_t)m;
    if (i >= n) return scores[n - 1];
    return scores[i - 1] + (m - (double)i) * (scores[i] - scores[i - 1]);
}

static void cross_fit(const struct model *whole, const struct calibrate_pair *pairs, size_t n,
                      const struct logistic_case *cases, size_t n_cases,
                      const struct calibrate_pair *at, double *scores)
{
    double least = 1e9;
    for (int f = 0; f < FOLDS; f++) {
        struct model m = on_scale_of(whole, fit(cases, n_cases, f), at);
        for (size_t i = (size_t)f; i < n; i += FOLDS) {
            scores[i] = score(&m, &pairs[i]);
            if (!pairs[i].refused && scores[i] < least) least = scores[i];
        }
    }
    for (size_t i = 0; i < n; i++) /* below anything that can be served */
        if (pairs[i].refused) scores[i] = least - BELOW;
}

enum err calibrate(struct calibration *out, const struct calibrate_pair *pairs, size_t n,
                   double max_wrong, struct errmsg *e)
{
    size_t k = 0, n_cases = 0, least = (size_t)ceil(1 / max_wrong) - 1;
    double none;
    *out = (struct calibration){.weighing = {0, 1, 0}, .threshold = 1};
    for (size_t i = 0; i < n; i++)
        pairs[i].right ? out->n_right++ : out->n_wrong++;
    if (out->n_right < CALIBRATE_RIGHT_MIN || out->n_wrong < least || n > CALIBRATE_PAIRS_MAX)
        return err_set(e, ERR_INVALID,
                       "%zu pairs that are the same and %zu that differ: a share of %.3g takes at "
                       "least %d and %zu",
                       out->n_right, out->n_wrong, max_wrong, CALIBRATE_RIGHT_MIN, least);
    double *scores = xcalloc(n, sizeof *scores), *wrong = xcalloc(n, sizeof *wrong);
    struct logistic_case *cases = xcalloc(n, sizeof *cases);
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].refused) cases[n_cases++] = case_of(&pairs[i], (int)(i % FOLDS));
    struct model whole = fit(cases, n_cases, -1);
    struct calibrate_pair at = border(&whole, pairs, n, out->n_wrong, wrong);
    cross_fit(&whole, pairs, n, cases, n_cases, &at, scores);
    mem_free(cases);
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].right) wrong[k++] = scores[i];
    qsort(wrong, k, sizeof *wrong, falling);
    double z = rank_at(wrong, k, max_wrong * (double)(k + 1)) + BELOW / 2;
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].refused && scores[i] > z) pairs[i].right ? out->right++ : out->wrong++;
    mem_free(scores);
    mem_free(wrong);
    out->threshold = fmax(logistic_sigmoid(z), 1e-6);
    out->weighing =
        (struct weighing){whole.b[BIAS], whole.b[WEIGHT], whole.b[COSINE] * 0.01 / COSINE_UNIT};
    wilson((double)out->right, (double)out->n_right, Z_95, &out->share_low, &none);
    wilson((double)out->wrong, (double)out->n_wrong, Z_95, &none, &out->wrong_high);
    return OK;
}

bool calibration_serves(const struct calibration *c, const struct calibrate_pair *p)
{
    return !p->refused &&
           weighing_probability(&c->weighing, p->verifier, p->cosine) >= c->threshold;
}
