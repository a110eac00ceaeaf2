/* test_guard_asks.c - goal: what the answer would have to be is compared however the questions are worded. Method: pairs in both
 * orders. */
#include "tests/unit/cache/guard_rig.h"

TEST(one_of_several_is_not_yes_or_no_and_one_state_is_not_another)
{
    static const struct pair p[] = {
        {"which insurer do you use for Kenya", "Is Kenya among the countries you insure?", ""},
        {"Which is cheaper, tea or coffee?", "Is tea or coffee cheaper?", ""},
        {"pears order, did it come today", "Was my order of pears paid today?", ""},
        {"Was the contract signed yesterday?", "the contract, did u print it yesterday", ""},
        {"Who pays for the return", "Who do I pay for the return", "subject"},
        {"Was the contract signed yesterday?", "the contract, did u send it yesterday", ""},
        {"How old must I be to rent a car?", "how old may the rental car be", "modality"},
        {"电梯什么时候修", "电梯什么时候修好的", "tense"},
        {"请问什么时候发货的", "什么时候发货的", NULL},
        {"send the code to me", "send the code", ""},
        {"explain DNS to me", "explain DNS", NULL},
        {"Was my order canceled?", "Was my order cancelled?", NULL},
    };
    static const char *const by[] = {"question", "", "thing", "", "subject"};
    CHECK_PAIRS(p);
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        struct guard_verdict v = check(str_of(p[i].a), str_of(p[i].b));
        if (*by[i]) CHECK_AT(v.hard & guard_bit(by[i]), "%s / %s: not hard", p[i].a, p[i].b);
    }
}

TEST(how_long_it_takes_is_not_how_long_there_is_for_it)
{
    static const struct pair p[] = {
        {"tell me how long a refund takes", "how long do we have to ask for a refund", ""},
        {"How long will it take to return the shoes?", "How long can I return the shoes?", ""},
        {"How many days does the refund take?", "how many days have i got to request the refund",
         ""},
        {"How long do I have to return shoes?", "How many days do we have to return shoes?", NULL},
    };
    static const struct pair same_span[] = {
        {"How long do I have to wait for a refund?", "How long does a refund take?", ""},
        {"How long can I expect a refund to take?", "How long does a refund take?", ""},
        {"How long do I have to be registered to sell?", "How long does it take to sell?", ""},
    };
    CHECK_PAIRS(p);
    for (size_t i = 0; i < 3; i++) {
        struct guard_verdict v = check(str_of(p[i].a), str_of(p[i].b));
        CHECK_AT(v.hard & guard_bit("question"), "%s / %s: not hard", p[i].a, p[i].b);
    }
    for (size_t i = 0; i < sizeof same_span / sizeof *same_span; i++) {
        struct guard_verdict v = check(str_of(same_span[i].a), str_of(same_span[i].b));
        CHECK_AT(!(v.hard & guard_bit("question")), "%s / %s", same_span[i].a, same_span[i].b);
    }
}

TEST_MAIN()
