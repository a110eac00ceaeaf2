/* openai_write.c - renders the neutral form as one JSON reply or as a whole SSE stream, written straight into the buffer.
 * A stream carries exactly what the JSON carries: the collector gives the same answer back. Pure. */
#include <stdio.h>
#include <string.h>

#include "base/openai.h"
#include "base/sse.h"

enum { HEAD_BYTES_MAX = 4096 }; /* its parts have at most 290 bytes, six times that escaped */

static void write_usage(struct buf *out, const struct openai_answer *a)
{
    if (a->usage_json) {
        json_write(out, a->usage_json);
        return;
    }
    const struct openai_usage *u = &a->usage;
    buf_printf(out,
               "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_"
               "tokens_details\":{\"cached_"
               "tokens\":%lld}}",
               (long long)u->prompt_tokens, (long long)u->completion_tokens,
               (long long)(u->prompt_tokens + u->completion_tokens), (long long)u->cached_tokens);
}

static bool has_usage(const struct openai_answer *a)
{
    return a->usage_json || a->usage.known;
}

/* ,"key":value for each member */
static void write_members(struct buf *out, const json_t *object)
{
    json_t *o = (json_t *)(uintptr_t)object; /* jansson's iterators take no const */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        buf_char(out, ',');
        json_write_string(out,
                          (struct str){json_object_iter_key(it), json_object_iter_key_len(it)});
        buf_char(out, ':');
        json_write(out, json_object_iter_value(it));
    }
}

/* {"id":...,"model":... without the closing brace */
static void write_head(struct buf *out, const struct openai_answer *a, bool chunk)
{
    const char *object = a->kind != OPENAI_CHAT ? "text_completion"
                         : chunk                ? "chat.completion.chunk"
                                                : "chat.completion";
    buf_z(out, "{\"id\":");
    json_write_string(out, str_of(a->id));
    buf_printf(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
               (long long)a->created);
    json_write_string(out, str_of(a->model));
    if (!*a->system_fingerprint) return;
    buf_z(out, ",\"system_fingerprint\":");
    json_write_string(out, str_of(a->system_fingerprint));
}

static void write_finish(struct buf *out, const char *reason)
{
    buf_z(out, ",\"finish_reason\":");
    if (*reason)
        json_write_string(out, str_of(reason));
    else
        buf_z(out, "null");
}

static void write_logprobs(struct buf *out, const json_t *logprobs)
{
    buf_z(out, ",\"logprobs\":");
    if (logprobs)
        json_write(out, logprobs);
    else
        buf_z(out, "null");
}

static void write_choice(struct buf *out, const struct openai_answer *a, int i)
{
    const struct openai_choice *c = &a->choices[i];
    buf_printf(out, "%s{\"index\":%d,", i ? "," : "", i);
    if (a->kind == OPENAI_CHAT) {
        buf_z(out, "\"message\":");
        json_write(out, c->message);
    } else {
        buf_z(out, "\"text\":");
        json_write_string(out, json_member_str(c->message, "text"));
    }
    write_logprobs(out, c->logprobs);
    write_finish(out, c->finish_reason);
    write_members(out, c->extra);
    buf_char(out, '}');
}

void openai_answer_write_json(struct buf *out, const struct openai_answer *a)
{
    write_head(out, a, false);
    buf_z(out, ",\"choices\":[");
    for (int i = 0; i < a->n_choices; i++)
        write_choice(out, a, i);
    buf_char(out, ']');
    if (has_usage(a)) {
        buf_z(out, ",\"usage\":");
        write_usage(out, a);
    }
    write_members(out, a->extra);
    buf_char(out, '}');
}

/* --- the stream */
struct stream {
    struct buf *out;
    const struct openai_answer *a;
    bool include_usage, first;
    size_t piece_chars;
    int choice_i;
    struct buf head; /* what every chunk begins with */
};

/* data: {head,"choices":[{"index":i, */
static void open_chunk(struct stream *s)
{
    buf_str(s->out, buf_view(&s->head));
    if (s->first) write_members(s->out, s->a->extra);
    s->first = false;
    buf_z(s->out, ",\"choices\":[{\"index\":");
    if (s->choice_i >= 10) buf_char(s->out, (char)('0' + s->choice_i / 10));
    buf_char(s->out, (char)('0' + s->choice_i % 10)); /* printf would be half of a chunk's work */
    buf_char(s->out, ',');
}

