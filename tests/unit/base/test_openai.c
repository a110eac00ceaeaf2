/* Goal: a request is read with its defaults, or refused with a message that says where and what
 * would be right. Method: tables of refusals. */
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
    REQUIRE(
        openai_parse(
            &r, OPENAI_CHAT,
            CHAT(",\"temperature\":null,\"n\":null,\"stop\":null,\"cache\":null,\"x\":{\"y\":1}"),
            OPENAI_ENGINE, &e) == OK);
    CHECK_STR(r.model, "m");
    CHECK(!r.stream && !r.include_usage && !r.has_seed && !r.logprobs && !r.echo && !r.tools &&
          !r.has_image);
    CHECK(r.n == 1 && r.max_tokens == -1 && r.top_k == 0 && r.n_stops == 0 && r.n_biases == 0 &&
          r.top_logprobs == 0);
    CHECK(r.temperature == 1 && r.top_p == 1 && r.min_p == 0 && r.repetition_penalty == 1 &&
          r.presence_penalty == 0);
    CHECK(r.cache_ttl_s == -1 && r.cache_max_age_s == -1 && !r.cache_no_cache &&
          !*r.cache_namespace);
    CHECK(json_object_get(r.body, "x") && !json_object_get(r.body, "cache"));
    openai_request_fini(&r);
}

