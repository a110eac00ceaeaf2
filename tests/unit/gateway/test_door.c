/* Goal: a body read through a door gives exactly the chat body that stands beside it, or the refusal that names the client's own field; two
 * doors that mean the same give the same key; no prefix of a body is taken or crashes. Method: tables. */
#include "gateway/door.h"
#include "cache/key.h"
#include "tests/check.h"

#define MSG "{\"model\":\"m\",\"max_tokens\":5,\"messages\":"
#define HI "[{\"role\":\"user\",\"content\":\"hi\"}]"
#define CHAT "{\"max_tokens\":5,\"messages\":"
#define USER "{\"content\":\"hi\",\"role\":\"user\"}"

struct row {
    const struct door *door;
    const char *body,
        *want; /* canonical chat body without model; or with '!': parameter and the message's beginning */
};

static const struct row rows[] = {
    /* messages */
    {&door_messages, MSG HI "}", CHAT "[" USER "]}"},
    {&door_messages,
     MSG "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\","
         "\"cache_control\":{\"type\":\"ephemeral\"}}]}]}",
     CHAT "[" USER "]}"},
    {&door_messages,
     MSG HI ",\"system\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
            "\"text\":\"b\"}]}",
     CHAT "[{\"content\":[{\"text\":\"a\",\"type\":\"text\"},{\"text\":\"b\",\"type\":\"text\"}],"
          "\"role\":\"system\"}," USER "]}"},
    {&door_messages, MSG HI ",\"system\":[],\"tools\":[],\"stop_sequences\":[],\"stream\":null}",
     CHAT "[" USER "]}"},
    {&door_messages,
     MSG "[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\"}]}]}",
     CHAT "[{\"content\":\"\",\"role\":\"tool\",\"tool_call_id\":\"t\"}]}"},
    {&door_messages,
     MSG "[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\","
         "\"url\":\"u\"}}]}]}",
     CHAT "[{\"content\":[{\"image_url\":{\"url\":\"u\"},\"type\":\"image_url\"}],"
          "\"role\":\"user\"}]}"},
    {&door_messages,
     MSG HI ",\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":"
            "\"json_schema\",\"schema\":{}}}}",
     CHAT "[" USER "],\"reasoning_effort\":\"low\",\"response_format\":{\"json_schema\":{\"name\":"
          "\"output\",\"schema\":{},\"strict\":true},\"type\":\"json_schema\"}}"},
    {&door_messages, MSG HI ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}}",
     "{\"\\u0001door\":{\"thinking\":{\"budget_tokens\":9,\"type\":\"enabled\"}},"
     "\"max_tokens\":5,\"messages\":[" USER "]}"},
    {&door_messages,
     MSG HI ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{"
            "\"type\":\"tool\",\"name\":\"f\"}}",
     CHAT "[" USER "],\"tool_choice\":{\"function\":{\"name\":\"f\"},\"type\":\"function\"},"
          "\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{}},\"type\":\"function\"}]}"},
    {&door_messages, "[]", "!|body: expected a JSON object, got an array"},
    {&door_messages, "{", "!|body: "},
    {&door_messages, "{\"model\":\"m\",\"messages\":" HI "}", "!max_tokens|max_tokens: required"},
    {&door_messages, "{\"max_tokens\":1,\"messages\":" HI "}", "!model|model: required"},
    {&door_messages, MSG "[]}", "!messages|messages: the array is empty"},
    {&door_messages, MSG "\"hi\"}", "!messages|messages: expected an array of messages"},
    {&door_messages, MSG "[1]}", "!messages[0]|messages[0]: expected an object"},
    {&door_messages, MSG "[{\"role\":\"system\",\"content\":\"x\"}]}", "!messages[0].role|"},
    {&door_messages, MSG "[{\"role\":\"user\"}]}", "!messages[0].content|"},
    {&door_messages, MSG "[{\"role\":\"user\",\"content\":[]}]}", "!messages[0].content|"},
    {&door_messages, MSG "[{\"role\":\"user\",\"content\":[7]}]}", "!messages[0].content[0].type|"},
    {&door_messages, MSG "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
     "!messages[0].content[0].text|"},
    {&door_messages,
     MSG "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
         "\"tool_result\",\"tool_use_id\":\"t\"}]}]}",
     "!messages[0].content[1]|messages[0].content[1]: results of tools come first"},
    {&door_messages,
     MSG "[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\","
         "\"input\":\"x\"}]}]}",
     "!messages[0].content[0].input|"},
    {&door_messages, MSG HI ",\"stop_sequences\":[\"1\",\"2\",\"3\",\"4\",\"5\"]}",
     "!stop_sequences|stop_sequences: 5 strings"},
    {&door_messages, MSG HI ",\"stop_sequences\":[1]}",
     "!stop_sequences|stop_sequences: [0]: expected a string"},
    {&door_messages, MSG HI ",\"tool_choice\":{\"type\":\"any\"}}", "!tool_choice|"},
    {&door_messages, MSG HI ",\"tool_choice\":{\"type\":\"x\"}}", "!tool_choice.type|"},
    {&door_messages, MSG HI ",\"n\":2}", "!n|n: there is no such field"},
    {&door_messages, MSG HI ",\"container\":\"c\"}", "!container|container: there are no"},
    {&door_messages, MSG HI ",\"metadata\":{\"user_id\":1}}", "!metadata.user_id|"},
    {&door_messages, MSG HI ",\"stream\":1}", "!stream|"},
    /* responses */
    {&door_responses, "{\"model\":\"m\",\"input\":\"hi\",\"max_output_tokens\":5}",
     CHAT "[" USER "]}"},
    {&door_responses,
     "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
     "\"text\":\"hi\"}]}],\"max_output_tokens\":5,\"store\":true,\"metadata\":{\"a\":\"b\"},"
     "\"text\":{\"format\":{\"type\":\"text\"}},\"include\":[\"reasoning.encrypted_content\"]}",
     CHAT "[" USER "]}"},
    {&door_responses,
     "{\"model\":\"m\",\"input\":[{\"type\":\"reasoning\",\"summary\":[{\"text\":\"hm\"}]},"
     "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
     "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]}",
     "{\"messages\":[{\"content\":null,\"reasoning_content\":\"hm\",\"role\":\"assistant\","
     "\"tool_calls\":[{\"function\":{\"arguments\":\"{}\",\"name\":\"f\"},\"id\":\"c\",\"type\":"
     "\"function\"}]},{\"content\":\"o\",\"role\":\"tool\",\"tool_call_id\":\"c\"}]}"},
    {&door_responses,
     "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
     "\"filename\":\"f\",\"file_data\":\"d\"}]}]}",
     "{\"messages\":[{\"content\":[{\"file\":{\"file_data\":\"d\",\"filename\":\"f\"},\"type\":"
     "\"file\"}],\"role\":\"user\"}]}"},
    {&door_responses, "{\"model\":\"m\"}", "!input|input: required"},
    {&door_responses, "{\"model\":\"m\",\"input\":[]}", "!input|input: the array is empty"},
    {&door_responses, "{\"model\":\"m\",\"input\":7}", "!input|input: expected a string"},
    {&door_responses, "{\"model\":\"m\",\"input\":[7]}", "!input[0]|"},
    {&door_responses, "{\"model\":\"m\",\"input\":[{\"role\":\"x\",\"content\":\"\"}]}",
     "!input[0].role|"},
    {&door_responses,
     "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
     "\"file_id\":\"f\"}]}]}",
     "!input[0].content[0].file_id|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"max_output_tokens\":0}",
     "!max_output_tokens|max_output_tokens: 0 is out of range"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"text\":{\"format\":{\"type\":\"a\"}}}",
     "!text.format.type|"},
    {&door_responses,
     "{\"model\":\"m\",\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}",
     "!text.format.schema|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"include\":[\"a\"]}", "!include|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"top_logprobs\":2}", "!top_logprobs|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"truncation\":\"x\"}", "!truncation|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"conversation\":\"c\"}", "!conversation|"},
    {&door_responses, "{\"model\":\"m\",\"input\":\"x\",\"tool_choice\":{\"type\":\"web_search\"}}",
     "!tool_choice.type|"},
};