/* ,"finish_reason":null}]} */
static void close_chunk(struct stream *s, const json_t *logprobs, const char *finish)
{
    write_logprobs(s->out, logprobs);
    write_finish(s->out, finish);
    if (*finish) write_members(s->out, s->a->choices[s->choice_i].extra);
    buf_z(s->out, "}]");
    if (s->include_usage) buf_z(s->out, ",\"usage\":null");
    buf_z(s->out, "}\n\n");
}

/* Bytes of the next piece: whole characters, at least one, at most piece_chars. */
static size_t piece_bytes(const struct stream *s, struct str text)
{
    size_t n = 0;
    uint32_t cp;
    for (size_t chars = 0; n < text.n && (chars < s->piece_chars || !s->piece_chars); chars++) {
        size_t one = utf8_decode(str_sub(text, n, text.n), &cp);
        n += one ? one : 1;
    }
    return n;
}

/* A chunk whose delta is {before"piece"after}; before and after are JSON text. */
static void write_piece(struct stream *s, const char *before, struct str piece, const char *after)
{
    open_chunk(s);
    buf_z(s->out, before);
    json_write_string(s->out, piece);
    buf_z(s->out, after);
    close_chunk(s, NULL, "");
}

static void write_pieces(struct stream *s, const char *before, struct str text, const char *after)
{
    while (text.n) {
        size_t n = piece_bytes(s, text);
        write_piece(s, before, str_sub(text, 0, n), after);
        text = str_sub(text, n, text.n);
    }
}

static void write_delta(struct stream *s, struct str key, const json_t *value)
{
    open_chunk(s);
    buf_z(s->out, "\"delta\":{");
    json_write_string(s->out, key);
    buf_char(s->out, ':');
    json_write(s->out, value);
    buf_char(s->out, '}');
    close_chunk(s, NULL, "");
}

/* {"name":..., ...,"arguments":""}: everything of a function but its arguments, which follow in pieces. */
static void write_function(struct buf *out, const json_t *function)
{
    json_t *f = (json_t *)(uintptr_t)function;
    bool first = true;
    buf_char(out, '{');
    for (void *it = json_object_iter(f); it; it = json_object_iter_next(f, it)) {
        struct str key = {json_object_iter_key(it), json_object_iter_key_len(it)};
        const json_t *v = json_object_iter_value(it);
        if (!first) buf_char(out, ',');
        first = false;
        json_write_string(out, key);
        buf_char(out, ':');
        if (str_eqz(key, "arguments") && json_is_string(v))
            buf_z(out, "\"\"");
        else
            json_write(out, v);
    }
    buf_char(out, '}');
}

static void write_call(struct stream *s, size_t i, const json_t *call)
{
    json_t *c = (json_t *)(uintptr_t)call;
    const json_t *function = json_object_get(call, "function");
    char before[96];
    open_chunk(s);
    buf_printf(s->out, "\"delta\":{\"tool_calls\":[{\"index\":%zu", i);
    for (void *it = json_object_iter(c); it; it = json_object_iter_next(c, it)) {
        struct str key = {json_object_iter_key(it), json_object_iter_key_len(it)};
        if (str_eqz(key, "index")) continue;
        buf_char(s->out, ',');
        json_write_string(s->out, key);
        buf_char(s->out, ':');
        if (str_eqz(key, "function") && json_is_object(function))
            write_function(s->out, function);
        else
            json_write(s->out, json_object_iter_value(it));
    }
    buf_z(s->out, "}]}");
    close_chunk(s, NULL, "");
    snprintf(before, sizeof before,
             "\"delta\":{\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", i);
    write_pieces(s, before, json_member_str(function, "arguments"), "}}]}");
}

static void write_calls(struct stream *s, const json_t *calls)
{
    if (!json_array_size(calls)) write_delta(s, STR("tool_calls"), calls);
    for (size_t i = 0; i < json_array_size(calls); i++)
        write_call(s, i, json_array_get(calls, i));
}

