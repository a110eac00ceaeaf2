/* Goal: an answer survives the way through JSON and through a stream in any pieces. Method: round
 * trips of random answers with a printed seed; hand-made streams of the servers we meet. */
#include "base/openai_answer.h"
#include "base/mem.h"
#include "base/openai.h"
#include "base/rng.h"
#include "base/sse.h"
#include "tests/check.h"

/* --- answers */
static bool into_collector(void *arg, const struct sse_event *ev)
{
    struct errmsg e = {0};
    enum err code = openai_collector_feed(arg, ev->data, &e);
    CHECK_AT(code == OK, "%s in %.*s", e.text, (int)ev->data.n, ev->data.p);
    CHECK(utf8_valid(ev->data));
    return true;
}

/* Feeds a whole stream; the answer, or the refusal of take. */
static enum err collect(struct str stream, enum openai_kind kind, struct openai_answer *out)
{
    struct openai_collector *c = openai_collector_new(kind, 1 << 20);
    struct sse_reader *r = sse_reader_new(1 << 20);
    CHECK_INT(sse_reader_feed(r, stream, into_collector, c), OK);
    enum err code = openai_collector_take(c, out);
    sse_reader_free(r);
    openai_collector_free(c);
    return code;
}

static bool same(const json_t *a, const json_t *b)
{
    return a == b || (a && b && json_equal(a, b));
}

static bool same_answer(const struct openai_answer *a, const struct openai_answer *b)
{
    bool ok = a->kind == b->kind && !strcmp(a->id, b->id) && !strcmp(a->model, b->model) &&
              !strcmp(a->system_fingerprint, b->system_fingerprint) && a->created == b->created &&
              a->n_choices == b->n_choices && same(a->extra, b->extra) &&
              same(a->usage_json, b->usage_json) &&
              a->usage.prompt_tokens == b->usage.prompt_tokens &&
              a->usage.completion_tokens == b->usage.completion_tokens &&
              a->usage.cached_tokens == b->usage.cached_tokens && a->usage.known == b->usage.known;
    for (int i = 0; ok && i < a->n_choices; i++)
        ok = same(a->choices[i].message, b->choices[i].message) &&
             same(a->choices[i].logprobs, b->choices[i].logprobs) &&
             same(a->choices[i].extra, b->choices[i].extra) &&
             !strcmp(a->choices[i].finish_reason, b->choices[i].finish_reason);
    return ok;
}

static json_t *random_text(struct rng *g)
{
    static const uint32_t points[] = {'a',     ' ',    '"',    '\\',   '\n',     '\r',
                                      0,       0x1F,   0x7F,   0xE9,   0x4F60,   0x597D,
                                      0x1F600, 0x200D, 0xFEFF, 0xFFFF, 0x10FFFF, 0x2028};
    char text[256];
    size_t n = 0, chars = rng_below(g, 40);
    while (chars--)
        n += utf8_encode(points[rng_below(g, sizeof points / sizeof *points)], text + n);
    return json_stringn(text, n);
}

static json_t *random_message(struct rng *g)
{
    json_t *m = json_pack("{s:s,s:o}", "role", "assistant", "content",
                          rng_below(g, 4) ? random_text(g) : json_null());
    if (!rng_below(g, 3)) json_object_set_new(m, "reasoning_content", random_text(g));
    if (!rng_below(g, 3))
        json_object_set_new(m, "refusal", rng_below(g, 2) ? json_null() : random_text(g));
    if (!rng_below(g, 4))
        json_object_set_new(m, "annotations", json_pack("[{s:s},i]", "type", "url", 3));
    if (!rng_below(g, 4))
        json_object_set_new(m, "function_call",
                            json_pack("{s:s,s:o}", "name", "f", "arguments", random_text(g)));
    if (rng_below(g, 2)) return m;
    json_t *calls = json_array();
    for (uint64_t n = rng_below(g, 4); n; n--)
        json_array_append_new(calls, json_pack("{s:o,s:s,s:{s:o,s:o}}", "id",
                                               json_sprintf("call_%d", (int)n), "type", "function",
                                               "function", "name", random_text(g), "arguments",
                                               random_text(g)));
    json_object_set_new(m, "tool_calls", calls);
    return m;
}

