/* test_recent.c - goal: a decision is found by its question and entry until another one takes its place. */
#include "cache/recent.h"

#include "tests/check.h"

TEST(a_decision_is_found_by_question_and_entry_until_replaced_or_dropped)
{
    struct recents *r = recents_new();
    struct recent x = {.question = {1, 2}, .entry = {3, 4}, .served = true};
    struct hash128 other = {5, 6};
    CHECK(!recents_find(r, (struct hash128){0, 0}, NULL));
    CHECK(!recents_find(r, x.question, NULL));
    recents_note(r, &x);
    const struct recent *found = recents_find(r, x.question, &x.entry);
    REQUIRE(found != NULL);
    CHECK(found->served && hash_eq(found->entry, x.entry));
    CHECK(recents_find(r, x.question, NULL) && !recents_find(r, x.question, &other));
    struct recent same_place = {.question = {9, 2}, .entry = other};
    recents_note(r, &same_place);
    CHECK(!recents_find(r, x.question, NULL) && recents_find(r, same_place.question, &other));
    recents_drop(r, x.question); /* not there: nothing happens */
    CHECK(recents_find(r, same_place.question, NULL) != NULL);
    recents_drop(r, same_place.question);
    CHECK(!recents_find(r, same_place.question, NULL));
    recents_free(r);
}

TEST(the_latest_decision_on_an_entry_is_found_by_text_or_as_the_last_that_was_served)
{
    struct recents *r = recents_new();
    struct hash128 entry = {3, 4};
    uint64_t a = recents_text(STR("a")), b = recents_text(STR("b"));
    CHECK(recents_latest(r, entry, 0) == NULL);
    for (uint64_t i = 1; i <= 4; i++) {
        struct recent x = {.question = {1, i},
                           .entry = entry,
                           .text = i % 2 ? a : b,
                           .view = {.cosine = (double)i},
                           .served = i < 3};
        recents_note(r, &x);
    }
    CHECK(recents_latest(r, entry, a)->view.cosine == 3);
    CHECK(recents_latest(r, entry, b)->view.cosine == 4);
    CHECK(recents_latest(r, entry, 0)->view.cosine == 2);
    CHECK(!recents_latest(r, entry, recents_text(STR("c"))));
    CHECK(!recents_latest(r, (struct hash128){5, 5}, 0));
    recents_free(r);
}

TEST_MAIN()
