/* Goal: what a client says about caching is read as RFC 9111 and our documentation say, and nonsense is refused by name. Table-driven. */
#include "gateway/controls.h"
#include "tests/check.h"

static enum err feed(struct controls *c, const char *name, const char *value,
                     struct openai_error *e)
{
    return controls_feed(c, str_of(name), str_of(value), e);
}

TEST(cache_control_directives_are_read_in_any_case_and_spacing)
{
    struct controls c;
    struct openai_error e = {0};
    controls_init(&c);
    CHECK_INT(feed(&c, "Cache-Control", " NO-Store ,max-age = 60, x=\"1,2\", only-if-cached", &e),
              OK);
    CHECK(c.no_store && c.only_if_cached && !c.skip_lookup && !c.bypass);
    CHECK_INT(c.max_age_s, 60);
    CHECK_INT(feed(&c, "cache-control", "max-age=\"30\"", &e), OK);
    CHECK_INT(c.max_age_s, 30);
    CHECK_INT(feed(&c, "cache-control", "max-age=90", &e), OK);
    CHECK_INT(c.max_age_s, 30);
    CHECK_INT(feed(&c, "cache-control", "no-cache", &e), OK);
    CHECK(c.skip_lookup);
}

TEST(stale_if_error_is_read_and_the_shorter_of_two_counts)
{
    struct controls c;
    struct openai_error e = {0};
    controls_init(&c);
    CHECK_INT(c.stale_if_error_s, -1);
    CHECK_INT(controls_feed(&c, STR("cache-control"), STR("stale-if-error=600, max-age=5"), &e),
              OK);
    CHECK_INT(c.stale_if_error_s, 600);
    CHECK_INT(c.max_age_s, 5);
    CHECK_INT(controls_feed(&c, STR("Cache-Control"), STR("stale-if-error=\"60\""), &e), OK);
    CHECK_INT(c.stale_if_error_s, 60);
    CHECK_INT(controls_feed(&c, STR("cache-control"), STR("stale-if-error=soon"), &e), OK);
    CHECK_INT(c.stale_if_error_s, 0);
}

TEST(max_age_of_zero_or_nonsense_means_do_not_look_up)
{
    static const char *const values[] = {"max-age=0", "max-age=abc", "max-age=-5", "max-age="};
    for (size_t i = 0; i < 4; i++) {
        struct controls c;
        struct openai_error e = {0};
        controls_init(&c);
        CHECK_INT(feed(&c, "cache-control", values[i], &e), OK);
        CHECK_AT(c.skip_lookup, "%s", values[i]);
    }
}

