/* logistic.c - see logistic.h. */
#include "cache/logistic.h"

#include <math.h>
#include <string.h>

enum { N = LOGISTIC_N, STEPS = 50, HALVINGS = 14 };
#define GAIN_MIN 1e-9

double logistic_sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

double logistic_logit(double p)
{
    if (!(p > 0)) return -LOGISTIC_LOGIT_MAX;
    if (p >= 1) return LOGISTIC_LOGIT_MAX;
    return fmin(fmax(log(p / (1 - p)), -LOGISTIC_LOGIT_MAX), LOGISTIC_LOGIT_MAX);
}

static double score(const double b[N], const double x[N])
{
    return b[0] * x[0] + b[1] * x[1] + b[2] * x[2];
}

static double loss(const double b[N], const struct logistic_prior *prior,
                   const struct logistic_case *cases, size_t n, int without)
{
    double sum = 0;
    for (int k = 0; k < N; k++)
        sum += (b[k] - prior->mean[k]) * (b[k] - prior->mean[k]) / prior->variance[k] / 2;
    for (size_t i = 0; i < n; i++) {
        if (cases[i].fold == without) continue;
        double z = score(b, cases[i].x);
        sum += (z > 0 ? z : 0) + log1p(exp(-fabs(z))) - (cases[i].yes ? z : 0);
    }
    return sum;
}

/* x = h^-1 x, by elimination; h is positive definite, so no pivots are wanted. */
static void solve(double h[N][N], double x[N])
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            double f = h[i][k] / h[k][k];
            for (int j = k; j < N; j++)
                h[i][j] -= f * h[k][j];
            x[i] -= f * x[k];
        }
    for (int k = N - 1; k >= 0; k--) {
        for (int j = k + 1; j < N; j++)
            x[k] -= h[k][j] * x[j];
        x[k] /= h[k][k];
    }
}

static void direction(const double b[N], const bool fixed[N], const struct logistic_prior *prior,
                      const struct logistic_case *cases, size_t n, int without, double step[N])
{
    double h[N][N] = {{0}};
    for (int k = 0; k < N; k++) {
        h[k][k] = 1 / prior->variance[k];
        step[k] = (prior->mean[k] - b[k]) / prior->variance[k];
    }
    for (size_t i = 0; i < n; i++) {
        if (cases[i].fold == without) continue;
        const double *x = cases[i].x;
        double p = logistic_sigmoid(score(b, x)), curvature = p * (1 - p);
        for (int k = 0; k < N; k++) {
            step[k] += (cases[i].yes - p) * x[k];
            for (int j = 0; j < N; j++)
                h[k][j] += curvature * x[k] * x[j];
        }
    }
    for (int k = 0; k < N; k++)
        for (int j = 0; j < N && fixed[k]; j++)
            h[k][j] = h[j][k] = k == j, step[k] = 0;
    solve(h, step);
}

void logistic_fit(double b[N], const bool fixed[N], const struct logistic_prior *prior,
                  const struct logistic_case *cases, size_t n, int without)
{
    double now = loss(b, prior, cases, n, without);
    for (int i = 0; i < STEPS; i++) {
        double step[N], next[N], size = 1, then = now;
        direction(b, fixed, prior, cases, n, without, step);
        for (int k = 0; k < HALVINGS; k++, size /= 2) {
            for (int j = 0; j < N; j++)
                next[j] = b[j] + size * step[j];
            if ((then = loss(next, prior, cases, n, without)) <= now) break;
        }
        if (then > now - GAIN_MIN) return;
        memcpy(b, next, sizeof next);
        now = then;
    }
}
