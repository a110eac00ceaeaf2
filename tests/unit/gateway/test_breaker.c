/* Goal: a breaker opens after the stated failures, refuses, lets exactly one probe through, and cannot be stuck. Method: virtual time. */
#include "gateway/breaker.h"
#include "tests/check.h"

static const struct breaker_call nobody;

static struct breaker_call by(uint32_t request, uint32_t tenant, uint32_t model)
{
    return (struct breaker_call){request, tenant, model};
}

static struct breaker closed(int failures_max, int error_percent)
{
    struct breaker b;
    breaker_init(&b, failures_max, 1000);
    b.error_percent = error_percent;
    return b;
}

TEST(closed_breaker_lets_calls_through_and_forgets_failures_after_a_success)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    for (int i = 0; i < 10; i++) {
        CHECK(breaker_allow(&b, 100));
        breaker_failure(&b, nobody, 100);
        CHECK(breaker_allow(&b, 100));
        breaker_failure(&b, nobody, 100);
        breaker_success(&b);
    }
    CHECK(!breaker_is_open(&b));
}

TEST(third_failure_in_a_row_opens_it_for_the_stated_time)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    for (int i = 0; i < 3; i++)
        breaker_failure(&b, nobody, 500);
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
    breaker_failure(&b, nobody, 0);
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
    breaker_failure(&b, nobody, 0);
    breaker_failure(&b, nobody, 0);
    CHECK(breaker_allow(&b, 1500));
    breaker_failure(&b, nobody, 1600);
    CHECK(!breaker_allow(&b, 2599));
    CHECK(breaker_allow(&b, 2600));
}

TEST(probe_that_never_reports_does_not_close_the_door_for_ever)
{
    struct breaker b;
    breaker_init(&b, 1, 1000);
    breaker_failure(&b, nobody, 0);
    CHECK(breaker_allow(&b, 1000));
    CHECK(!breaker_allow(&b, 1500));
    CHECK_INT(breaker_wait_ms(&b, 1500), 500);
    CHECK(breaker_allow(&b, 2000));
    breaker_forget(&b);
    CHECK(breaker_allow(&b, 2001));
}

TEST(half_of_the_answers_being_errors_opens_it_but_not_before_enough_are_known)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    b.error_percent = 50;
    for (int i = 0; i < BREAKER_SAMPLES_MIN - 1; i++)
        breaker_sample(&b, false, nobody, 10);
    CHECK(!breaker_is_open(&b));
    breaker_sample(&b, false, nobody, 10);
    CHECK(breaker_is_open(&b));
    CHECK(!breaker_allow(&b, 1009));
    CHECK(breaker_allow(&b, 1010));
    breaker_success(&b);
    breaker_sample(&b, false, nobody, 1011); /* what was before the pause does not count */
    CHECK(!breaker_is_open(&b));
}

TEST(few_errors_among_many_answers_do_not_open_it)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    b.error_percent = 50;
    for (int i = 0; i < 10000; i++)
        breaker_sample(&b, i % 5 != 0, nobody, 10);
    CHECK(!breaker_is_open(&b));
    b.error_percent = 10;
    for (int i = 0; i < 40; i++)
        breaker_sample(&b, i % 5 != 0, nobody, 10);
    CHECK(breaker_is_open(&b));
}

TEST(error_share_of_zero_is_not_looked_at)
{
    struct breaker b;
    breaker_init(&b, 3, 1000);
    for (int i = 0; i < 100; i++)
        breaker_sample(&b, false, nobody, 10);
    CHECK(!breaker_is_open(&b));
}

TEST(request_that_fails_again_and_again_counts_once)
{
    struct breaker b = closed(3, 50);
    for (int i = 0; i < 100; i++) {
        breaker_failure(&b, by(7, 1, 1), 10);
        breaker_sample(&b, false, by(8, 1, 1), 10);
    }
    CHECK(!breaker_is_open(&b));
    breaker_failure(&b, by(9, 1, 1), 11);
    CHECK(!breaker_is_open(&b));
    breaker_failure(&b, by(10, 1, 1), 12); /* the third that is another one */
    CHECK(breaker_is_open(&b));
}

