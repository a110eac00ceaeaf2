/* door_responses.c - the Responses API's door: answers and the numbered events of a stream in its form. A stream ends with
 * response.completed, response.incomplete (cut by a limit) or response.failed; there is no [DONE]. */
#include "gateway/door_responses.h"

#include <string.h>

static void write_error(struct buf *out, const struct openai_error *e, struct str request_id)
{
    (void)request_id;
    openai_error_write(out, e);
}

/* --- items */
static json_t *item_id(const struct turn *t, size_t i, const struct door_facts *f)
{
    static const char *const prefix[] = {[TURN_REASONING] = "rs_",
                                         [TURN_TEXT] = "msg_",
                                         [TURN_REFUSAL] = "msg_",
                                         [TURN_CALL] = "fc_"};
    return json_sprintf("%s%.24s%02x", prefix[t->items[i].kind], f->id, (unsigned)i & 0xFF);
}

static json_t *part_of(const struct turn_item *it, struct str text)
{
    if (it->kind == TURN_REASONING)
        return json_pack("{s:s,s:o}", "type", "reasoning_text", "text", door_text(text));
    if (it->kind == TURN_REFUSAL)
        return json_pack("{s:s,s:o}", "type", "refusal", "refusal", door_text(text));
    return json_pack("{s:s,s:o,s:[],s:[]}", "type", "output_text", "text", door_text(text),
                     "annotations", "logprobs");
}

static bool was_cut(const struct turn *t)
{
    return !strcmp(t->finish_reason, "length") || !strcmp(t->finish_reason, "content_filter");
}

/* whole: with what it holds, else as a stream begins it. */
static json_t *item_of(const struct turn *t, size_t i, const struct door_facts *f, bool whole)
{
    const struct turn_item *it = &t->items[i];
    struct str text = whole ? buf_view(&it->text) : STR("");
    bool last = i + 1 == t->n_items, complete = it->ended && !(last && was_cut(t));
    const char *status = !whole ? "in_progress" : complete ? "completed" : "incomplete";
    json_t *id = item_id(t, i, f);
    if (it->kind == TURN_CALL)
        return json_pack("{s:o,s:s,s:s,s:o,s:o,s:o}", "id", id, "type", "function_call", "status",
                         status, "arguments", door_text(text), "call_id",
                         it->id.n ? door_text(buf_view(&it->id))
                                  : json_sprintf("call_%.24s%02x", f->id, (unsigned)i & 0xFF),
                         "name", door_text(buf_view(&it->name)));
    json_t *content = json_array();
    if (whole) json_array_append_new(content, part_of(it, text));
    if (it->kind == TURN_REASONING)
        return json_pack("{s:o,s:s,s:[],s:o,s:s}", "id", id, "type", "reasoning", "summary",
                         "content", content, "status", status);
    return json_pack("{s:o,s:s,s:s,s:o,s:s}", "id", id, "type", "message", "status", status,
                     "content", content, "role", "assistant");
}

/* --- the response */
static json_t *usage_of(const struct turn *t)
{
    const struct openai_usage *u = &t->usage;
    if (!u->known) return json_null();
    return json_pack("{s:I,s:{s:I},s:I,s:{s:I},s:I}", "input_tokens", (json_int_t)u->prompt_tokens,
                     "input_tokens_details", "cached_tokens", (json_int_t)u->cached_tokens,
                     "output_tokens", (json_int_t)u->completion_tokens, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)t->reasoning_tokens, "total_tokens",
                     (json_int_t)(u->prompt_tokens + u->completion_tokens));
}

