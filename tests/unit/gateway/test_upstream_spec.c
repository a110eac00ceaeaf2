/* Goal: what an operator writes about an upstream is read as meant, or refused with the word that is wrong. */
#include "gateway/upstream_spec.h"
#include "tests/check.h"

static bool reads(const char *line, struct upstream_spec *s)
{
    struct errmsg e = {0};
    enum err code = upstream_spec_parse(str_of(line), s, &e);
    CHECK_AT(code == OK, "%s: %s", line, e.text);
    return code == OK;
}

TEST(bare_url_is_an_upstream_of_any_model_with_weight_one)
{
    struct upstream_spec s;
    struct str name;
    REQUIRE(reads("http://127.0.0.1:8000/v1", &s));
    CHECK_INT(s.origin.port, 8000);
    CHECK_NEAR(s.weight, 1, 0);
    CHECK_INT(s.max_concurrency, 0);
    CHECK_INT(upstream_spec_serves(&s, STR("anything"), &name), SPEC_ANY);
    CHECK(str_eqz(name, "anything"));
}

TEST(every_option_is_read)
{
    struct upstream_spec s;
    REQUIRE(reads("https://h/v1 models=gpt-4o,fast=llama3:8b weight=2.5 max_concurrency=64 "
                  "key_file=/k connect_ms=1 first_byte_ms=2 idle_ms=3 total_ms=4",
                  &s));
    CHECK(s.origin.tls);
    CHECK_NEAR(s.weight, 2.5, 1e-9);
    CHECK_INT(s.max_concurrency, 64);
    CHECK(!strcmp(s.key_file, "/k"));
    CHECK_INT(s.connect_ms + 10 * s.first_byte_ms + 100 * s.idle_ms + 1000 * s.total_ms, 4321);
}

TEST(list_of_models_says_what_is_served_and_under_which_name)
{
    static const struct {
        const char *models, *asked, *name;
        enum spec_serves serves;
    } cases[] = {{"models=a,b", "a", "a", SPEC_NAMED},
                 {"models=a,b", "c", "c", SPEC_NOT},
                 {"models=fast=gpt-4o-mini", "fast", "gpt-4o-mini", SPEC_NAMED},
                 {"models=fast=gpt-4o-mini", "gpt-4o-mini", "gpt-4o-mini", SPEC_NOT},
                 {"models=fast=m,*", "other", "other", SPEC_ANY},
                 {"models=fast=m,*", "fast", "m", SPEC_NAMED},
                 {"models=fast=a=b", "fast", "a=b", SPEC_NAMED},
                 {"models=a", "", "", SPEC_ANY},
                 {"models=ab", "a", "a", SPEC_NOT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct upstream_spec s;
        struct str name;
        char line[128];
        snprintf(line, sizeof line, "http://h %s", cases[i].models);
        REQUIRE(reads(line, &s));
        CHECK_AT(upstream_spec_serves(&s, str_of(cases[i].asked), &name) == cases[i].serves,
                 "%s asked for %s", cases[i].models, cases[i].asked);
        CHECK_AT(str_eqz(name, cases[i].name), "%s: " STR_FMT, cases[i].models, STR_ARG(name));
    }
}

TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *line, *word;
    } cases[] = {{"", "URL"},
                 {"ftp://h", "http"},
                 {"http://h weight=0", "weight"},
                 {"http://h weight=x", "weight"},
                 {"http://h weight=1e9", "weight"},
                 {"http://h max_concurrency=0", "max_concurrency"},
                 {"http://h max_concurrency=-1", "max_concurrency"},
                 {"http://h models=", "models"},
                 {"http://h models=a,,b", "models"},
                 {"http://h models=a=", "models"},
                 {"http://h models==b", "models"},
                 {"http://h wieght=3", "wieght"},
                 {"http://h loose", "loose"},
                 {"http://h key_file=", "key_file"},
                 {"http://h key_file=a key_env=B", "key_env"},
                 {"http://h idle_ms=99999999", "idle_ms"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct upstream_spec s;
        struct errmsg e = {0};
        CHECK_INT(upstream_spec_parse(str_of(cases[i].line), &s, &e), ERR_INVALID);
        CHECK_AT(strstr(e.text, cases[i].word), "%s: %s", cases[i].line, e.text);
    }
}

TEST(list_longer_than_its_room_is_refused)
{
    struct buf line;
    struct upstream_spec s;
    struct errmsg e = {0};
    buf_init(&line, 64 * 1024);
    buf_z(&line, "http://h models=m0");
    for (int i = 1; i < 1000; i++)
        buf_printf(&line, ",model-number-%d", i);
    CHECK_INT(upstream_spec_parse(buf_view(&line), &s, &e), ERR_INVALID);
    buf_fini(&line);
}

TEST(text_of_several_is_cut_at_urls_not_at_lines)
{
    struct str text =
        STR("# all of them\nhttp://a/v1 weight=2 # big\n\nhttp://b\nmodels=x\nweight=3\n"
            "  https://c#frag models=y\n");
    struct buf line;
    buf_init(&line, 1024);
    CHECK(upstream_spec_next(&text, &line) && str_eqz(buf_view(&line), "http://a/v1 weight=2"));
    CHECK(upstream_spec_next(&text, &line) &&
          str_eqz(buf_view(&line), "http://b models=x weight=3"));
    CHECK(upstream_spec_next(&text, &line) && str_eqz(buf_view(&line), "https://c#frag models=y"));
    CHECK(!upstream_spec_next(&text, &line));
    buf_fini(&line);
}

TEST_MAIN()
