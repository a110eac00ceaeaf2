/* test_hash_map.c - goal: the map holds exactly what was added and not removed, whatever the order, also while it grows. Method: random
 * operations against a plain array; few homes, some at the table's end, so that runs are long and wrap round. */
#include "base/hash_map.h"
#include "base/rng.h"
#include "tests/check.h"

enum { KEYS = 200 };

struct entry {
    struct hash128 hash;
    uint64_t value;
};

static struct hash128 key_of(uint64_t k)
{
    return (struct hash128){k, k % 4 ? UINT64_MAX - k % 3 : k % 16};
}

static void agrees(const struct hash_map *m, const uint64_t *truth, uint64_t seed, int step)
{
    size_t n = 0;
    for (uint64_t k = 0; k < KEYS; k++) {
        const struct entry *e = hash_map_find(m, key_of(k));
        n += truth[k] != 0;
        CHECK_AT((e ? e->value : 0) == truth[k], "key %d, seed %d, step %d", (int)k, (int)seed,
                 step);
    }
    CHECK_INT(m->n, n);
    for (size_t i = 0; i < m->n; i++) {
        const struct entry *e = (const struct entry *)m->entries + i;
        CHECK(e->value && truth[e->hash.hi] == e->value);
    }
}

TEST(it_agrees_with_a_plain_array_under_random_operations)
{
    for (uint64_t seed = 1; seed <= 20 && !check_failures; seed++) {
        struct hash_map m;
        uint64_t truth[KEYS] = {0};
        struct rng r;
        hash_map_init(&m, sizeof(struct entry), 1 + seed % 3);
        rng_seed(&r, seed);
        for (int step = 0; step < 2000 && !check_failures; step++) {
            uint64_t k = rng_below(&r, KEYS), filling = step / 500 % 2 ? 3 : 7;
            if (rng_below(&r, 10) < filling) {
                struct entry *e = hash_map_add(&m, key_of(k));
                CHECK(hash_eq(e->hash, key_of(k)) && e->value == truth[k]); /* a new one is zero */
                e->value = truth[k] = 1 + rng_below(&r, 1000);
            } else if (truth[k]) {
                hash_map_remove(&m, hash_map_find(&m, key_of(k)));
                truth[k] = 0;
            }
            if (step % 20 == 0) agrees(&m, truth, seed, step);
        }
        hash_map_fini(&m);
        CHECK(!m.entries && !m.n);
    }
}

TEST_MAIN()
