/* Goal: a gateway believes that it is alone only while it has good reason to. Method: virtual time. */
#include "gateway/flight_others.h"
#include "tests/check.h"

enum { FRESH = 11000 };

TEST(who_has_not_been_told_yet_is_not_alone)
{
    struct flight_others o = {0};
    CHECK(!flight_others_none(&o, 5, FRESH));
}

TEST(first_answer_does_not_make_alone_and_the_second_does)
{
    struct flight_others o = {0};
    flight_others_told(&o, 0, false,
                       1000); /* new there: others may not have beaten since Redis forgot them */
    CHECK(!flight_others_none(&o, 1001, FRESH));
    flight_others_told(&o, 0, true, 6000);
    CHECK(flight_others_none(&o, 6001, FRESH));
}

TEST(another_one_that_speaks_up_or_beats_ends_it)
{
    struct flight_others o = {0};
    flight_others_told(&o, 0, true, 1000);
    flight_others_heard(&o);
    CHECK(!flight_others_none(&o, 1001, FRESH));
    flight_others_told(&o, 2, true, 6000);
    CHECK(!flight_others_none(&o, 6001, FRESH));
    flight_others_heard(&o);
    CHECK_INT(o.n, 2);
    flight_others_told(&o, 0, true, 11000); /* they are gone */
    CHECK(flight_others_none(&o, 11001, FRESH));
}

TEST(old_answer_is_worth_nothing)
{
    struct flight_others o = {0};
    flight_others_told(&o, 0, true, 0);
    CHECK(flight_others_none(&o, FRESH, FRESH));
    CHECK(!flight_others_none(&o, FRESH + 2, FRESH));
}

TEST_MAIN()
