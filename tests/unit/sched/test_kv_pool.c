/* Goal: blocks are never lost, doubled or handed out while used. Method: small cases, then random
 * operations against a naive list. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/kv_pool.h"
#include "tests/check.h"

TEST(a_full_pool_refuses_and_changes_nothing)
{
    struct kv_pool *p = kv_pool_new(2);
    kv_block a, b, c = 77;
    bool evicted;
    REQUIRE(kv_pool_take(p, &a, &evicted) == OK && kv_pool_take(p, &b, &evicted) == OK);
    CHECK_INT(kv_pool_take(p, &c, &evicted), ERR_FULL);
    CHECK_INT(c, 77);
    CHECK(kv_pool_check(p) == NULL);
    kv_pool_unref(p, a);
    REQUIRE(kv_pool_take(p, &c, &evicted) == OK);
    CHECK_INT(c, a);
    CHECK(!evicted);
    kv_pool_free(p);
}

TEST(kept_blocks_are_taken_last_and_longest_unused_first)
{
    struct kv_pool *p = kv_pool_new(3);
    kv_block b[3], got;
    bool evicted;
    for (int i = 0; i < 3; i++)
        REQUIRE(kv_pool_take(p, &b[i], &evicted) == OK);
    kv_pool_set_cached(p, b[0], true);
    kv_pool_set_cached(p, b[1], true);
    kv_pool_unref(p, b[1]);
    kv_pool_unref(p, b[0]);
    kv_pool_unref(p, b[2]);
    CHECK_INT(kv_pool_available(p), 3);
    CHECK_INT(kv_pool_n_kept(p), 2);
    REQUIRE(kv_pool_take(p, &got, &evicted) == OK);
    CHECK_INT(got, b[2]);
    kv_pool_ref(p, b[1]); /* revived: now the younger of the two */
    kv_pool_unref(p, b[1]);
    REQUIRE(kv_pool_take(p, &got, &evicted) == OK);
    CHECK(evicted);
    CHECK_INT(got, b[0]);
    CHECK(!kv_pool_is_cached(p, got));
    CHECK(kv_pool_check(p) == NULL);
    kv_pool_free(p);
}

/* Oracle: arrays searched from end to end. */
struct naive {
    int users[32], n;
    bool cached[32];
    uint64_t kept_at[32], clock;
};

static void random_run(uint64_t seed, int n_ops)
{
    struct rng r;
    rng_seed(&r, seed);
    struct naive o = {.n = 1 + (int)rng_below(&r, 32)};
    struct kv_pool *p = kv_pool_new(o.n);
    for (int op = 0; op < n_ops; op++) {
        kv_block b = (kv_block)rng_below(&r, (uint64_t)o.n);
        int free_now = 0, kept = 0, oldest = -1;
        for (int i = 0; i < o.n; i++) {
            free_now += !o.users[i] && !o.cached[i];
            if (o.users[i] || !o.cached[i]) continue;
            kept++;
            if (oldest < 0 || o.kept_at[i] < o.kept_at[oldest]) oldest = i;
        }
        switch (rng_below(&r, 5)) {
        case 0:
        case 1: {
            kv_block got;
            bool evicted;
            enum err e = kv_pool_take(p, &got, &evicted);
            if (e != (free_now + kept ? OK : ERR_FULL))
                CHECK_AT(false, "seed %llu op %d: take", (unsigned long long)seed, op);
            if (e) break;
            if (evicted != !free_now || (evicted && got != oldest) || o.users[got])
                CHECK_AT(false, "seed %llu op %d: took block %d", (unsigned long long)seed, op,
                         got);
            o.users[got] = 1;
            o.cached[got] = false;
            break;
        }
        case 2:
            if (!o.users[b] && !o.cached[b]) break;
            kv_pool_ref(p, b);
            o.users[b]++;
            break;
        case 3:
            if (!o.users[b]) break;
            kv_pool_unref(p, b);
            if (!--o.users[b]) o.kept_at[b] = ++o.clock;
            break;
        default:
            if (!o.users[b]) {
                kv_pool_set_cached(p, b, false);
                o.cached[b] = false;
            } else {
                o.cached[b] = rng_below(&r, 2);
                kv_pool_set_cached(p, b, o.cached[b]);
            }
        }
        if (kv_pool_users(p, b) != o.users[b] || kv_pool_is_cached(p, b) != o.cached[b])
            CHECK_AT(false, "seed %llu op %d: block %d differs", (unsigned long long)seed, op, b);
        if (op % 64 == 0 && kv_pool_check(p))
            CHECK_AT(false, "seed %llu op %d: %s", (unsigned long long)seed, op, kv_pool_check(p));
        if (check_failures) break;
    }
    kv_pool_free(p);
}

TEST(a_million_random_operations_agree_with_a_naive_allocator)
{
    for (uint64_t seed = 1; seed <= 50 && !check_failures; seed++)
        random_run(seed, 20000);
}

TEST_MAIN()