static void check_refused(const struct row *row, const struct openai_error *e)
{
    struct str rest = str_of(row->want + 1), param;
    if (!str_next(&rest, '|', &param)) param = STR("");
    CHECK_INT(e->status, 400);
    CHECK_AT(str_eq(str_of(e->param), param) && str_starts(str_of(e->message), rest),
             "%s\n  gives %s|%s", row->body, e->param, e->message);
}

static void check_row(const struct row *row)
{
    struct door_request asked = {0};
    struct openai_request r;
    struct openai_error e = {0};
    struct buf got;
    enum err code = door_parse(row->door, str_of(row->body), &asked, &r, &e);
    bool refused = row->want[0] == '!';
    CHECK_AT((code != OK) == refused, "%s: %s", row->body, code ? e.message : "taken");
    if (code != OK) {
        if (refused) check_refused(row, &e);
        return;
    }
    buf_init(&got, 1 << 16);
    CHECK(key_canonical(&r, true, &got) == OK);
    CHECK_AT(str_eqz(buf_view(&got), row->want), "%s\n  gives  " STR_FMT "\n  wanted %s", row->body,
             STR_ARG(buf_view(&got)), row->want);
    CHECK(str_find(buf_view(&asked.chat), STR("\\u0001")) < 0); /* counts, and is not sent */
    buf_fini(&got);
    openai_request_fini(&r);
    door_request_fini(&asked);
}

