/* bound.c - see bound.h. */
#include "cache/bound.h"

#include <math.h>
#include <string.h>

#define PRIOR_SPREAD 4.0   /* variance of a weight before anything is known */
#define CURVATURE_MIN 0.02 /* of one piece of evidence: the sure ones teach a little too */
#define RECORD_SPREAD 1.0  /* variance of entries' penalties */
#define ERROR_MIN 1e-6
#define MARGIN_MAX 0.5
#define LEVEL_FIRST -8.0 /* logit of the first level's error */
#define LEVELS_PER_UNIT 8.0
#define Z_ONE_SIDED 1.645
#define Z_TWO_SIDED 1.96

void bound_init(struct bound *b)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < BOUND_FEATURES; i++)
        b->spread[i][i] = PRIOR_SPREAD;
}

static double clamp(double v, double min, double max)
{
    return v < min ? min : v > max ? max : v;
}

/* Scales of encoders differ: what counts is the way from the topic floor to equality. */
static void features(const struct bound_view *v, double x[BOUND_FEATURES])
{
    double way = v->floor < 0.999 ? 1 - v->floor : 0.001;
    double near = clamp((v->cosine - v->floor) / way, 0, 1);
    double rival = v->rival > v->floor ? v->rival : v->floor;
    double lead = clamp((v->cosine - rival) / way, -MARGIN_MAX, MARGIN_MAX);
    bool verified = v->verifier >= 0;
    double p = clamp(v->verifier, 1e-3, 1 - 1e-3);
    x[0] = 1;
    x[1] = 4 * near - 2;
    x[2] = 6 * lead;
    x[3] = 2 * clamp(v->agree, 0, 1) - 1;
    x[4] = x[1] * x[2];
    x[5] = verified ? log(p / (1 - p)) / 2 : 0;
    x[6] = v->chinese ? 1 : 0;
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < BOUND_FEATURES; i++)
        sum += a[i] * b[i];
    return sum;
}

static double right_of(double logit)
{
    return 1 / (1 + exp(-clamp(logit, -40, 40)));
}

double bound_error(const struct bound *b, const struct bound_view *v, const struct bound_record *r)
{
    double x[BOUND_FEATURES];
    features(v, x);
    return clamp(1 - right_of(dot(b->weight, x) + (r ? r->penalty : 0)), ERROR_MIN, 1 - ERROR_MIN);
}

static int level_of(double error)
{
    double at = (log(error / (1 - error)) - LEVEL_FIRST) * LEVELS_PER_UNIT;
    return at < 0 ? 0 : at >= BOUND_LEVELS ? BOUND_LEVELS - 1 : (int)at;
}

static double error_above(int level)
{
    return 1 / (1 + exp(-(LEVEL_FIRST + (level + 1) / LEVELS_PER_UNIT)));
}

/* One Newton step of the logistic likelihood (the spread is updated by the matrix inversion lemma). */
static void fit(struct bound *b, const double *x, bool right, double weight)
{
    double p = right_of(dot(b->weight, x)), curvature = p * (1 - p), sx[BOUND_FEATURES];
    if (curvature < CURVATURE_MIN) curvature = CURVATURE_MIN;
    curvature *= weight;
    for (int i = 0; i < BOUND_FEATURES; i++)
        sx[i] = dot(b->spread[i], x);
    double scale = curvature / (1 + curvature * dot(sx, x));
    for (int i = 0; i < BOUND_FEATURES; i++)
        for (int k = 0; k < BOUND_FEATURES; k++)
            b->spread[i][k] -= scale * sx[i] * sx[k];
    double miss = weight * ((right ? 1 : 0) - p);
    for (int i = 0; i < BOUND_FEATURES; i++)
        sx[i] = dot(b->spread[i], x) * miss;
    for (int i = 0; i < BOUND_FEATURES; i++)
        b->weight[i] += sx[i];
}

static void judge_entry(struct bound_record *r, double error, bool right, double weight)
{
    *(right ? &r->right : &r->wrong) += weight;
    double n = r->right + r->wrong;
    double step = RECORD_SPREAD / (1 + RECORD_SPREAD * 0.25 * n);
    r->penalty += weight * step * ((right ? 1 : 0) - (1 - error));
    if (r->penalty > 0) r->penalty = 0;
}

void bound_learn(struct bound *b, const struct bound_view *v, struct bound_record *r, bool right,
                 double weight)
{
    double x[BOUND_FEATURES];
    double error = bound_error(b, v, r);
    weight = clamp(weight, 0, 1);
    features(v, x);
    (right ? b->right : b->wrong)[level_of(error)] += weight;
    b->n += weight;
    if (r) judge_entry(r, error, right, weight);
    fit(b, x, right, weight);
}

void wilson(double wrong, double n, double z, double *low, double *high)
{
    *low = 0;
    *high = 1;
    if (n <= 0) return;
    double p = wrong / n, zz = z * z;
    double middle = p + zz / (2 * n), half = z * sqrt(p * (1 - p) / n + zz / (4 * n * n));
    *low = clamp((middle - half) / (1 + zz / n), 0, 1);
    *high = clamp((middle + half) / (1 + zz / n), 0, 1);
}

struct bound_limit bound_limit(const struct bound *b, double max_error)
{
    struct bound_limit out = {.high = 1};
    double n = 0, wrong = 0, low, high;
    for (int i = 0; i < BOUND_LEVELS - 1; i++) {
        n += b->right[i] + b->wrong[i];
        wrong += b->wrong[i];
        wilson(wrong, n, Z_ONE_SIDED, &low, &high);
        if (high > max_error) continue;
        out.error = error_above(i);
        out.n = n;
        out.wrong = wrong;
    }
    wilson(out.wrong, out.n, Z_TWO_SIDED, &out.low, &out.high);
    out.share = b->n > 0 ? out.n / b->n : 0;
    return out;
}
