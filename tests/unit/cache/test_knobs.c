/* test_knobs.c - goal: a knob has one name, one range and one meaning; what may not be is refused with what would be right, and changes
 * nothing. Method: tables, and every row of the table itself written and read back. */
#include "cache/knobs.h"

#include <string.h>

#include "base/mem.h"
#include "cache/guard.h"
#include "tests/check.h"

TEST(every_knob_is_written_and_read_back_at_both_ends_of_its_range)
{
    for (size_t i = 0; i < knobs_count(); i++) {
        struct knob k = knob_at(i), found;
        struct errmsg e = {0};
        char text[KNOB_TEXT_BYTES], again[KNOB_TEXT_BYTES];
        double ends[] = {k.min, k.max, k.preset};
        CHECK(k.min <= k.preset && k.preset <= k.max && k.min < k.max && k.help[0]);
        CHECK(strlen(k.help) < 100 && !strchr(k.help, '"') && !strchr(k.help, '\\'));
        CHECK(knob_find(str_of(k.name), &found, &e) == OK && !strcmp(found.name, k.name));
        for (int j = 0; j < 3; j++) {
            struct cache_knobs v = knobs_default();
            if (k.type == KNOB_CHOICE) {
                struct str words = str_of(k.choices), word = {0};
                for (int w = 0; w <= (int)ends[j]; w++)
                    CHECK(str_next(&words, ' ', &word));
                snprintf(text, sizeof text, STR_FMT, STR_ARG(word));
            } else if (k.type == KNOB_BOOL) {
                snprintf(text, sizeof text, "%s", ends[j] > 0 ? "yes" : "no");
            } else {
                snprintf(text, sizeof text, "%.15g", ends[j]);
            }
            CHECK(knobs_set(&v, str_of(k.name), str_of(text), &e) == OK);
            knob_format(&v, &k, again);
            CHECK_Z(again, text);
            CHECK(knobs_set(&v, str_of(k.name), STR("default"), &e) == OK);
            struct cache_knobs fresh = knobs_default();
            CHECK(!memcmp(&v, &fresh, sizeof v));
        }
    }
}

TEST(a_wrong_value_is_refused_with_what_would_be_right_and_changes_nothing)
{
    static const struct {
        const char *name, *value;
        enum err code;
        const char *text;
    } t[] = {
        {"threshold_en", "1.2", ERR_RANGE,
         "threshold_en: 1.2 is too high; it may be 0 to 1 cosine"},
        {"threshold_en", "high", ERR_INVALID,
         "threshold_en: expected a number from 0 to 1 cosine, not \"high\""},
        {"threshold_en", "nan", ERR_INVALID,
         "threshold_en: expected a number from 0 to 1 cosine, not \"nan\""},
        {"ttl_s", "0", ERR_RANGE, "ttl_s: 0 is too low; it may be 1 to 31536000 s"},
        {"ttl_s", "1.5", ERR_INVALID,
         "ttl_s: expected a whole number from 1 to 31536000 s, not 1.5"},
        {"ttl_s", "", ERR_INVALID, "ttl_s: expected a whole number from 1 to 31536000 s, not \"\""},
        {"mode", "fast", ERR_INVALID, "mode: expected one of threshold bound, not \"fast\""},
        {"judge", "maybe", ERR_INVALID, "judge: expected yes or no, not \"maybe\""},
        {"treshold_en", "0.9", ERR_NOT_FOUND,
         "no knob is called \"treshold_en\": did you mean \"threshold_en\"?"},
        {"xyzzy", "1", ERR_NOT_FOUND, "no knob is called \"xyzzy\""},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct cache_knobs k = knobs_default(), before = k;
        struct errmsg e = {0};
        CHECK(knobs_set(&k, str_of(t[i].name), str_of(t[i].value), &e) == t[i].code);
        CHECK_Z(e.text, t[i].text);
        CHECK(!memcmp(&k, &before, sizeof k));
    }
}

TEST(a_guard_that_is_off_does_not_refuse_and_the_others_still_do)
{
    struct guard *g = guard_new();
    struct guard_verdict v;
    struct cache_knobs k = knobs_default();
    struct errmsg e = {0};
    struct str a = STR("How do I pay 20 euros?"), b = STR("How do I pay 30 euros?"),
               c = STR("Why can I not pay 30 euros?");
    guard_check(g, a, b, &v);
    CHECK(!v.allowed);
    char name[64];
    snprintf(name, sizeof name, "guard_%s", v.refused_by);
    CHECK(knobs_set(&k, str_of(name), STR("no"), &e) == OK);
    guard_check_without(g, k.guards_off, a, b, &v);
    CHECK(strcmp(v.refused_by, name + 6) != 0);
    guard_check_without(g, k.guards_off, a, c, &v);
    CHECK(!v.allowed);
    guard_free(g);
}

TEST(the_table_is_written_for_redis_and_for_people_with_every_name)
{
    struct buf lua, md;
    buf_init(&lua, 1 << 20);
    buf_init(&md, 1 << 20);
    knobs_write_lua(&lua);
    knobs_write_markdown(&md);
    CHECK(!buf_failed(&lua) && !buf_failed(&md));
    for (size_t i = 0; i < knobs_count(); i++) {
        char quoted[64];
        struct knob k = knob_at(i);
        snprintf(quoted, sizeof quoted, "name='%s'", k.name);
        CHECK(str_find(buf_view(&lua), str_of(quoted)) >= 0);
        snprintf(quoted, sizeof quoted, "| `%s` |", k.name);
        CHECK(str_find(buf_view(&md), str_of(quoted)) >= 0);
    }
    buf_fini(&lua);
    buf_fini(&md);
}

TEST_MAIN()
