/* test_calibrate.c - goal: from a namespace's own judged pairs more is served than at any threshold of the shipped verifier, and of other
 * pairs drawn alike no more of those that differ than was asked for. Method: made namespaces whose truth is known: some where likeness
 * tells more than the verifier, some where the verifier is right as it is; many draws, since one says little of a share of 2 %. */
#include "cache/calibrate.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check.h"

enum { OWN = 300, REST = 700, DRAWS = 60 };

struct
    place { /* how far same and different pairs lie apart, in spreads, by what the verifier says and by the vectors */
    double verifier, cosine, refused;
};

static double gauss(struct rng *r)
{
    return sqrt(-2 * log(rng_f64(r) + 1e-12)) * cos(6.283185307 * rng_f64(r));
}

static void draw(struct rng *r, const struct place *p, struct calibrate_pair *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool right = rng_below(r, 2);
        double z = -1 + gauss(r) + (right ? p->verifier : 0);
        double cosine = 0.92 + 0.02 * (gauss(r) + (right ? p->cosine : 0));
        out[i] = (struct calibrate_pair){1 / (1 + exp(-z)), cosine < 1 ? cosine : 1,
                                         rng_f64(r) < p->refused, right};
    }
}

struct shares {
    double right, wrong, threshold_alone;
};

/* Of the rest; threshold_alone: what the plain verifier serves at the threshold that suits the rest best at 2 % wrong. */
static struct shares judge(const struct calibration *c, const struct calibrate_pair *p, size_t n)
{
    size_t served[2] = {0, 0}, count[2] = {0, 0};
    struct shares s = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        count[p[i].right]++;
        served[p[i].right] += calibration_serves(c, &p[i]);
    }
    for (double t = 0; t < 1; t += 0.005) {
        size_t at[2] = {0, 0};
        for (size_t i = 0; i < n; i++)
            at[p[i].right] += !p[i].refused && p[i].verifier >= t;
        double right = (double)at[1] / (double)count[1];
        if ((double)at[0] <= 0.02 * (double)count[0] && right > s.threshold_alone)
            s.threshold_alone = right;
    }
    s.right = (double)served[1] / (double)count[1];
    s.wrong = (double)served[0] / (double)count[0];
    return s;
}

static struct shares mean_of(const struct place *p, uint64_t seed)
{
    static struct calibrate_pair pairs[OWN + REST];
    struct shares sum = {0, 0, 0};
    struct errmsg e = {0};
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < DRAWS; i++) {
        struct calibration c;
        draw(&r, p, pairs, OWN + REST);
        if (calibrate(&c, pairs, OWN, 0.02, &e) != OK) {
            CHECK_AT(false, "%s", e.text);
            continue;
        }
        struct shares s = judge(&c, pairs + OWN, REST);
        sum.right += s.right / DRAWS;
        sum.wrong += s.wrong / DRAWS;
        sum.threshold_alone += s.threshold_alone / DRAWS;
    }
    return sum;
}

TEST(what_is_learnt_serves_more_and_no_more_wrong_than_was_asked_for)
{
    static const struct {
        struct place place;
        double more; /* served than by a threshold alone, at the least */
    } rows[] = {{{1.0, 2.0, 0.05}, 0.25},
                {{1.5, 1.5, 0.0}, 0.08},
                {{0.3, 2.0, 0.2}, 0.25},
                {{2.0, 0.0, 0.1}, -0.1},
                {{2.5, 0.5, 0.0}, -0.08}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct shares s = mean_of(&rows[i].place, 17 + i);
        printf("    place %zu: right %.3f (threshold alone %.3f), wrong %.4f\n", i, s.right,
               s.threshold_alone, s.wrong);
        CHECK_AT(s.wrong < 0.0235, "place %zu: wrong %.4f", i,
                 s.wrong); /* 2 %, and 2 sigma of 60 draws */
        CHECK_AT(s.right > s.threshold_alone + rows[i].more, "place %zu: %.3f against %.3f", i,
                 s.right, s.threshold_alone);
    }
}

