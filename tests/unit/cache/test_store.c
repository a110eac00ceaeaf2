/* test_store.c - goal: the store keeps to its budget, pushes out the least recently used, and never forgets what Redis does not have
 * while anything else can go. Method: random operations against a plain list. */
#include "cache/store.h"

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

static struct entry *make(uint64_t n, size_t bytes, uint64_t write_no)
{
    static char text[20000];
    struct entry e = {.id = {n * 77, n},
                      .answer = {text, bytes},
                      .created_s = 1,
                      .ttl_s = 1,
                      .write_no = write_no};
    return entry_copy(&e);
}

static int pushed_out;
static void gone(void *arg, const struct entry *e)
{
    (void)arg, (void)e, pushed_out++;
}

TEST(the_least_recently_used_goes_first)
{
    struct store *s = store_new(3 * (sizeof(struct entry) + 1200), gone, NULL);
    pushed_out = 0;
    for (uint64_t i = 1; i <= 3; i++)
        CHECK(store_put(s, make(i, 1000, i), false));
    CHECK(store_get(s, (struct hash128){77, 1}) != NULL);
    CHECK(store_put(s, make(4, 1000, 4), false));
    CHECK_INT(pushed_out, 1);
    CHECK(store_get(s, (struct hash128){154, 2}) == NULL);
    CHECK(store_get(s, (struct hash128){77, 1}) != NULL);
    CHECK(!store_put(s, make(5, 20000, 5), false)); /* never fits */
    CHECK_INT(store_count(s), 3);
    store_free(s);
}

TEST(what_redis_has_not_got_is_pushed_out_last_and_offered_again_until_written)
{
    struct store *s = store_new(3 * (sizeof(struct entry) + 1200), NULL, NULL);
    CHECK(store_put(s, make(1, 1000, 1), true));
    for (uint64_t i = 2; i <= 10; i++)
        CHECK(store_put(s, make(i, 1000, i), false));
    REQUIRE(store_get(s, (struct hash128){77, 1}) != NULL);
    REQUIRE(store_unsaved(s) != NULL);
    CHECK_INT(store_unsaved(s)->id.lo, 1);
    store_set_saved(s, (struct hash128){77, 1}, 99); /* another version was written */
    CHECK(store_unsaved(s) != NULL);
    store_set_saved(s, (struct hash128){77, 1}, 1);
    CHECK(store_unsaved(s) == NULL);
    CHECK(store_put(s, make(20, 1000, 20), true));
    store_drop_saved(s);
    CHECK_INT(store_count(s), 1);
    for (uint64_t i = 30; i < 40; i++)
        CHECK(store_put(s, make(i, 1000, i), true)); /* the budget holds even so */
    CHECK(store_bytes(s) <= 3 * (sizeof(struct entry) + 1200));
    store_free(s);
}

TEST(random_operations_agree_with_a_list)
{
    enum { IDS = 3000 };
    static bool there[IDS];
    struct rng r;
    rng_seed(&r, 11);
    struct store *s = store_new((size_t)64 << 20, NULL, NULL);
    size_t count = 0;
    for (int i = 0; i < 60000; i++) {
        uint64_t id = rng_below(&r, IDS);
        struct hash128 h = {id * 77, id};
        switch (rng_below(&r, 3)) {
        case 0:
            CHECK(store_put(s, make(id, rng_below(&r, 100), 1), rng_below(&r, 2)));
            count += !there[id];
            there[id] = true;
            break;
        case 1:
            CHECK(store_remove(s, h) == there[id]);
            count -= there[id];
            there[id] = false;
            break;
        default:
            CHECK((store_get(s, h) != NULL) == there[id]);
        }
    }
    CHECK_INT(store_count(s), count);
    store_free(s);
}

TEST_MAIN()
