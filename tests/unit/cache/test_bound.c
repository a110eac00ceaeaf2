/* test_bound.c - goal: on streams whose truth is known the share of wrong answers among those served stays under the bound that was
 * asked for, whatever the stream looks like, and much more is served than any single cosine threshold could serve at the same error;
 * an entry that proves wrong must be surer than others. Method: made streams: entries are topics with a spread of their own, some
 * lie close to a neighbour with another answer; what is served is learnt of once in twenty times, as with shadow samples. */
#include "cache/bound.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/check.h"

enum { TOPICS = 80, ASKED = 20000, STEPS = 400 };

struct stream { /* where the truth lies, known to the test alone */
    double spread[TOPICS], gap[TOPICS], share_near;
};
struct ask {
    int topic;
    struct bound_view v;
    bool right;
};

static double gauss(struct rng *r)
{
    return sqrt(-2 * log(rng_f64(r) + 1e-12)) * cos(6.283185307 * rng_f64(r));
}

static void make_stream(struct rng *r, struct stream *s, double share_near)
{
    s->share_near = share_near;
    for (int i = 0; i < TOPICS; i++) {
        s->spread[i] = 0.02 + 0.10 * rng_f64(r);
        s->gap[i] = 0.03 + 0.30 * rng_f64(r);
    }
}

/* A question belongs to its topic, or to the neighbour: then it lies behind the gap. */
static struct ask ask_one(struct rng *r, const struct stream *s)
{
    struct ask a = {.topic = (int)rng_below(r, TOPICS)};
    double spread = s->spread[a.topic], gap = s->gap[a.topic];
    bool neighbour = rng_f64(r) < s->share_near;
    double own = fabs(gauss(r)) * spread, other = gap + gauss(r) * spread / 2;
    if (neighbour) own = gap + fabs(gauss(r)) * spread, other = fabs(gauss(r)) * spread;
    a.v = (struct bound_view){.cosine = 1 - own,
                              .floor = 0.35,
                              .rival = rng_below(r, 3) ? 1 - fabs(other) : -1,
                              .agree = neighbour ? rng_f64(r) * 0.6 : 0.3 + rng_f64(r) * 0.7,
                              .verifier = -1};
    a.right = !neighbour;
    return a;
}

struct tally {
    double served, wrong;
};

static struct tally run_bound(uint64_t seed, const struct stream *s, double max_error)
{
    static struct bound_record records[TOPICS];
    struct bound b;
    struct rng r;
    struct tally t = {0, 0};
    rng_seed(&r, seed);
    memset(records, 0, sizeof records);
    bound_init(&b);
    for (int i = 0; i < ASKED; i++) {
        struct ask a = ask_one(&r, s);
        bool serve = bound_error(&b, &a.v, &records[a.topic]) < bound_limit(&b, max_error).error;
        t.served += serve;
        t.wrong += serve && !a.right;
        if (!serve || rng_below(&r, 20) == 0) bound_learn(&b, &a.v, &records[a.topic], a.right, 1);
    }
    return t;
}

/* The most any one threshold serves with at most this share of wrong ones, chosen with the whole stream known. */
static double best_threshold(uint64_t seed, const struct stream *s, double error)
{
    static double served[STEPS + 1], wrong[STEPS + 1];
    struct rng r;
    double best = 0;
    rng_seed(&r, seed);
    memset(served, 0, sizeof served);
    memset(wrong, 0, sizeof wrong);
    for (int i = 0; i < ASKED; i++) {
        struct ask a = ask_one(&r, s);
        int at = (int)(a.v.cosine * STEPS);
        if (at < 0) at = 0;
        served[at]++;
        wrong[at] += !a.right;
    }
    for (int i = STEPS - 1; i >= 0; i--) {
        served[i] += served[i + 1];
        wrong[i] += wrong[i + 1];
        if (served[i] > best && wrong[i] <= error * served[i]) best = served[i];
    }
    return best;
}

TEST(the_share_of_wrong_answers_stays_under_the_bound_and_more_is_served_than_by_any_threshold)
{
    const double bounds[] = {0.01, 0.02, 0.05}, near[] = {0.1, 0.3, 0.5};
    int over = 0, runs = 0;
    double ours = 0, theirs = 0;
    for (uint64_t seed = 1; seed <= 4; seed++)
        for (int n = 0; n < 3; n++)
            for (int e = 0; e < 3; e++) {
                struct stream s;
                struct rng r;
                rng_seed(&r, seed * 77);
                make_stream(&r, &s, near[n]);
                struct tally t = run_bound(seed, &s, bounds[e]);
                double error = t.served > 0 ? t.wrong / t.served : 0;
                CHECK_AT(error <= bounds[e], "seed %d near %.1f bound %.2f: %.4f of %.0f",
                         (int)seed, near[n], bounds[e], error, t.served);
                over += error > bounds[e];
                runs++;
                ours += t.served;
                theirs += best_threshold(seed, &s, error);
            }
    printf("    %d runs, %d over the bound; served %.2f times what the best threshold serves\n",
           runs, over, ours / theirs);
    CHECK(ours > 1.2 * theirs);
}

