/* Goal: a breaker opens after the stated failures, refuses, lets exactly one probe through, and cannot be stuck. Method: virtual time. */
#include "gateway/breaker.h"
#include "tests/check.h"

TEST(closed_breaker_lets_calls_through_and_forgets_failures_after_a_success)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    for (int i = 0; i < 10; i++) {
        CHECK(breaker_allow(&b, 100));
        breaker_failure(&b, 100);
        CHECK(breaker_allow(&b, 100));
        breaker_failure(&b, 100);
        breaker_success(&b);
    }
    CHECK(!breaker_is_open(&b));
}

TEST(third_failure_in_a_row_opens_it_for_the_stated_time)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    for (int i = 0; i < 3; i++)
        breaker_failure(&b, 500);
    CHECK(breaker_is_open(&b));
    CHECK(!breaker_allow(&b, 500));
    CHECK(!breaker_allow(&b, 1499));
    CHECK_INT(breaker_wait_ms(&b, 600), 900);
    CHECK_INT(breaker_wait_ms(&b, 1500), 0);
}

TEST(half_open_lets_exactly_one_probe_through)
{
    struct breaker b;
    breaker_init(&b, 1, 1000);
    breaker_failure(&b, 0);
    int passed = 0;
    for (int i = 0; i < 50; i++)
        passed += breaker_allow(&b, 1001);
    CHECK_INT(passed, 1);
    breaker_success(&b);
    CHECK(breaker_allow(&b, 1002));
    CHECK(breaker_allow(&b, 1002));
}

TEST(failed_probe_opens_it_again_from_that_moment)
{
    struct breaker b;
    breaker_init(&b, 2, 1000);
    breaker_failure(&b, 0);
    breaker_failure(&b, 0);
    CHECK(breaker_allow(&b, 1500));
    breaker_failure(&b, 1600);
    CHECK(!breaker_allow(&b, 2599));
    CHECK(breaker_allow(&b, 2600));
}

TEST(probe_that_never_reports_does_not_close_the_door_for_ever)
{
    struct breaker b;
    breaker_init(&b, 1, 1000);
    breaker_failure(&b, 0);
    CHECK(breaker_allow(&b, 1000));
    CHECK(!breaker_allow(&b, 1500));
    CHECK_INT(breaker_wait_ms(&b, 1500), 500);
    CHECK(breaker_allow(&b, 2000));
    breaker_forget(&b);
    CHECK(breaker_allow(&b, 2001));
}

TEST_MAIN()
