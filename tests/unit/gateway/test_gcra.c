/* test_gcra.c - goal: no more passes than limit + time * limit / period (and 100 us), nothing that fits is refused, what is given back is
 * given once. Method: random use (printed seed) beside a token bucket in exact integers, every interval of a run counted, tables. */
#include "gateway/gcra.h"

#include "base/rng.h"
#include "tests/check.h"

/* A bucket of limit * period parts, a unit is period parts, limit parts flow in every microsecond. */
struct oracle {
    __int128 parts, limit, period;
    int64_t at;
};

static void flow(struct oracle *o, int64_t now)
{
    o->parts += (__int128)(now - o->at) * o->limit;
    if (o->parts > o->limit * o->period) o->parts = o->limit * o->period;
    o->at = now;
}

TEST(decisions_are_those_of_a_token_bucket_counted_in_whole_numbers)
{
    static const int64_t limits[] = {1, 2, 3, 7, 60, 97, 1000, 9999, 60000, 1000003, 20000000};
    static const int64_t periods[] = {60000000, 86400000000};
    uint64_t seed = rng_entropy();
    struct rng r;
    rng_seed(&r, seed);
    int differ = 0, passed = 0, refused = 0;
    for (size_t c = 0; c < sizeof limits / sizeof *limits * 2; c++) {
        int64_t limit = limits[c / 2], period = periods[c % 2], now = 30000000000000;
        struct gcra g = {0};
        struct gcra_rate rate = {(double)limit, (double)period};
        struct oracle o = {(__int128)limit * period, limit, period, now};
        for (int i = 0; i < 3000; i++) {
            int64_t n = 1 + (int64_t)rng_below(&r, (uint32_t)(limit / 4 + 1));
            double wait;
            flow(&o, now);
            bool want = o.parts >= (__int128)n * period;
            bool got = gcra_fits(&g, &rate, (double)now, (double)n, &wait);
            /* 100 us are granted beforehand, at most half a unit */
            __int128 margin = o.parts - (__int128)n * period;
            bool near = margin < 0 && margin > -101 * (__int128)limit;
            differ += got != want && !near;
            if (got) {
                gcra_add(&g, &rate, (double)now, (double)n);
                o.parts -= (__int128)n * period;
                passed++;
            } else {
                refused++;
                CHECK(wait > 0 && wait <= (double)period + 100);
            }
            now += (int64_t)rng_below(&r, (uint32_t)(period / limit / 2 + 3)) * (i % 50 ? 1 : 20);
        }
    }
    CHECK_AT(differ == 0, "%d decisions differ, seed %llu", differ, (unsigned long long)seed);
    CHECK(passed > 1000 && refused > 1000);
}

TEST(exactly_the_limit_passes_at_one_moment)
{
    for (int limit = 1; limit <= 3000; limit++) {
        struct gcra g = {0};
        struct gcra_rate r = {limit, 60e6};
        double now = 30000000123456.0;
        int n = 0;
        while (gcra_fits(&g, &r, now, 1, NULL) && n <= limit) {
            gcra_add(&g, &r, now, 1);
            n++;
        }
        CHECK_INT(n, limit);
        CHECK(gcra_left(&g, &r, now) == 0);
    }
}

TEST(in_no_interval_more_passes_than_the_limit_and_what_flowed_in)
{
    enum { N = 600 };
    static double at[N];
    uint64_t seed = rng_entropy();
    struct rng rng;
    rng_seed(&rng, seed);
    struct gcra g = {0};
    struct gcra_rate r = {50, 60e6};
    double now = 3e13;
    int n = 0;
    while (n < N) {
        if (gcra_fits(&g, &r, now, 1, NULL)) {
            gcra_add(&g, &r, now, 1);
            at[n++] = now;
        }
        now += (double)rng_below(&rng, 2500000);
    }
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            CHECK_AT(j - i + 1 <= 50 + (at[j] - at[i]) * 50 / 60e6 + 1e-3,
                     "%d in %.0f us, seed %llu", j - i + 1, at[j] - at[i],
                     (unsigned long long)seed);
}

TEST(what_is_given_back_fits_again_and_not_more)
{
    struct gcra g = {0};
    struct gcra_rate r = {100, 60e6};
    gcra_add(&g, &r, 3e13, 100);
    CHECK(!gcra_fits(&g, &r, 3e13, 1, NULL));
    gcra_add(&g, &r, 3e13, -40);
    CHECK(gcra_fits(&g, &r, 3e13, 40, NULL) && !gcra_fits(&g, &r, 3e13, 41, NULL));
    gcra_add(&g, &r, 3e13, -1000); /* never beyond empty */
    CHECK(gcra_left(&g, &r, 3e13) == 100 && !gcra_fits(&g, &r, 3e13, 101, NULL));
    gcra_add(&g, &r, 3e13 + 70e6, -5); /* time has given it back already */
    CHECK(gcra_left(&g, &r, 3e13 + 70e6) == 100);
}

TEST(the_wait_told_is_long_enough_and_not_much_longer)
{
    struct gcra g = {0};
    struct gcra_rate r = {600, 60e6};
    double wait;
    gcra_add(&g, &r, 3e13, 600);
    CHECK(!gcra_fits(&g, &r, 3e13, 3, &wait));
    CHECK_NEAR(wait, 300000, 3);
    CHECK(gcra_fits(&g, &r, 3e13 + wait, 3, NULL) &&
          !gcra_fits(&g, &r, 3e13 + wait - 200, 3, NULL));
    CHECK(!gcra_fits(&g, &r, 3e13, 601, &wait) && wait == -1);
    CHECK(gcra_fits(&g, &r, 3e13, 0, &wait) && wait == 0);
    CHECK_NEAR(gcra_empty_in_us(&g, 3e13), 60e6, 1);
}

TEST(a_changed_limit_keeps_the_share_that_is_used)
{
    struct gcra g = {0};
    struct gcra_rate wide = {10000, 60e6}, narrow = {100, 60e6};
    gcra_add(&g, &wide, 3e13, 5000);
    CHECK(gcra_left(&g, &narrow, 3e13) == 50);
}

TEST_MAIN()
