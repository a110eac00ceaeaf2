/* fuzz_door.c - the first byte chooses a door: the rest is a body (next bit: after the conversation so far, as many bytes as the second one
 * tells), or (high bit) the bytes of a chat stream cut at a place the second byte tells. What is taken is a chat request; whatever comes, a
 * stream ends in one of the door's ways. */
#include "gateway/door_stream.h"

static const struct door *const doors[] = {&door_messages, &door_responses};

/* past: the conversation so far, or empty. */
static void check_body(const struct door *d, struct str past, struct str body)
{
    struct door_request asked = {0};
    buf_init(&asked.history, 1 << 24);
    buf_str(&asked.history, past);
    struct openai_request r;
    struct openai_error e = {0};
    json_t *doc = NULL;
    struct buf out;
    buf_init(&out, 1 << 24);
    if (door_parse(d, body, &asked, &r, &e) != OK) {
        ASSERT((e.status == 400 || (past.n && e.status == 500)) && e.message[0]);
        d->write_error(&out, &e, STR("id"));
        ASSERT(json_parse(buf_view(&out), 0, &doc, NULL) == OK);
        json_decref(doc);
    } else {
        ASSERT(r.kind == OPENAI_CHAT && json_array_size(r.messages) > 0);
        ASSERT(json_parse(buf_view(&asked.chat), 0, &doc, NULL) == OK);
        json_decref(doc);
        openai_request_fini(&r);
        door_request_fini(&asked);
    }
    buf_fini(&out);
}

static bool count_event(void *arg, const struct sse_event *ev)
{
    json_t *doc = NULL;
    ASSERT(json_parse(ev->data, 0, &doc, NULL) == OK);
    ASSERT(str_eq(json_member_str(doc, "type"), ev->event));
    json_decref(doc);
    (*(int *)arg)++;
    return true;
}

static void check_stream(const struct door *d, struct str bytes, size_t cut)
{
    struct door_facts f = {.id = "0123"};
    struct door_stream *s = door_stream_new(d, &f, 1 << 16);
    struct sse_reader *r = sse_reader_new(1 << 24);
    int n = 0;
    door_stream_feed(s, str_sub(bytes, 0, cut));
    door_stream_feed(s, str_sub(bytes, cut, bytes.n));
    door_stream_close(s);
    ASSERT(s->over && !buf_failed(&s->out));
    enum err code = sse_reader_feed(r, door_stream_next(s, SIZE_MAX), count_event, &n);
    ASSERT(code == OK && !sse_reader_pending(r) && n >= 3);
    sse_reader_free(r);
    door_stream_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    const struct door *d = doors[bytes[0] & 1];
    struct str rest = {(const char *)bytes + 2, n - 2};
    if (bytes[0] & 0x80)
        check_stream(d, rest, bytes[1] < rest.n ? bytes[1] : rest.n);
    else if (bytes[0] & 0x40)
        check_body(d, str_sub(rest, 0, bytes[1]), str_sub(rest, bytes[1], rest.n));
    else
        check_body(d, STR(""), rest);
    return 0;
}
