/* test_uses.c - goal: each entry's uses are counted apart, and what finds no room is left out. Method: a few ids, then too many. */
#include "cache/uses.h"

#include "tests/check.h"

TEST(uses_are_counted_by_entry_and_bounded)
{
    static struct uses u;
    for (uint64_t i = 0; i < USES_MAX + 50; i++)
        uses_note(&u, (struct hash128){1, i});
    CHECK_INT(u.n, USES_MAX);
    for (int i = 0; i < 3; i++)
        uses_note(&u, (struct hash128){1, 7});
    CHECK_INT(u.times[7], 4);
    uses_note(&u, (struct hash128){2, 7}); /* another id, no room */
    CHECK_INT(u.times[7], 4);
    uses_clear(&u);
    CHECK_INT(u.n, 0);
    uses_note(&u, (struct hash128){2, 7});
    uses_note(&u, (struct hash128){3, 7});
    CHECK_INT(u.n, 2);
}

TEST_MAIN()
