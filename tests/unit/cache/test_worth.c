/* test_worth.c - goal: what saves more, is used more or takes less stays longer, and nothing stays for ever unused. Method: comparisons. */
#include "cache/worth.h"

#include "tests/check.h"

TEST(dearer_more_used_and_smaller_ranks_higher)
{
    double base = worth_rank(5, 1, worth_saved(100, 1000), 2000);
    CHECK(worth_rank(5, 1, worth_saved(200, 1000), 2000) > base);
    CHECK(worth_rank(5, 1, worth_saved(100, 2000), 2000) > base);
    CHECK(worth_rank(5, 2, worth_saved(100, 1000), 2000) > base);
    CHECK(worth_rank(5, 1, worth_saved(100, 1000), 4000) < base);
    CHECK(worth_rank(6, 1, worth_saved(100, 1000), 2000) > base);
}

TEST(what_is_not_known_counts_as_little_and_what_is_absurd_is_bounded)
{
    CHECK(worth_saved(0, 0) > 0 && worth_saved(0, 0) < worth_saved(100, 1000));
    CHECK(worth_saved(INT64_MAX, INT64_MAX) == worth_saved(100000, 600000));
    CHECK(worth_rank(0, UINT32_MAX, 1, 1) == worth_rank(0, WORTH_USES_MAX, 1, 1));
    CHECK(worth_rank(0, 1, 1, 0) == 1);
}

TEST_MAIN()