TEST(connections_that_fail_count_each_time)
{
    struct breaker b = closed(3, 50);
    for (int i = 0; i < 3; i++)
        breaker_failure(&b, nobody, 10);
    CHECK(breaker_is_open(&b));
}

TEST(tenant_whose_requests_all_fail_does_not_shut_out_those_that_are_served)
{
    struct breaker b = closed(3, 50);
    for (uint32_t i = 1; i < 200; i++) { /* four in five are errors, all of tenant 1 */
        breaker_sample(&b, i % 5 == 0, by(i, i % 5 == 0 ? 2 : 1, 1), 10 + i);
        CHECK(!breaker_is_open(&b));
    }
    for (uint32_t i = 1; i < 20; i++)
        breaker_failure(&b, by(1000 + i, 1, 1), 210);
    CHECK(!breaker_is_open(&b));
}

TEST(model_whose_requests_all_fail_does_not_shut_out_the_other_models)
{
    struct breaker b = closed(3, 50);
    for (uint32_t i = 1; i < 200; i++) {
        breaker_sample(&b, i % 4 == 0, by(i, 1, i % 4 == 0 ? 2 : 1), 10 + i);
        CHECK(!breaker_is_open(&b));
    }
}

TEST(target_that_fails_for_everybody_is_left_alone_whoever_asks_most)
{
    for (uint32_t few = 2; few <= 16; few *= 2) {
        struct breaker b = closed(3, 50);
        int until = 0;
        for (uint32_t i = 1; i < 100; i++)
            breaker_sample(&b, true, by(i, i % few ? 1 : 2, 1), 10 + i);
        for (uint32_t i = 1; i < 100 && !breaker_is_open(&b); i++, until++)
            breaker_sample(&b, false, by(1000 + i, i % few ? 1 : 2, 1), 110 + i);
        CHECK(breaker_is_open(&b));
        CHECK(until <= BREAKER_SAMPLES_MAX + 2);
    }
}

TEST(others_who_were_served_long_ago_say_nothing)
{
    struct breaker b = closed(3, 50);
    breaker_sample(&b, true, by(1, 2, 1), 10);
    breaker_success(&b);
    for (uint32_t i = 0; i < 3; i++)
        breaker_failure(&b, by(10 + i, 1, 1), 11 + BREAKER_OTHERS_MS);
    CHECK(breaker_is_open(&b));
}

TEST(answer_in_between_ends_the_row)
{
    struct breaker b = closed(3, 0);
    for (uint32_t i = 0; i < 50; i++) {
        breaker_failure(&b, by(i + 1, 1, 1), i);
        if (i % 2) breaker_success(&b);
    }
    CHECK(!breaker_is_open(&b));
    breaker_failure(&b, by(1, 1, 1), 60); /* it failed before the answer: that row is over */
    breaker_failure(&b, by(2, 1, 1), 60);
    breaker_failure(&b, by(3, 1, 1), 60);
    CHECK(breaker_is_open(&b));
}

TEST(probe_that_is_answered_closes_it_but_does_not_outweigh_calls_that_fail)
{
    struct breaker b = closed(3, 50);
    for (uint32_t i = 1; i <= 3; i++) { /* calls hang while the list of models is told */
        CHECK(!breaker_is_open(&b));
        breaker_failure(&b, by(i, 1, 1), i);
        if (i < 3) breaker_probed(&b);
    }
    CHECK(breaker_is_open(&b));
    breaker_probed(&b);
    CHECK(!breaker_is_open(&b) && breaker_allow(&b, 4));
    for (uint32_t i = 0; i < 20;
         i++) { /* connections that fail now and then are over once one was made */
        breaker_failure(&b, nobody, 10 + i);
        breaker_probed(&b);
    }
    CHECK(!breaker_is_open(&b));
}

TEST_MAIN()
