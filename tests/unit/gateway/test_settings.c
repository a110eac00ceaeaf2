/* test_settings.c - goal: what Redis says is in force with the narrower scope before the wider, and what this program does not know harms
 * nothing. Method: documents as Redis writes them, tables. */
#include "gateway/settings.h"

#include "gateway/fallback.h"
#include "gateway/model_rules.h"

#include "tests/check.h"

static struct settings *parsed(const char *text)
{
    json_t *doc = NULL;
    struct settings *s = NULL;
    struct errmsg e = {0};
    struct cache_knobs base = knobs_default();
    base.threshold_en = 0.9; /* a start option */
    if (json_parse(str_of(text), 0, &doc, &e) != OK || settings_parse(&s, doc, &base, &e) != OK)
        printf("    %s\n", e.text);
    json_decref(doc);
    return s;
}

#define EXPERIMENT                                                                                 \
    "\"experiment\":{\"name\":\"x\",\"salt\":\"s\",\"ns\":\"\",\"split\":\"user\",\"arms\":["      \
    "{\"name\":\"a\",\"percent\":50},{\"name\":\"b\",\"percent\":50}]}"

TEST(a_narrower_scope_wins_over_a_wider_one_and_the_start_option_holds_where_nothing_is_set)
{
    struct settings *s =
        parsed("{\"version\":7,\"settings\":["
               "{\"scope\":\"arm:x/b\",\"name\":\"threshold_zh\",\"value\":\"0.99\"},"
               "{\"scope\":\"global\",\"name\":\"threshold_zh\",\"value\":\"0.95\"},"
               "{\"scope\":\"ns:faq\",\"name\":\"threshold_zh\",\"value\":\"0.97\"},"
               "{\"scope\":\"ns:faq\",\"name\":\"judge\",\"value\":\"yes\"}]," EXPERIMENT "}");
    REQUIRE(s);
    static const struct {
        const char *ns;
        int arm;
        double zh;
        bool judge;
    } t[] = {{"", -1, 0.95, false}, {"faq", -1, 0.97, true}, {"other", -1, 0.95, false},
             {"", 0, 0.95, false},  {"", 1, 0.99, false},    {"faq", 1, 0.99, true}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct cache_knobs k = settings_knobs(s, str_of(t[i].ns), t[i].arm);
        CHECK_NEAR(k.threshold_zh, t[i].zh, 1e-12);
        CHECK_NEAR(k.threshold_en, 0.9, 1e-12);
        CHECK(k.judge == t[i].judge);
    }
    CHECK(settings_version(s) == 7 && settings_count(s) == 4 && settings_passed(s) == 0);
    settings_free(s);
}

TEST(what_is_not_understood_is_passed_over_and_counted)
{
    struct settings *s = parsed(
        "{\"version\":1,\"settings\":["
        "{\"scope\":\"global\",\"name\":\"knob_of_tomorrow\",\"value\":\"1\"},"
        "{\"scope\":\"global\",\"name\":\"ttl_s\",\"value\":\"soon\"},"
        "{\"scope\":\"galaxy\",\"name\":\"ttl_s\",\"value\":\"5\"},"
        "{\"scope\":\"arm:x/a\",\"name\":\"ttl_s\",\"value\":\"5\"}," /* none runs */
        "{\"scope\":\"ns:\",\"name\":\"ttl_s\",\"value\":\"5\"},"
        "7,{\"scope\":\"global\",\"name\":\"ttl_s\",\"value\":\"60\"}],\"experiment\":null}");
    REQUIRE(s);
    CHECK(settings_passed(s) == 6 && settings_count(s) == 1);
    CHECK(settings_knobs(s, STR(""), -1).ttl_s == 60);
    CHECK(!settings_experiment(s));
    settings_free(s);
}

TEST(a_document_that_is_none_is_refused)
{
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "7",
                                      "{\"version\":-1,\"settings\":[]}",
                                      "{\"version\":1,\"settings\":{}}",
                                      "{\"version\":1.5,\"settings\":[]}"};
    struct cache_knobs base = knobs_default();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *doc = NULL;
        struct settings *s = NULL;
        struct errmsg e = {0};
        CHECK(json_parse(str_of(bad[i]), 0, &doc, &e) == OK);
        CHECK(settings_parse(&s, doc, &base, &e) == ERR_INVALID && !s && e.text[0]);
        json_decref(doc);
    }
}

TEST(texts_are_taken_where_they_can_be_read_and_stand_for_everybody)
{
    struct settings *s = parsed(
        "{\"version\":3,\"settings\":["
        "{\"scope\":\"global\",\"name\":\"route\",\"value\":\"a when load > 9 -> b; a -> c\"},"
        "{\"scope\":\"ns:x\",\"name\":\"fallback\",\"value\":\"a=b\"}],\"experiment\":null}");
    REQUIRE(s);
    CHECK(str_eqz(settings_text(s, "route"), "a when load > 9 -> b; a -> c"));
    CHECK(!settings_text(s, "fallback").p && settings_passed(s) == 1 && settings_count(s) == 1);
    settings_free(s);
    static const char *const bad[] = {"", "a", "a when x -> b", "none;a ->"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"version\":3,\"settings\":[{\"scope\":\"global\",\"name\":\"route\",\"value\":"
                 "\"%s\"}],\"experiment\":null}",
                 bad[i]);
        s = parsed(text);
        REQUIRE(s);
        CHECK_AT(!settings_text(s, "route").p && settings_passed(s) == 1, "%s", bad[i]);
        settings_free(s);
    }
}

TEST(rules_of_models_are_one_thing_with_references)
{
    struct model_rules *m = NULL;
    struct errmsg e = {0};
    REQUIRE(model_rules_new(&m, STR("a -> b; c when load > 1 -> d"), STR("a=b,c;*=d"), &e) == OK);
    CHECK(str_eqz(scenario_name(m->scenario, 1), "c"));
    CHECK(str_eqz(fallback_of(m->fallbacks, STR("x"), 0), "d"));
    CHECK(model_rules_ref(m) == m);
    model_rules_unref(m);
    CHECK(m->refs == 1);
    model_rules_unref(m);
    model_rules_unref(NULL);
    REQUIRE(model_rules_new(&m, STR("none"), STR(" None "), &e) == OK);
    CHECK(!m->scenario && !m->fallbacks[0]);
    model_rules_unref(m);
    CHECK(model_rules_new(&m, STR("a ->"), STR(""), &e) == ERR_INVALID);
    CHECK(!strncmp(e.text, "option route: ", 14));
    CHECK(model_rules_new(&m, STR(""), STR("a=a"), &e) == ERR_INVALID);
    CHECK(!strncmp(e.text, "option fallback: ", 17));
    CHECK(model_rules_new(&m, STR("a -> b"), STR("a=b;c=d,*"), &e) == ERR_INVALID);
    CHECK(!strncmp(e.text, "option fallback: line 2: \"*\"", 28));
    static const char *const beside[] = {"none;a=b", "a=b;NONE", "none;"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        CHECK(model_rules_new(&m, STR(""), str_of(beside[i]), &e) == ERR_INVALID);
        CHECK_AT(strstr(e.text, "none stands alone"), "%s: %s", beside[i], e.text);
    }
}

TEST_MAIN()
