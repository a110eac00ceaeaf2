/* Goal: the chain of models that may answer for another is the one the operator wrote. */
#include "gateway/fallback.h"

#include "base/buf.h"
#include "tests/check.h"

TEST(models_are_named_in_their_order_and_then_none)
{
    static const char lines[] = "big=middle, small\nother=x\n*=last";
    CHECK(str_eqz(fallback_of(lines, STR("big"), 0), "middle"));
    CHECK(str_eqz(fallback_of(lines, STR("big"), 1), "small"));
    CHECK(!fallback_of(lines, STR("big"), 2).p);
    CHECK(str_eqz(fallback_of(lines, STR("other"), 0), "x"));
    CHECK(!fallback_of(lines, STR("other"), 1).p);
}

TEST(star_holds_for_models_without_a_line_and_never_leads_a_model_to_itself)
{
    static const char lines[] = "*=last,big\nbig=small";
    CHECK(str_eqz(fallback_of(lines, STR("unknown"), 0), "last"));
    CHECK(str_eqz(fallback_of(lines, STR("unknown"), 1), "big"));
    CHECK(str_eqz(fallback_of(lines, STR("big"), 0), "small"));
    CHECK(!fallback_of(lines, STR("big"), 1).p);
    CHECK(str_eqz(fallback_of(lines, STR("last"), 0), "big"));
    CHECK(!fallback_of(lines, STR("last"), 1).p);
}

TEST(blanks_after_the_last_comma_are_no_model)
{
    static const char lines[] = "a=b, \t\n*=c,  ";
    CHECK_INT(fallback_check(lines, NULL), ERR_INVALID);
    CHECK(str_eqz(fallback_of(lines, STR("a"), 0), "b"));
    CHECK(!fallback_of(lines, STR("a"), 1).p);
    CHECK(!fallback_of(lines, STR("x"), 1).p);
}

TEST(without_lines_there_is_no_fallback)
{
    CHECK(!fallback_of("", STR("m"), 0).p);
    CHECK_INT(fallback_check("", NULL), OK);
}

static void join(void *arg, struct str other)
{
    buf_str(arg, other);
    buf_char(arg, ';');
}

TEST(all_models_that_may_answer_are_listed)
{
    struct buf seen;
    buf_init(&seen, 1024);
    fallback_each("big = middle , small,\n\n*=x\nbroken\nsmall=x", join, &seen);
    CHECK(str_eqz(buf_view(&seen), "middle;small;x;x;"));
    buf_fini(&seen);
}

TEST(lines_that_lead_nowhere_are_refused)
{
    static const char *const bad[] = {"big",      "=x",      "big=",          "big=,",
                                      "big=a,,b", "big=big", "big=a,b,c,d,e", "a=b\nc"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct errmsg e = {0};
        CHECK_AT(fallback_check(bad[i], &e) == ERR_INVALID && e.text[0], "%s", bad[i]);
    }
    CHECK_INT(fallback_check("a=b,c,d,e\n*=a", NULL), OK);
}

TEST(what_is_wrong_in_a_line_is_said_with_its_number)
{
    static const struct {
        const char *lines, *said;
    } cases[] = {{"a=b\n\na=c",
                  "line 3: \"a=c\": line 1 is of a too: expected one line with all its others"},
                 {"*=a\nb=c\n * = d", "line 3: \"* = d\": line 1 is of * too: expected one line"},
                 {"a=b\nc=d,*",
                  "line 2: \"*\": expected the name of a model after =: * stands for any only "
                  "before it"},
                 {"*=*", "line 1: \"*\": expected the name of a model after ="},
                 {"a=b\nNone",
                  "line 2: \"None\": expected no other line, ; or comment beside it: none stands "
                  "alone"},
                 {"none\na=b", "line 1: \"none\": expected no other line"},
                 {"a=b,", "line 1: \"a=b,\": expected model=other,third"},
                 {"a=b\nc", "line 2: \"c\": expected model=other,third"},
                 {"a=b\nc=c", "line 2: c is its own fallback"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct errmsg e = {0};
        CHECK_INT(fallback_check(cases[i].lines, &e), ERR_INVALID);
        CHECK_AT(!strncmp(e.text, cases[i].said, strlen(cases[i].said)), "%s: %s", cases[i].lines,
                 e.text);
    }
    CHECK_INT(fallback_check("none=a\na=b\nab=c", NULL), OK);
}

TEST(lines_have_a_bound)
{
    char text[FALLBACK_LINES_MAX * 8 + 16] = "";
    size_t n = 0;
    for (int i = 0; i < FALLBACK_LINES_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "m%d=a\n", i);
    CHECK_INT(fallback_check(text, NULL), OK);
    struct errmsg e = {0};
    snprintf(text + n, sizeof text - n, "more=a");
    CHECK_INT(fallback_check(text, &e), ERR_INVALID);
    CHECK_Z(e.text, "more than 256 lines");
}

TEST_MAIN()