/* What the client asked, told back; what it left out at its default. */
static void echo(json_t *out, const struct door_facts *f)
{
    static const struct {
        const char *name, *absent; /* JSON text */
    } rows[] = {{"instructions", "null"},
                {"max_output_tokens", "null"},
                {"max_tool_calls", "null"},
                {"metadata", "{}"},
                {"parallel_tool_calls", "true"},
                {"prompt_cache_key", "null"},
                {"reasoning", "{\"effort\":null,\"summary\":null}"},
                {"safety_identifier", "null"},
                {"service_tier", "\"default\""},
                {"temperature", "1.0"},
                {"text", "{\"format\":{\"type\":\"text\"}}"},
                {"tool_choice", "\"auto\""},
                {"tools", "[]"},
                {"top_logprobs", "0"},
                {"top_p", "1.0"},
                {"truncation", "\"disabled\""},
                {"user", "null"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *asked = json_given(f->asked, rows[i].name);
        json_object_set_new(out, rows[i].name,
                            asked ? door_ref(asked)
                                  : json_loads(rows[i].absent, JSON_DECODE_ANY, NULL));
    }
}

static json_t *response_of(const struct turn *t, const struct door_facts *f, const char *status)
{
    struct str model = str_of(t->model);
    bool cut = !strcmp(status, "incomplete");
    const json_t *previous = json_given(f->asked, "previous_response_id");
    if (!model.n) model = json_member_str(f->asked, "model");
    json_t *out = json_array();
    bool over = strcmp(status, "in_progress") != 0;
    for (size_t i = 0; over && i < t->n_items; i++)
        json_array_append_new(out, item_of(t, i, f, true));
    json_t *v = json_pack(
        "{s:o,s:s,s:I,s:s,s:b,s:n,s:o,s:o,s:o,s:o,s:b,s:o}", "id", json_sprintf("resp_%s", f->id),
        "object", "response", "created_at", (json_int_t)(t->created ? t->created : f->now_s),
        "status", status, "background", 0, "error", "incomplete_details",
        cut ? json_pack("{s:s}", "reason",
                        strcmp(t->finish_reason, "length") ? "content_filter" : "max_output_tokens")
            : json_null(),
        "model", door_text(model), "output", out, "previous_response_id",
        previous ? door_ref(previous) : json_null(), "store", f->kept, "usage",
        over ? usage_of(t) : json_null());
    echo(v, f);
    return v;
}

static enum err write_answer(struct buf *out, const struct turn *t, const struct door_facts *f,
                             struct errmsg *why)
{
    (void)why;
    json_t *v = response_of(t, f, was_cut(t) ? "incomplete" : "completed");
    json_write(out, v);
    if (f->made && !buf_failed(out)) f->made(f->made_arg, f->id, v);
    json_decref(v);
    return OK;
}

/* --- streams */
/* Takes v. */
static void emit(struct door_stream *s, const char *type, json_t *v)
{
    json_t *ev = json_pack("{s:s,s:I}", "type", type, "sequence_number", (json_int_t)s->sequence++);
    json_object_update(ev, v);
    json_decref(v);
    door_stream_event(s, type, ev);
}

static void emit_response(struct door_stream *s, const char *type, const char *status)
{
    emit(s, type, json_pack("{s:o}", "response", response_of(&s->turn, &s->facts, status)));
}

static void start(struct door_stream *s)
{
    emit_response(s, "response.created", "in_progress");
    emit_response(s, "response.in_progress", "in_progress");
}

static json_t *place(const struct door_stream *s, size_t i)
{
    json_t *v = json_pack("{s:o,s:I}", "item_id", item_id(&s->turn, i, &s->facts), "output_index",
                          (json_int_t)i);
    if (s->turn.items[i].kind != TURN_CALL)
        json_object_set_new(v, "content_index", json_integer(0));
    return v;
}

static void emit_item(struct door_stream *s, const char *type, size_t i, bool whole)
{
    emit(s, type,
         json_pack("{s:I,s:o}", "output_index", (json_int_t)i, "item",
                   item_of(&s->turn, i, &s->facts, whole)));
}

static void emit_part(struct door_stream *s, const char *type, size_t i, bool whole)
{
    const struct turn_item *it = &s->turn.items[i];
    json_t *v = place(s, i);
    json_object_set_new(v, "part", part_of(it, whole ? buf_view(&it->text) : STR("")));
    emit(s, type, v);
}

static void begin(struct door_stream *s, size_t i)
{
    emit_item(s, "response.output_item.added", i, false);
    if (s->turn.items[i].kind != TURN_CALL) emit_part(s, "response.content_part.added", i, false);
}

static void piece(struct door_stream *s, size_t i, struct str text)
{
    static const char *const types[] = {[TURN_REASONING] = "response.reasoning_text.delta",
                                        [TURN_TEXT] = "response.output_text.delta",
                                        [TURN_REFUSAL] = "response.refusal.delta",
                                        [TURN_CALL] = "response.function_call_arguments.delta"};
    enum turn_kind kind = s->turn.items[i].kind;
    json_t *v = place(s, i);
    json_object_set_new(v, "delta", door_text(text));
    if (kind == TURN_TEXT) json_object_set_new(v, "logprobs", json_array());
    emit(s, types[kind], v);
}

static void end(struct door_stream *s, size_t i)
{
    static const char *const types[][2] = {
        [TURN_REASONING] = {"response.reasoning_text.done", "text"},
        [TURN_TEXT] = {"response.output_text.done", "text"},
        [TURN_REFUSAL] = {"response.refusal.done", "refusal"},
        [TURN_CALL] = {"response.function_call_arguments.done", "arguments"}};
    const struct turn_item *it = &s->turn.items[i];
    json_t *v = place(s, i);
    json_object_set_new(v, types[it->kind][1], door_text(buf_view(&it->text)));
    if (it->kind == TURN_TEXT) json_object_set_new(v, "logprobs", json_array());
    if (it->kind == TURN_CALL) json_object_set_new(v, "name", door_text(buf_view(&it->name)));
    emit(s, types[it->kind][0], v);
    if (it->kind != TURN_CALL) emit_part(s, "response.content_part.done", i, true);
    emit_item(s, "response.output_item.done", i, true);
}

static void finish(struct door_stream *s)
{
    bool cut = was_cut(&s->turn);
    json_t *v = response_of(&s->turn, &s->facts, cut ? "incomplete" : "completed");
    if (s->facts.made) s->facts.made(s->facts.made_arg, s->facts.id, v);
    emit(s, cut ? "response.incomplete" : "response.completed", json_pack("{s:o}", "response", v));
}

static void fail(struct door_stream *s, const struct openai_error *e)
{
    json_t *v = response_of(&s->turn, &s->facts, "failed");
    /* the API knows no others that could be meant; in the middle of a stream only the code tells */
    bool limit = e->status == 429 || !strcmp(e->code, "rate_limit_exceeded");
    json_object_set_new(v, "error",
                        json_pack("{s:s,s:o}", "code",
                                  limit ? "rate_limit_exceeded" : "server_error", "message",
                                  door_text(str_of(e->message))));
    emit(s, "response.failed", json_pack("{s:o}", "response", v));
}

const struct door door_responses = {.name = "responses",
                                    .read = responses_read,
                                    .rename = responses_rename,
                                    .write_error = write_error,
                                    .write_answer = write_answer,
                                    .start = start,
                                    .begin = begin,
                                    .piece = piece,
                                    .end = end,
                                    .finish = finish,
                                    .fail = fail};
