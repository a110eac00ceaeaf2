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

TEST_MAIN()
