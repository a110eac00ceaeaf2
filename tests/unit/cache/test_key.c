/* test_key.c - goal: two requests share an entry exactly when their answers may be shared. Method: the case file of pairs of requests,
 * then tables for fields, scopes, and the rules of the semantic step. */
#include "cache/key.h"

#include "base/mem.h"
#include "tests/unit/cache/faq_rig.h"

static const struct key_rules RULES = {
    .secret = 7, .embedder_id = {"e", 1}, .text_bytes_max = 1024};

static bool make_from(struct str body, const char *tenant, struct cache_key *out)
{
    struct openai_request r;
    struct openai_error e = {0};
    if (openai_parse(&r, OPENAI_CHAT, body, OPENAI_GATEWAY, &e) != OK) {
        printf("    %s: " STR_FMT "\n", e.message, STR_ARG(body));
        return false;
    }
    struct cache_scope scope = {.tenant = str_of(tenant), .ns = STR(""), .model = STR("m")};
    enum err code = key_make(&RULES, &r, &scope, out);
    openai_request_fini(&r);
    return code == OK;
}

static bool make(const char *body, struct cache_key *out)
{
    return make_from(str_of(body), "t", out);
}

/* The text of a case: "raw", or the object itself. */
static void body_of(const json_t *side, struct buf *out)
{
    struct str raw = json_member_str(side, "raw");
    if (raw.p)
        buf_str(out, raw);
    else
        json_write(out, side);
}

static int cases_seen;

static void check_case(void *arg, const json_t *line)
{
    (void)arg;
    json_t *want = json_object_get(line, "same_entry");
    struct str id = json_member_str(line, "id"), title = json_member_str(line, "title");
    if (!json_is_boolean(want) || str_find(title, STR("no-store")) >= 0) return;
    bool tenants = json_object_get(json_object_get(line, "first_headers"), "Authorization") != NULL;
    struct buf a, b;
    struct cache_key ka, kb;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    body_of(json_object_get(line, "first"), &a);
    body_of(json_object_get(line, "second"), &b);
    REQUIRE(make_from(buf_view(&a), "a", &ka) && make_from(buf_view(&b), tenants ? "b" : "a", &kb));
    bool same = hash_eq(ka.exact, kb.exact);
    CHECK_AT(same == json_is_true(want) && same == hash_eq(ka.check, kb.check),
             STR_FMT " (" STR_FMT "): same entry is %d", STR_ARG(id), STR_ARG(title), same);
    cases_seen++;
    cache_key_fini(&ka);
    cache_key_fini(&kb);
    buf_fini(&a);
    buf_fini(&b);
}

TEST(the_cases_of_pairs_of_requests_hold)
{
    CHECK(rig_each_line(TEST_DATA "/cache_keys.jsonl", check_case, NULL));
    CHECK(cases_seen >= 18);
}

#define Q "\"messages\":[{\"role\":\"user\",\"content\":\"hi there\"}]"

TEST(fields_that_cannot_change_the_answer_do_not_count_and_all_others_do)
{
    static const struct {
        const char *with;
        bool counts;
    } cases[] = {{"\"stream\":true", false},
                 {"\"stream_options\":{\"include_usage\":true},\"stream\":true", false},
                 {"\"user\":\"u\"", false},
                 {"\"metadata\":{\"a\":\"b\"}", false},
                 {"\"service_tier\":\"auto\"", false},
                 {"\"store\":true", false},
                 {"\"temperature\":0.5", true},
                 {"\"top_p\":0.5", true},
                 {"\"seed\":4", true},
                 {"\"max_tokens\":9", true},
                 {"\"response_format\":{\"type\":\"json_object\"}", true},
                 {"\"some_new_field\":1", true},
                 {"\"stop\":[\"x\"]", true},
                 {"\"presence_penalty\":0.5", true},
                 {"\"reasoning_effort\":\"low\"", true},
                 {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", true}};
    struct cache_key plain, k;
    REQUIRE(make("{\"model\":\"m\"," Q "}", &plain));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"model\":\"m\",%s," Q "}", cases[i].with);
        REQUIRE(make(body, &k));
        CHECK_AT(hash_eq(plain.exact, k.exact) == !cases[i].counts, "%s counts: %d", cases[i].with,
                 cases[i].counts);
        if (k.semantic_allowed)
            CHECK_AT(hash_eq(plain.partition, k.partition) == !cases[i].counts,
                     "%s in the partition", cases[i].with);
        cache_key_fini(&k);
    }
    cache_key_fini(&plain);
}

TEST(the_partition_is_everything_but_the_last_user_text)
{
    static const struct {
        const char *messages;
        bool same;
    } cases[] = {
        {"{\"role\":\"user\",\"content\":\"something else\"}", true},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"parts\"}]}", true},
        {"{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"hi there\"}",
         false},
        {"{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{"
         "\"role\":\"user\",\"content\":\"hi "
         "there\"}",
         false},
        {"{\"role\":\"user\",\"name\":\"bob\",\"content\":\"hi there\"}", false},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"},{\"type\":\"text\","
         "\"text\":\"there\"}]}",
         false}};
    struct cache_key plain, k;
    REQUIRE(make("{\"model\":\"m\"," Q "}", &plain));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[%s]}", cases[i].messages);
        REQUIRE(make(body, &k));
        CHECK_AT(hash_eq(plain.partition, k.partition) == cases[i].same, "%s: same partition %d",
                 cases[i].messages, !cases[i].same);
        cache_key_fini(&k);
    }
    cache_key_fini(&plain);
}

