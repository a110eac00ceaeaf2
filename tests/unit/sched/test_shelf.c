/* Goal: a shelf finds exactly what was entered and not yet given away, gives away the longest unused first, and never what is pinned.
 * Method: random operations against a naive array with a clock. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/shelf.h"
#include "tests/check.h"

enum { SLOTS = 9, BT = 2, NAMES = 14 };

struct naive {
    int name; /* -1 = empty */
    int pins;
    long used; /* when it became unused */
};

static struct prefix_cache *chain;
static int32_t tokens[NAMES][BT];

static struct block_name name_of(int i)
{
    struct hash128 parent = prefix_cache_start(chain, &(struct prefix_scope){.salt = {0, 0}});
    return (struct block_name){prefix_cache_chain(chain, parent, tokens[i]), parent, tokens[i]};
}

static int naive_take(struct naive *o)
{
    int best = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (o[i].pins) continue;
        if (best < 0 || (o[i].name < 0) > (o[best].name < 0) ||
            ((o[i].name < 0) == (o[best].name < 0) && o[i].used < o[best].used))
            best = i;
    }
    return best;
}

static void one_op(struct rng *r, struct shelf *s, struct naive *o, long now)
{
    int n = (int)rng_below(r, NAMES), at = -1;
    struct block_name name = name_of(n), back;
    for (int i = 0; i < SLOTS; i++)
        if (o[i].name == n) at = i;
    REQUIRE(shelf_find(s, &name) == at);
    switch (rng_below(r, 5)) {
    case 0: {
        int want = naive_take(o);
        bool empty = want >= 0 && o[want].name < 0;
        shelf_slot got = shelf_take(s);
        /* which of several empty slots is nobody's business */
        CHECK_AT(empty ? o[got].name < 0 && !o[got].pins : got == want, "took %d, not %d", got,
                 want);
        if (got < 0) return;
        o[got] = (struct naive){-1, 1, 0};
        bool enter = rng_below(r, 4) > 0;
        if (enter && shelf_enter(s, got, &name)) {
            CHECK(at < 0 || at == got);
            o[got].name = n;
        }
        return;
    }
    case 1:
        if (at < 0) return;
        shelf_pin(s, at);
        o[at].pins++;
        return;
    case 2:
        for (int i = 0; i < SLOTS; i++) {
            if (!o[i].pins || rng_below(r, 3)) continue;
            shelf_unpin(s, i);
            if (!--o[i].pins) o[i].used = now;
            return;
        }
        return;
    case 3:
        if (at < 0) return;
        CHECK(shelf_name(s, at, &back) && hash_eq(back.id, name.id));
        shelf_touch(s, at);
        if (!o[at].pins) o[at].used = now;
        return;
    default:
        if (at < 0 || rng_below(r, 4)) return;
        shelf_forget(s, at);
        o[at].name = -1;
    }
}

TEST(random_operations_agree_with_a_naive_shelf)
{
    struct rng r;
    rng_seed(&r, 3);
    chain = prefix_cache_new(1, BT, 5, (struct hash128){1, 1});
    struct shelf *s = shelf_new(SLOTS, BT, 5, (struct hash128){1, 1});
    struct naive o[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        o[i] = (struct naive){-1, 0, 0};
    for (int i = 0; i < NAMES; i++)
        tokens[i][0] = tokens[i][1] = i;
    for (long op = 0; op < 200000 && !check_failures; op++) {
        one_op(&r, s, o, op);
        const char *why = shelf_check(s);
        CHECK_AT(!why, "op %ld: %s", op, why);
        int names = 0;
        for (int i = 0; i < SLOTS; i++) {
            names += o[i].name >= 0;
            CHECK(shelf_is_pinned(s, i) == (o[i].pins > 0));
        }
        CHECK_INT(shelf_count(s), names);
    }
    shelf_free(s);
    prefix_cache_free(chain);
}

TEST_MAIN()
