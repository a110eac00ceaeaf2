/* Goal: whoever follows the changes, or starts from a snapshot and follows then, knows exactly what is held. Method: random changes,
 * readers that come at any time and read in pieces, compared with a plain array. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/announce.h"
#include "tests/check.h"

enum { BLOCKS = 300 };

struct reader {
    uint8_t places[BLOCKS];
    uint64_t at;
};

static struct hash128 id_of(size_t i)
{
    return (struct hash128){i + 1, i % 5 ? i % 9 : 1023};
}

static void take(struct reader *r, const struct kv_change *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t bit = (uint8_t)(1u << c[i].place), *at = &r->places[c[i].block.hi - 1];
        CHECK(c[i].stored == !(*at & bit)); /* nothing is told twice */
        *at ^= bit;
    }
}

static void begin(struct announce *a, struct reader *r)
{
    struct kv_change *all;
    size_t n;
    *r = (struct reader){0};
    REQUIRE(announce_snapshot(a, &all, &n, &r->at) == OK);
    take(r, all, n);
    mem_free(all);
}

TEST(readers_know_what_is_held)
{
    for (uint64_t seed = 1; seed <= 20 && !check_failures; seed++) {
        struct announce *a = announce_new(seed);
        struct reader readers[3] = {0};
        uint8_t truth[BLOCKS] = {0};
        struct rng r;
        rng_seed(&r, seed);
        for (int step = 0; step < 4000; step++) {
            size_t i = rng_below(&r, BLOCKS);
            int place = (int)rng_below(&r, KV_PLACES);
            bool stored = rng_below(&r, 5) > 1;
            announce_change(a, place, stored, id_of(i));
            truth[i] = (uint8_t)(stored ? truth[i] | 1u << place : truth[i] & ~(1u << place));
            struct reader *me = &readers[rng_below(&r, 3)];
            if (!rng_below(&r, 200)) begin(a, me);
            if (rng_below(&r, 20)) continue;
            struct kv_change some[64];
            size_t n = 1;
            while (n) {
                REQUIRE(announce_read(a, &me->at, some, 64, &n) == OK);
                take(me, some, n);
            }
            CHECK(!memcmp(me->places, truth, sizeof truth));
        }
        announce_free(a);
    }
}

static int wakes;
static void on_wake(void *arg)
{
    (void)arg;
    wakes++;
}

TEST(a_listener_is_woken_once_until_it_reads)
{
    struct announce *a = announce_new(9);
    struct kv_change out[8];
    size_t n;
    uint64_t at = 0;
    announce_listen(a, on_wake, NULL);
    wakes = 0;
    for (size_t i = 0; i < 5; i++)
        announce_change(a, KV_DEVICE, true, id_of(i));
    announce_change(a, KV_DEVICE, true, id_of(0)); /* no news */
    CHECK_INT(wakes, 1);
    CHECK(announce_read(a, &at, out, 8, &n) == OK);
    CHECK_INT(n, 5);
    announce_change(a, KV_DEVICE, false, id_of(0));
    CHECK_INT(wakes, 2);
    CHECK(announce_incarnation(a) == 9);
    announce_free(a);
}

TEST(a_reader_that_fell_behind_or_comes_from_another_run_must_begin_anew)
{
    struct announce *a = announce_new(1);
    struct kv_change out[8], *all;
    size_t n;
    uint64_t late = 0, foreign = 7, number;
    CHECK(announce_read(a, &foreign, out, 8, &n) == ERR_NOT_FOUND);
    for (int i = 0; i <= ANNOUNCE_RING; i++)
        announce_change(a, KV_DEVICE, i % 2 == 0, id_of(3));
    CHECK(announce_read(a, &late, out, 8, &n) == ERR_NOT_FOUND);
    late = 1;
    CHECK(announce_read(a, &late, out, 8, &n) == OK);
    CHECK_INT(n, 8);
    REQUIRE(announce_snapshot(a, &all, &n, &number) == OK);
    CHECK_INT(n, 1);
    CHECK_INT(number, ANNOUNCE_RING + 1);
    mem_free(all);
    announce_free(a);
}

TEST_MAIN()