TEST(what_is_refused_is_never_served_and_neither_weight_is_negative)
{
    static struct calibrate_pair pairs[OWN];
    struct calibration c;
    struct rng r;
    rng_seed(&r, 5);
    draw(&r, &(struct place){-1.5, -1.5, 0.1}, pairs, OWN); /* both say the contrary of the truth */
    REQUIRE(calibrate(&c, pairs, OWN, 0.02, NULL) == OK);
    CHECK(c.weighing.weight > 0 && c.weighing.cosine >= 0);
    CHECK(c.right < c.n_right / 10);
    for (int i = 0; i < OWN; i++)
        if (pairs[i].refused) CHECK(!calibration_serves(&c, &pairs[i]));
    struct calibrate_pair sure = {1, 1, true, true};
    CHECK(!calibration_serves(&c, &sure));
}

TEST(too_few_pairs_are_refused_with_what_it_takes)
{
    static struct calibrate_pair pairs[OWN];
    struct calibration c;
    struct errmsg e = {0};
    struct rng r;
    rng_seed(&r, 6);
    draw(&r, &(struct place){1, 1, 0}, pairs, OWN);
    CHECK(calibrate(&c, pairs, 40, 0.02, &e) == ERR_INVALID);
    CHECK(str_find(str_of(e.text), STR("and 49")) > 0);
    CHECK(!calibration_serves(&c, &pairs[0]) || pairs[0].verifier >= 1);
    CHECK(calibrate(&c, pairs, OWN, 0.005, &e) == ERR_INVALID);
    CHECK(calibrate(&c, pairs, OWN, 0.02, &e) == OK);
}

/* 1/161 of 161 is a little less than 1 in floating point. */
TEST(the_fewest_pairs_a_share_takes_are_enough_whatever_its_last_digit)
{
    static const size_t sizes[] = {161, 187};
    static struct calibrate_pair pairs[OWN];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct calibration c;
        struct errmsg e = {0};
        struct rng r;
        size_t n = sizes[s] - 1 + CALIBRATE_RIGHT_MIN;
        rng_seed(&r, 9);
        draw(&r, &(struct place){1, 1, 0}, pairs, n);
        for (size_t i = 0; i < n; i++)
            pairs[i].right = i < CALIBRATE_RIGHT_MIN;
        REQUIRE(calibrate(&c, pairs, n, 1.0 / (double)sizes[s], &e) == OK);
        CHECK_INT(c.wrong, 0); /* none of them lies above the likeliest */
    }
}

TEST(the_same_pairs_give_the_same_numbers_and_ties_and_extremes_are_finite)
{
    static struct calibrate_pair pairs[OWN];
    struct calibration c, again;
    for (int i = 0; i < OWN; i++)
        pairs[i] = (struct calibrate_pair){i % 2, i % 3 ? 1 : -1, false, i % 4 < 2};
    REQUIRE(calibrate(&c, pairs, OWN, 0.02, NULL) == OK);
    REQUIRE(calibrate(&again, pairs, OWN, 0.02, NULL) == OK);
    CHECK(!memcmp(&c, &again, sizeof c));
    CHECK(isfinite(c.weighing.bias) && isfinite(c.weighing.weight) && isfinite(c.weighing.cosine));
    CHECK(c.threshold > 0 && c.threshold <= 1);
    for (int i = 0; i < OWN; i++)
        pairs[i].refused =
            !pairs[i].right; /* nothing that differs can be served: all the rest is */
    REQUIRE(calibrate(&c, pairs, OWN, 0.02, NULL) == OK);
    CHECK_INT(c.wrong, 0);
    CHECK_INT(c.right, c.n_right);
}

TEST(a_plain_weighing_is_the_verifier_as_it_is)
{
    const struct weighing plain = {0, 1, 0}, w = {-1, 0.5, 0.4};
    for (double p = 0; p <= 1; p += 0.01)
        CHECK(weighing_probability(&plain, p, 0.3) == p);
    CHECK(weighing_is_plain(&plain) && !weighing_is_plain(&w));
    CHECK_NEAR(weighing_probability(&w, 0.5, 0.95), 1 / (1 + exp(-1.0)), 1e-12);
    CHECK(weighing_probability(&w, 0.9, 0.95) > weighing_probability(&w, 0.8, 0.95));
    CHECK(weighing_probability(&w, 0.9, 0.96) > weighing_probability(&w, 0.9, 0.95));
    CHECK(weighing_probability(&w, 0, 1) > 0 && weighing_probability(&w, 1, 1) < 1);
}

TEST_MAIN()
