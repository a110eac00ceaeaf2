/* Goal: a request is read with its defaults, refused with a message that says where and what would be right; an answer survives the way
 * through JSON and through a stream in any pieces.
 * Method: tables of refusals; round trips of random answers with a printed seed; hand-made streams of the servers we meet. */
#include "base/openai.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/sse.h"
#include "tests/check.h"

#define HI "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHAT(more) STR("{" HI more "}")
#define MESSAGES(list) STR("{\"model\":\"m\",\"messages\":[" list "]}")

TEST(defaults_are_those_of_the_api)
{
    struct openai_request r;
    struct openai_error e;
    REQUIRE(openai_parse(&r, OPENAI_CHAT, CHAT(",\"temperature\":null,\"n\":null,\"stop\":null,\"cache\":null,\"x\":{\"y\":1}"),
                         OPENAI_ENGINE, &e) == OK);
    CHECK_STR(r.model, "m");
    CHECK(!r.stream && !r.include_usage && !r.has_seed && !r.logprobs && !r.echo && !r.tools && !r.has_image);
    CHECK(r.n == 1 && r.max_tokens == -1 && r.top_k == 0 && r.n_stops == 0 && r.n_biases == 0 && r.top_logprobs == 0);
    CHECK(r.temperature == 1 && r.top_p == 1 && r.min_p == 0 && r.repetition_penalty == 1 && r.presence_penalty == 0);
    CHECK(r.cache_ttl_s == -1 && r.cache_max_age_s == -1 && !r.cache_no_cache && !*r.cache_namespace);
    CHECK(json_object_get(r.body, "x") && !json_object_get(r.body, "cache"));
    openai_request_fini(&r);
}

TEST(given_values_are_read)
{
    struct openai_request r;
    struct openai_error e;
    struct str body = CHAT(",\"temperature\":0,\"top_p\":0.5,\"min_p\":0.05,\"top_k\":-1,\"seed\":-9223372036854775808,\"max_"
                           "tokens\":8.0,\"max_completion_tokens\":4,"
                           "\"n\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\\u0000b\",\"\",\"c\"]"
                           ",\"logprobs\":true,\"top_logprobs\":3,"
                           "\"logit_bias\":{\"12\":-100,\"7\":1.5},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
                           "],\"tool_choice\":\"auto\","
                           "\"cache\":{\"no-cache\":true,\"ttl\":60,\"s-maxage\":5,\"namespace\":\"team:a\"}");
    enum err code = openai_parse(&r, OPENAI_CHAT, body, OPENAI_ENGINE, &e);
    CHECK_AT(code == OK, "%s", e.message);
    if (code) return;
    CHECK(r.temperature == 0 && r.top_p == 0.5 && r.min_p == 0.05 && r.top_k == 0 && r.max_tokens == 4 && r.n == 2);
    CHECK(r.has_seed && r.seed == INT64_MIN && r.stream && r.include_usage && r.logprobs && r.top_logprobs == 3);
    CHECK(r.n_stops == 2 && str_eq(r.stops[0].text, STR("a\0b")) && str_eq(r.stops[1].text, STR("c")));
    CHECK(r.n_biases == 2 && r.biases[0].token == 12 && r.biases[0].bias == -100 && r.biases[1].token == 7 &&
          r.biases[1].bias == 1.5f);
    CHECK(json_array_size(r.tools) == 1 && r.cache_no_cache && !r.cache_no_store && r.cache_ttl_s == 60 && r.cache_max_age_s == 5);
    CHECK_Z(r.cache_namespace, "team:a");
    CHECK(!json_object_get(r.body, "cache") && json_object_get(r.body, "seed"));
    openai_request_fini(&r);
}

struct refusal {
    enum openai_kind kind;
    struct str body;
    const char *param, *code, *message;
};

static void check_refusal(const struct refusal *x, enum openai_strict strict)
{
    struct openai_request r;
    struct openai_error e;
    enum err code = openai_parse(&r, x->kind, x->body, strict, &e);
    CHECK_AT(code != OK, "%.*s passed", (int)x->body.n, x->body.p);
    if (!code) {
        openai_request_fini(&r);
        return;
    }
    CHECK_INT(e.status, 400);
    CHECK_Z(e.type, "invalid_request_error");
    CHECK_Z(e.param, x->param);
    CHECK_Z(e.code, x->code);
    CHECK_Z(e.message, x->message);
}

