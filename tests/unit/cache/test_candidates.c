/* test_candidates.c - goal: the nearest wording speaks for its entry, and what stands against it is seen: texts judged not to get its
 * answer, near questions with another answer. Method: small pictures, then random ones against a slow reading of the rules. */
#include "cache/candidates.h"

#include "base/rng.h"
#include "tests/check.h"

static struct question own(uint64_t n, uint64_t answer)
{
    return (struct question){.id = {n, n}, .entry = {n, n}, .answer = answer, .text = STR("q")};
}

static struct question judged(uint64_t n, uint64_t entry)
{
    return (struct question){
        .id = {1000 + n, n}, .entry = {entry, entry}, .judged = true, .text = STR("w")};
}

TEST(an_entry_is_a_candidate_once_by_its_nearest_wording)
{
    struct question a = own(1, 10), b = own(2, 20), said = judged(1, 1);
    struct near_text texts[] = {{&said, &a, 0.95}, {&b, &b, 0.93}, {&a, &a, 0.90}};
    struct candidate c[4];
    REQUIRE(candidates_gather(texts, 3, c, 4) == 2);
    CHECK(c[0].q == &said && c[0].own == &a && c[1].q == &b);
    CHECK_NEAR(c[0].rival, 0.93, 1e-9);
    CHECK_NEAR(c[1].rival, 0.95, 1e-9);
    CHECK_NEAR(c[0].veto, -1, 1e-9);
    CHECK_NEAR(c[0].agree, 2.0 / 3, 1e-9);
    CHECK_NEAR(c[1].agree, 1.0 / 3, 1e-9);
    CHECK_INT(candidates_gather(texts, 3, c, 1), 1);
}

TEST(equal_answers_are_no_rivals_and_texts_of_entries_that_are_gone_lead_nowhere)
{
    struct question a = own(1, 10), twin = own(2, 10), orphan = judged(1, 9);
    struct near_text texts[] = {{&orphan, NULL, 0.99}, {&a, &a, 0.95}, {&twin, &twin, 0.94}};
    struct candidate c[4];
    REQUIRE(candidates_gather(texts, 3, c, 4) == 2);
    CHECK(c[0].own == &a && c[0].rival == -1 && c[1].rival == -1);
}

TEST(a_judged_text_stands_against_the_entries_it_names)
{
    struct question a = own(1, 10), b = own(2, 20), near = judged(1, 0);
    struct hash128 forbids[] = {{7, 7}, {1, 1}};
    near.vetoed = forbids, near.n_vetoed = 2;
    near.entry = (struct hash128){0, 0};
    struct near_text texts[] = {{&a, &a, 0.95}, {&near, NULL, 0.94}, {&b, &b, 0.93}};
    struct candidate c[4];
    REQUIRE(candidates_gather(texts, 3, c, 4) == 2);
    CHECK_NEAR(c[0].veto, 0.94, 1e-9);
    CHECK_NEAR(c[1].veto, -1, 1e-9);
    CHECK(candidate_vetoed_by(&near, a.id) && !candidate_vetoed_by(&near, b.id));
}

TEST(random_pictures_agree_with_a_slow_reading)
{
    enum { ENTRIES = 6, TEXTS = 24 };
    struct rng r;
    rng_seed(&r, 17);
    for (int round = 0; round < 2000; round++) {
        struct question entries[ENTRIES], texts_of[TEXTS];
        struct near_text t[TEXTS];
        struct hash128 vetoed[TEXTS];
        struct candidate c[TEXTS];
        size_t n = 1 + rng_below(&r, TEXTS - 1);
        for (uint64_t i = 0; i < ENTRIES; i++)
            entries[i] = own(i + 1, rng_below(&r, 4));
        for (size_t i = 0; i < n; i++) {
            uint64_t e = rng_below(&r, ENTRIES);
            texts_of[i] = judged(i, e + 1);
            vetoed[i] = entries[rng_below(&r, ENTRIES)].id;
            if (rng_below(&r, 3) == 0) texts_of[i].vetoed = &vetoed[i], texts_of[i].n_vetoed = 1;
            t[i] = (struct near_text){&texts_of[i], rng_below(&r, 5) ? &entries[e] : NULL,
                                      1.0 - (double)i / 100};
        }
        size_t got = candidates_gather(t, n, c, TEXTS), want = 0;
        for (size_t i = 0; i < n; i++) {
            bool seen = false;
            for (size_t k = 0; k < i; k++)
                seen = seen || t[k].own == t[i].own;
            if (!t[i].own || seen) continue;
            REQUIRE(want < got);
            CHECK(c[want].q == t[i].q && c[want].own == t[i].own);
            double rival = -1, veto = -1;
            for (size_t k = n; k-- > 0;) {
                const struct question *o = t[k].own;
                if (o && o != t[i].own && (!o->answer || o->answer != t[i].own->answer))
                    rival = t[k].cosine;
                if (t[k].q->n_vetoed && hash_eq(vetoed[k], t[i].own->id)) veto = t[k].cosine;
            }
            CHECK_NEAR(c[want].rival, rival, 1e-12);
            CHECK_NEAR(c[want].veto, veto, 1e-12);
            want++;
        }
        CHECK_INT(got, want);
    }
}

TEST_MAIN()
