/* test_u64_map.c - goal: whatever is added, removed and walked in whatever order, also while a growth is spread over many changes, the map
 * holds what a plain list holds; a change moves few places. Method: random operations beside a list. */
#include "base/u64_map.h"

#include <string.h>

#include "base/rng.h"
#include "tests/check.h"

enum { ITEMS_MAX = 6000, KEYS = 700 };
struct item {
    uint64_t key, value;
};
static struct item items[ITEMS_MAX];
static size_t n_items;

static size_t under(const struct u64_map *m, uint64_t key)
{
    size_t n = 0, at = SIZE_MAX;
    uint64_t value;
    while ((value = u64_map_next(m, key, &at)) && n <= ITEMS_MAX) {
        bool known = false;
        for (size_t i = 0; i < n_items && !known; i++)
            known = items[i].key == key && items[i].value == value;
        CHECK(known);
        n++;
    }
    return n;
}

static void agrees(const struct u64_map *m)
{
    size_t places = 0, expected;
    CHECK_INT(m->count, n_items);
    for (size_t i = 0; i < u64_map_places(m); i++)
        places += u64_map_at(m, i) != 0;
    CHECK_INT(places, n_items);
    for (uint64_t key = 0; key < KEYS; key++) {
        expected = 0;
        for (size_t i = 0; i < n_items; i++)
            expected += items[i].key == key;
        CHECK_INT(under(m, key), expected);
    }
}

TEST(random_changes_agree_with_a_list)
{
    struct u64_map m = {0};
    struct rng r;
    size_t at = SIZE_MAX;
    rng_seed(&r, 5);
    CHECK_INT(u64_map_next(&m, 1, &at), 0);
    CHECK(!u64_map_remove(&m, 1, 1));
    for (int step = 0; step < 40000; step++) {
        bool grow = (step / 5000) % 2 == 0;
        if (n_items < ITEMS_MAX && rng_below(&r, 10) < (grow ? 8u : 2u)) {
            struct item x = {rng_below(&r, KEYS), 1 + (uint64_t)step};
            CHECK(u64_map_add(&m, x.key, x.value));
            items[n_items++] = x;
        } else if (n_items) {
            size_t i = (size_t)rng_below(&r, n_items);
            CHECK(u64_map_remove(&m, items[i].key, items[i].value));
            CHECK(!u64_map_remove(&m, items[i].key, items[i].value));
            items[i] = items[--n_items];
        }
        if (step % 4999 == 0 || (step % 97 == 0 && m.old && step % 3 == 0 && n_items < 300))
            agrees(&m);
    }
    agrees(&m);
    u64_map_fini(&m);
    CHECK_INT(u64_map_bytes(&m), 0);
}

TEST(growing_moves_a_few_places_with_each_change)
{
    struct u64_map m = {0};
    size_t before = 0;
    for (uint64_t i = 1; i <= 300000; i++) {
        size_t old = m.n_old, moved = m.moved;
        CHECK(u64_map_add(&m, i * 0x9e3779b97f4a7c15u, i));
        if (old && m.n_old == old) CHECK(m.moved - moved <= 8);
        if (m.n_slots != before) CHECK(!old); /* the last growth was over */
        before = m.n_slots;
    }
    for (uint64_t i = 1; i <= 300000; i += 1777) {
        size_t at = SIZE_MAX;
        CHECK_INT(u64_map_next(&m, i * 0x9e3779b97f4a7c15u, &at), (int64_t)i);
    }
    u64_map_fini(&m);
}

TEST_MAIN()
