/* Goal: a line of a batch is refused with the member and the reason, its body reaches the pipeline as it was written, and what is
 * written is one line of JSON each time. Method: tables. */
#include "gateway/batch_line.h"
#include "gateway/body_edit.h"
#include "tests/check.h"

static const struct {
    const char *text, *code, *param;
} refused[] = {
    {"", "invalid_json_line", ""},
    {"{\"custom_id\":\"a\"", "invalid_json_line", ""},
    {"[1]", "invalid_json_line", ""},
    {"{\"custom_id\":\"a\"} {}", "invalid_json_line", ""},
    {"{\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}", "missing_required_parameter",
     "custom_id"},
    {"{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}",
     "invalid_type", "custom_id"},
    {"{\"custom_id\":\"\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}",
     "invalid_custom_id", "custom_id"},
    {"{\"custom_id\":\"a\\u0000\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}",
     "invalid_type", "custom_id"},
    {"{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{}}", "missing_required_parameter",
     "method"},
    {"{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}",
     "invalid_method", "method"},
    {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}",
     "invalid_url", "url"},
    {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\"}",
     "missing_required_parameter", "body"},
    {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":[]}",
     "invalid_type", "body"},
    {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"stream\":"
     "true}}",
     "unsupported_parameter", "body.stream"},
};

TEST(line_that_is_no_request_is_refused_with_its_reason)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct batch_line l;
        struct batch_fault why = {0};
        CHECK_INT(batch_line_read(&l, str_of(refused[i].text), "/v1/completions", &why),
                  ERR_INVALID);
        CHECK_AT(why.code && !strcmp(why.code, refused[i].code) &&
                     !strcmp(why.param, refused[i].param) && why.message[0],
                 "%s: %s %s %s", refused[i].text, why.code, why.param, why.message);
    }
}

TEST(line_over_its_bound_is_refused_before_it_is_parsed)
{
    struct batch_line l;
    struct batch_fault why = {0};
    static char text[BATCH_LINE_BYTES_MAX + 1];
    memset(text, ' ', sizeof text);
    CHECK_INT(batch_line_read(&l, (struct str){text, sizeof text}, "/v1/completions", &why),
              ERR_INVALID);
    CHECK_Z(why.code, "line_too_large");
}

TEST(body_is_taken_as_it_was_written)
{
    struct batch_line l;
    struct batch_fault why = {0};
    struct str text =
        STR("{ \"body\" : {\"n\":1.0, \"x\":\"}\\\"\"} ,\"custom_id\":\"a\\n1\",\"more\""
            ":[{}],\"method\":\"POST\",\"url\":\"/v1/completions\"}\r");
    REQUIRE(batch_line_read(&l, text, "/v1/completions", &why) == OK);
    CHECK_STR(l.body, "{\"n\":1.0, \"x\":\"}\\\"\"}");
    CHECK_STR(l.custom_id, "a\n1");
    batch_line_fini(&l);
    CHECK(!body_member(STR("{\"a\":1}"), "b").p);
    CHECK(!body_member(STR("[]"), "b").p);
    CHECK_STR(body_member(STR("{\"a\":1,\"\\u0062\" :-2 }"), "b"), "-2");
}

TEST(results_are_one_line_of_json_each)
{
    struct buf b;
    struct batch_answer a = {.batch = "batch_12ab",
                             .line = 3,
                             .custom_id = STR("q \"1\""),
                             .request_id = STR("req-9"),
                             .body = STR("{\n  \"a\": \"x\\ny\"\r\n}"),
                             .status = 200};
    buf_init(&b, 4096);
    CHECK(batch_answer_write(&b, &a));
    CHECK_STR(buf_view(&b),
              "{\"id\":\"batch_req_12ab_3\",\"custom_id\":\"q \\\"1\\\"\",\"response\":{"
              "\"status_code\":200,\"request_id\":\"req-9\",\"body\":{   \"a\": \"x\\ny\"  }},"
              "\"error\":null}\n");
    buf_clear(&b);
    batch_error_write(&b, &a, "batch_expired", "too late");
    CHECK_STR(buf_view(&b),
              "{\"id\":\"batch_req_12ab_3\",\"custom_id\":\"q \\\"1\\\"\",\"response\":"
              "null,\"error\":{\"code\":\"batch_expired\",\"message\":\"too late\"}}\n");
    buf_clear(&b);
    CHECK(batch_body_ok(a.body));
    CHECK(!batch_body_ok(STR("<html>")));
    CHECK(!batch_body_ok(STR("[1]")));
    CHECK(!batch_body_ok(STR("")));
    buf_fini(&b);
    buf_init(&b, 64); /* no room */
    CHECK(!batch_answer_write(&b, &a));
    buf_fini(&b);
}

TEST(endpoints_of_batches_are_those_that_answer_with_json)
{
    CHECK(batch_endpoint_known(STR("/v1/chat/completions")));
    CHECK(batch_endpoint_known(STR("/v1/embeddings")));
    CHECK(batch_endpoint_known(STR("/v1/responses")));
    CHECK(batch_endpoint_known(STR("/v1/messages")));
    CHECK(!batch_endpoint_known(STR("/v1/messages/count_tokens")));
    CHECK(!batch_endpoint_known(STR("")));
}

TEST_MAIN()
