/* test_limit_local.c - goal: alone, a gateway lets through its share of every limit and no more, all or nothing, and forgets no bucket that
 * matters when there are too many. Method: tables, random use against plain counts (printed seed). */
#include "gateway/limit_local.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

static const double NOW = 1e12;

static struct limit_plan plan(const char *name, enum limit_kind kind, double limit)
{
    struct limit_plan p = {.n = 1};
    snprintf(p.buckets[0].name, sizeof p.buckets[0].name, "%s", name);
    p.buckets[0].limit[kind] = limit;
    return p;
}

static int passed(struct limit_local *l, const struct limit_plan *p, struct limit_amounts a,
                  int gateways)
{
    int n = 0;
    while (n < 1000 && limit_local_reserve(l, p, a, gateways, NOW).allowed)
        n++;
    return n;
}

TEST(a_gateway_lets_its_share_through_and_at_least_one)
{
    static const struct {
        enum limit_kind kind;
        double limit;
        int gateways, passes;
    } t[] = {{LIMIT_REQUESTS_MIN, 10, 1, 10}, {LIMIT_REQUESTS_MIN, 10, 3, 3},
             {LIMIT_REQUESTS_DAY, 2, 5, 1},   {LIMIT_TOKENS_MIN, 1000, 2, 5},
             {LIMIT_CONCURRENCY, 7, 2, 3},    {LIMIT_CONCURRENCY, 1, 9, 1}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct limit_local *l = limit_local_new();
        struct limit_plan p = plan("tenant:a", t[i].kind, t[i].limit);
        CHECK_INT(passed(l, &p, (struct limit_amounts){100, 0}, t[i].gateways), t[i].passes);
        struct limit_verdict v =
            limit_local_reserve(l, &p, (struct limit_amounts){100, 0}, t[i].gateways, NOW);
        CHECK(!v.allowed && v.kind == (int)t[i].kind && v.bucket == 0 && v.retry_ms > 0);
        limit_local_free(l);
    }
}

TEST(one_bucket_that_refuses_leaves_the_others_untouched)
{
    struct limit_local *l = limit_local_new();
    struct limit_plan p = plan("all", LIMIT_REQUESTS_MIN, 10),
                      q = plan("tenant:a", LIMIT_CONCURRENCY, 1);
    p.buckets[1] = q.buckets[0];
    p.n = 2;
    CHECK_INT(passed(l, &p, (struct limit_amounts){1, 0}, 1), 1);
    p.n = 1;
    CHECK_INT(passed(l, &p, (struct limit_amounts){1, 0}, 1), 9);
    limit_local_free(l);
}

TEST(what_redis_allowed_counts_and_what_was_not_used_comes_back)
{
    struct limit_local *l = limit_local_new();
    struct limit_plan p = plan("tenant:a", LIMIT_TOKENS_MIN, 1000);
    struct limit_amounts a = {600, 0}, used = {100, 0};
    limit_local_note(l, &p, a, 1, NOW);
    CHECK(!limit_local_reserve(l, &p, a, 1, NOW).allowed);
    limit_local_settle(l, &p, a, used, 1, NOW);
    struct limit_verdict v = limit_local_reserve(l, &p, a, 1, NOW);
    CHECK(v.allowed && v.tokens.limit == 1000 && v.tokens.left == 300 && v.requests.limit < 0);
    CHECK(v.tokens.full_ms == 42000);
    limit_local_free(l);
}

TEST(of_money_a_gateway_spends_its_share_of_what_was_left)
{
    struct limit_local *l = limit_local_new();
    struct limit_plan p = plan("tenant:a", LIMIT_BUDGET_DAY, 100);
    CHECK_INT(passed(l, &p, (struct limit_amounts){0, 1}, 4),
              1000); /* never told: each up to its share, and told soon */
    limit_local_money(l, &p, 0, 8);
    CHECK_INT(passed(l, &p, (struct limit_amounts){0, 1}, 4), 2);
    limit_local_money(l, &p, 0, 0);
    struct limit_verdict v = limit_local_reserve(l, &p, (struct limit_amounts){0, 0}, 4, NOW);
    CHECK(!v.allowed && v.kind == LIMIT_BUDGET_DAY && v.used == 100);
    limit_local_free(l);
}

TEST(a_shadow_limit_refuses_nothing_and_says_what_it_would)
{
    struct limit_local *l = limit_local_new();
    struct limit_plan p = plan("tenant:a", LIMIT_REQUESTS_MIN, 1);
    p.buckets[0].shadow = true;
    struct limit_amounts a = {1, 0};
    CHECK(limit_local_reserve(l, &p, a, 1, NOW).shadow_kind == -1);
    struct limit_verdict v = limit_local_reserve(l, &p, a, 1, NOW);
    CHECK(v.allowed && v.shadow_kind == LIMIT_REQUESTS_MIN && v.shadow_bucket == 0 &&
          v.requests.limit < 0);
    limit_local_free(l);
}

TEST(with_too_many_buckets_those_that_are_full_or_busy_stay)
{
    struct limit_local *l = limit_local_new();
    struct limit_plan busy = plan("tenant:busy", LIMIT_CONCURRENCY, 1);
    struct limit_amounts a = {1, 0};
    CHECK(limit_local_reserve(l, &busy, a, 1, NOW).allowed);
    for (int i = 0; i < 3 * LIMIT_LOCAL_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "tenant:t%d", i);
        struct limit_plan p = plan(name, LIMIT_REQUESTS_MIN, 1);
        CHECK(limit_local_reserve(l, &p, a, 1, NOW).allowed);
        CHECK(!limit_local_reserve(l, &p, a, 1, NOW).allowed);
        limit_local_settle(l, &p, a, a, 1, NOW);
    }
    CHECK(!limit_local_reserve(l, &busy, a, 1, NOW).allowed);
    limit_local_free(l);
}

TEST(random_use_is_what_a_plain_count_says)
{
    enum { TENANTS = 20 };
    uint64_t seed = rng_entropy();
    struct rng r;
    rng_seed(&r, seed);
    struct limit_local *l = limit_local_new();
    double tokens[TENANTS] = {0};
    int active[TENANTS] = {0}, wrong = 0;
    for (int i = 0; i < 20000; i++) {
        int t = (int)rng_below(&r, TENANTS);
        char name[32];
        snprintf(name, sizeof name, "tenant:%d", t);
        struct limit_plan p = plan(name, LIMIT_TOKENS_MIN, 100000);
        p.buckets[0].limit[LIMIT_CONCURRENCY] = 5;
        struct limit_amounts a = {10, 0}, used = {rng_below(&r, 21), 0};
        if (active[t] && rng_below(&r, 2)) {
            limit_local_settle(l, &p, a, used, 1, NOW);
            tokens[t] += used.tokens - a.tokens;
            active[t]--;
            continue;
        }
        struct limit_verdict v = limit_local_reserve(l, &p, a, 1, NOW);
        bool want = active[t] < 5 && tokens[t] + 10 <= 100000;
        wrong += v.allowed != want;
        if (v.allowed) active[t]++, tokens[t] += 10;
        wrong += v.tokens.left != 100000 - tokens[t];
    }
    CHECK_AT(wrong == 0, "%d wrong, seed %llu", wrong, (unsigned long long)seed);
    limit_local_free(l);
}

TEST_MAIN()