static struct openai_answer random_answer(struct rng *g, enum openai_kind kind)
{
    struct openai_answer a = {.kind = kind,
                              .id = "chatcmpl-1",
                              .model = "m",
                              .created = 1764460800,
                              .n_choices = 1 + (int)rng_below(g, 4)};
    if (rng_below(g, 2)) memcpy(a.system_fingerprint, "fp", 3);
    if (rng_below(g, 2))
        a.extra = json_pack("{s:s,s:{s:i}}", "service_tier", "default", "timings", "ms", 5);
    if (rng_below(g, 2)) {
        a.usage_json =
            json_pack("{s:i,s:i,s:i,s:{s:i}}", "prompt_tokens", 9, "completion_tokens", 4,
                      "total_tokens", 13, "prompt_tokens_details", "cached_tokens", 8);
        a.usage = (struct openai_usage){9, 4, 8, true};
    }
    for (int i = 0; i < a.n_choices; i++) {
        a.choices[i].message =
            kind == OPENAI_CHAT ? random_message(g) : json_pack("{s:o}", "text", random_text(g));
        if (rng_below(g, 2))
            a.choices[i].logprobs = json_pack("{s:[{s:s,s:f}],s:n}", "content", "token", "a",
                                              "logprob", -0.25, "refusal");
        if (rng_below(g, 2)) a.choices[i].extra = json_pack("{s:i}", "stop_reason", 2);
        memcpy(a.choices[i].finish_reason, "stop", 5);
    }
    return a;
}

static void check_round_trip(uint64_t seed)
{
    struct rng g;
    rng_seed(&g, seed);
    struct openai_answer a = random_answer(&g, rng_below(&g, 3) ? OPENAI_CHAT : OPENAI_COMPLETION),
                         b, c;
    struct errmsg e = {0};
    struct buf out;
    buf_init(&out, 1 << 20);
    openai_answer_write_json(&out, &a);
    enum err code = openai_answer_parse(&b, a.kind, buf_view(&out), &e);
    CHECK_AT(code == OK && same_answer(&a, &b), "seed %llu through JSON: %s: %s",
             (unsigned long long)seed, e.text, out.p);
    buf_clear(&out);
    openai_answer_write_sse(&out, &a, true, rng_below(&g, 6));
    code = collect(buf_view(&out), a.kind, &c);
    CHECK_AT(code == OK && same_answer(&a, &c), "seed %llu through SSE: %s: %s",
             (unsigned long long)seed, err_name(code), out.p);
    if (!code) openai_answer_fini(&c);
    openai_answer_fini(&b);
    openai_answer_fini(&a);
    buf_fini(&out);
}

TEST(answers_survive_json_and_streams)
{
    for (uint64_t seed = 1; seed <= 300; seed++)
        check_round_trip(seed);
}

TEST(an_answer_is_written_in_the_forms_clients_read)
{
    struct openai_answer a = {.kind = OPENAI_CHAT,
                              .id = "i",
                              .model = "m",
                              .created = 7,
                              .n_choices = 1,
                              .usage = {3, 2, 1, true}};
    a.choices[0].message = json_pack("{s:s,s:s}", "role", "assistant", "content", "ab\xe4\xbd\xa0");
    memcpy(a.choices[0].finish_reason, "stop", 5);
    struct buf b;
    buf_init(&b, 10000);
    openai_answer_write_json(&b, &a);
    CHECK_STR(
        buf_view(&b),
        "{\"id\":\"i\",\"object\":\"chat.completion\",\"created\":7,\"model\":\"m\",\"choices\":[{"
        "\"index\":0,"
        "\"message\":{\"role\":\"assistant\",\"content\":\"ab\xe4\xbd\xa0\"},\"logprobs\":null,"
        "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,"
        "\"total_tokens\":"
        "5,\"prompt_tokens_details\":{\"cached_tokens\":1}}}");
    buf_clear(&b);
    openai_answer_write_sse(&b, &a, true, 2);
#define CHUNK(delta, finish)                                                                       \
    "data: "                                                                                       \
    "{\"id\":\"i\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\","            \
    "\"choices\":[{\"index\":0,\"delta\":" delta ",\"logprobs\":null,\"finish_reason\":" finish    \
    "}],\"usage\":null}\n\n"
    CHECK_STR(buf_view(&b),
              CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null")
                  CHUNK("{\"content\":\"ab\"}", "null")
                      CHUNK("{\"content\":\"\xe4\xbd\xa0\"}", "null")
                          CHUNK("{}", "\"stop\"") "data: "
                                                  "{\"id\":\"i\",\"object\":\"chat.completion."
                                                  "chunk\",\"created\":7,\"model\":\"m\","
                                                  "\"choices\":[],\"usage\":{\"prompt_tokens\":3,"
                                                  "\"completion_tokens\":2,\"total_tokens\":5,"
                                                  "\"prompt_tokens_details\":{\"cached_tokens\":1}}"
                                                  "}\n\ndata: [DONE]\n\n");
    buf_clear(&b);
    openai_answer_write_sse(&b, &a, false, 0);
    CHECK(str_find(buf_view(&b), STR("usage")) < 0);
    openai_answer_fini(&a);
    buf_fini(&b);
}

