/* Goal: a chat stream is told in each door's events byte for byte as the golden file has it, however its bytes are cut, and whole answers
 * say the same; what cannot be told ends with the door's error. Method: tests/data/door_streams.jsonl, one case a line (chat
 * frames in, events out); every case is fed whole, at every split in two pieces, and byte by byte. DOOR_GOLDEN=FILE writes the
 * file anew from what is made now: read the difference before keeping it. */
#include "base/json.h"
#include "gateway/door_stream.h"
#include "tests/check.h"

enum { BYTES_MAX = 1 << 20 };
static const char id[] = "00112233445566778899aabbccddeeff";

static struct door_facts facts_of(const json_t *asked)
{
    struct door_facts f = {.asked = asked, .now_s = 1700000000};
    memcpy(f.id, id, sizeof id);
    return f;
}

static const struct door *door_named(struct str name)
{
    return str_eqz(name, "responses") ? &door_responses : &door_messages;
}

/* The events for tape cut before byte split and, with step, everywhere. */
static void tell(const json_t *c, struct str tape, size_t split, bool step, struct buf *out)
{
    struct door_facts f = facts_of(json_object_get(c, "asked"));
    struct door_stream *s = door_stream_new(door_named(json_member_str(c, "door")), &f, BYTES_MAX);
    size_t at = 0;
    while (at < tape.n) {
        size_t n = step ? 1 : at < split ? split - at : tape.n - at;
        door_stream_feed(s, str_sub(tape, at, n));
        at += n;
        struct str piece = door_stream_next(s, step ? 7 : BYTES_MAX);
        buf_str(out, piece);
        door_stream_sent(s, piece.n);
    }
    door_stream_close(s);
    door_stream_close(s);
    for (struct str piece; (piece = door_stream_next(s, 1000)).n; door_stream_sent(s, piece.n))
        buf_str(out, piece);
    CHECK(!buf_failed(&s->out));
    door_stream_free(s);
}

static void frames_of(const json_t *c, struct buf *tape)
{
    const json_t *frames = json_object_get(c, "frames");
    for (size_t i = 0; i < json_array_size(frames); i++) {
        const json_t *v = json_array_get(frames, i);
        struct buf text;
        buf_init(&text, BYTES_MAX);
        if (json_is_string(v))
            buf_str(&text, json_str(v));
        else
            json_write(&text, v);
        sse_write_data(tape, buf_view(&text));
        buf_fini(&text);
    }
}

static void run_case(json_t *c, FILE *golden)
{
    struct buf tape, got;
    struct str want = json_member_str(c, "want");
    buf_init(&tape, BYTES_MAX);
    buf_init(&got, BYTES_MAX);
    frames_of(c, &tape);
    if (golden) {
        tell(c, buf_view(&tape), 0, false, &got);
        json_object_set_new(c, "want", json_stringn(got.p, got.n));
        json_dumpf(c, golden, JSON_COMPACT);
        fputc('\n', golden);
        want = json_member_str(c, "want");
    }
    for (size_t split = 0; split <= tape.n + 1; split++) {
        buf_clear(&got);
        tell(c, buf_view(&tape), split, split > tape.n, &got);
        CHECK_AT(str_eq(buf_view(&got), want), "%s, cut at %zu:\n" STR_FMT "\nwanted:\n" STR_FMT,
                 json_string_value(json_object_get(c, "title")), split, STR_ARG(buf_view(&got)),
                 STR_ARG(want));
        if (!str_eq(buf_view(&got), want)) break;
    }
    buf_fini(&tape);
    buf_fini(&got);
}

TEST(every_stream_is_told_as_the_golden_file_has_it_however_it_is_cut)
{
    FILE *in = fopen(TEST_DATA "/door_streams.jsonl", "r");
    FILE *golden = getenv("DOOR_GOLDEN") ? fopen(getenv("DOOR_GOLDEN"), "w") : NULL;
    static char line[1 << 17];
    int n = 0;
    REQUIRE(in);
    while (fgets(line, sizeof line, in)) {
        json_t *c = NULL;
        REQUIRE(json_parse(str_of(line), 0, &c, NULL) == OK);
        run_case(c, golden);
        json_decref(c);
        n++;
    }
    fclose(in);
    if (golden) fclose(golden);
    CHECK(n >= 10);
}

