/* test_store.c - goal: the store keeps to its budget, pushes out what is worth least, and never forgets what Redis does not have, or what
 * people wrote, while anything else can go. Method: small cases, a simulated stream, random operations against a plain list. */
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

static const struct entry *get(struct store *s, uint64_t n)
{
    return store_get(s, (struct hash128){n * 77, n});
}

static struct entry *costing(uint64_t n, size_t bytes, int64_t tokens, int64_t latency_ms)
{
    struct entry *e = make(n, bytes, n);
    e->completion_tokens = tokens;
    e->latency_ms = latency_ms;
    return e;
}

static int pushed_out;
static void gone(void *arg, const struct entry *e)
{
    (void)arg, (void)e, pushed_out++;
}

TEST(among_equals_the_least_used_goes_first)
{
    struct store *s = store_new(3 * (sizeof(struct entry) + 1280), gone, NULL);
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

TEST(a_vector_that_comes_late_is_no_use_and_an_answer_stored_anew_is)
{
    for (int anew = 0; anew < 2; anew++) {
        struct store *s = store_new(10 * (sizeof(struct entry) + 1280), NULL, NULL);
        for (uint64_t i = 1; i <= 11; i++)
            CHECK(store_put(s, make(i, 1000, i), false));
        CHECK(get(s, 1) == NULL);
        CHECK(store_put(s, make(2, 1001, anew ? 99 : 2), false));
        CHECK(store_put(s, make(12, 1000, 12), false));
        CHECK_INT(store_peek(s, (struct hash128){2 * 77, 2}) != NULL, anew);
        CHECK_INT(store_peek(s, (struct hash128){3 * 77, 3}) != NULL, !anew);
        store_free(s);
    }
}

TEST(what_redis_has_not_got_is_pushed_out_last_and_offered_again_until_written)
{
    struct store *s = store_new(3 * (sizeof(struct entry) + 1280), NULL, NULL);
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
    CHECK(store_bytes(s) <= 3 * (sizeof(struct entry) + 1280));
    store_free(s);
}

TEST(cheap_answers_go_before_dear_ones_and_dear_ones_in_the_end_too)
{
    struct store *s = store_new(10 * (sizeof(struct entry) + 1280), NULL, NULL);
    CHECK(store_put(s, costing(1, 1000, 2000, 20000), false));
    for (uint64_t i = 2; i < 200; i++)
        CHECK(store_put(s, costing(i, 1000, 20, 200), false));
    CHECK(get(s, 1) != NULL);
    for (uint64_t i = 200; i < 50000 && get(s, 199); i++)
        CHECK(store_put(s, costing(i, 1000, 20, 200), false));
    struct store *t = store_new(10 * (sizeof(struct entry) + 1280), NULL, NULL);
    CHECK(store_put(t, costing(1, 1000, 40, 400), false)); /* four times as dear */
    bool there = true;
    for (uint64_t i = 2; i < 1000 && there; i++) {
        CHECK(store_put(t, costing(i, 1000, 20, 200), false));
        there = store_remove(t, (struct hash128){77, 1});
        if (there) CHECK(store_put(t, costing(1, 1000, 40, 400), false));
    }
    store_free(s);
    store_free(t);
}

TEST(what_was_used_much_once_goes_when_it_is_used_no_more)
{
    struct store *s = store_new(10 * (sizeof(struct entry) + 1280), NULL, NULL);
    CHECK(store_put(s, costing(1, 1000, 20, 200), false));
    for (int i = 0; i < 20; i++)
        CHECK(get(s, 1) != NULL);
    size_t before = store_count(s);
    for (uint64_t i = 2; i < 100; i++)
        CHECK(store_put(s, costing(i, 1000, 20, 200), false));
    CHECK(store_count(s) > before);
    int used = 0;
    for (
        uint64_t i = 100; i < 1000;
        i++) { /* these are used twice, but for a few that are worth less than all others at once */
        CHECK(store_put(s, costing(i, 1000, 20, 200), false));
        used += get(s, i) != NULL;
    }
    CHECK_AT(used >= 890, "%d", used);
    CHECK(get(s, 1) == NULL);
    store_free(s);
}

TEST(what_people_wrote_stays_while_anything_else_can_go)
{
    struct store *s = store_new(10 * (sizeof(struct entry) + 1280), NULL, NULL);
    for (uint64_t i = 1; i <= 5; i++) {
        struct entry *e = make(i, 1000, i);
        e->pinned = true;
        CHECK(store_put(s, e, false));
    }
    for (uint64_t i = 6; i < 100; i++)
        CHECK(store_put(s, costing(i, 1000, 2000, 20000), i % 2));
    for (uint64_t i = 1; i <= 5; i++)
        CHECK(get(s, i) != NULL);
    store_set_budget(s, 2 * (sizeof(struct entry) + 1280)); /* and even then the budget holds */
    CHECK_INT(store_count(s), 2);
    CHECK(store_bytes(s) <= 2 * (sizeof(struct entry) + 1280));
    store_free(s);
}

/* Popular and unpopular, dear and cheap questions: what a budget of a tenth saves, against pushing out the least recently used. */
TEST(more_is_saved_than_by_pushing_out_the_least_recently_used)
{
    enum { IDS = 2000, HELD = 200, ASKED = 60000 };
    static uint64_t used[IDS];
    static int64_t latency[IDS];
    struct rng r;
    rng_seed(&r, 5);
    struct store *s = store_new(HELD * (sizeof(struct entry) + 1280), NULL, NULL);
    double saved = 0, saved_lru = 0;
    size_t held_lru = 0;
    for (int i = 0; i < IDS; i++)
        latency[i] = 100 + (int64_t)rng_below(&r, 100) * (int64_t)rng_below(&r, 100);
    for (uint64_t i = 1; i <= ASKED; i++) {
        double u = rng_f64(&r);
        uint64_t id = (uint64_t)(u * u * u * IDS);
        if (get(s, id + 1))
            saved += (double)latency[id];
        else
            CHECK(store_put(s, costing(id + 1, 1000, 100, latency[id]), false));
        if (used[id]) saved_lru += (double)latency[id];
        held_lru += !used[id];
        used[id] = i;
        for (uint64_t oldest = 0, k; held_lru > HELD; held_lru--, used[oldest] = 0)
            for (k = 0, oldest = id; k < IDS; k++)
                if (used[k] && used[k] < used[oldest]) oldest = k;
    }
    CHECK_AT(saved > saved_lru * 1.1, "saved %.0f, by least recently used %.0f", saved, saved_lru);
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
