/* test_lru.c - goal: the list has what was pushed and not removed, in the order of pushing, both ways. Method: random pushes, removals and
 * renewed uses against an array of times. */
#include "base/lru.h"
#include "base/rng.h"
#include "tests/check.h"

enum { THINGS = 12 };

struct thing {
    struct lru_link use;
    int pushed; /* 0 = not on the list */
};

static void agrees(const struct lru *l, const struct thing *all)
{
    int on = 0, newest_first = 0, oldest_first = 0, last = 1 << 30;
    for (int i = 0; i < THINGS; i++)
        on += all[i].pushed != 0;
    for (const struct lru_link *x = l->newest; x && newest_first <= THINGS; x = x->older) {
        CHECK(((const struct thing *)x)->pushed < last);
        last = ((const struct thing *)x)->pushed;
        newest_first++;
    }
    for (const struct lru_link *x = l->oldest; x && oldest_first <= THINGS; x = x->newer)
        oldest_first++;
    CHECK_INT(newest_first, on);
    CHECK_INT(oldest_first, on);
}

TEST(order_is_that_of_the_last_use)
{
    struct thing all[THINGS] = {0};
    struct lru l = {0};
    struct rng r;
    rng_seed(&r, 3);
    for (int step = 1; step < 5000 && !check_failures; step++) {
        struct thing *x = &all[rng_below(&r, THINGS)];
        if (x->pushed) lru_remove(&l, &x->use);
        x->pushed = rng_below(&r, 2) ? step : 0;
        if (x->pushed) lru_push(&l, &x->use);
        agrees(&l, all);
    }
}

TEST_MAIN()