TEST(own_headers_are_read_and_bad_values_name_the_header)
{
    static const struct {
        const char *name, *value;
        bool good;
    } cases[] = {{"x-deja-cache", "bypass", true},     {"X-Deja-Cache", "EXACT", true},
                 {"x-deja-cache", "refresh", true},    {"x-deja-cache", "off", false},
                 {"x-deja-threshold", "0.97", true},   {"x-deja-threshold", "1.01", false},
                 {"x-deja-threshold", "-0.1", false},  {"x-deja-threshold", "nan", false},
                 {"x-deja-threshold", "", false},      {"x-deja-namespace", "faq-zh", true},
                 {"x-deja-namespace", "a b", false},   {"x-deja-namespace", "", false},
                 {"x-deja-namespace", "a{b}", false},  {"x-deja-tags", "a, b ,c:1", true},
                 {"x-deja-tags", "a,,b", false},       {"x-deja-tags", "a\"b", false},
                 {"x-deja-unknown", "anything", true}, {"x-other", "\x01", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct controls c;
        struct openai_error e = {0};
        controls_init(&c);
        enum err code = feed(&c, cases[i].name, cases[i].value, &e);
        CHECK_AT((code == OK) == cases[i].good, "%s: %s gave %s", cases[i].name, cases[i].value,
                 err_name(code));
        if (!cases[i].good) CHECK_INT(e.status, 400);
        if (!cases[i].good)
            CHECK_AT(str_ieq(str_of(e.param), str_of(cases[i].name)), "param is %s", e.param);
    }
}

TEST(priority_is_batch_or_online_or_nothing)
{
    struct openai_error e = {0};
    bool batch = false;
    CHECK_INT(controls_priority(&batch, STR(" BATCH "), &e), OK);
    CHECK(batch);
    CHECK_INT(controls_priority(&batch, STR("online"), &e), OK);
    CHECK(!batch);
    CHECK_INT(controls_priority(&batch, STR(""), &e), OK);
    CHECK(!batch);
    CHECK_INT(controls_priority(&batch, STR("high"), &e), ERR_INVALID);
    CHECK(e.status == 400 && !strcmp(e.param, "x-deja-priority"));
}

TEST(tags_are_kept_trimmed_and_threshold_keeps_the_highest)
{
    struct controls c;
    struct openai_error e = {0};
    controls_init(&c);
    CHECK_INT(feed(&c, "x-deja-tags", " shop , v2", &e), OK);
    CHECK_Z(c.tags, "shop,v2");
    CHECK_INT(feed(&c, "x-deja-threshold", "0.9", &e), OK);
    CHECK_INT(feed(&c, "x-deja-threshold", "0.1", &e), OK);
    CHECK_NEAR(c.threshold_min, 0.9, 1e-9);
}

TEST(namespace_of_64_characters_is_the_longest)
{
    struct controls c;
    struct openai_error e = {0};
    char ns[66];
    memset(ns, 'n', sizeof ns);
    ns[64] = 0;
    controls_init(&c);
    CHECK_INT(feed(&c, "x-deja-namespace", ns, &e), OK);
    ns[64] = 'n';
    ns[65] = 0;
    CHECK_INT(feed(&c, "x-deja-namespace", ns, &e), ERR_INVALID);
}

TEST(body_member_adds_to_the_headers_and_never_loosens_them)
{
    struct controls c;
    struct openai_error e = {0};
    struct openai_request r = {.cache_no_store = true,
                               .cache_ttl_s = 30,
                               .cache_max_age_s = 100,
                               .cache_namespace = "body"};
    controls_init(&c);
    c.max_age_s = 50;
    memcpy(c.ns, "head", 5);
    CHECK_INT(controls_from_body(&c, &r, &e), OK);
    CHECK(c.no_store && !c.skip_lookup);
    CHECK_INT(c.max_age_s, 50);
    CHECK_INT(c.ttl_s, 30);
    CHECK_Z(c.ns, "head");
    struct openai_request bad = {
        .cache_ttl_s = -1, .cache_max_age_s = -1, .cache_namespace = "a b"};
    controls_init(&c);
    CHECK_INT(controls_from_body(&c, &bad, &e), ERR_INVALID);
    CHECK_Z(e.param, "cache.namespace");
}

TEST(hop_by_hop_headers_and_connection_lists_are_known)
{
    CHECK(header_is_hop(STR("Transfer-Encoding")) && header_is_hop(STR("HOST")) &&
          header_is_hop(STR("content-length")));
    CHECK(!header_is_hop(STR("authorization")) && !header_is_hop(STR("x-te")));
    CHECK(header_in_list(STR("close, X-Mine ,y"), STR("x-mine")));
    CHECK(!header_in_list(STR("close, X-Mine"), STR("mine")));
}

TEST(bearer_token_is_read_in_any_case_and_nothing_else_is)
{
    CHECK_STR(header_bearer(STR("bEaReR  sk-1 ")), "sk-1");
    CHECK_INT(header_bearer(STR("Basic abc")).n, 0);
    CHECK_INT(header_bearer(STR("Bearer")).n, 0);
    CHECK_INT(header_bearer(STR("")).n, 0);
}

TEST(content_types_that_count_as_json)
{
    static const struct {
        const char *value;
        bool json;
    } cases[] = {{"", true},
                 {"application/json", true},
                 {"Application/JSON; charset=UTF-8", true},
                 {"application/vnd.api+json", true},
                 {"application/json; charset=\"utf-8\"; x=1", true},
                 {"application/json;charset=gbk", false},
                 {"text/plain", false},
                 {"application/x-www-form-urlencoded", false},
                 {"application/jsonp", false},
                 {"text/json", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_AT(content_type_is_json(str_of(cases[i].value)) == cases[i].json, "%s",
                 cases[i].value);
    CHECK(content_type_is(STR("text/event-stream; charset=utf-8"), "text/event-stream"));
    CHECK(!content_type_is(STR("text/event-streams"), "text/event-stream"));
}

TEST(request_ids_with_blanks_quotes_or_control_characters_are_not_kept)
{
    CHECK(request_id_is_good(STR("a-b_c.1/2")));
    CHECK(!request_id_is_good(STR("")) && !request_id_is_good(STR("a b")) &&
          !request_id_is_good(STR("a\"b")));
    CHECK(!request_id_is_good(STR("a\r\nb")) && !request_id_is_good(STR("\xE4\xBD\xA0")));
}

TEST_MAIN()
