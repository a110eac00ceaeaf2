/* calibrate.c - see calibrate.h. */
#include "cache/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cache/bound.h"

enum { BIAS, WEIGHT, COSINE, N_NUMBERS, FOLDS = 20, STEPS = 50, HALVINGS = 14 };
#define LOGIT_MAX 6.0
#define COSINE_ZERO 0.9  /* where the cosine adds nothing */
#define COSINE_UNIT 0.05 /* of the fit: about the spread of what is found near */
#define WEIGHT_MIN 0.05
#define TOP_SHARE 0.1 /* of the pairs that differ: about there lies the threshold */
#define Z_95 1.96
#define BELOW 1e-6 /* a step between scores, for what must stand on one side */

/* Variance of the numbers before anything is known, the fit's units; their mean is the shipped verifier. */
static const double spread[N_NUMBERS] = {4, 1, 4}, shipped[N_NUMBERS] = {0, 1, 0};

struct model {
    double b[N_NUMBERS];
};

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double logit_of(double p)
{
    if (p <= 0) return -LOGIT_MAX;
    if (p >= 1) return LOGIT_MAX;
    double z = log(p / (1 - p));
    return z < -LOGIT_MAX ? -LOGIT_MAX : z > LOGIT_MAX ? LOGIT_MAX : z;
}

static double cosine_of(double cosine)
{
    return (cosine - COSINE_ZERO) / COSINE_UNIT;
}

static double score(const struct model *m, const struct calibrate_pair *p)
{
    return m->b[BIAS] + m->b[WEIGHT] * logit_of(p->verifier) + m->b[COSINE] * cosine_of(p->cosine);
}

bool weighing_is_plain(const struct weighing *w)
{
    return w->bias == 0 && w->weight == 1 && w->cosine == 0;
}

double weighing_probability(const struct weighing *w, double verifier, double cosine)
{
    if (weighing_is_plain(w)) return verifier;
    return sigmoid(w->bias + w->weight * logit_of(verifier) +
                   w->cosine * 100 * (cosine - COSINE_ZERO));
}

/* ---- the fit: penalised likelihood, Newton's steps, each halved until it is one downhill */

/* Is the pair part of what the model without this fold is fitted on? */
static bool is_used(const struct calibrate_pair *p, size_t i, int fold)
{
    return !p->refused && (fold < 0 || i % FOLDS != (size_t)fold);
}

static double loss(const struct model *m, const struct calibrate_pair *pairs, size_t n, int fold)
{
    double sum = 0;
    for (int k = 0; k < N_NUMBERS; k++)
        sum += (m->b[k] - shipped[k]) * (m->b[k] - shipped[k]) / spread[k] / 2;
    for (size_t i = 0; i < n; i++) {
        if (!is_used(&pairs[i], i, fold)) continue;
        double z = score(m, &pairs[i]);
        sum += (z > 0 ? z : 0) + log1p(exp(-fabs(z))) - (pairs[i].right ? z : 0);
    }
    return sum;
}

/* x = h^-1 g, by elimination; h is positive definite. Numbers not free stay 0. */
static void solve(double h[N_NUMBERS][N_NUMBERS], double g[N_NUMBERS], const bool *is_free)
{
    for (int k = 0; k < N_NUMBERS; k++)
        for (int j = 0; j < N_NUMBERS && !is_free[k]; j++)
            h[k][j] = h[j][k] = k == j, g[k] = 0;
    for (int k = 0; k < N_NUMBERS; k++)
        for (int i = k + 1; i < N_NUMBERS; i++) {
            double f = h[i][k] / h[k][k];
            for (int j = k; j < N_NUMBERS; j++)
                h[i][j] -= f * h[k][j];
            g[i] -= f * g[k];
        }
    for (int k = N_NUMBERS - 1; k >= 0; k--) {
        for (int j = k + 1; j < N_NUMBERS; j++)
            g[k] -= h[k][j] * g[j];
        g[k] /= h[k][k];
    }
}

static void direction(const struct model *m, const struct calibrate_pair *pairs, size_t n, int fold,
                      const bool *is_free, double step[N_NUMBERS])
{
    double h[N_NUMBERS][N_NUMBERS] = {{0}};
    for (int k = 0; k < N_NUMBERS; k++) {
        h[k][k] = 1 / spread[k];
        step[k] = (shipped[k] - m->b[k]) / spread[k];
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_used(&pairs[i], i, fold)) continue;
        const double x[N_NUMBERS] = {1, logit_of(pairs[i].verifier), cosine_of(pairs[i].cosine)};
        double p = sigmoid(score(m, &pairs[i])), curvature = p * (1 - p);
        for (int k = 0; k < N_NUMBERS; k++) {
            step[k] += ((pairs[i].right ? 1 : 0) - p) * x[k];
            for (int j = 0; j < N_NUMBERS; j++)
                h[k][j] += curvature * x[k] * x[j];
        }
    }
    solve(h, step, is_free);
}

static struct model descend(struct model m, const struct calibrate_pair *pairs, size_t n, int fold,
                            const bool *is_free)
{
    double now = loss(&m, pairs, n, fold);
    for (int i = 0; i < STEPS; i++) {
        double step[N_NUMBERS], size = 1, then = now;
        struct model next = m;
        direction(&m, pairs, n, fold, is_free, step);
        for (int k = 0; k < HALVINGS; k++, size /= 2) {
            for (int j = 0; j < N_NUMBERS; j++)
                next.b[j] = m.b[j] + size * step[j];
            if ((then = loss(&next, pairs, n, fold)) <= now) break;
        }
        if (then > now - 1e-9) break;
        m = next;
        now = then;
    }
    return m;
}

/* Without the pairs of one fold; -1: with all. */
static struct model fit(const struct calibrate_pair *pairs, size_t n, int fold)
{
    bool is_free[N_NUMBERS] = {true, true, true};
    struct model m = {{shipped[BIAS], shipped[WEIGHT], shipped[COSINE]}};
    m = descend(m, pairs, n, fold, is_free);
    if (m.b[WEIGHT] < WEIGHT_MIN) m.b[WEIGHT] = WEIGHT_MIN, is_free[WEIGHT] = false;
    if (m.b[COSINE] < 0) m.b[COSINE] = 0, is_free[COSINE] = false;
    return is_free[WEIGHT] && is_free[COSINE] ? m : descend(m, pairs, n, fold, is_free);
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
        logit += logit_of(pairs[i].verifier);
        cosine += pairs[i].cosine;
        used++;
    }
    return (struct calibrate_pair){.verifier = sigmoid(logit / used), .cosine = cosine / used};
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
                      const struct calibrate_pair *at, double *scores)
{
    double least = 1e9;
    for (int f = 0; f < FOLDS; f++) {
        struct model m = on_scale_of(whole, fit(pairs, n, f), at);
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
    size_t k = 0, least = (size_t)ceil(1 / max_wrong) - 1;
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
    struct model whole = fit(pairs, n, -1);
    struct calibrate_pair at = border(&whole, pairs, n, out->n_wrong, wrong);
    cross_fit(&whole, pairs, n, &at, scores);
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].right) wrong[k++] = scores[i];
    qsort(wrong, k, sizeof *wrong, falling);
    double z = rank_at(wrong, k, max_wrong * (double)(k + 1)) + BELOW / 2;
    for (size_t i = 0; i < n; i++)
        if (!pairs[i].refused && scores[i] > z) pairs[i].right ? out->right++ : out->wrong++;
    mem_free(scores);
    mem_free(wrong);
    out->threshold = fmax(sigmoid(z), 1e-6);
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
