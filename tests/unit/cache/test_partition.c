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

static struct question question_of(uint64_t n)
{
    return (struct question){
        .id = {n, n * 1000003}, .entry = {n, n * 1000003}, .text = STR("q"), .expires_s = 150};
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
        struct question e = question_of(n);
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
        struct question e = question_of(n);
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
    struct question e = question_of(1);
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
        e = question_of(n);
        CHECK_INT(partition_add(c, &e, v, false), OK);
    }
    e = question_of(20);
    CHECK_INT(partition_add(c, &e, v, false), ERR_FULL);
    CHECK(partitions_remove_id(p, (struct hash128){10, 10 * 1000003}));
    CHECK_INT(partition_add(c, &e, v, false), OK);
    v[0] = NAN;
    e = question_of(21);
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
    struct question e = question_of(1), f = question_of(2);
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

TEST(a_text_is_found_by_its_words_and_by_its_normal_form)
{
    struct partitions_options o = {.dim = DIM, .entries_max = 5000, .partitions_max = 2};
    struct partitions *p = partitions_new(&o);
    struct partition *x = partitions_get(p, (struct hash128){1, 1}, true);
    struct question own = question_of(1), said = question_of(2), other = question_of(3);
    own.text = STR("Reset my password"), own.normal = 77;
    said.text = STR("reset password please"), said.normal = 77, said.judged = true;
    said.entry = own.id;
    other.text = STR("Delete my account"), other.normal = 78;
    REQUIRE(partition_add(x, &own, NULL, false) == OK &&
            partition_add(x, &said, NULL, false) == OK &&
            partition_add(x, &other, NULL, false) == OK);
    struct partition_walk w = {0};
    const struct question *first = partition_same_text(x, said.text, 77, &w);
    REQUIRE(first != NULL);
    CHECK(first->judged && hash_eq(first->entry, own.id)); /* word for word comes first */
    const struct question *second = partition_same_text(x, said.text, 77, &w);
    REQUIRE(second != NULL);
    CHECK(hash_eq(second->id, own.id) && partition_same_text(x, said.text, 77, &w) == NULL);
    w = (struct partition_walk){0};
    CHECK(partition_same_text(x, STR("never said"), 0, &w) == NULL);
    CHECK(hash_eq(partition_entry(x, own.id)->id, own.id) && !partition_entry(x, said.id));
    CHECK_INT(partition_judged(x), 1);
    CHECK(partition_remove(x, said.id));
    w = (struct partition_walk){0};
    CHECK(hash_eq(partition_same_text(x, said.text, 77, &w)->id, own.id));
    CHECK_INT(partition_judged(x), 0);
    partitions_free(p);
}

TEST(a_text_without_a_vector_is_searched_once_it_has_one)
{
    struct partitions_options o = {.dim = DIM, .entries_max = 5000, .partitions_max = 2};
    struct partitions *p = partitions_new(&o);
    struct partition *x = partitions_get(p, (struct hash128){1, 1}, true);
    struct hash128 forbids[2] = {{5, 5}, {6, 6}};
    struct question q = question_of(1);
    struct vector_hit hit;
    struct rng r;
    float v[DIM];
    rng_seed(&r, 4);
    unit(&r, v);
    q.vetoed = forbids, q.n_vetoed = 2;
    REQUIRE(partition_add(x, &q, NULL, false) == OK);
    CHECK_INT(partition_search(x, v, 1, &hit), 0);
    CHECK_INT(partition_give_vector(x, q.id, v), OK);
    CHECK_INT(partition_search(x, v, 1, &hit), 1);
    const struct question *there = partition_question(x, q.id.lo);
    CHECK(there->n_vetoed == 2 && hash_eq(there->vetoed[1], forbids[1]) &&
          there->vetoed != forbids);
    CHECK_INT(partition_give_vector(x, (struct hash128){9, 9}, v), ERR_NOT_FOUND);
    REQUIRE(partition_add(x, &q, NULL, false) == OK); /* said anew: the old vector is not its own */
    CHECK_INT(partition_search(x, v, 1, &hit), 0);
    size_t bytes = partitions_bytes(p);
    partition_remove(x, q.id);
    CHECK(partitions_bytes(p) < bytes);
    partitions_free(p);
}

TEST(what_does_not_fit_goes_first_whole_partitions_then_what_nobody_was_served)
{
    struct partitions_options o = {.dim = DIM, .entries_max = 100000, .partitions_max = 10};
    struct partitions *p = partitions_new(&o);
    struct rng r;
    float v[DIM];
    rng_seed(&r, 4);
    struct partition *old = partitions_get(p, (struct hash128){1, 1}, true);
    struct question q = question_of(1);
    unit(&r, v);
    CHECK(partition_add(old, &q, v, false) == OK);
    struct partition *x = partitions_get(p, (struct hash128){2, 2}, true);
    for (uint64_t n = 1; n <= 2000; n++) {
        q = question_of(n);
        q.trust = n % 10 == 0 ? TRUST_OPERATOR : TRUST_GATEWAY;
        unit(&r, v);
        REQUIRE(partition_add(x, &q, v, false) == OK);
        if (n % 10 == 1) partition_touch(x, q.id);
    }
    size_t before = partitions_bytes(p);
    partitions_trim(p, before * 2, 10000);
    CHECK_INT(partitions_entries(p), 2001);
    partitions_trim(p, before / 2, 10000);
    CHECK(!partitions_get(p, (struct hash128){1, 1}, false));
    CHECK(partition_count(x) < 1500 && partition_count(x) > 500);
    for (uint64_t n = 1; n <= 2000; n++)
        if (n % 10 < 2) CHECK(partition_entry(x, question_of(n).id));
    size_t n = partition_count(x);
    q = question_of(9999);
    CHECK(partition_add(x, &q, v, false) == OK); /* another one goes for it */
    CHECK(partition_count(x) <= n + 1);
    partitions_free(p);
}

TEST_MAIN()
