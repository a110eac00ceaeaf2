/* test_answers.c - goal: only what is plain is decided: equal answers agree, a differing fact differs, the rest is for a judge. */
#include "cache/answers.h"

#include "tests/check.h"

TEST(only_what_is_plain_is_decided)
{
    static const struct {
        const char *a, *b;
        enum answers_verdict want;
    } cases[] = {
        {"Press Forgot.", "Press Forgot.", ANSWERS_AGREE},
        {" Press Forgot.\n", "Press Forgot.", ANSWERS_AGREE},
        {"Press Forgot.", "press forgot", ANSWERS_AGREE},
        {"It takes 3 days.", "It takes 5 days.", ANSWERS_DIFFER},
        {"You can return it.", "You cannot return it.", ANSWERS_DIFFER},
        {"需要3天。", "需要5天。", ANSWERS_DIFFER},
        {"Ask the staff at the desk.", "Everything is in the leaflet.", ANSWERS_UNKNOWN},
        {"", "Press Forgot.", ANSWERS_UNKNOWN},
    };
    struct guard *g = guard_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum answers_verdict got = answers_compare(g, str_of(cases[i].a), str_of(cases[i].b));
        CHECK_AT(got == cases[i].want, "%s / %s: %d", cases[i].a, cases[i].b, got);
    }
    guard_free(g);
}

TEST(the_text_of_an_answer_is_its_first_choice)
{
    struct openai_answer a = {0};
    struct errmsg e = {0};
    REQUIRE(
        openai_answer_parse(&a, OPENAI_CHAT,
                            STR("{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,"
                                "\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
                                "\"assistant\",\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}"),
                            &e) == OK);
    CHECK_STR(answer_text(&a), "Hi");
    openai_answer_fini(&a);
    struct openai_answer none = {0};
    CHECK_INT(answer_text(&none).n, 0);
}

TEST_MAIN()
