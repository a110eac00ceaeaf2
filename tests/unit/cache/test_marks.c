/* test_marks.c - goal: an entry is void exactly when it was asked for before a removal that concerns it, and a denied answer stays
 * denied for its entry alone and for its time. Method: tables, random removals against a plain list. */
#include "cache/marks.h"

#include <stdio.h>

#include "base/rng.h"
#include "tests/check.h"

static struct mark_scope scope(const char *tenant, const char *model, const char *ns,
                               const char *tags, int64_t epoch)
{
    return (struct mark_scope){marks_name("tenant", str_of(tenant)),
                               marks_name("model", str_of(model)), marks_name("ns", str_of(ns)),
                               str_of(tags), epoch};
}

TEST(a_removal_voids_what_was_asked_for_before_it_and_nothing_else)
{
    static const struct {
        const char *removed;
        bool gone[5];
    } cases[] = {{"tenant:acme", {true, true, false, true, false}},
                 {"model:m2", {false, true, false, false, false}},
                 {"ns:faq", {false, false, true, false, false}},
                 {"ns:", {true, true, false, true, false}},
                 {"tag:b", {false, false, false, true, false}},
                 {"tag:", {false, false, false, false, false}},
                 {"all", {true, true, true, true, false}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct marks *m = marks_new();
        CHECK_INT(marks_set(m, str_of(cases[i].removed), 3), OK);
        CHECK_INT(marks_now(m), 3);
        const struct mark_scope entries[5] = {
            scope("acme", "m1", "", "", 2), scope("acme", "m2", "", "a", 2),
            scope("zeta", "m1", "faq", "", 2), scope("acme", "m1", "", "a,b", 2),
            scope("acme", "m2", "faq", "a,b", 3)};
        for (int k = 0; k < 5; k++)
            CHECK_AT(marks_void(m, &entries[k]) == cases[i].gone[k], "%s, entry %d",
                     cases[i].removed, k);
        marks_free(m);
    }
}

TEST(the_count_never_goes_back_and_clearing_forgets_the_rest)
{
    struct marks *m = marks_new();
    struct mark_scope e = scope("t", "m", "", "", 4);
    CHECK_INT(marks_set(m, STR("tenant:t"), 9), OK);
    CHECK_INT(marks_set(m, STR("tenant:t"), 7), OK); /* told late */
    CHECK(marks_void(m, &e));
    e.epoch = 8;
    CHECK(marks_void(m, &e));
    marks_clear(m);
    CHECK(!marks_void(m, &e));
    CHECK_INT(marks_now(m), 9);
    CHECK_INT(marks_set(m, STR("now"), 12), OK);
    CHECK_INT(marks_now(m), 12);
    CHECK(!marks_void(m, &e)); /* counting alone removes nothing */
    marks_free(m);
}

TEST(random_removals_agree_with_a_list)
{
    enum { NAMES = 300 };
    static int64_t removed[NAMES];
    struct marks *m = marks_new();
    struct rng r;
    char text[32];
    rng_seed(&r, 11);
    memset(removed, 0, sizeof removed);
    for (int64_t epoch = 1; epoch < 2000; epoch++) {
        uint64_t n = rng_below(&r, NAMES);
        snprintf(text, sizeof text, "tag:%d", (int)n);
        REQUIRE(marks_set(m, str_of(text), epoch) == OK);
        removed[n] = epoch;
        uint64_t a = rng_below(&r, NAMES), b = rng_below(&r, NAMES);
        snprintf(text, sizeof text, "%d,%d", (int)a, (int)b);
        struct mark_scope e =
            scope("t", "m", "", text, (int64_t)rng_below(&r, (uint64_t)epoch + 1));
        CHECK(marks_void(m, &e) == (removed[a] > e.epoch || removed[b] > e.epoch));
    }
    marks_free(m);
}

TEST(too_many_scopes_void_everything_older_rather_than_forget_one)
{
    struct marks *m = marks_new();
    char text[32];
    enum err code = OK;
    for (int i = 0; i <= MARKS_SCOPES_MAX && code == OK; i++) {
        snprintf(text, sizeof text, "tag:%d", i);
        code = marks_set(m, str_of(text), 5);
    }
    CHECK_INT(code, ERR_FULL);
    struct mark_scope e = scope("t", "m", "", "unheard", 4);
    CHECK(marks_void(m, &e));
    e.epoch = 5;
    CHECK(!marks_void(m, &e));
    marks_free(m);
}

TEST(a_denied_answer_is_refused_for_its_entry_and_its_time_only)
{
    struct marks *m = marks_new();
    struct hash128 a = {1, 2}, b = {1, 3};
    marks_deny(m, a, 77, 1000);
    CHECK(marks_denied(m, a, 77, 999) && !marks_denied(m, a, 77, 1000));
    CHECK(!marks_denied(m, a, 78, 999) && !marks_denied(m, b, 77, 999));
    marks_deny(m, a, 0, 1000);
    CHECK(!marks_denied(m, a, 0, 1));
    for (uint64_t i = 0; i < MARKS_DENIED_MAX + 10; i++) /* the bound holds, the youngest stay */
        marks_deny(m, (struct hash128){i, i * 31}, 5, (int64_t)(2000 + i));
    CHECK(
        marks_denied(m, (struct hash128){MARKS_DENIED_MAX + 9, (MARKS_DENIED_MAX + 9) * 31}, 5, 1));
    marks_free(m);
}

TEST(an_entry_set_aside_stays_so_until_it_is_cleared)
{
    struct marks *m = marks_new();
    struct hash128 a = {1, 2}, b = {2, 1};
    CHECK_INT(marks_aside(m, a), ASIDE_NOT);
    CHECK_INT(marks_set_aside(m, a, ASIDE_SET), OK);
    CHECK_INT(marks_set_aside(m, a, ASIDE_SET), OK);
    CHECK_INT(marks_aside(m, a), ASIDE_SET);
    CHECK_INT(marks_aside(m, b), ASIDE_NOT);
    CHECK_INT(marks_aside_count(m), 1);
    CHECK_INT(marks_set_aside(m, a, ASIDE_CLEARED), OK);
    CHECK_INT(marks_aside(m, a), ASIDE_CLEARED);
    CHECK_INT(marks_aside_count(m), 0);
    enum err code = OK;
    for (uint64_t i = 1; code == OK && i <= MARKS_ASIDE_MAX + 1; i++)
        code = marks_set_aside(m, (struct hash128){i * 77, i}, ASIDE_SET);
    CHECK_INT(code, ERR_FULL);
    marks_clear(m);
    CHECK_INT(marks_aside_count(m), 0);
    CHECK_INT(marks_aside(m, a), ASIDE_NOT);
    marks_free(m);
}

TEST_MAIN()
