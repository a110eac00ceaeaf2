/* judge_weights.c - see judge_weights.h. Newton's method on three numbers, each step halved until it gains. */
#include "gateway/judge_weights.h"

#include <math.h>
#include <string.h>

enum { N = 3, STEPS_MAX = 60, HALVINGS_MAX = 30 };
static const double logit_max = 6, prior[N] = {0, 0, 1}, spread[N] = {4, 1, 1};

struct model {
    double b[N];
    bool fixed[N]; /* at 0 */
};

static double logit_of(double p)
{
    if (!(p > 0)) return -logit_max;
    if (p >= 1) return logit_max;
    double z = log(p / (1 - p));
    return z < -logit_max ? -logit_max : z > logit_max ? logit_max : z;
}

static double score(const double b[N], double yes, double verifier)
{
    return b[0] + b[1] * logit_of(yes) + b[2] * logit_of(verifier);
}

bool judge_weights_measured(const struct judge_weights *w)
{
    return w->judge > 0 || w->verifier > 0;
}

double judge_weighed(const struct judge_weights *w, double yes, double verifier)
{
    const double b[N] = {w->bias, w->judge, w->verifier};
    return 1 / (1 + exp(-score(b, yes, verifier)));
}

static double loss(const double b[N], const struct judge_label *l, size_t n)
{
    double sum = 0;
    for (int k = 0; k < N; k++)
        sum += (b[k] - prior[k]) * (b[k] - prior[k]) / (2 * spread[k] * spread[k]);
    for (size_t i = 0; i < n; i++) {
        if (l[i].verifier < 0) continue;
        double z = score(b, l[i].yes, l[i].verifier) * (l[i].same ? -1 : 1);
        sum += z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
    }
    return sum;
}

/* x of h x = g; h is symmetric and positive, so no pivots are wanted. */
static void solve(double h[N][N], const double g[N], double x[N])
{
    memcpy(x, g, N * sizeof *x);
    for (int k = 0; k < N; k++)
        for (int r = k + 1; r < N; r++) {
            double f = h[r][k] / h[k][k];
            for (int c = k; c < N; c++)
                h[r][c] -= f * h[k][c];
            x[r] -= f * x[k];
        }
    for (int k = N - 1; k >= 0; k--) {
        for (int c = k + 1; c < N; c++)
            x[k] -= h[k][c] * x[c];
        x[k] /= h[k][k];
    }
}

static void direction(const struct model *m, const struct judge_label *l, size_t n, double x[N])
{
    double h[N][N] = {{0}}, g[N];
    for (int k = 0; k < N; k++) {
        h[k][k] = 1 / (spread[k] * spread[k]);
        g[k] = (prior[k] - m->b[k]) * h[k][k];
    }
    for (size_t i = 0; i < n; i++) {
        if (l[i].verifier < 0) continue;
        double at[N] = {1, logit_of(l[i].yes), logit_of(l[i].verifier)};
        double p = 1 / (1 + exp(-score(m->b, l[i].yes, l[i].verifier)));
        for (int r = 0; r < N; r++) {
            g[r] += at[r] * (l[i].same - p);
            for (int c = 0; c < N; c++)
                h[r][c] += at[r] * at[c] * p * (1 - p);
        }
    }
    for (int k = 0; k < N; k++) {
        if (!m->fixed[k]) continue;
        for (int c = 0; c < N; c++)
            h[k][c] = h[c][k] = c == k;
        g[k] = 0;
    }
    solve(h, g, x);
}

static void descend(struct model *m, const struct judge_label *l, size_t n)
{
    for (int step = 0; step < STEPS_MAX; step++) {
        double x[N], b[N], length = 1, now = loss(m->b, l, n);
        direction(m, l, n, x);
        for (int half = 0; half < HALVINGS_MAX; half++, length /= 2) {
            for (int k = 0; k < N; k++)
                b[k] = m->b[k] + length * x[k];
            if (loss(b, l, n) < now) break;
        }
        if (!(loss(b, l, n) < now)) return;
        memcpy(m->b, b, sizeof b);
    }
}

struct judge_weights judge_weights_fit(const struct judge_label *labels, size_t n)
{
    size_t of[2] = {0, 0};
    for (size_t i = 0; i < n; i++)
        if (labels[i].verifier >= 0) of[labels[i].same]++;
    if (of[0] < JUDGE_WEIGHED_MIN || of[1] < JUDGE_WEIGHED_MIN) return (struct judge_weights){0};
    struct model m = {.b = {0, 0, 1}};
    descend(&m, labels, n);
    for (int k = 1; k < N; k++)
        if (m.b[k] < 0) {
            m.b[k] = 0;
            m.fixed[k] = true;
            descend(&m, labels, n);
        }
    return (struct judge_weights){m.b[0], m.b[1], m.b[2]};
}