TEST(nothing_is_served_before_enough_is_known)
{
    struct bound b;
    struct bound_view sure = {0.99, 0.35, -1, 1, -1, false};
    bound_init(&b);
    CHECK_NEAR(bound_limit(&b, 0.5).error, 0, 0);
    for (int i = 0; i < 200; i++)
        bound_learn(&b, &sure, NULL, true, 1);
    CHECK_NEAR(bound_limit(&b, 0.01).error, 0, 0); /* 200 without an error do not prove 1 % */
    CHECK(bound_error(&b, &sure, NULL) < bound_limit(&b, 0.05).error);
    for (int i = 0; i < 200; i++)
        bound_learn(&b, &sure, NULL, true, 1);
    struct bound_limit l = bound_limit(&b, 0.01);
    CHECK(bound_error(&b, &sure, NULL) < l.error && l.n > 250 && l.wrong == 0 && l.high < 0.02);
}

TEST(wrong_answers_close_the_limit_again)
{
    struct bound b;
    struct bound_view v = {0.95, 0.35, 0.7, 0.8, -1, false};
    bound_init(&b);
    for (int i = 0; i < 400; i++)
        bound_learn(&b, &v, NULL, true, 1);
    CHECK(bound_error(&b, &v, NULL) < bound_limit(&b, 0.02).error);
    for (int i = 0; i < 40; i++)
        bound_learn(&b, &v, NULL, false, 1);
    CHECK(bound_error(&b, &v, NULL) > bound_limit(&b, 0.02).error);
}

TEST(an_entry_that_proves_wrong_must_be_surer_and_right_ones_earn_no_bonus)
{
    struct bound b;
    struct bound_view v = {0.9, 0.35, 0.6, 0.6, -1, false};
    struct bound_record bad = {0}, good = {0};
    struct rng r;
    rng_seed(&r, 5);
    bound_init(&b);
    for (int i = 0; i < 300; i++)
        bound_learn(&b, &v, NULL, rng_below(&r, 10) > 0, 1);
    double before = bound_error(&b, &v, NULL);
    for (int i = 0; i < 3; i++) {
        bound_learn(&b, &v, &bad, false, 1);
        bound_learn(&b, &v, &good, true, 1);
    }
    CHECK(bad.penalty < -0.5 && good.penalty == 0 && bad.wrong == 3 && good.right == 3);
    CHECK(bound_error(&b, &v, &bad) > 1.5 * before);
}

TEST(a_verifier_that_knows_is_believed)
{
    struct bound b;
    struct rng r;
    rng_seed(&r, 6);
    bound_init(&b);
    for (int i = 0; i < 3000; i++) {
        bool right = rng_below(&r, 2);
        struct bound_view v = {0.9,
                               0.35,
                               0.8,
                               0.5,
                               right ? 0.8 + rng_f64(&r) * 0.19 : rng_f64(&r) * 0.3,
                               rng_below(&r, 2)};
        bound_learn(&b, &v, NULL, right, 1);
    }
    struct bound_view yes = {0.9, 0.35, 0.8, 0.5, 0.97, false}, no = yes;
    no.verifier = 0.1;
    CHECK(bound_error(&b, &yes, NULL) < 0.05 && bound_error(&b, &no, NULL) > 0.9);
}

TEST(the_interval_is_wilsons)
{
    double low, high;
    wilson(0, 100, 1.96, &low, &high);
    CHECK_NEAR(low, 0, 1e-9);
    CHECK_NEAR(high, 0.0370, 1e-4);
    wilson(10, 50, 1.96, &low, &high);
    CHECK_NEAR(low, 0.1124, 1e-4);
    CHECK_NEAR(high, 0.3304, 1e-4);
    wilson(0, 0, 1.96, &low, &high);
    CHECK(low == 0 && high == 1);
}

TEST(odd_measures_give_a_likelihood_all_the_same)
{
    struct bound b;
    struct rng r;
    rng_seed(&r, 9);
    bound_init(&b);
    for (int i = 0; i < 5000; i++) {
        struct bound_view v = {rng_f64(&r) * 4 - 2, rng_f64(&r) * 1.2,   rng_f64(&r) * 3 - 1,
                               rng_f64(&r) * 3 - 1, rng_f64(&r) * 2 - 1, rng_below(&r, 2)};
        double e = bound_error(&b, &v, NULL);
        CHECK(e > 0 && e < 1);
        bound_learn(&b, &v, NULL, rng_below(&r, 2), rng_f64(&r) * 2);
    }
}

TEST_MAIN()
