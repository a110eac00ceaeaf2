/* Goal: what follows a failed try is what docs/upstreams.md says, a Retry-After is read in each of its forms, and retries stay within their
 * budget whatever the traffic. Method: tables; virtual time; a random run against the bound itself. */
#include "base/rng.h"
#include "gateway/retry.h"
#include "tests/check.h"

TEST(statuses_are_retried_as_documented)
{
    static const struct {
        int status;
        enum retry_where where;
        enum retry_verdict verdict;
        bool degrades;
    } cases[] = {
        {200, RETRY_NO, TARGET_WELL, false},       {400, RETRY_NO, TARGET_WELL, false},
        {401, RETRY_NO, TARGET_WELL, false},       {404, RETRY_NO, TARGET_WELL, false},
        {422, RETRY_NO, TARGET_WELL, false},       {408, RETRY_ELSEWHERE, TARGET_WELL, true},
        {429, RETRY_ANYWHERE, TARGET_WELL, true},  {500, RETRY_ELSEWHERE, TARGET_ERRED, true},
        {501, RETRY_NO, TARGET_WELL, false},       {502, RETRY_ELSEWHERE, TARGET_ERRED, true},
        {503, RETRY_ANYWHERE, TARGET_ERRED, true}, {504, RETRY_ELSEWHERE, TARGET_ERRED, true},
        {529, RETRY_ANYWHERE, TARGET_ERRED, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct retry_policy p = retry_of_status(cases[i].status);
        CHECK_AT(p.where == cases[i].where && p.verdict == cases[i].verdict &&
                     p.degrades == cases[i].degrades,
                 "status %d", cases[i].status);
    }
}

TEST(only_a_call_that_was_never_sent_may_go_to_the_same_target_again)
{
    CHECK_INT(retry_of_end(ERR_UNAVAILABLE).where, RETRY_ANYWHERE);
    CHECK_INT(retry_of_end(ERR_TIMEOUT).where, RETRY_ELSEWHERE);
    CHECK_INT(retry_of_end(ERR_CLOSED).where, RETRY_ELSEWHERE);
    CHECK_INT(retry_of_end(ERR_CORRUPT).where, RETRY_ELSEWHERE);
    CHECK_INT(retry_of_end(ERR_INVALID).where, RETRY_NO);
    CHECK_INT(retry_of_end(ERR_INVALID).verdict, TARGET_UNKNOWN);
    CHECK_INT(retry_of_end(ERR_CANCELLED).where, RETRY_NO);
    CHECK(!retry_of_end(ERR_CANCELLED).degrades);
}

TEST(retry_after_is_read_as_seconds_milliseconds_and_date)
{
    static const int64_t now = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *value;
        bool is_ms, good;
        uint64_t ms;
    } cases[] = {{"7", false, true, 7000},
                 {" 0 ", false, true, 0},
                 {"1.5", false, true, 1500},
                 {"250", true, true, 250},
                 {"-3", false, true, 0},
                 {"99999999", false, true, RETRY_AFTER_MAX_MS},
                 {"Sun, 06 Nov 1994 08:49:47 GMT", false, true, 10000},
                 {"Sun, 06 Nov 1994 08:49:07 GMT", false, true, 0},
                 {"Mon, 07 Nov 1994 08:49:37 GMT", false, true, RETRY_AFTER_MAX_MS},
                 {"Sun, 06 Nov 1994 08:49:47 GMT", true, false, 0},
                 {"Sun, 06 Abc 1994 08:49:47 GMT", false, false, 0},
                 {"Sun, 06 Nov 1994 08:49:47 CET", false, false, 0},
                 {"soon", false, false, 0},
                 {"", false, false, 0},
                 {"nan", false, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t ms = 0;
        bool good = retry_after_parse(str_of(cases[i].value), cases[i].is_ms, now, &ms);
        CHECK_AT(good == cases[i].good && ms == cases[i].ms, "\"%s\": %d %llu", cases[i].value,
                 good, (unsigned long long)ms);
    }
}

TEST(leap_days_are_counted)
{
    uint64_t ms;
    CHECK(retry_after_parse(STR("Thu, 29 Feb 2024 00:00:10 GMT"), false, 1709164800, &ms));
    CHECK_INT(ms, 10000);
    CHECK(retry_after_parse(STR("Fri, 01 Mar 2024 00:00:00 GMT"), false, 1709251199, &ms));
    CHECK_INT(ms, 1000);
}

TEST(burst_without_traffic_gets_the_reserve_and_no_more)
{
    struct retry_budget b;
    int taken = 0;
    retry_budget_init(&b, 20, 1000);
    for (int i = 0; i < 100; i++)
        taken += retry_budget_take(&b, 1000);
    CHECK_INT(taken, BUDGET_RESERVE);
    CHECK(!retry_budget_take(&b, 1500));
    CHECK(retry_budget_take(&b, 2001)); /* one a second comes back */
}

TEST(percent_zero_means_no_retries)
{
    struct retry_budget b;
    retry_budget_init(&b, 0, 0);
    retry_budget_request(&b, 10);
    CHECK(!retry_budget_take(&b, 10));
}

TEST(retries_never_pass_their_share_plus_the_small_constant)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng r;
        struct retry_budget b;
        double requests = 0, retries = 0, percent = (double)(seed * 5);
        uint64_t now = 1;
        rng_seed(&r, seed);
        retry_budget_init(&b, percent, now);
        for (int i = 0; i < 20000; i++) {
            now += rng_below(&r, 4);
            if (rng_below(&r, 3))
                retry_budget_request(&b, now), requests++;
            else
                retries += retry_budget_take(&b, now);
            double bound = requests * percent / 100 + BUDGET_RESERVE + (double)now / 1000;
            if (retries > bound + 1e-6) {
                CHECK_AT(false, "seed %llu: %g retries of %g requests", (unsigned long long)seed,
                         retries, requests);
                return;
            }
        }
        CHECK(retries > 0);
    }
}

TEST(clock_that_stands_or_goes_back_gives_nothing)
{
    struct retry_budget b;
    retry_budget_init(&b, 20, 5000);
    while (retry_budget_take(&b, 5000)) {
    }
    CHECK(!retry_budget_take(&b, 4000));
    CHECK(!retry_budget_take(&b, 4500));
}

TEST_MAIN()
