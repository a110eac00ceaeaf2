/* Goal: single members of a request change and every other byte stays. Method: a table; then, for every member of generated objects,
 * the result parses to what jansson makes of the same change. */
#include "base/json.h"
#include "base/rng.h"
#include "gateway/body_edit.h"
#include "tests/check.h"

static const struct {
    const char *in, *name, *value, *want; /* value NULL = take out */
    bool add;
} cases[] = {
    {"{\"a\":1,\"cache\":{\"x\":[1,\"}\"]},\"b\":2}", "cache", NULL, "{\"a\":1,\"b\":2}", false},
    {"{\"cache\":true,\"b\":2}", "cache", NULL, "{\"b\":2}", false},
    {"{\"b\":2 , \"cache\" : null }", "cache", NULL, "{\"b\":2}", false},
    {"{\"cache\":1}", "cache", NULL, "{}", false},
    {"{ }", "cache", NULL, "{ }", false},
    {"{\"m\":{\"cache\":1},\"n\":\"\\\"cache\\\":1\"}", "cache", NULL,
     "{\"m\":{\"cache\":1},\"n\":\"\\\"cache\\\":1\"}", false},
    {"{\"c\\u0061che\":1,\"b\":1.50}", "cache", NULL, "{\"b\":1.50}", false},
    {"{\"model\" : \"x\\\"y\", \"t\":0.70}", "model", "\"z\"", "{\"model\" : \"z\", \"t\":0.70}",
     false},
    {"{\"t\":1e2,\"model\":\"x\"}\n", "model", "\"z\"", "{\"t\":1e2,\"model\":\"z\"}\n", false},
    {"{\"t\":1}", "so", "{\"u\":true}", "{\"t\":1,\"so\":{\"u\":true}}", true},
    {"{}", "so", "1", "{\"so\":1}", true},
    {"{\"t\":-1.5e-3}", "so", "1", "{\"t\":-1.5e-3}", false},
};

TEST(members_change_and_other_bytes_stay)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf out;
        struct body_edit edit = {cases[i].name, str_of(cases[i].value), cases[i].add};
        if (!cases[i].value) edit.value.p = NULL;
        buf_init(&out, 4096);
        CHECK_INT(body_edit(&out, str_of(cases[i].in), &edit, 1), OK);
        CHECK_STR(buf_view(&out), cases[i].want);
        buf_fini(&out);
    }
}

TEST(texts_that_are_no_object_are_refused_without_reading_past_their_end)
{
    static const char *const bad[] = {"",           "[1]",        "\"x\"",     "{",
                                      "{\"a",       "{\"a\"",     "{\"a\":",   "{\"a\":1",
                                      "{\"a\":\"x", "{\"a\":[1,", "{\"a\":1,", "{\"a\\"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf out;
        struct body_edit edit = {"a", {NULL, 0}, false};
        size_t n = strlen(bad[i]);
        char *exact = malloc(n ? n : 1); /* no terminator: the sanitizer sees an over-read */
        memcpy(exact, bad[i], n);
        buf_init(&out, 4096);
        CHECK_AT(body_edit(&out, (struct str){exact, n}, &edit, 1) == ERR_INVALID, "%s was taken",
                 bad[i]);
        buf_fini(&out);
        free(exact);
    }
}

TEST(result_equals_the_change_made_by_a_json_library)
{
    for (uint64_t seed = 1; seed < 200; seed++) {
        struct rng r;
        struct buf text, out;
        rng_seed(&r, seed);
        buf_init(&text, 4096);
        buf_init(&out, 4096);
        size_t n = 1 + rng_below(&r, 5);
        static const char *const values[] = {
            "1", "\"a,}\\\\\"", "[{},[ ]]", "null", "{\"k0\":{\"k1\":\"]\"}}", " true ", "-0.5"};
        buf_char(&text, '{');
        for (size_t i = 0; i < n; i++)
            buf_printf(&text, "%s%s\"k%zu\"%s:%s", i ? "," : "", rng_below(&r, 2) ? " " : "", i,
                       rng_below(&r, 2) ? "\n" : "", values[rng_below(&r, 7)]);
        buf_z(&text, rng_below(&r, 2) ? " }" : "}");
        char name[8];
        snprintf(name, sizeof name, "k%d", (int)rng_below(&r, n));
        bool take_out = rng_below(&r, 2);
        struct body_edit edit = {name, take_out ? (struct str){0} : STR("\"new\""), false};
        CHECK_INT(body_edit(&out, buf_view(&text), &edit, 1), OK);
        json_t *want = json_loadb(text.p, text.n, 0, NULL),
               *got = json_loadb(out.p, out.n, JSON_REJECT_DUPLICATES, NULL);
        if (take_out)
            json_object_del(want, name);
        else
            json_object_set_new(want, name, json_string("new"));
        CHECK_AT(got && json_equal(want, got), "seed %llu: %s -> %s", (unsigned long long)seed,
                 text.p, out.p);
        json_decref(want);
        json_decref(got);
        buf_fini(&text);
        buf_fini(&out);
    }
}

TEST(output_over_its_bound_is_told)
{
    struct buf out;
    struct body_edit edit = {"a", STR("\"0123456789\""), false};
    buf_init(&out, 10);
    CHECK_INT(body_edit(&out, STR("{\"a\":1}"), &edit, 1), ERR_TOO_LARGE);
    buf_fini(&out);
}

TEST_MAIN()