static void check_collected(const char *stream, const char *want)
{
    struct openai_answer a;
    enum err code = collect(str_of(stream), OPENAI_CHAT, &a);
    CHECK_AT(code == OK, "%s: %s", err_name(code), stream);
    if (code) return;
    struct buf b;
    buf_init(&b, 10000);
    json_write(&b, a.choices[0].message);
    CHECK_STR(buf_view(&b), want);
    buf_fini(&b);
    openai_answer_fini(&a);
}

TEST(streams_of_other_servers_are_put_together)
{
#define D(delta) "data: {\"choices\":[{\"index\":0,\"delta\":" delta "}]}\n\n"
#define END(why)                                                                                   \
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" why "\"}]}\n\n"
    check_collected(D("{\"role\":\"assistant\",\"content\":null}") D("{\"content\":\"a\"}")
                        D("{\"role\":\"\",\"content\":\"b\"}") END("stop"),
                    "{\"role\":\"assistant\",\"content\":\"ab\"}");
    check_collected(D("{\"role\":\"assistant\",\"content\":\"\"}") END("stop"),
                    "{\"role\":\"assistant\",\"content\":\"\"}");
    check_collected(D("{\"reasoning_content\":\"h\"}") D("{\"reasoning_content\":\"m\"}")
                        D("{\"content\":\"4\"}") END("stop"),
                    "{\"role\":\"assistant\",\"content\":\"4\",\"reasoning_content\":\"hm\"}");
    /* OpenAI: pieces by index, two calls interleaved */
    check_collected(D("{\"role\":\"assistant\",\"content\":null}") D(
                        "{\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"type\":\"function\","
                        "\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}")
                        D("{\"tool_calls\":[{\"index\":1,\"id\":\"y\",\"type\":\"function\","
                          "\"function\":{\"name\":\"g\",\"arguments\":\"{\"}},"
                          "{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}")
                            D("{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"}\"}}]}")
                                END("tool_calls"),
                    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\","
                    "\"type\":\"function\",\"function\":{\"name\":\"f\","
                    "\"arguments\":\"{}\"}},"
                    "{\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\","
                    "\"arguments\":\"{}\"}}]}");
    /* id and name repeated in each piece; no index; a hole in the indexes */
    check_collected(D("{\"tool_calls\":[{\"index\":2,\"id\":\"x\",\"function\":{\"name\":\"f\","
                      "\"arguments\":\"1\"}}]}")
                        D("{\"tool_calls\":[{\"index\":2,\"id\":\"x\",\"function\":{\"name\":\"f\","
                          "\"arguments\":\"2\"}}]}") END("tool_calls"),
                    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\","
                    "\"type\":\"function\",\"function\":{"
                    "\"name\":\"f\",\"arguments\":\"12\"}}]}");
    check_collected(
        D("{\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"1\"}},{"
          "\"id\":\"y\","
          "\"function\":{\"name\":\"g\",\"arguments\":\"2\"}}]}") END("tool_calls"),
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\",\"type\":"
        "\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"1\"}},"
        "{\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"2\"}}]}");
    check_collected(D("{\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}}")
                        D("{\"function_call\":{\"arguments\":\"{}\"}}") END("function_call"),
                    "{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\","
                    "\"arguments\":\"{}\"}}");
    /* the whole answer in one frame */
    check_collected("data: "
                    "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                    "\"all\"},\"finish_reason\":\"stop\"}]}\n\n",
                    "{\"role\":\"assistant\",\"content\":\"all\"}");
}