TEST(what_a_request_may_come_to_is_told_by_its_largest_bounds)
{
    static const struct {
        enum openai_kind kind;
        const char *body;
        int answers, most;
    } cases[] = {
        {OPENAI_CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", 1, -1},
        {OPENAI_CHAT,
         "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":3,\"max_tokens\":1,\"max_"
         "completion_tokens\":50",
         3, 50},
        {OPENAI_CHAT,
         "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":50,\"max_completion_"
         "tokens\":1",
         1, 50},
        {OPENAI_COMPLETION, "\"prompt\":\"a\",\"max_tokens\":7,\"best_of\":20", 20, 7},
        {OPENAI_COMPLETION, "\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2,\"max_tokens\":7", 6, 7},
        {OPENAI_COMPLETION, "\"prompt\":[1,2,3],\"n\":2,\"max_tokens\":7", 2, 7},
        {OPENAI_COMPLETION, "\"prompt\":[[1],[2,3]],\"best_of\":2", 4, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct openai_request r;
        struct openai_error e;
        char body[256];
        snprintf(body, sizeof body, "{\"model\":\"m\",%s}", cases[i].body);
        enum err code = openai_parse(&r, cases[i].kind, str_of(body), OPENAI_GATEWAY, &e);
        CHECK_AT(code == OK, "%s: %s", body, e.message);
        if (code) continue;
        CHECK_AT(r.answers == cases[i].answers && r.max_tokens_most == cases[i].most,
                 "%s: %d answers of %d", body, r.answers, r.max_tokens_most);
        openai_request_fini(&r);
    }
}

TEST(given_values_are_read)
{
    struct openai_request r;
    struct openai_error e;
    struct str body =
        CHAT(",\"temperature\":0,\"top_p\":0.5,\"min_p\":0.05,\"top_k\":-1,\"seed\":-"
             "9223372036854775808,\"max_"
             "tokens\":8.0,\"max_completion_tokens\":4,"
             "\"n\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":["
             "\"a\\u0000b\",\"\",\"c\"]"
             ",\"logprobs\":true,\"top_logprobs\":3,"
             "\"logit_bias\":{\"12\":-100,\"7\":1.5},\"tools\":[{\"type\":\"function\","
             "\"function\":{\"name\":\"f\"}}"
             "],\"tool_choice\":\"auto\","
             "\"cache\":{\"no-cache\":true,\"ttl\":60,\"s-maxage\":5,\"namespace\":\"team:a\"}");
    enum err code = openai_parse(&r, OPENAI_CHAT, body, OPENAI_ENGINE, &e);
    CHECK_AT(code == OK, "%s", e.message);
    if (code) return;
    CHECK(r.temperature == 0 && r.top_p == 0.5 && r.min_p == 0.05 && r.top_k == 0 &&
          r.max_tokens == 4 && r.n == 2);
    CHECK(r.has_seed && r.seed == INT64_MIN && r.stream && r.include_usage && r.logprobs &&
          r.top_logprobs == 3);
    CHECK(r.n_stops == 2 && str_eq(r.stops[0].text, STR("a\0b")) &&
          str_eq(r.stops[1].text, STR("c")));
    CHECK(r.n_biases == 2 && r.biases[0].token == 12 && r.biases[0].bias == -100 &&
          r.biases[1].token == 7 && r.biases[1].bias == 1.5f);
    CHECK(json_array_size(r.tools) == 1 && r.cache_no_cache && !r.cache_no_store &&
          r.cache_ttl_s == 60 && r.cache_max_age_s == 5);
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

static const struct refusal refusals[] = {
    {OPENAI_CHAT, STR("[]"), "", "invalid_type", "body: expected a JSON object, got an array"},
    {OPENAI_CHAT, STR("{"), "", "invalid_json",
     "body: not valid JSON: line 1, column 2: string or '}' expected near end of file"},
    {OPENAI_CHAT, CHAT(",\"max_tokens\":99999999999999999999"), "max_tokens", "invalid_json",
     "body: not valid JSON: line 1, column 91: too big integer near '99999999999999999999'"},
    {OPENAI_CHAT, CHAT(",\"model\":\"n\""), "model", "invalid_json",
     "body: not valid JSON: line 1, column 65: a key given twice, duplicate object key near "
     "'\"model\"'"},
    {OPENAI_CHAT, STR("{}"), "model", "missing_required_parameter",
     "model: required, a model name"},
    {OPENAI_CHAT, STR("{\"model\":1}"), "model", "invalid_type",
     "model: expected a string, got a number"},
    {OPENAI_CHAT, STR("{\"model\":\"a\\nb\"}"), "model", "invalid_value",
     "model: the name holds a control character"},
    {OPENAI_CHAT, STR("{\"model\":\"m\"}"), "messages", "missing_required_parameter",
     "messages: required, an array of messages"},
    {OPENAI_CHAT, MESSAGES(""), "messages", "invalid_value",
     "messages: the array is empty: expected at least one message"},
    {OPENAI_CHAT,
     MESSAGES("{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":5}"),
     "messages[1].content", "invalid_type",
     "messages[1].content: expected a string or an array of parts, got a number"},
    {OPENAI_CHAT, MESSAGES("{\"role\":\"wizard\",\"content\":\"a\"}"), "messages[0].role",
     "invalid_value",
     "messages[0].role: unknown role: expected system, developer, user, assistant, tool or "
     "function"},
    {OPENAI_CHAT,
     MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
              "\"text\"}]}"),
     "messages[0].content[1].text", "invalid_type",
     "messages[0].content[1].text: expected a string, got nothing"},
    {OPENAI_CHAT, MESSAGES("{\"role\":\"user\",\"content\":[]}"), "messages[0].content",
     "invalid_value", "messages[0].content: the array is empty: expected at least one part"},
    {OPENAI_CHAT, MESSAGES("{\"role\":\"tool\",\"content\":\"a\"}"), "messages[0].tool_call_id",
     "invalid_type", "messages[0].tool_call_id: expected a string, got nothing"},
    {OPENAI_CHAT, MESSAGES("{\"role\":\"assistant\",\"content\":null}"), "messages[0].content",
     "invalid_type", "messages[0].content: expected a string or an array of parts, got nothing"},
    {OPENAI_CHAT,
     MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":"
              "\"f\",\"arguments\":{}}}]}"),
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
    {OPENAI_CHAT, CHAT(",\"seed\":1.5"), "seed", "invalid_type",
     "seed: expected an integer, got 1.5"},
    {OPENAI_CHAT, CHAT(",\"stop\":[\"a\",7]"), "stop", "invalid_type",
     "stop: [1]: expected a string, got a number"},
    {OPENAI_CHAT, CHAT(",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]"), "stop", "invalid_value",
     "stop: 5 strings: expected at most 4"},
    {OPENAI_CHAT, CHAT(",\"stream_options\":{}"), "stream_options", "invalid_value",
     "stream_options: allowed only with \"stream\": true"},
    {OPENAI_CHAT, CHAT(",\"top_logprobs\":2"), "top_logprobs", "invalid_value",
     "top_logprobs: allowed only with \"logprobs\": true"},
    {OPENAI_CHAT, CHAT(",\"logit_bias\":{\"-1\":1}"), "logit_bias", "invalid_value",
     "logit_bias: key \"-1\": expected a token id, digits only"},
    {OPENAI_CHAT, CHAT(",\"logit_bias\":{\"1\":100,\"01\":100}"), "logit_bias", "invalid_value",
     "logit_bias: key \"01\": expected a token id, digits only"},
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
     "cache: unknown member: expected no-cache, no-store, ttl, s-maxage, namespace or "
     "use-cache"},
    {OPENAI_COMPLETION, STR("{\"model\":\"m\"}"), "prompt", "missing_required_parameter",
     "prompt: required, a string or an array"},
    {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[1,-1]}"), "prompt", "invalid_type",
     "prompt: expected only strings, only token ids, or only arrays of token ids"},
    {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[\"a\",1]}"), "prompt", "invalid_type",
     "prompt: [1]: expected a string like the first one, got a number"},
    {OPENAI_EMBEDDING, STR("{\"model\":\"m\",\"input\":\"\"}"), "input", "invalid_value",
     "input: the string is empty"},
    {OPENAI_EMBEDDING, STR("{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":\"hex\"}"),
     "encoding_format", "invalid_value", "encoding_format: expected \"float\" or \"base64\""},
};

TEST(a_refusal_says_where_and_what_would_be_right)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        check_refusal(&refusals[i], OPENAI_GATEWAY);
        check_refusal(&refusals[i], OPENAI_ENGINE);
    }
}

