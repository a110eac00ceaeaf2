/* test_policy.c - goal: thresholds belong to an embedder and a language, the operator's replaces them, the client's only tightens. */
#include "cache/policy.h"

#include "tests/check.h"

static struct policy asked_for(double threshold)
{
    struct policy shipped = policy_for(STR("multilingual-e5-small"));
    struct cache_knobs k = knobs_default();
    k.threshold_en = k.threshold_zh = threshold;
    return policy_with(&shipped, &k);
}

TEST(each_embedder_has_thresholds_of_its_own_and_an_unknown_one_strict_ones)
{
    struct policy e5 = policy_for(STR("multilingual-e5-small-q4-6c18")),
                  mini = policy_for(STR("all-MiniLM-L6-v2-f57a")),
                  other = policy_for(STR("who-knows"));
    CHECK(e5.threshold[0] > mini.threshold[0] && other.threshold[0] > e5.threshold[0]);
    CHECK(mini.threshold[1] > 1); /* reads no Chinese */
    struct policy asked = asked_for(0.7);
    CHECK_NEAR(asked.threshold[0], 0.7, 1e-9);
    CHECK(asked.floor <= 0.7);
}

static struct policy_decision decide(const struct policy *p, double cosine, double verifier,
                                     double client_min)
{
    struct policy_view v = {cosine, verifier, 'e', client_min};
    return policy_decide(p, &v);
}

TEST(a_client_can_only_tighten)
{
    struct policy p = asked_for(0.9);
    CHECK(decide(&p, 0.91, -1, 0).hit && !decide(&p, 0.89, -1, 0).hit);
    CHECK(decide(&p, 0.91, -1, 0.5).hit && !decide(&p, 0.89, -1, 0.5).hit);
    CHECK(!decide(&p, 0.91, -1, 0.95).hit);
    CHECK_Z(decide(&p, 0.91, -1, 0).reason, "semantic:policy");
    CHECK_Z(decide(&p, 0.89, -1, 0).reason, "below_threshold");
    CHECK_Z(decide(&p, 0.1, -1, 0).reason, "below_floor");
}

TEST(a_verifier_decides_above_the_topic_floor_and_thresholds_that_were_named_stay)
{
    struct policy p = policy_for(STR("multilingual-e5-small"));
    CHECK(!decide(&p, 0.99, 0.9, 0).hit); /* it has not said yet what is enough */
    p.verifier[0] = 0.8;
    CHECK(decide(&p, 0.85, 0.9, 0).hit && decide(&p, 0.85, 0.9, 0).by_verifier);
    CHECK_Z(decide(&p, 0.85, 0.9, 0).reason, "semantic:verifier");
    CHECK_Z(decide(&p, 0.99, 0.7, 0).reason, "verifier");
    CHECK_NEAR(decide(&p, 0.99, 0.7, 0).threshold, 0.8, 1e-9);
    CHECK_Z(decide(&p, 0.7, 0.9, 0).reason, "below_floor");
    CHECK_Z(decide(&p, 0.85, 0.9, 0.9).reason, "below_threshold"); /* the client's wish */
    struct policy named = asked_for(0.9);
    named.verifier[0] = 0.8;
    CHECK_Z(decide(&named, 0.85, 0.9, 0).reason, "below_threshold");
    CHECK(decide(&named, 0.95, 0.9, 0).hit && !decide(&named, 0.95, 0.7, 0).hit);
}

TEST_MAIN()
