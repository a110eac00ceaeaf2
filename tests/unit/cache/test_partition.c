/* test_partition.c - goal: questions are found in their own partition only, replaced and removed for good, within the bounds; what was
 * removed while loading does not come back. Method: small vectors, random operations against a plain array. */
#include "cache/partition.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

enum { DIM = 8 };

static void unit(struct rng *r, float v[DIM])
{
    double len = 0;
    for (int i = 0; i < DIM; i++)
        v[i] = (float)(rng_f64(r) - 0.5), len += (double)v[i] * v[i];
    for (int i = 0; i < DIM; i++)
        v[i] = (float)(v[i] / sqrt(len));
}

static struct entry entry_of(uint64_t n)
{
    return (struct entry){
        .id = {n, n * 1000003}, .question = STR("q"), .created_s = 100, .ttl_s = 50};
}

TEST(random_operations_agree_with_an_array)
{
    enum { IDS = 500 };
    static bool there[IDS];
    static float vecs[IDS][DIM];
    struct partitions_options o = {.dim = DIM, .entries_max = 10000, .partitions_max = 10};
    struct partitions *p = partitions_new(&o);
    struct partition *x = partitions_get(p, (struct hash128){1, 1}, true);
    struct rng r;
    rng_seed(&r, 3);
    size_t count = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t n = rng_below(&r, IDS);
        struct entry e = entry_of(n);
        if (rng_below(&r, 2)) {
            unit(&r, vecs[n]);
            REQUIRE(partition_add(x, &e, vecs[n], false) == OK);
            count += !there[n];
            there[n] = true;
        } else {
            CHECK(partition_remove(x, e.id) == there[n]);
            count -= there[n];
            there[n] = false;
        }
    }
    CHECK_INT(partition_count(x), count);
    CHECK_INT(partitions_entries(p), count);
    for (uint64_t n = 0; n < IDS; n++) {
        struct entry e = entry_of(n);
        CHECK((partition_question(x, e.id.lo) != NULL) == there[n]);
        struct vector_hit hit;
        if (!there[n]) continue;
        REQUIRE(partition_search(x, vecs[n], 1, &hit) == 1);
        CHECK_INT(hit.id, e.id.lo);
        CHECK_INT(partition_question(x, hit.id)->expires_s, 150);
    }
    partitions_free(p);
}

TEST(partitions_are_apart_and_the_least_used_one_is_forgotten)
{
    struct partitions_options o = {.dim = DIM, .entries_max = 5, .partitions_max = 2};
    struct partitions *p = partitions_new(&o);
    struct rng r;
    float v[DIM];
    struct vector_hit hit;
    rng_seed(&r, 4);
    unit(&r, v);
    struct entry e = entry_of(1);
    struct partition *a = partitions_get(p, (struct hash128){1, 1}, true),
                     *b = partitions_get(p, (struct hash128){2, 2}, true);
    REQUIRE(partition_add(a, &e, v, false) == OK);
    CHECK_INT(partition_search(b, v, 1, &hit), 0);
    CHECK(partitions_get(p, (struct hash128){3, 3}, false) == NULL);
    partition_ref(a);
    (void)partitions_get(p, (struct hash128){2, 2}, false);
    struct partition *c = partitions_get(p, (struct hash128){3, 3}, true); /* a goes */
    CHECK(c && partition_forgotten(a) && !partition_forgotten(b));
    CHECK_INT(partition_search(a, v, 1, &hit), 1); /* whoever holds it may end his search */
    partition_unref(a);
    for (uint64_t n = 10; n < 15; n++) {
        e = entry_of(n);
        CHECK_INT(partition_add(c, &e, v, false), OK);
    }
    e = entry_of(20);
    CHECK_INT(partition_add(c, &e, v, false), ERR_FULL);
    CHECK(partitions_remove_id(p, (struct hash128){10, 10 * 1000003}));
    CHECK_INT(partition_add(c, &e, v, false), OK);
    v[0] = NAN;
    e = entry_of(21);
    CHECK(partition_add(c, &e, v, false) != OK);
    partitions_free(p);
}

TEST(a_removal_during_loading_outlives_the_load)
{
    struct partitions_options o = {.dim = DIM, .entries_max = 5000, .partitions_max = 2};
    struct partitions *p = partitions_new(&o);
    struct partition *x = partitions_get(p, (struct hash128){1, 1}, true);
    struct rng r;
    float v[DIM];
    rng_seed(&r, 4);
    unit(&r, v);
    struct entry e = entry_of(1), f = entry_of(2);
    partition_set_state(x, PARTITION_LOADING);
    CHECK(!partition_remove(x, e.id));
    CHECK_INT(partition_add(x, &e, v, true), OK);
    CHECK_INT(partition_add(x, &f, v, true), OK);
    CHECK_INT(partition_count(x), 1);
    CHECK_INT(partition_add(x, &e, v, false), OK); /* kept anew */
    CHECK_INT(partition_count(x), 2);
    partition_set_state(x, PARTITION_LOADED);
    partitions_free(p);
}

TEST_MAIN()