TEST(the_engine_refuses_what_it_cannot_do_and_the_gateway_passes_it)
{
    static const struct refusal rows[] = {
        {OPENAI_CHAT, CHAT(",\"n\":17"), "n", "invalid_value",
         "n: 17 is out of range: expected an integer from 1 to 16"},
        {OPENAI_CHAT, CHAT(",\"response_format\":{\"type\":\"grammar\"}"), "response_format",
         "unsupported_value",
         "response_format: type: expected text, json_object, json_schema or regex"},
        {OPENAI_CHAT,
         MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":"
                  "\"x\"}}]}"),
         "messages[0].content[0]", "unsupported_value",
         "messages[0].content[0]: image_url is not supported: this model reads text only"},
        {OPENAI_CHAT,
         MESSAGES(
             "{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{}}]}"),
         "messages[0].content[0]", "unsupported_value",
         "messages[0].content[0]: input_audio is not supported: this model reads text only"},
        {OPENAI_CHAT, CHAT(",\"tools\":[{\"type\":\"custom\"}]"), "tools", "unsupported_value",
         "tools: [0].type: this engine knows only \"function\""},
        {OPENAI_CHAT,
         CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":"
              "{\"type\":\"allowed_tools\"}"),
         "tool_choice", "unsupported_value",
         "tool_choice: type: this engine knows only \"function\""},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":\"a\",\"suffix\":\"b\"}"), "suffix",
         "unsupported_value", "suffix: this engine cannot insert before a suffix"},
        {OPENAI_COMPLETION, STR("{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"n\":9}"), "prompt",
         "invalid_value", "prompt: prompts times n make 18 answers: expected at most 16"},
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
    check_last_user(
        MESSAGES("{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}"),
        "a");
    check_last_user(
        MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"), "a");
    check_last_user(MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
                             "\"type\":\"text\",\"text\":\"b\"}]}"),
                    "a\nb");
    check_last_user(MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
                             "\"type\":\"image_url\",\"image_"
                             "url\":{\"url\":\"x\"}}]}"),
                    "");
    check_last_user(
        MESSAGES(
            "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}"),
        "");
}

TEST(an_error_is_written_as_clients_expect_it)
{
    struct openai_error e;
    struct buf b;
    buf_init(&b, 4096);
    openai_error_set(&e, 404, "invalid_request_error", "model", "model_not_found",
                     "no model \"%s\"", "x\xff\n");
    openai_error_write(&b, &e);
    CHECK_STR(buf_view(&b), "{\"error\":{\"message\":\"no model "
                            "\\\"x\xef\xbf\xbd\\n\\\"\",\"type\":\"invalid_request_error\","
                            "\"param\":\"model\",\"code\":\"model_not_found\"}}");
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

TEST_MAIN()