TEST(a_count_that_no_answer_can_have_is_none)
{
    json_t *o = json_pack("{s:I,s:I,s:I,s:I,s:s,s:f}", "most", (json_int_t)OPENAI_TOKENS_MAX,
                          "over", (json_int_t)OPENAI_TOKENS_MAX + 1, "huge", (json_int_t)INT64_MAX,
                          "negative", (json_int_t)-1, "text", "5", "real", 5.0);
    CHECK_INT(openai_count(o, "most"), OPENAI_TOKENS_MAX);
    static const char *const none[] = {"over", "huge", "negative", "text", "real", "absent"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_INT(openai_count(o, none[i]), 0);
    json_decref(o);
}

TEST(usage_is_counted_once_and_may_come_after_the_finish)
{
    struct openai_answer a;
    REQUIRE(collect(STR(D("{\"content\":\"a\"}") "data: "
                                                 "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_"
                                                 "reason\":\"stop\"}],\"usage\":{"
                                                 "\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n"
                                                 "data: "
                                                 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,"
                                                 "\"completion_tokens\":4,\"prompt_"
                                                 "tokens_details\":{\"cached_tokens\":8}},"
                                                 "\"timings\":{\"ms\":1}}\n\ndata: [DONE]\n\n"),
                    OPENAI_CHAT, &a) == OK);
    CHECK(a.usage.known && a.usage.prompt_tokens == 9 && a.usage.completion_tokens == 4 &&
          a.usage.cached_tokens == 8);
    CHECK(json_object_get(a.extra, "timings"));
    openai_answer_fini(&a);
}

static enum err feed_one(struct openai_collector *c, const char *data, struct errmsg *e)
{
    return openai_collector_feed(c, str_of(data), e);
}

TEST(a_stream_with_a_hole_is_never_an_answer)
{
    static const struct {
        const char *bad;
        enum err code;
    } rows[] = {
        {"{broken", ERR_INVALID},
        {"[]", ERR_INVALID},
        {"{}", ERR_INVALID},
        {"{\"choices\":[1]}", ERR_INVALID},
        {"{\"choices\":[{\"index\":-1}]}", ERR_INVALID},
        {"{\"choices\":[{\"index\":16}]}", ERR_UNSUPPORTED},
        {"{\"choices\":[{\"delta\":5}]}", ERR_INVALID},
        {"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":128}]}}]}", ERR_INVALID},
        {"{\"error\":{\"message\":\"too long\"}}", ERR_UNAVAILABLE},
        {"{\"object\":\"error\",\"message\":\"m\"}", ERR_UNAVAILABLE},
        {"{\"error\":\"text\"}", ERR_UNAVAILABLE},
        {"{\"choices\":[{\"delta\":{\"content\":\"\\ud83d\"}}]}", OK},
        {"{\"choices\":[{\"delta\":{\"content\":\"a\xff\"}}]}", OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_collector *c = openai_collector_new(OPENAI_CHAT, 1000);
        struct openai_answer a;
        struct errmsg e = {0};
        CHECK_INT(openai_collector_take(c, &a), ERR_AGAIN);
        CHECK_INT(feed_one(c, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}", &e),
                  OK);
        CHECK_INT(openai_collector_take(c, &a), ERR_AGAIN);
        CHECK_INT(feed_one(c, rows[i].bad, &e), rows[i].code);
        CHECK_INT(feed_one(c,
                           "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}",
                           &e),
                  OK);
        CHECK(openai_collector_complete(c));
        CHECK_INT(openai_collector_take(c, &a), ERR_CORRUPT);
        openai_collector_free(c);
    }
}

TEST(what_is_collected_is_bounded)
{
    struct openai_collector *c = openai_collector_new(OPENAI_CHAT, 1000);
    struct errmsg e = {0};
    int n = 0;
    while (n < 1000 &&
           !feed_one(c, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"0123456789\"}}]}", &e))
        n++;
    CHECK_INT(n, 100);
    CHECK_INT(feed_one(c, "{\"choices\":[]}", &e), ERR_TOO_LARGE);
    openai_collector_free(c);
}

TEST(replies_that_are_no_answers_are_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"choices\":[]}",
        "{\"choices\":[{\"index\":0}]}",
        "{\"choices\":[{\"index\":1,\"message\":{}}]}",
        "<html>",
        "{\"choices\":[{\"index\":0,\"message\":{}},{\"index\":0,\"message\":{}}]}",
        "{\"error\":{\"message\":\"x\"}}",
        "{\"choices\":[{\"index\":0,\"message\":{\"tool_calls\":[1]}}]}",
        "{\"choices\":[{\"index\":0,\"message\":{\"tool_calls\":{}}}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct openai_answer a;
        struct errmsg e = {0};
        CHECK_INT(openai_answer_parse(&a, OPENAI_CHAT, str_of(bad[i]), &e), ERR_INVALID);
        CHECK(*e.text);
    }
}

static void add_bytes(void *arg, struct str text)
{
    *(size_t *)arg += text.n;
}

TEST(every_text_that_has_come_of_a_stream_is_told)
{
    struct openai_collector *c = openai_collector_new(OPENAI_CHAT, 1 << 20);
    struct errmsg e = {0};
    size_t n = 0;
    openai_collector_each_text(c, add_bytes, &n);
    CHECK_INT(n, 0);
    static const char *const frames[] = {
        "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"abc\"}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"de\",\"reasoning_content\":\"fgh\"}}]"
        "}",
        "{\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"x\","
        "\"function\":{"
        "\"name\":\"ij\",\"arguments\":\"{}\"}}]}}]}"};
    for (size_t i = 0; i < 3; i++)
        CHECK(openai_collector_feed(c, str_of(frames[i]), &e) == OK);
    openai_collector_each_text(c, add_bytes, &n);
    CHECK_INT(n, 5 + 3 + 2 + 2);
    openai_collector_free(c);
}

TEST_MAIN()
