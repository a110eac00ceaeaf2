/* Goal: calls spread by weight, load and what a target holds; a target that was away does not catch up. Method: simulated calls. */
#include "gateway/pick.h"
#include "gateway/route_score.h"
#include "tests/check.h"

static int pick(struct pick_target *t, int n, double *passed)
{
    int i = pick_best(t, n, false, 0, *passed);
    if (i >= 0) t[i].pass = pick_taken(&t[i], passed);
    return i;
}

TEST(nobody_allowed_means_nobody)
{
    struct pick_target t[2] = {{.weight = 1}, {.weight = 1}};
    CHECK_INT(pick_best(t, 2, false, 0, 0), -1);
    CHECK_INT(pick_best(t, 0, false, 0, 0), -1);
}

TEST(one_call_at_a_time_spreads_exactly_by_weight)
{
    struct pick_target t[3] = {{.allowed = true, .weight = 3},
                               {.allowed = true, .weight = 1},
                               {.allowed = true, .weight = 2}};
    int got[3] = {0};
    double passed = 0;
    for (int i = 0; i < 600; i++)
        got[pick(t, 3, &passed)]++;
    CHECK(got[0] >= 298 && got[0] <= 302);
    CHECK(got[1] >= 98 && got[1] <= 102);
    CHECK(got[2] >= 198 && got[2] <= 202);
}

TEST(many_calls_at_once_spread_by_weight_too)
{
    struct pick_target t[2] = {{.allowed = true, .weight = 4}, {.allowed = true, .weight = 1}};
    double passed = 0;
    for (int i = 0; i < 100; i++)
        t[pick(t, 2, &passed)].inflight++;
    CHECK_INT(t[0].inflight, 80);
    CHECK_INT(t[1].inflight, 20);
}

TEST(busy_target_is_spared)
{
    struct pick_target t[2] = {{.allowed = true, .weight = 1, .inflight = 5},
                               {.allowed = true, .weight = 1}};
    double passed = 0;
    for (int i = 0; i < 5; i++)
        CHECK_INT(pick(t, 2, &passed), 1);
}

TEST(target_that_comes_back_does_not_catch_up)
{
    struct pick_target t[2] = {{.allowed = true, .weight = 1}, {.allowed = false, .weight = 1}};
    double passed = 0;
    for (int i = 0; i < 1000; i++)
        CHECK_INT(pick(t, 2, &passed), 0);
    t[1].allowed = true;
    int in_a_row = 0;
    while (pick(t, 2, &passed) == 1)
        in_a_row++;
    CHECK(in_a_row <= 2);
}

TEST(what_a_target_holds_counts_against_its_load)
{
    struct pick_target t[2] = {{.allowed = true, .weight = 1, .matched = 0.9},
                               {.allowed = true, .weight = 1, .matched = 0.1}};
    CHECK_INT(pick_best(t, 2, true, 1, 0), 0);
    t[0].inflight = 40;
    CHECK_INT(pick_best(t, 2, true, 1, 0), 1);
    CHECK_INT(pick_best(t, 2, true, 0, 0), 0); /* load is told not to count */
    t[0].inflight = 0;
    t[0].work = 100; /* next to nothing was asked of anybody lately: what is held decides */
    CHECK_INT(pick_best(t, 2, true, 1, 0), 0);
    t[0].work = 40000;
    CHECK_INT(pick_best(t, 2, true, 1, 0), 1);
    CHECK_INT(pick_best(t, 2, false, 1, 0), 0); /* where prompts are not known, nor is their work */
}

TEST(work_fades_to_a_half_in_ten_seconds)
{
    CHECK_NEAR(route_fade(1000, 10000), 500, 1e-6);
    CHECK_NEAR(route_fade(1000, 0), 1000, 0);
    CHECK(route_fade(1000, 3600000) < 1e-6);
}

TEST_MAIN()