TEST(a_refusal_says_where_and_what_would_be_right)
{
    static const struct refusal rows[] = {
        {OPENAI_CHAT, STR("[]"), "", "invalid_type", "body: expected a JSON object, got an array"},
        {OPENAI_CHAT, STR("{"), "", "invalid_json",
         "body: not valid JSON: line 1, column 2: string or '}' expected near end of file"},
        {OPENAI_CHAT, CHAT(",\"max_tokens\":99999999999999999999"), "max_tokens", "invalid_json",
         "body: not valid JSON: line 1, column 91: too big integer near '99999999999999999999'"},
        {OPENAI_CHAT, CHAT(",\"model\":\"n\""), "model", "invalid_json",
         "body: not valid JSON: line 1, column 65: a key given twice, duplicate object key near '\"model\"'"},
        {OPENAI_CHAT, STR("{}"), "model", "missing_required_parameter", "model: required, a model name"},
        {OPENAI_CHAT, STR("{\"model\":1}"), "model", "invalid_type", "model: expected a string, got a number"},
        {OPENAI_CHAT, STR("{\"model\":\"a\\nb\"}"), "model", "invalid_value", "model: the name holds a control character"},
        {OPENAI_CHAT, STR("{\"model\":\"m\"}"), "messages", "missing_required_parameter",
         "messages: required, an array of messages"},
        {OPENAI_CHAT, MESSAGES(""), "messages", "invalid_value", "messages: the array is empty: expected at least one message"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":5}"), "messages[1].content",
         "invalid_type", "messages[1].content: expected a string or an array of parts, got a number"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"wizard\",\"content\":\"a\"}"), "messages[0].role", "invalid_value",
         "messages[0].role: unknown role: expected system, developer, user, assistant, tool or function"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\"}]}"),
         "messages[0].content[1].text", "invalid_type", "messages[0].content[1].text: expected a string, got nothing"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":[]}"), "messages[0].content", "invalid_value",
         "messages[0].content: the array is empty: expected at least one part"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"tool\",\"content\":\"a\"}"), "messages[0].tool_call_id", "invalid_type",
         "messages[0].tool_call_id: expected a string, got nothing"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"assistant\",\"content\":null}"), "messages[0].content", "invalid_type",
         "messages[0].content: expected a string or an array of parts, got nothing"},
        {OPENAI_CHAT,
         MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]}"),
         "messages[0].tool_calls[0].function.arguments", "invalid_type",
         "messages[0].tool_calls[0].function.arguments: expected a string, got an object"},
        {OPENAI_CHAT, CHAT(",\"temperature\":2.1"), "temperature", "invalid_value",
         "temperature: 2.1 is out of range: expected a number from 0 to 2"},
        {OPENAI_CHAT, CHAT(",\"temperature\":true"), "temperature", "invalid_type",
         "temperature: expected a number, got a boolean"},
        {OPENAI_CHAT, CHAT(",\"max_tokens\":0"), "max_tokens", "invalid_value",
         "max_tokens: 0 is out of range: expected an integer of at least 1"},
        {OPENAI_CHAT, CHAT(",\"max_tokens\":2147483648"), "max_tokens", "invalid_value",
         "max_tokens: 2147483648 is out of range: expected an integer of at least 1"},
        {OPENAI_CHAT, CHAT(",\"max_completion_tokens\":1e18"), "max_completion_tokens", "invalid_value",
         "max_completion_tokens: 1e+18 is out of range: expected an integer of at least 1"},
        {OPENAI_CHAT, CHAT(",\"seed\":1.5"), "seed", "invalid_type", "seed: expected an integer, got 1.5"},
        {OPENAI_CHAT, CHAT(",\"stop\":[\"a\",7]"), "stop", "invalid_type", "stop: [1]: expected a string, got a number"},
        {OPENAI_CHAT, CHAT(",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]"), "stop", "invalid_value",
         "stop: 5 strings: expected at most 4"},
        {OPENAI_CHAT, CHAT(",\"stream_options\":{}"), "stream_options", "invalid_value",
         "stream_options: allowed only with \"stream\": true"},
        {OPENAI_CHAT, CHAT(",\"top_logprobs\":2"), "top_logprobs", "invalid_value",
         "top_logprobs: allowed only with \"logprobs\": true"},
        {OPENAI_CHAT, CHAT(",\"logit_bias\":{\"-1\":1}"), "logit_bias", "invalid_value",
         "logit_bias: key \"-1\": expected a token id, digits only"},
        {OPENAI_CHAT, CHAT(",\"logit_bias\":{\"4294967296\":1}"), "logit_bias", "invalid_value",
         "logit_bias: key \"4294967296\": expected a token id, digits only"},
        {OPENAI_CHAT, CHAT(",\"logit_bias\":{\"1\":101}"), "logit_bias", "invalid_value",
         "logit_bias: token 1: 101 is out of range: expected a number from -100 to 100"},
        {OPENAI_CHAT, CHAT(",\"tools\":[{\"type\":\"function\"}]"), "tools", "invalid_type",
         "tools: [0].function: expected an object, got nothing"},
        {OPENAI_CHAT, CHAT(",\"tool_choice\":\"required\""), "tool_choice", "invalid_value",
         "tool_choice: allowed only with tools"},
        {OPENAI_CHAT, CHAT(",\"cache\":true"), "cache", "invalid_type",
         "cache: expected an object like {\"no-store\":true}, got a boolean"},
        {OPENAI_CHAT, CHAT(",\"cache\":{\"ttl\":-1}"), "cache", "invalid_value",
         "cache: ttl: -1 is out of range: expected seconds, 0 or more"},
        {OPENAI_CHAT, CHAT(",\"cache\":{\"namespace\":\"a{b}\"}"), "cache", "invalid_value",
         "cache: namespace: expected 1 to 63 of letters, digits and ._:/-"},
        {OPENAI_CHAT, CHAT(",\"cache\":{\"no_store\":true}"), "cache", "unknown_parameter",
         "cache: unknown member: expected no-cache, no-store, ttl, s-maxage, namespace or use-cache"},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\"}"), "prompt", "missing_required_parameter",
         "prompt: required, a string or an array"},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[1,-1]}"), "prompt", "invalid_type",
         "prompt: expected only strings, only token ids, or only arrays of token ids"},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[\"a\",1]}"), "prompt", "invalid_type",
         "prompt: [1]: expected a string like the first one, got a number"},
        {OPENAI_EMBEDDING, STR("{\"model\":\"m\",\"input\":\"\"}"), "input", "invalid_value", "input: the string is empty"},
        {OPENAI_EMBEDDING, STR("{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":\"hex\"}"), "encoding_format", "invalid_value",
         "encoding_format: expected \"float\" or \"base64\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_refusal(&rows[i], OPENAI_GATEWAY);
        check_refusal(&rows[i], OPENAI_ENGINE);
    }
}

