/* door_stream.c - see door_stream.h. */
#include "gateway/door_stream.h"

#include <stdio.h>

#include "base/mem.h"

enum { FRAME_BYTES_MAX = 16 << 20, OUT_FACTOR = 8 };

struct door_stream *door_stream_new(const struct door *d, const struct door_facts *f,
                                    size_t bytes_max)
{
    struct door_stream *s = xcalloc(1, sizeof *s);
    s->door = d;
    s->facts = *f;
    s->bytes_max = bytes_max;
    turn_init(&s->turn, bytes_max);
    s->sse = sse_reader_new(FRAME_BYTES_MAX);
    /* text may grow sixfold when it is escaped, and the last event holds all of it again */
    buf_init(&s->out, bytes_max * OUT_FACTOR + FRAME_BYTES_MAX);
    return s;
}

void door_stream_free(struct door_stream *s)
{
    if (!s) return;
    turn_fini(&s->turn);
    sse_reader_free(s->sse);
    buf_fini(&s->out);
    mem_free(s);
}

void door_stream_event(struct door_stream *s, const char *name, json_t *v)
{
    struct buf json;
    ASSERT(v);
    buf_init(&json, s->out.max);
    json_write(&json, v);
    json_decref(v);
    sse_write_event(&s->out, name, buf_view(&json));
    buf_fini(&json);
}

static void start(struct door_stream *s)
{
    if (s->started) return;
    s->started = true;
    s->door->start(s);
}

static void fail(struct door_stream *s, const struct openai_error *e)
{
    if (s->over) return;
    start(s);
    s->over = true;
    s->door->fail(s, e);
}

static void fail_with(struct door_stream *s, const char *text)
{
    struct openai_error e;
    openai_error_set(&e, 502, "upstream_error", "", "upstream_bad_answer", "%s", text);
    fail(s, &e);
}

/* --- the turn's events go to the door */
static void on_begin(void *arg, const struct turn *t, size_t i)
{
    struct door_stream *s = arg;
    (void)t;
    s->door->begin(s, i);
}

static void on_piece(void *arg, const struct turn *t, size_t i, struct str text)
{
    struct door_stream *s = arg;
    (void)t;
    s->door->piece(s, i, text);
}

static void on_end(void *arg, const struct turn *t, size_t i)
{
    struct door_stream *s = arg;
    (void)t;
    s->door->end(s, i);
}

static void finish(struct door_stream *s)
{
    struct turn_sink sink = {on_begin, on_piece, on_end, s};
    start(s);
    turn_close(&s->turn, &sink);
    s->over = true;
    s->door->finish(s);
}

static void take_error(struct door_stream *s, const json_t *error)
{
    struct openai_error e;
    struct str message = json_member_str(error, "message"), type = json_member_str(error, "type"),
               code = json_member_str(error, "code");
    char text[sizeof e.message], kind[sizeof e.type], name[sizeof e.code];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(message));
    snprintf(kind, sizeof kind, STR_FMT, STR_ARG(type));
    snprintf(name, sizeof name, STR_FMT, STR_ARG(code));
    openai_error_set(&e, 502, kind, "", name, "%s",
                     text[0] ? text : "the upstream reported an error");
    fail(s, &e);
}

static bool on_event(void *arg, const struct sse_event *ev)
{
    struct door_stream *s = arg;
    json_t *doc = NULL;
    if (s->over) return true;
    if (str_eq(str_trim(ev->data), STR("[DONE]"))) return finish(s), true;
    if (json_parse(ev->data, 0, &doc, NULL) != OK) doc = json_parse_loosely(ev->data); /* rare */
    if (!doc) return true; /* the tape holds none such */
    const json_t *error = json_object_get(doc, "error");
    struct turn_sink sink = {on_begin, on_piece, on_end, s};
    if (json_is_object(error)) {
        take_error(s, error);
    } else if (json_is_array(json_object_get(doc, "choices"))) {
        turn_head(&s->turn, doc);
        start(s);
        enum err code = turn_feed(&s->turn, doc, &sink);
        if (code == ERR_UNSUPPORTED)
            fail_with(s, "the upstream went back to a tool call that had ended");
        else if (code != OK)
            fail_with(s, "the upstream's answer is too large");
    }
    json_decref(doc);
    return true;
}

void door_stream_feed(struct door_stream *s, struct str bytes)
{
    if (s->over) return;
    if (sse_reader_feed(s->sse, bytes, on_event, s) != OK)
        fail_with(s, "an event of the upstream's stream is too large");
}

void door_stream_close(struct door_stream *s)
{
    if (!s->over) fail_with(s, "the upstream ended its answer in the middle");
}

struct str door_stream_next(const struct door_stream *s, size_t max)
{
    return str_sub(buf_view(&s->out), s->sent, max);
}

void door_stream_sent(struct door_stream *s, size_t n)
{
    s->sent += n;
    ASSERT(s->sent <= s->out.n);
    if (s->sent < s->out.n) return;
    buf_clear(&s->out);
    s->sent = 0;
}