static void tell_frames(const char *door, const char *const *frames, size_t n, struct buf *out)
{
    struct door_facts f = facts_of(NULL);
    struct door_stream *s = door_stream_new(door_named(str_of(door)), &f, 64);
    struct buf tape;
    buf_init(&tape, BYTES_MAX);
    for (size_t i = 0; i < n; i++)
        sse_write_data(&tape, str_of(frames[i]));
    door_stream_feed(s, buf_view(&tape));
    door_stream_close(s);
    buf_str(out, door_stream_next(s, BYTES_MAX));
    door_stream_free(s);
    buf_fini(&tape);
}

TEST(a_frame_that_is_valid_and_rare_is_told_like_others)
{
    const char *frames[] = {
        "{\"big\":18446744073709551616,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"first "
        "\"}}]}",
        "{\"a\":1,\"a\":2,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"second\"}}]}",
        "{\"big\":18446744073709551616,\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}"
        "]}",
        "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}", "[DONE]"};
    static const char *const doors[] = {"messages", "responses"};
    for (size_t i = 0; i < 2; i++) {
        struct buf out;
        buf_init(&out, BYTES_MAX);
        tell_frames(doors[i], frames, 5, &out);
        CHECK(str_find(buf_view(&out), STR("\"first \"")) > 0);
        CHECK(str_find(buf_view(&out), STR("\"second\"")) > 0);
        CHECK(str_find(buf_view(&out), STR("\"other\"")) < 0);
        buf_fini(&out);
    }
}

TEST(an_answer_past_the_bound_ends_with_an_error)
{
    const char *frames[] = {
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"0123456789012345678"
        "90123456789012345\"}}]}",
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"0123456789012345678"
        "90123456789012345\"}}]}",
        "[DONE]"};
    static const char *const doors[][2] = {{"messages", "event: error\n"},
                                           {"responses", "event: response.failed\n"}};
    for (size_t i = 0; i < 2; i++) {
        struct buf out;
        buf_init(&out, BYTES_MAX);
        tell_frames(doors[i][0], frames, 3, &out);
        CHECK(str_find(buf_view(&out), str_of(doors[i][1])) > 0);
        CHECK(str_find(buf_view(&out), STR("too large")) > 0);
        CHECK(str_find(buf_view(&out), STR("message_stop")) < 0);
        buf_fini(&out);
    }
}

TEST(more_items_than_the_bound_end_with_an_error)
{
    struct buf out;
    const char *frames[600];
    for (size_t i = 0; i < 600; i++)
        frames[i] =
            i % 2   ? "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\",\"refusal\":\"\"}}]}"
            : i % 4 ? "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"b\",\"function\":{"
                      "\"name\":\"f\"}}]}}]}"
                    : "{\"choices\":[{\"delta\":{\"reasoning\":\"\"},\"index\":0}]}";
    buf_init(&out, BYTES_MAX * 2);
    tell_frames("messages", frames, 600, &out);
    CHECK(str_find(buf_view(&out), STR("event: error\n")) > 0); /* no end came */
    buf_fini(&out);
}

static void answer_of(struct openai_answer *a, const char *json)
{
    struct errmsg e = {0};
    REQUIRE(openai_answer_parse(a, OPENAI_CHAT, str_of(json), &e) == OK);
}

static void check_whole(const struct door *d, const char *json, const char *want)
{
    struct openai_answer a;
    struct turn t;
    struct buf out;
    struct errmsg why = {0};
    json_t *asked = json_loads("{\"model\":\"m\",\"stop_sequences\":[\"END\"]}", 0, NULL);
    struct door_facts f = facts_of(asked);
    answer_of(&a, json);
    turn_init(&t, BYTES_MAX);
    buf_init(&out, BYTES_MAX);
    CHECK(turn_read(&t, &a) == OK);
    CHECK(d->write_answer(&out, &t, &f, &why) == OK);
    CHECK_STR(buf_view(&out), want);
    turn_fini(&t);
    buf_fini(&out);
    openai_answer_fini(&a);
    json_decref(asked);
}

