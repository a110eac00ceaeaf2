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

TEST(a_client_can_only_tighten)
{
    struct policy p = asked_for(0.9);
    struct guard_verdict v = {.allowed = true, .language = 'e'},
                         same = {.allowed = true, .same = true, .language = 'e'};
    CHECK(policy_decide(&p, &v, 0.91, 0).hit && !policy_decide(&p, &v, 0.89, 0).hit);
    CHECK(policy_decide(&p, &v, 0.91, 0.5).hit && !policy_decide(&p, &v, 0.89, 0.5).hit);
    CHECK(!policy_decide(&p, &v, 0.91, 0.95).hit);
    CHECK(policy_decide(&p, &same, 0.85, 0).hit && !policy_decide(&p, &same, 0.85, 0.95).hit);
    CHECK_Z(policy_decide(&p, &same, 0.85, 0).reason, "semantic:same");
    CHECK_Z(policy_decide(&p, &v, 0.91, 0).reason, "semantic:policy");
    CHECK_Z(policy_decide(&p, &v, 0.89, 0).reason, "below_threshold");
    CHECK_Z(policy_decide(&p, &v, 0.1, 0).reason, "below_floor");
}

TEST_MAIN()