TEST(bodies_become_the_chat_bodies_beside_them_or_refusals_that_name_the_field)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

TEST(what_was_said_before_comes_between_the_instructions_and_the_input)
{
    static const struct {
        const char *history, *body, *want;
    } past[] = {
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"message\",\"id\":\"msg_1\",\"status\":"
         "\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
         "\"b\","
         "\"annotations\":[],\"logprobs\":[]}]}]",
         "{\"model\":\"m\",\"input\":\"c\",\"instructions\":\"i\",\"previous_response_id\":\"resp_"
         "1\"}",
         "[{\"content\":\"i\",\"role\":\"system\"},{\"content\":\"a\",\"role\":\"user\"},{"
         "\"content\":"
         "\"b\",\"role\":\"assistant\"},{\"content\":\"c\",\"role\":\"user\"}]"},
        {"[]", "{\"model\":\"m\",\"input\":\"c\",\"previous_response_id\":\"resp_1\"}",
         "[{\"content\":\"c\",\"role\":\"user\"}]"},
        {"[7]", "{\"model\":\"m\",\"input\":\"c\",\"previous_response_id\":\"resp_1\"}",
         "!previous_response_id[0]"},
        {"[", "{\"model\":\"m\",\"input\":\"c\",\"previous_response_id\":\"resp_1\"}", "!"},
        {"", "{\"model\":\"m\",\"input\":\"c\",\"previous_response_id\":\"resp_1\"}",
         "!previous_response_id"}};
    for (size_t i = 0; i < sizeof past / sizeof *past; i++) {
        struct door_request asked = {0};
        struct openai_request r;
        struct openai_error e = {0};
        buf_init(&asked.history, 4096);
        buf_z(&asked.history, past[i].history);
        enum err code = door_parse(&door_responses, str_of(past[i].body), &asked, &r, &e);
        CHECK_AT((code != OK) == (past[i].want[0] == '!'), "%zu: %s", i, e.message);
        if (code != OK) {
            CHECK_Z(e.param, past[i].want + 1);
            continue;
        }
        char *got = json_dumps(r.messages, JSON_COMPACT | JSON_SORT_KEYS);
        CHECK_Z(got, past[i].want);
        free(got);
        openai_request_fini(&r);
        door_request_fini(&asked);
    }
}

TEST(no_part_of_a_body_is_taken_for_a_whole_one)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str whole = str_of(rows[i].body);
        for (size_t n = 0; n < whole.n; n++) {
            struct door_request asked = {0};
            struct openai_request r;
            struct openai_error e = {0};
            CHECK(door_parse(rows[i].door, str_sub(whole, 0, n), &asked, &r, &e) != OK);
            CHECK(e.status == 400 && e.message[0]);
        }
    }
}

TEST(a_bound_on_tokens_is_one_thing_under_both_of_its_names)
{
    static const char *const bodies[] = {
        "{\"model\":\"m\",\"messages\":" HI ",\"max_tokens\":5}",
        "{\"model\":\"m\",\"messages\":" HI ",\"max_completion_tokens\":5}",
        "{\"model\":\"m\",\"messages\":" HI ",\"max_completion_tokens\":5,\"max_tokens\":null}",
        "{\"model\":\"m\",\"messages\":" HI ",\"max_completion_tokens\":5,\"max_tokens\":7}"};
    struct buf first, got;
    buf_init(&first, 4096);
    buf_init(&got, 4096);
    for (size_t i = 0; i < 4; i++) {
        struct openai_request r;
        struct openai_error e;
        REQUIRE(openai_parse(&r, OPENAI_CHAT, str_of(bodies[i]), OPENAI_GATEWAY, &e) == OK);
        buf_clear(&got);
        CHECK(key_canonical(&r, true, i ? &got : &first) == OK);
        if (i) CHECK(str_eq(buf_view(&got), buf_view(&first)) == (i < 3));
        openai_request_fini(&r);
    }
    buf_fini(&first);
    buf_fini(&got);
}

TEST_MAIN()
