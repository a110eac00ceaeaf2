/* test_alone.c - goal: helpers are left out while waiting for them costs much of the time, tried again, and trusted again once they do
 * not. Method: made-up times. */
#include "engine/backend/alone.h"

#include "tests/check.h"

/* Jobs of own_us each followed by a wait, from *now on, for us; true when the caller was told to work alone. */
static bool jobs(struct alone *a, uint64_t *now, uint64_t us, uint64_t own_us, uint64_t waited_us)
{
    for (uint64_t end = *now + us; *now < end;) {
        *now += own_us + waited_us;
        alone_note(a, *now, own_us, waited_us);
        if (alone_now(a, *now)) return true;
    }
    return false;
}

TEST(short_or_even_waits_never_send_the_helpers_away)
{
    struct alone a = {0};
    uint64_t now = 1000000;
    CHECK(!jobs(&a, &now, 1000000, 20, ALONE_WAIT_US - 1));
    CHECK(!jobs(&a, &now, 1000000, 5000, 4000)); /* long tasks, unevenly shared */
}

TEST(long_waits_for_short_work_do)
{
    struct alone a = {0};
    uint64_t now = 1000000, from = now;
    CHECK(jobs(&a, &now, 1000000, 50, 3000));
    CHECK(now - from <= ALONE_WINDOW_US); /* soon */
    CHECK(alone_now(&a, now + ALONE_SPAN_US - 1));
    CHECK(!alone_now(&a, now + ALONE_SPAN_US));
}

TEST(now_and_then_a_long_wait_is_borne)
{
    struct alone a = {0};
    uint64_t now = 1000000;
    for (int i = 0; i < 200; i++) {
        CHECK(!jobs(&a, &now, ALONE_WINDOW_US, 50, 0));
        CHECK(!jobs(&a, &now, 1, 50, 2000));
    }
}

TEST(spans_double_while_trying_turns_out_badly_up_to_a_bound_and_are_forgotten_after_a_good_window)
{
    struct alone a = {0};
    uint64_t now = 1000000, span = ALONE_SPAN_US;
    for (int i = 0; i < 10; i++) {
        CHECK(jobs(&a, &now, 1000000, 50, 3000));
        CHECK_INT(a.until_us - now, span);
        now = a.until_us;
        span = 2 * span < ALONE_SPAN_MAX_US ? 2 * span : ALONE_SPAN_MAX_US;
    }
    CHECK(!jobs(&a, &now, 3 * ALONE_WINDOW_US, 50, 0));
    CHECK(jobs(&a, &now, 1000000, 50, 3000));
    CHECK_INT(a.until_us - now, ALONE_SPAN_US);
}

TEST_MAIN()
