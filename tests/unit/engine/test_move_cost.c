/* Goal: one slow move does not keep blocks from being moved for good, and a steady cost is what is measured. */
#include "engine/move_cost.h"
#include "tests/check.h"

TEST(what_is_measured_is_followed_slowly)
{
    struct move_cost c = move_cost_of(4096);
    CHECK(c.us == 0 && c.least > 0.2 && c.least < 0.21);
    move_cost_told(&c, 10);
    CHECK(c.us == 10);
    move_cost_told(&c, 30);
    CHECK(c.us > 11.9 && c.us < 12.1);
    for (int i = 0; i < 100; i++)
        move_cost_told(&c, 20);
    CHECK(c.us > 19.9 && c.us < 20.1);
}

TEST(a_cost_that_keeps_all_from_being_moved_is_forgotten_down_to_what_memory_can_do)
{
    struct move_cost c = move_cost_of(4096);
    move_cost_untried(&c);
    CHECK(c.us == 0);
    move_cost_told(&c, 50000);
    int steps = 0;
    while (c.us > 50 && ++steps < 100000)
        move_cost_untried(&c);
    CHECK_AT(steps > 1000 && steps < 2000, "%d", steps);
    for (int i = 0; i < 100000; i++)
        move_cost_untried(&c);
    CHECK(c.us >= c.least && c.us < 1.01 * c.least);
}

TEST_MAIN()