TEST(the_engine_refuses_what_it_cannot_do_and_the_gateway_passes_it)
{
    static const struct refusal rows[] = {
        {OPENAI_CHAT, CHAT(",\"n\":17"), "n", "invalid_value", "n: 17 is out of range: expected an integer from 1 to 16"},
        {OPENAI_CHAT, CHAT(",\"response_format\":{\"type\":\"json_object\"}"), "response_format", "unsupported_value",
         "response_format: this engine knows only {\"type\":\"text\"}"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}"),
         "messages[0].content[0]", "unsupported_value",
         "messages[0].content[0]: image_url is not supported: this model reads text only"},
        {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}"),
         "messages[0].content[0]", "unsupported_value",
         "messages[0].content[0]: input_audio is not supported: this model reads text only"},
        {OPENAI_CHAT, CHAT(",\"tools\":[{\"type\":\"custom\"}]"), "tools", "unsupported_value",
         "tools: [0].type: this engine knows only \"function\""},
        {OPENAI_CHAT, CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":\"required\""),
         "tool_choice", "unsupported_value", "tool_choice: this engine cannot force a tool call: expected \"auto\" or \"none\""},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":\"a\",\"suffix\":\"b\"}"), "suffix", "unsupported_value",
         "suffix: this engine cannot insert before a suffix"},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":9}"), "prompt", "invalid_value",
         "prompt: prompts times n make 18 answers: expected at most 16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request r;
        struct openai_error e;
        check_refusal(&rows[i], OPENAI_ENGINE);
        enum err code = openai_parse(&r, rows[i].kind, rows[i].body, OPENAI_GATEWAY, &e);
        CHECK_AT(code == OK, "%s", e.message);
        if (!code) openai_request_fini(&r);
    }
    struct openai_request r;
    struct openai_error e;
    REQUIRE(openai_parse(&r, OPENAI_CHAT, rows[2].body, OPENAI_GATEWAY, &e) == OK);
    CHECK(r.has_image && !r.has_audio);
    openai_request_fini(&r);
}

