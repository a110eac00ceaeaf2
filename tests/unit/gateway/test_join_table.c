/* Goal: the table finds exactly what was put and not removed. Method: random operations against a plain array; keys chosen to collide. */
#include "base/rng.h"
#include "gateway/join_table.h"
#include "tests/check.h"

enum { KEYS = 24 };

TEST(table_agrees_with_a_plain_array_under_random_operations)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng r;
        struct join_table *t = join_table_new(12);
        int values[KEYS];
        bool in[KEYS] = {false};
        size_t n = 0;
        rng_seed(&r, seed);
        for (int step = 0; step < 3000; step++) {
            size_t k = rng_below(&r, KEYS);
            /* four homes only, the last two at the table's end, so that runs are long and wrap round */
            struct hash128 key = {k, (k % 4) ? 29 + k % 4 : 0};
            if (rng_below(&r, 2) && !in[k]) {
                enum err code = join_table_put(t, key, &values[k]);
                CHECK_AT(code == (n == 12 ? ERR_FULL : OK), "put gave %s with %zu in, seed %llu", err_name(code), n,
                         (unsigned long long)seed);
                if (code == OK) in[k] = true, n++;
            } else if (rng_below(&r, 2)) {
                join_table_remove(t, key, &values[k]);
                if (in[k]) n--;
                in[k] = false;
            } else {
                join_table_remove(t, key, &values[(k + 1) % KEYS]); /* another's value: nothing happens */
            }
            for (size_t j = 0; j < KEYS; j++) {
                struct hash128 other = {j, (j % 4) ? 29 + j % 4 : 0};
                CHECK_AT(join_table_find(t, other) == (in[j] ? &values[j] : NULL), "key %zu, seed %llu, step %d", j,
                         (unsigned long long)seed, step);
            }
            if (check_failures) break;
        }
        join_table_free(t);
    }
}

TEST_MAIN()
