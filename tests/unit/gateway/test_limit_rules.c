/* test_limit_rules.c - goal: each bucket has the limits of its own scope, the narrower before the wider, and nothing is limited where
 * nothing was set. Method: tables of settings and of what must hold for a request. */
#include "gateway/limit_rules.h"

#include "base/mem.h"
#include "tests/check.h"

static struct limit_rules *rules(const char *const (*t)[3])
{
    struct limit_rules *r = limit_rules_new();
    for (; (*t)[0]; t++)
        CHECK_AT(limit_rules_add(r, str_of((*t)[0]), (*t)[1], strtod((*t)[2], NULL)), "%s %s",
                 (*t)[0], (*t)[1]);
    limit_rules_finish(r);
    return r;
}

static const char *const settings[][3] = {
    {"tenant:acme", "limit_tokens_per_min", "500"},
    {"global", "limit_tokens_per_min", "100"},
    {"global", "limit_requests_per_day", "1000"},
    {"model:big", "limit_concurrency", "2"},
    {"tenant:acme/model:big", "limit_concurrency", "8"},
    {"tenant:acme/model:big", "limit_budget_day", "12.5"},
    {"all/model:org/m:7b", "limit_tokens_per_min", "9000"},
    {"all", "limit_requests_per_min", "60"},
    {"tenant:vip", "limit_tokens_per_min", "0"},
    {"tenant:vip", "limit_requests_per_day", "0"},
    {"tenant:acme", "limit_requests_per_min", "7"}, /* apart from its like */
    {"model:big", "price_prompt", "3"},
    {"global", "price_prompt", "1"},
    {"global", "price_completion", "2"},
    {"tenant:acme", "limit_hit_tokens", "1"},
    {"model:big", "limit_answer_tokens", "50"},
    {"tenant:acme", "limit_shadow", "1"},
    {"all", "limit_shadow", "0"},
    {NULL, NULL, NULL}};

TEST(every_bucket_has_the_limits_of_its_own_scope)
{
    struct limit_rules *r = rules(settings);
    struct limit_plan p;
    CHECK(limit_rules_any(r));
    REQUIRE(limit_rules_plan(r, STR("acme"), STR("big"), &p));
    REQUIRE(p.n == 3);
    CHECK_Z(p.buckets[0].name, "tenant:acme");
    CHECK(p.buckets[0].limit[LIMIT_TOKENS_MIN] == 500 &&
          p.buckets[0].limit[LIMIT_REQUESTS_DAY] == 1000 &&
          p.buckets[0].limit[LIMIT_REQUESTS_MIN] == 7 &&
          p.buckets[0].limit[LIMIT_CONCURRENCY] == 0);
    CHECK_Z(p.buckets[1].name, "tenant:acme/model:big");
    CHECK(p.buckets[1].limit[LIMIT_CONCURRENCY] == 8 &&
          p.buckets[1].limit[LIMIT_BUDGET_DAY] == 12.5 &&
          p.buckets[1].limit[LIMIT_TOKENS_MIN] == 0);
    CHECK_Z(p.buckets[2].name, "all");
    CHECK(p.buckets[0].shadow && p.buckets[1].shadow && !p.buckets[2].shadow);
    CHECK(p.tokens && p.money && p.hit_tokens && p.answer_tokens == 50);
    CHECK(p.price_prompt == 3 && p.price_completion == 2);
    limit_rules_free(r);
}

TEST(a_tenant_without_settings_goes_by_the_global_ones_and_a_zero_lifts_them)
{
    struct limit_rules *r = rules(settings);
    struct limit_plan p;
    REQUIRE(limit_rules_plan(r, STR("other"), STR("org/m:7b"), &p));
    REQUIRE(p.n == 3);
    CHECK_Z(p.buckets[0].name, "tenant:other");
    CHECK(p.buckets[0].limit[LIMIT_TOKENS_MIN] == 100 && !p.buckets[0].shadow);
    CHECK_Z(p.buckets[2].name, "all/model:org/m:7b");
    CHECK(!p.money && p.answer_tokens == 1024 && p.price_prompt == 1 && !p.hit_tokens);
    REQUIRE(limit_rules_plan(r, STR("vip"), STR("m"), &p));
    CHECK(p.n == 1 && !p.tokens); /* all */
    limit_rules_free(r);
}

TEST(without_a_model_only_what_holds_for_all_models_is_asked)
{
    struct limit_rules *r = rules(settings);
    struct limit_plan p;
    REQUIRE(limit_rules_plan(r, STR("acme"), STR(""), &p));
    CHECK(p.n == 2);
    char longest[400];
    memset(longest, 'm', sizeof longest);
    REQUIRE(limit_rules_plan(r, STR("acme"), (struct str){longest, sizeof longest}, &p));
    CHECK(p.n == 2);
    limit_rules_free(r);
}

TEST(where_nothing_is_set_nothing_is_limited)
{
    static const char *const none[][3] = {{NULL, NULL, NULL}};
    static const char *const prices[][3] = {{"global", "price_prompt", "3"},
                                            {"tenant:a", "limit_shadow", "1"},
                                            {"tenant:a", "limit_concurrency", "0"},
                                            {NULL, NULL, NULL}};
    struct limit_plan p;
    struct limit_rules *r = rules(none);
    CHECK(!limit_rules_any(r) && !limit_rules_plan(r, STR("a"), STR("m"), &p));
    limit_rules_free(r);
    r = rules(prices);
    CHECK(!limit_rules_any(r) && !limit_rules_plan(r, STR("a"), STR("m"), &p));
    CHECK(!limit_rules_add(r, STR("ns:faq"), "limit_concurrency", 1));
    CHECK(!limit_rules_add(r, STR("global"), "ttl_s", 1));
    CHECK(!limit_rules_add(r, STR(""), "limit_concurrency", 1));
    limit_rules_free(r);
}

TEST(a_model_has_the_prices_set_for_it_alone)
{
    struct limit_rules *r = rules(settings);
    struct limit_price big = limit_rules_price(r, STR("big")),
                       other = limit_rules_price(r, STR("x"));
    CHECK(big.prompt == 3 && big.completion == -1);
    CHECK(other.prompt == -1 && other.completion == -1);
    CHECK(limit_rules_price(r, STR("")).prompt == -1);
    limit_rules_free(r);
    r = limit_rules_new();
    limit_rules_finish(r);
    CHECK(limit_rules_price(r, STR("big")).prompt == -1);
    limit_rules_free(r);
}

TEST_MAIN()