#define ANSWER(message, finish, more)                                                              \
    "{\"id\":\"c\",\"created\":7,\"model\":\"mm\",\"choices\":[{\"index\":0,\"message\":" message  \
    ",\"finish_reason\":\"" finish "\"" more "}],\"usage\":{\"prompt_tokens\":9,"                  \
    "\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":2}}}"
#define USAGE                                                                                      \
    "\"usage\":{\"input_tokens\":7,\"cache_creation_input_tokens\":0,"                             \
    "\"cache_read_input_tokens\":2,\"output_tokens\":4}}"
#define HEAD                                                                                       \
    "{\"id\":\"msg_00112233445566778899aabb00\",\"type\":\"message\",\"role\":\"assistant\","      \
    "\"model\":\"mm\",\"content\":["

TEST(whole_messages_tell_blocks_stop_and_usage)
{
    check_whole(&door_messages, ANSWER("{\"role\":\"assistant\",\"content\":\"hi\"}", "stop", ""),
                HEAD "{\"type\":\"text\",\"text\":\"hi\"}],\"stop_reason\":\"end_turn\","
                     "\"stop_sequence\":null," USAGE);
    check_whole(
        &door_messages,
        ANSWER("{\"role\":\"assistant\",\"content\":\"hi\"}", "stop", ",\"stop_reason\":\"END\""),
        HEAD "{\"type\":\"text\",\"text\":\"hi\"}],\"stop_reason\":\"stop_sequence\","
             "\"stop_sequence\":\"END\"," USAGE);
    check_whole(
        &door_messages,
        ANSWER("{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"hm\","
               "\"tool_calls\":[{\"id\":\"t\",\"type\":\"function\",\"function\":{\"name\":\"f\","
               "\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"t\",\"type\":\"function\",\"function\":"
               "{\"name\":\"g\",\"arguments\":\"\"}}]}",
               "tool_calls", ""),
        HEAD "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
             "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"a\":1}},"
             "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"g\",\"input\":{}}],"
             "\"stop_reason\":\"tool_use\",\"stop_sequence\":null," USAGE);
}

TEST(arguments_that_are_no_object_cannot_be_told_as_a_whole_message)
{
    struct openai_answer a;
    struct turn t;
    struct buf out;
    struct errmsg why = {0};
    struct door_facts f = facts_of(NULL);
    answer_of(&a, ANSWER("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"t\","
                         "\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}",
                         "tool_calls", ""));
    turn_init(&t, BYTES_MAX);
    buf_init(&out, BYTES_MAX);
    CHECK(turn_read(&t, &a) == OK);
    CHECK(door_messages.write_answer(&out, &t, &f, &why) == ERR_UNSUPPORTED);
    CHECK(str_find(str_of(why.text), STR("tool call")) >= 0);
    turn_fini(&t);
    buf_fini(&out);
    openai_answer_fini(&a);
}

TEST(whole_responses_tell_items_status_and_usage)
{
    struct openai_answer a;
    struct turn t;
    struct buf out;
    struct errmsg why = {0};
    struct door_facts f = facts_of(NULL);
    json_t *doc = NULL;
    answer_of(&a, ANSWER("{\"role\":\"assistant\",\"content\":\"hi\"}", "length", ""));
    turn_init(&t, BYTES_MAX);
    buf_init(&out, BYTES_MAX);
    CHECK(turn_read(&t, &a) == OK && door_responses.write_answer(&out, &t, &f, &why) == OK);
    REQUIRE(json_parse(buf_view(&out), 0, &doc, NULL) == OK);
    const json_t *item = json_array_get(json_object_get(doc, "output"), 0),
                 *usage = json_object_get(doc, "usage");
    CHECK_STR(json_member_str(doc, "status"), "incomplete");
    CHECK_STR(json_member_str(json_object_get(doc, "incomplete_details"), "reason"),
              "max_output_tokens");
    CHECK_STR(json_member_str(item, "status"), "incomplete");
    CHECK_INT(json_integer_value(json_object_get(doc, "created_at")), 7);
    CHECK_INT(json_integer_value(json_object_get(usage, "total_tokens")), 13);
    json_decref(doc);
    turn_fini(&t);
    buf_fini(&out);
    openai_answer_fini(&a);
}

TEST_MAIN()