static void check_last_user(struct str body, const char *want)
{
    struct openai_request r;
    struct openai_error e;
    struct buf scratch;
    buf_init(&scratch, 1000);
    enum err code = openai_parse(&r, OPENAI_CHAT, body, OPENAI_GATEWAY, &e);
    CHECK_AT(code == OK, "%s", e.message);
    if (!code) {
        CHECK_STR(openai_last_user_text(&r, &scratch), want);
        openai_request_fini(&r);
    }
    buf_fini(&scratch);
}

TEST(the_last_user_text_joins_text_parts_only)
{
    check_last_user(MESSAGES("{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}"), "a");
    check_last_user(MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"), "a");
    check_last_user(
        MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}"),
        "a\nb");
    check_last_user(MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_"
                             "url\":{\"url\":\"x\"}}]}"),
                    "");
    check_last_user(MESSAGES("{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}"), "");
}

TEST(an_error_is_written_as_clients_expect_it)
{
    struct openai_error e;
    struct buf b;
    buf_init(&b, 4096);
    openai_error_set(&e, 404, "invalid_request_error", "model", "model_not_found", "no model \"%s\"", "x\xff\n");
    openai_error_write(&b, &e);
    CHECK_STR(buf_view(&b),
              "{\"error\":{\"message\":\"no model "
              "\\\"x\xef\xbf\xbd\\n\\\"\",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
    buf_clear(&b);
    char text[1000];
    memset(text, 0, sizeof text);
    for (int i = 0; i < 300; i++)
        memcpy(text + 3 * i, "\xe4\xbd\xa0", 3);
    openai_error_set(&e, 503, "server_error", "", NULL, "a%s", text);
    CHECK(utf8_valid(str_of(e.message)) && strlen(e.message) > 300);
    openai_error_write(&b, &e);
    CHECK(str_ends(buf_view(&b), STR("\"param\":null,\"code\":null}}")));
    buf_fini(&b);
}

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

static bool same(const json_t *a, const json_t *b) { return a == b || (a && b && json_equal(a, b)); }

static bool same_answer(const struct openai_answer *a, const struct openai_answer *b)
{
    bool ok = a->kind == b->kind && !strcmp(a->id, b->id) && !strcmp(a->model, b->model) &&
              !strcmp(a->system_fingerprint, b->system_fingerprint) && a->created == b->created && a->n_choices == b->n_choices &&
              same(a->extra, b->extra) && same(a->usage_json, b->usage_json) && a->usage.prompt_tokens == b->usage.prompt_tokens &&
              a->usage.completion_tokens == b->usage.completion_tokens && a->usage.cached_tokens == b->usage.cached_tokens &&
              a->usage.known == b->usage.known;
    for (int i = 0; ok && i < a->n_choices; i++)
        ok = same(a->choices[i].message, b->choices[i].message) && same(a->choices[i].logprobs, b->choices[i].logprobs) &&
             same(a->choices[i].extra, b->choices[i].extra) && !strcmp(a->choices[i].finish_reason, b->choices[i].finish_reason);
    return ok;
}

static json_t *random_text(struct rng *g)
{
    static const uint32_t points[] = {'a',  ' ',    '"',    '\\',    '\n',   '\r',   0,      0x1F,     0x7F,
                                      0xE9, 0x4F60, 0x597D, 0x1F600, 0x200D, 0xFEFF, 0xFFFF, 0x10FFFF, 0x2028};
    char text[256];
    size_t n = 0, chars = rng_below(g, 40);
    while (chars--)
        n += utf8_encode(points[rng_below(g, sizeof points / sizeof *points)], text + n);
    return json_stringn(text, n);
}

static json_t *random_message(struct rng *g)
{
    json_t *m = json_pack("{s:s,s:o}", "role", "assistant", "content", rng_below(g, 4) ? random_text(g) : json_null());
    if (!rng_below(g, 3)) json_object_set_new(m, "reasoning_content", random_text(g));
    if (!rng_below(g, 3)) json_object_set_new(m, "refusal", rng_below(g, 2) ? json_null() : random_text(g));
    if (!rng_below(g, 4)) json_object_set_new(m, "annotations", json_pack("[{s:s},i]", "type", "url", 3));
    if (!rng_below(g, 4)) json_object_set_new(m, "function_call", json_pack("{s:s,s:o}", "name", "f", "arguments", random_text(g)));
    if (rng_below(g, 2)) return m;
    json_t *calls = json_array();
    for (uint64_t n = rng_below(g, 4); n; n--)
        json_array_append_new(calls, json_pack("{s:o,s:s,s:{s:o,s:o}}", "id", json_sprintf("call_%d", (int)n), "type", "function",
                                               "function", "name", random_text(g), "arguments", random_text(g)));
    json_object_set_new(m, "tool_calls", calls);
    return m;
}

static struct openai_answer random_answer(struct rng *g, enum openai_kind kind)
{
    struct openai_answer a = {
        .kind = kind, .id = "chatcmpl-1", .model = "m", .created = 1764460800, .n_choices = 1 + (int)rng_below(g, 4)};
    if (rng_below(g, 2)) memcpy(a.system_fingerprint, "fp", 3);
    if (rng_below(g, 2)) a.extra = json_pack("{s:s,s:{s:i}}", "service_tier", "default", "timings", "ms", 5);
    if (rng_below(g, 2)) {
        a.usage_json = json_pack("{s:i,s:i,s:i,s:{s:i}}", "prompt_tokens", 9, "completion_tokens", 4, "total_tokens", 13,
                                 "prompt_tokens_details", "cached_tokens", 8);
        a.usage = (struct openai_usage){9, 4, 8, true};
    }
    for (int i = 0; i < a.n_choices; i++) {
        a.choices[i].message = kind == OPENAI_CHAT ? random_message(g) : json_pack("{s:o}", "text", random_text(g));
        if (rng_below(g, 2))
            a.choices[i].logprobs = json_pack("{s:[{s:s,s:f}],s:n}", "content", "token", "a", "logprob", -0.25, "refusal");
        if (rng_below(g, 2)) a.choices[i].extra = json_pack("{s:i}", "stop_reason", 2);
        memcpy(a.choices[i].finish_reason, "stop", 5);
    }
    return a;
}

static void check_round_trip(uint64_t seed)
{
    struct rng g;
    rng_seed(&g, seed);
    struct openai_answer a = random_answer(&g, rng_below(&g, 3) ? OPENAI_CHAT : OPENAI_COMPLETION), b, c;
    struct errmsg e = {0};
    struct buf out;
    buf_init(&out, 1 << 20);
    openai_answer_write_json(&out, &a);
    enum err code = openai_answer_parse(&b, a.kind, buf_view(&out), &e);
    CHECK_AT(code == OK && same_answer(&a, &b), "seed %llu through JSON: %s: %s", (unsigned long long)seed, e.text, out.p);
    buf_clear(&out);
    openai_answer_write_sse(&out, &a, true, rng_below(&g, 6));
    code = collect(buf_view(&out), a.kind, &c);
    CHECK_AT(code == OK && same_answer(&a, &c), "seed %llu through SSE: %s: %s", (unsigned long long)seed, err_name(code), out.p);
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
    struct openai_answer a = {.kind = OPENAI_CHAT, .id = "i", .model = "m", .created = 7, .n_choices = 1, .usage = {3, 2, 1, true}};
    a.choices[0].message = json_pack("{s:s,s:s}", "role", "assistant", "content", "ab\xe4\xbd\xa0");
    memcpy(a.choices[0].finish_reason, "stop", 5);
    struct buf b;
    buf_init(&b, 10000);
    openai_answer_write_json(&b, &a);
    CHECK_STR(buf_view(&b), "{\"id\":\"i\",\"object\":\"chat.completion\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,"
                            "\"message\":{\"role\":\"assistant\",\"content\":\"ab\xe4\xbd\xa0\"},\"logprobs\":null,"
                            "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":"
                            "5,\"prompt_tokens_details\":{\"cached_tokens\":1}}}");
    buf_clear(&b);
    openai_answer_write_sse(&b, &a, true, 2);
#define CHUNK(delta, finish)                                                                                                       \
    "data: "                                                                                                                       \
    "{\"id\":\"i\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":" delta  \
    ",\"logprobs\":null,\"finish_reason\":" finish "}],\"usage\":null}\n\n"
    CHECK_STR(buf_view(&b),
              CHUNK("{\"role\":\"assistant\",\"content\":\"\"}", "null") CHUNK("{\"content\":\"ab\"}", "null")
                  CHUNK("{\"content\":\"\xe4\xbd\xa0\"}", "null") CHUNK(
                      "{}", "\"stop\"") "data: "
                                        "{\"id\":\"i\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\","
                                        "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5,"
                                        "\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n");
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
#define END(why) "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" why "\"}]}\n\n"
    check_collected(D("{\"role\":\"assistant\",\"content\":null}") D("{\"content\":\"a\"}") D("{\"role\":\"\",\"content\":\"b\"}")
                        END("stop"),
                    "{\"role\":\"assistant\",\"content\":\"ab\"}");
    check_collected(D("{\"role\":\"assistant\",\"content\":\"\"}") END("stop"), "{\"role\":\"assistant\",\"content\":\"\"}");
    check_collected(D("{\"reasoning_content\":\"h\"}") D("{\"reasoning_content\":\"m\"}") D("{\"content\":\"4\"}") END("stop"),
                    "{\"role\":\"assistant\",\"content\":\"4\",\"reasoning_content\":\"hm\"}");
    /* OpenAI: pieces by index, two calls interleaved */
    check_collected(
        D("{\"role\":\"assistant\",\"content\":null}") D(
            "{\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}")
            D("{\"tool_calls\":[{\"index\":1,\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{\"}},"
              "{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}")
                D("{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"}\"}}]}") END("tool_calls"),
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}},"
        "{\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}");
    /* id and name repeated in each piece; no index; a hole in the indexes */
    check_collected(D("{\"tool_calls\":[{\"index\":2,\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"1\"}}]}")
                        D("{\"tool_calls\":[{\"index\":2,\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"2\"}}]}")
                            END("tool_calls"),
                    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{"
                    "\"name\":\"f\",\"arguments\":\"12\"}}]}");
    check_collected(D("{\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"f\",\"arguments\":\"1\"}},{\"id\":\"y\","
                      "\"function\":{\"name\":\"g\",\"arguments\":\"2\"}}]}") END("tool_calls"),
                    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{"
                    "\"name\":\"f\",\"arguments\":\"1\"}},"
                    "{\"id\":\"y\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"2\"}}]}");
    check_collected(D("{\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}}") D("{\"function_call\":{\"arguments\":\"{}\"}}")
                        END("function_call"),
                    "{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}}");
    /* the whole answer in one frame */
    check_collected(
        "data: "
        "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"all\"},\"finish_reason\":\"stop\"}]}\n\n",
        "{\"role\":\"assistant\",\"content\":\"all\"}");
}

TEST(usage_is_counted_once_and_may_come_after_the_finish)
{
    struct openai_answer a;
    REQUIRE(
        collect(STR(D("{\"content\":\"a\"}") "data: "
                                             "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{"
                                             "\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n"
                                             "data: "
                                             "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_"
                                             "tokens_details\":{\"cached_tokens\":8}},\"timings\":{\"ms\":1}}\n\ndata: [DONE]\n\n"),
                OPENAI_CHAT, &a) == OK);
    CHECK(a.usage.known && a.usage.prompt_tokens == 9 && a.usage.completion_tokens == 4 && a.usage.cached_tokens == 8);
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
        CHECK_INT(feed_one(c, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}", &e), OK);
        CHECK_INT(openai_collector_take(c, &a), ERR_AGAIN);
        CHECK_INT(feed_one(c, rows[i].bad, &e), rows[i].code);
        CHECK_INT(feed_one(c, "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}", &e), OK);
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
    while (n < 1000 && !feed_one(c, "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"0123456789\"}}]}", &e))
        n++;
    CHECK_INT(n, 100);
    CHECK_INT(feed_one(c, "{\"choices\":[]}", &e), ERR_TOO_LARGE);
    openai_collector_free(c);
}

TEST(replies_that_are_no_answers_are_refused)
{
    static const char *const bad[] = {"",
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

TEST_MAIN()
