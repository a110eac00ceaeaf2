/* test_experiment.c - goal: an arm is a function of salt, shares and unit alone, shares are kept, and a change of one share moves only
 * who must move. Method: many units counted against the binomial spread (5 standard deviations; the hash is fixed, so this either
 * holds or not). */
#include "gateway/experiment.h"

#include <math.h>
#include <stdio.h>

#include "tests/check.h"

static bool make(struct experiment *x, const char *text)
{
    json_t *doc = NULL;
    struct errmsg e = {0};
    bool ok = json_parse(str_of(text), 0, &doc, &e) == OK && experiment_parse(x, doc, &e) == OK;
    if (!ok) printf("    %s\n", e.text);
    json_decref(doc);
    return ok;
}

static int arm_of(const struct experiment *x, int i)
{
    char user[32];
    snprintf(user, sizeof user, "user-%d", i);
    return experiment_arm(x, STR(""), STR("t"), str_of(user), (struct hash128){0, (uint64_t)i});
}

TEST(each_arm_gets_its_share_and_the_rest_takes_no_part)
{
    static const char *const splits[] = {"user", "request"};
    enum { N = 40000 };
    for (int s = 0; s < 2; s++) {
        struct experiment x;
        char text[300];
        snprintf(
            text, sizeof text,
            "{\"name\":\"e\",\"salt\":\"pepper\",\"split\":\"%s\",\"arms\":[{\"name\":\"a\","
            "\"percent\":10},{\"name\":\"b\",\"percent\":30},{\"name\":\"c\",\"percent\":20}]}",
            splits[s]);
        REQUIRE(make(&x, text));
        double share[4] = {0.4, 0.1, 0.3, 0.2}; /* out, a, b, c */
        int count[4] = {0};
        for (int i = 0; i < N; i++)
            count[arm_of(&x, i) + 1]++;
        for (int i = 0; i < 4; i++)
            CHECK(fabs(count[i] - N * share[i]) < 5 * sqrt(N * share[i] * (1 - share[i])));
    }
}

TEST(the_arm_stays_and_depends_on_the_salt)
{
    struct experiment x, y, z;
    const char *form =
        "{\"name\":\"e\",\"salt\":\"%s\",\"split\":\"user\",\"arms\":[{\"name\":\"a\","
        "\"percent\":50},{\"name\":\"b\",\"percent\":50}]}";
    char text[300];
    snprintf(text, sizeof text, form, "one");
    REQUIRE(make(&x, text) && make(&y, text));
    snprintf(text, sizeof text, form, "two");
    REQUIRE(make(&z, text));
    int same = 0, n = 10000;
    for (int i = 0; i < n; i++) {
        CHECK(arm_of(&x, i) == arm_of(&y, i));
        same += arm_of(&x, i) == arm_of(&z, i);
    }
    CHECK(same > n * 45 / 100 && same < n * 55 / 100);
    /* recorded: an update of the program must not move anybody */
    char arms[21] = {0};
    for (int i = 0; i < 20; i++)
        arms[i] = (char)('a' + arm_of(&x, i));
    CHECK_Z(arms, "bbbbbbaaabbbbbbaabba");
}

TEST(a_changed_share_moves_units_only_out_of_what_shrank_or_into_what_grew)
{
    struct experiment x, y;
    REQUIRE(make(
        &x,
        "{\"name\":\"e\",\"salt\":\"s\",\"split\":\"user\",\"arms\":[{\"name\":\"a\",\"percent\":"
        "40},{\"name\":\"b\",\"percent\":40}]}"));
    y = x;
    y.arms[1].percent = 55; /* from the rest, which had 20 */
    for (int i = 0; i < 5000; i++) {
        int before = arm_of(&x, i), after = arm_of(&y, i);
        if (before == 1) CHECK(after == 1);
        if (after != before) CHECK(before == -1 || after == 1);
    }
}

TEST(whoever_has_no_unit_or_another_namespace_takes_no_part)
{
    struct experiment x;
    REQUIRE(make(
        &x, "{\"name\":\"e\",\"salt\":\"s\",\"ns\":\"faq\",\"split\":\"user\",\"arms\":[{\"name\":"
            "\"a\",\"percent\":50},{\"name\":\"b\",\"percent\":50}]}"));
    struct hash128 h = {1, 2};
    CHECK(experiment_arm(&x, STR("faq"), STR("t"), STR("u"), h) >= 0);
    CHECK(experiment_arm(&x, STR("faq"), STR("t"), STR(""), h) == -1);
    CHECK(experiment_arm(&x, STR(""), STR("t"), STR("u"), h) == -1);
    CHECK(experiment_arm(&x, STR("faqs"), STR("t"), STR("u"), h) == -1);
}

TEST(a_definition_that_is_wrong_is_refused_with_the_place)
{
    static const struct {
        const char *text, *place;
    } t[] = {
        {"{}", "experiment.name"},
        {"{\"name\":\"e\"}", "experiment.salt"},
        {"{\"name\":\"e\",\"salt\":\"s\",\"split\":\"coin\"}", "experiment.split"},
        {"{\"name\":\"e\",\"salt\":\"s\",\"split\":\"user\",\"arms\":[{\"name\":\"a\",\"percent\":"
         "100}]}",
         "experiment.arms"},
        {"{\"name\":\"e\",\"salt\":\"s\",\"split\":\"user\",\"arms\":[{\"name\":\"a\",\"percent\":"
         "60},{\"name\":"
         "\"b\",\"percent\":60}]}",
         "experiment.arms[1]"},
        {"{\"name\":\"e\",\"salt\":\"s\",\"split\":\"user\",\"arms\":[{\"name\":\"a\",\"percent\":"
         "0},{\"name\":"
         "\"b\",\"percent\":60}]}",
         "experiment.arms[0]"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        json_t *doc = NULL;
        struct experiment x;
        struct errmsg e = {0};
        CHECK(json_parse(str_of(t[i].text), 0, &doc, &e) == OK);
        CHECK(experiment_parse(&x, doc, &e) == ERR_INVALID);
        CHECK(str_starts(str_of(e.text), str_of(t[i].place)));
        json_decref(doc);
    }
}

TEST_MAIN()
