/* test_logistic.c - goal: the fit finds the weights that made the cases, stays at the prior where nothing is known, and leaves alone what
 * is fixed or left out. Method: simulated cases of known weights (fixed seed); the loss' gradient, written out anew, is zero at the end. */
#include "cache/logistic.h"

#include <math.h>

#include "base/rng.h"
#include "tests/check.h"

enum { N = 4000 };
static const struct logistic_prior prior = {.mean = {0, 1, 0}, .variance = {4, 1, 4}};
static const bool none_fixed[LOGISTIC_N];

static void simulate(struct logistic_case *cases, const double b[LOGISTIC_N])
{
    struct rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < N; i++) {
        struct logistic_case *c = &cases[i];
        *c = (struct logistic_case){.x = {1, 4 * rng_f64(&r) - 2, 4 * rng_f64(&r) - 2},
                                    .fold = i % 5};
        c->yes = rng_f64(&r) < 1 / (1 + exp(-(b[0] + b[1] * c->x[1] + b[2] * c->x[2])));
    }
}

static double slope(const double b[LOGISTIC_N], int k, const struct logistic_case *cases, size_t n)
{
    double sum = (b[k] - prior.mean[k]) / prior.variance[k];
    for (size_t i = 0; i < n; i++) {
        const double *x = cases[i].x;
        sum += (1 / (1 + exp(-(b[0] + b[1] * x[1] + b[2] * x[2]))) - cases[i].yes) * x[k];
    }
    return sum;
}

TEST(the_weights_that_made_the_cases_are_found)
{
    static struct logistic_case cases[N];
    const double truth[LOGISTIC_N] = {-0.5, 1.5, 0.7};
    double b[LOGISTIC_N] = {0, 1, 0};
    simulate(cases, truth);
    logistic_fit(b, none_fixed, &prior, cases, N, -1);
    for (int k = 0; k < LOGISTIC_N; k++) {
        CHECK_NEAR(b[k], truth[k], 0.2); /* standard errors are 0.04 to 0.06 */
        CHECK_NEAR(slope(b, k, cases, N), 0, 1e-2);
    }
}

TEST(without_cases_the_prior_stands)
{
    double b[LOGISTIC_N] = {3, -2, 5};
    logistic_fit(b, none_fixed, &prior, NULL, 0, -1);
    for (int k = 0; k < LOGISTIC_N; k++)
        CHECK_NEAR(b[k], prior.mean[k], 1e-4);
}

TEST(what_is_fixed_stays_and_a_fold_is_left_out)
{
    static struct logistic_case cases[N], rest[N];
    double b[LOGISTIC_N] = {0, 1, 0}, of_rest[LOGISTIC_N] = {0, 1, 0};
    size_t n = 0;
    simulate(cases, (double[]){0, 1, 2});
    for (int i = 0; i < N; i++)
        if (cases[i].fold != 3) rest[n++] = cases[i];
    logistic_fit(b, none_fixed, &prior, cases, N, 3);
    logistic_fit(of_rest, none_fixed, &prior, rest, n, -1);
    for (int k = 0; k < LOGISTIC_N; k++)
        CHECK(b[k] == of_rest[k]);
    b[2] = 0.25;
    logistic_fit(b, (bool[]){false, false, true}, &prior, cases, N, -1);
    CHECK(b[2] == 0.25);
    CHECK_NEAR(slope(b, 1, cases, N), 0, 1e-2);
}

TEST(log_odds_are_bounded)
{
    CHECK_NEAR(logistic_sigmoid(logistic_logit(0.3)), 0.3, 1e-12);
    CHECK(logistic_logit(0) == -LOGISTIC_LOGIT_MAX && logistic_logit(1) == LOGISTIC_LOGIT_MAX);
    CHECK(logistic_logit(1e-30) == -LOGISTIC_LOGIT_MAX &&
          logistic_logit(NAN) == -LOGISTIC_LOGIT_MAX);
}

TEST_MAIN()