TEST(tenant_namespace_model_and_secret_always_count)
{
    struct openai_request r;
    struct openai_error e = {0};
    struct cache_key base, k;
    struct key_rules other = RULES;
    other.secret = 8;
    REQUIRE(openai_parse(&r, OPENAI_CHAT, STR("{\"model\":\"m\"," Q "}"), OPENAI_GATEWAY, &e) ==
            OK);
    struct cache_scope scopes[] = {{STR("t"), STR("n"), STR("m")},
                                   {STR("u"), STR("n"), STR("m")},
                                   {STR("t"), STR("o"), STR("m")},
                                   {STR("t"), STR("n"), STR("l")},
                                   {STR("tn"), STR(""), STR("m")}};
    REQUIRE(key_make(&RULES, &r, &scopes[0], &base) == OK);
    for (size_t i = 1; i < 6; i++) {
        REQUIRE(key_make(i == 5 ? &other : &RULES, &r, &scopes[i == 5 ? 0 : i], &k) == OK);
        CHECK(!hash_eq(base.exact, k.exact) && !hash_eq(base.partition, k.partition) &&
              !hash_eq(base.check, k.check));
        cache_key_fini(&k);
    }
    CHECK_STR(base.tenant, "t");
    CHECK_STR(base.model, "m");
    CHECK_STR(base.user_text, "hi there");
    cache_key_fini(&base);
    openai_request_fini(&r);
}

TEST(the_semantic_step_is_skipped_where_similarity_is_not_enough)
{
    static const struct {
        const char *body, *why;
    } cases[] = {
        {"{\"model\":\"m\"," Q "}", NULL},
        {"{\"model\":\"m\",\"n\":2," Q "}", "n"},
        {"{\"model\":\"m\",\"logprobs\":true," Q "}", "logprobs"},
        {"{\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]," Q
         "}",
         "tools"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
         "\"image_url\":{\"url\":\"http://x/"
         "y.png\"}}]}]}",
         "image"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
         "\"assistant\",\"content\":\"a\"}]}",
         "last_not_user_text"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
         "\"assistant\",\"content\":null,\"tool_"
         "calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
         "\"{}\"}}]},{\"role\":\"tool\","
         "\"tool_call_id\":\"c\",\"content\":\"r\"}]}",
         "last_not_user_text"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"fix: for (i = 0; i < n; "
         "i++) { a[i] = b[i]; }\"}]}",
         "code"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cache_key k;
        REQUIRE(make(cases[i].body, &k));
        CHECK_Z(k.why_not ? k.why_not : "", cases[i].why ? cases[i].why : "");
        CHECK(k.semantic_allowed == !cases[i].why);
        cache_key_fini(&k);
    }
    char body[4000];
    struct cache_key k;
    snprintf(body, sizeof body,
             "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%01100d\"}]}", 1);
    REQUIRE(make(body, &k));
    CHECK_Z(k.why_not, "long_text");
    CHECK_INT(k.user_text.n, 1100);
    cache_key_fini(&k);
}

TEST(program_text_is_recognised_and_prose_is_not)
{
    static const char *const code[] = {"```c\nint x;\n```",  "if (a == b) { return c[0]; }",
                                       "SELECT a FROM b",    "<div class=\"x\">y</div>",
                                       "#include <stdio.h>", "Traceback (most recent call last)"};
    static const char *const prose[] = {
        "How do I reset my password?", "Can I return it (the blue one) for a refund; it is new?",
        "信用卡丢了怎么办？", "What is 2+2?", "Where is order AB-12_3?"};
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        CHECK_AT(key_looks_like_code(str_of(code[i])), "%s", code[i]);
    for (size_t i = 0; i < sizeof prose / sizeof *prose; i++)
        CHECK_AT(!key_looks_like_code(str_of(prose[i])), "%s", prose[i]);
}

TEST(a_single_question_has_a_place_for_curated_answers_whatever_the_style)
{
    static const struct {
        const char *body;
        bool plain, has_system;
    } cases[] = {
        {"{\"model\":\"m\"," Q "}", true, false},
        {"{\"model\":\"m\",\"temperature\":2,\"max_tokens\":3,\"seed\":1,\"n\":1,\"stream\":true," Q
         "}",
         true, false},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
         "\"user\",\"content\":\"hi "
         "there\"}]}",
         true, true},
        {"{\"model\":\"m\",\"n\":2," Q "}", false, false},
        {"{\"model\":\"m\",\"stop\":\"x\"," Q "}", false, false},
        {"{\"model\":\"m\",\"response_format\":{\"type\":\"json_object\"}," Q "}", false, false},
        {"{\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]," Q
         "}",
         false, false},
        {"{\"model\":\"m\",\"unheard_of\":1," Q "}", false, false},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"s\"},{\"role\":"
         "\"user\",\"content\":\"hi "
         "there\"}]}",
         false, false}};
    struct hash128 place = key_curated(RULES.secret, STR("t"), STR("")),
                   all = key_curated(RULES.secret, STR("*"), STR(""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cache_key k;
        REQUIRE(make(cases[i].body, &k));
        CHECK_AT(hash_eq(k.curated[0], place) == cases[i].plain &&
                     hash_eq(k.curated[1], all) == cases[i].plain &&
                     k.has_system == cases[i].has_system,
                 "case %zu", i);
        cache_key_fini(&k);
    }
}

TEST_MAIN()
