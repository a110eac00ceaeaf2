/* test_judge_weights.c - goal: a judge counts beside the verifier as much as it has shown to know, a coin nothing, and few pairs prove
 * nothing. Method: simulated judges and verifiers with a known truth (fixed seed). */
#include "gateway/judge_weights.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

enum { PAIRS = 4000 };

static double normal(struct rng *r)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += rng_f64(r);
    return sum;
}

static double of_logit(double z)
{
    return 1 / (1 + exp(-z));
}

/* Each speaks with log odds around +-skill; twice the skill in the truth's favour is what it is worth. */
static struct judge_label *simulate(double judge, double verifier, size_t n)
{
    struct rng r;
    struct judge_label *labels = xcalloc(n, sizeof *labels);
    rng_seed(&r, 11);
    for (size_t i = 0; i < n; i++) {
        labels[i].same = rng_f64(&r) < 0.5;
        double way = labels[i].same ? 1 : -1;
        labels[i].yes = of_logit(way * judge + normal(&r));
        labels[i].verifier = of_logit(way * verifier + normal(&r));
    }
    return labels;
}

TEST(two_that_err_in_different_places_count_as_much_as_they_know)
{
    struct judge_label *labels = simulate(0.5, 1, PAIRS);
    struct judge_weights w = judge_weights_fit(labels, PAIRS);
    CHECK(judge_weights_measured(&w));
    CHECK_NEAR(
        w.bias, 0,
        0.15); /* by the likelihood ratio of two normals: 2 * skill each; fitted +-0.05, times 3 */
    CHECK_NEAR(w.judge, 1, 0.2);
    CHECK_NEAR(w.verifier, 2, 0.3);
    CHECK(judge_weighed(&w, 0.9, 0.9) > 0.99 && judge_weighed(&w, 0.1, 0.1) < 0.01);
    CHECK(judge_weighed(&w, 0.9, 0.1) < 0.5);
    mem_free(labels);
}

TEST(a_coin_counts_next_to_nothing_and_one_that_is_upside_down_nothing)
{
    struct judge_label *labels = simulate(0, 1, PAIRS);
    struct judge_weights w = judge_weights_fit(labels, PAIRS);
    CHECK(w.judge >= 0 && w.judge < 0.15);
    mem_free(labels);
    labels = simulate(-1, 1, PAIRS);
    w = judge_weights_fit(labels, PAIRS);
    CHECK(w.judge == 0);
    CHECK_NEAR(w.verifier, 2, 0.3);
    mem_free(labels);
}

TEST(too_few_of_a_kind_or_no_verifier_measure_nothing)
{
    struct judge_label *labels = simulate(1, 1, 2 * JUDGE_WEIGHED_MIN);
    for (int i = 0; i < 2 * JUDGE_WEIGHED_MIN; i++)
        labels[i].same = i < JUDGE_WEIGHED_MIN;
    struct judge_weights w = judge_weights_fit(labels, 2 * JUDGE_WEIGHED_MIN);
    CHECK(judge_weights_measured(&w));
    labels[0].verifier = -1;
    w = judge_weights_fit(labels, 2 * JUDGE_WEIGHED_MIN);
    CHECK(!judge_weights_measured(&w) && w.bias == 0);
    mem_free(labels);
}

TEST(what_is_said_for_sure_is_bounded)
{
    struct judge_weights w = {0, 1, 1};
    CHECK_NEAR(judge_weighed(&w, 1, 0), 0.5, 1e-12);
    CHECK(judge_weighed(&w, 0.0 / 0.0, 0) < 0.001);
    CHECK(judge_weighed(&w, 1, 1) < 1);
}

TEST_MAIN()