static void write_function_call(struct stream *s, const json_t *function)
{
    open_chunk(s);
    buf_z(s->out, "\"delta\":{\"function_call\":");
    write_function(s->out, function);
    buf_char(s->out, '}');
    close_chunk(s, NULL, "");
    write_pieces(s, "\"delta\":{\"function_call\":{\"arguments\":",
                 json_member_str(function, "arguments"), "}}");
}

/* Fields whose deltas are joined by every reader, and so may be cut in pieces. */
static const char *piece_field(struct str key)
{
    static const char *const names[][2] = {
        {"content", "\"delta\":{\"content\":"},
        {"reasoning_content", "\"delta\":{\"reasoning_content\":"},
        {"reasoning", "\"delta\":{\"reasoning\":"},
        {"refusal", "\"delta\":{\"refusal\":"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_eqz(key, names[i][0])) return names[i][1];
    return NULL;
}

static void write_field(struct stream *s, struct str key, const json_t *v)
{
    const char *before = piece_field(key);
    if (str_eqz(key, "role")) return;
    if (str_eqz(key, "content") && !json_string_length(v) && (json_is_string(v) || json_is_null(v)))
        return; /* the role chunk said it */
    if (before && json_string_length(v))
        write_pieces(s, before, json_str(v), "}");
    else if (str_eqz(key, "tool_calls") && json_is_array(v))
        write_calls(s, v);
    else if (str_eqz(key, "function_call") && json_is_object(v))
        write_function_call(s, v);
    else
        write_delta(s, key, v);
}

static void write_role(struct stream *s, const json_t *message)
{
    struct str role = json_member_str(message, "role");
    open_chunk(s);
    buf_z(s->out, "\"delta\":{\"role\":");
    json_write_string(s->out, role.p ? role : STR("assistant"));
    buf_z(s->out, json_is_string(json_object_get(message, "content")) ? ",\"content\":\"\"}"
                                                                      : ",\"content\":null}");
    close_chunk(s, NULL, "");
}

static void write_chat(struct stream *s, const struct openai_choice *c)
{
    json_t *m = c->message;
    write_role(s, m);
    /* thinking comes before what was thought about, whatever order the members have */
    static const char *const early[] = {"reasoning_content", "reasoning"};
    for (size_t i = 0; i < 2; i++)
        if (json_object_get(m, early[i]))
            write_field(s, str_of(early[i]), json_object_get(m, early[i]));
    for (void *it = json_object_iter(m); it; it = json_object_iter_next(m, it)) {
        struct str key = {json_object_iter_key(it), json_object_iter_key_len(it)};
        if (!str_eqz(key, early[0]) && !str_eqz(key, early[1]))
            write_field(s, key, json_object_iter_value(it));
    }
}

static void write_stream_choice(struct stream *s, const struct openai_choice *c)
{
    const char *empty = "\"text\":\"\"";
    if (s->a->kind == OPENAI_CHAT) {
        write_chat(s, c);
        empty = "\"delta\":{}";
    } else {
        write_pieces(s, "\"text\":", json_member_str(c->message, "text"), "");
    }
    if (c->logprobs) {
        open_chunk(s);
        buf_z(s->out, empty);
        close_chunk(s, c->logprobs, "");
    }
    open_chunk(s);
    buf_z(s->out, empty);
    close_chunk(s, NULL, c->finish_reason);
}

void openai_answer_write_sse(struct buf *out, const struct openai_answer *a, bool include_usage,
                             size_t piece_chars)
{
    struct stream s = {out, a, include_usage, true, piece_chars, 0, {0}};
    buf_init(&s.head, HEAD_BYTES_MAX);
    buf_z(&s.head, "data: ");
    write_head(&s.head, a, true);
    for (; s.choice_i < a->n_choices; s.choice_i++)
        write_stream_choice(&s, &a->choices[s.choice_i]);
    if (include_usage && has_usage(a)) {
        buf_str(out, buf_view(&s.head));
        buf_z(out, ",\"choices\":[],\"usage\":");
        write_usage(out, a);
        buf_z(out, "}\n\n");
    }
    buf_fini(&s.head);
    sse_write_data(out, STR("[DONE]"));
}
