/* Goal: the bound follows what an upstream bears. Method: hand-made situations, and a server that takes 20 at a time. */
#include "gateway/slots.h"
#include "tests/check.h"

TEST(without_a_word_of_too_much_there_is_no_bound)
{
    struct slots s = {0};
    for (int i = 0; i < 1000; i++)
        slots_success(&s, i);
    CHECK_INT(slots_bound(&s), 0);
}

TEST(a_known_number_holds_whatever_happens)
{
    struct slots s = {.fixed = 8};
    slots_overload(&s, 8, 1, 2);
    CHECK_INT(slots_bound(&s), 8);
}

TEST(too_much_cuts_to_seven_tenths_once_a_round_and_never_below_one)
{
    struct slots s = {0};
    slots_overload(&s, 100, 4900, 5000);
    CHECK_INT(slots_bound(&s), 70);
    slots_overload(&s, 90, 4990, 5100); /* begun before the cut */
    CHECK_INT(slots_bound(&s), 70);
    slots_overload(&s, 70, 5050, 5200);
    CHECK_INT(slots_bound(&s), 49);
    for (uint64_t t = 8000; t < 60000; t += 1000)
        slots_overload(&s, 1, t, t + 10);
    CHECK_INT(slots_bound(&s), 1);
}

TEST(successes_at_the_bound_raise_it_by_one_a_round)
{
    struct slots s = {.learnt = 10};
    for (int i = 0; i < 11; i++)
        slots_success(&s, 10);
    CHECK_INT(slots_bound(&s), 11);
    for (int i = 0; i < 100; i++)
        slots_success(&s, 3); /* not at the bound: says nothing */
    CHECK_INT(slots_bound(&s), 11);
}

TEST(it_settles_near_what_a_server_takes)
{
    enum { TAKES = 20 };
    struct slots s = {0};
    double sum = 0;
    int n = 0;
    for (uint64_t round = 0; round < 400;
         round++) { /* a round: as many at once as allowed, of 64 */
        uint64_t now = 1000 + round * 1100;
        int at_work = slots_bound(&s) ? slots_bound(&s) : 64;
        for (int i = 0; i < at_work; i++)
            if (i < TAKES)
                slots_success(&s, at_work);
            else
                slots_overload(&s, at_work, now, now + 10);
        if (round < 100) continue;
        sum += slots_bound(&s);
        n++;
    }
    CHECK(sum / n > 0.75 * TAKES && sum / n < 1.1 * TAKES);
}

TEST_MAIN()
