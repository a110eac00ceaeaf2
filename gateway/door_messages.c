/* door_messages.c - the Messages API's door: answers, errors and the events of a stream in its form.
 * Errors: the type follows the HTTP status, which stays what it is on every other door (so 503 where the gateway is overloaded, with
 * the type overloaded_error: load balancers know it, clients retry both; an upstream's own 529 passes). */
#include "gateway/door_messages.h"

#include <string.h>

/* --- errors */
static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 402:
        return "billing_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
    case 529:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status >= 400 && status < 500 ? "invalid_request_error" : "api_error";
    }
}

static json_t *error_object(const struct openai_error *e)
{
    return json_pack("{s:s,s:{s:s,s:o}}", "type", "error", "error", "type", error_type(e->status),
                     "message", door_text(str_of(e->message)));
}

static void write_error(struct buf *out, const struct openai_error *e, struct str request_id)
{
    json_t *v = error_object(e);
    if (request_id.n) json_object_set_new(v, "request_id", door_text(request_id));
    json_write(out, v);
    json_decref(v);
}

/* --- pieces of an answer */
static json_t *id_of(const struct door_facts *f, const char *prefix, size_t n)
{
    return json_sprintf("%s%.24s%02x", prefix, f->id, (unsigned)n & 0xFF);
}

/* A content block; whole: with what it holds, else as a stream begins it. NULL: arguments that are no JSON object. */
static json_t *block_of(const struct turn *t, size_t i, const struct door_facts *f, bool whole)
{
    const struct turn_item *it = &t->items[i];
    struct str text = whole ? buf_view(&it->text) : STR("");
    if (it->kind == TURN_REASONING)
        return json_pack("{s:s,s:o,s:s}", "type", "thinking", "thinking", door_text(text),
                         "signature", "");
    if (it->kind != TURN_CALL)
        return json_pack("{s:s,s:o}", "type", "text", "text", door_text(text));
    json_t *input = NULL;
    if (!str_trim(text).n)
        input = json_object();
    else if (json_parse(text, 0, &input, NULL) != OK)
        return NULL;
    if (!json_is_object(input)) return json_decref(input), NULL;
    return json_pack("{s:s,s:o,s:o,s:o}", "type", "tool_use", "id",
                     it->id.n ? door_text(buf_view(&it->id)) : id_of(f, "toolu_", i), "name",
                     door_text(buf_view(&it->name)), "input", input);
}

static json_t *usage_of(const struct turn *t)
{
    const struct openai_usage *u = &t->usage;
    int64_t fresh = u->prompt_tokens - u->cached_tokens;
    return json_pack("{s:I,s:I,s:I,s:I}", "input_tokens", (json_int_t)(fresh > 0 ? fresh : 0),
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)u->cached_tokens, "output_tokens",
                     (json_int_t)u->completion_tokens);
}

/* The stop string that ended it, when it is one of the client's: NULL otherwise. */
static const json_t *stop_sequence(const struct turn *t, const struct door_facts *f)
{
    const json_t *asked = json_object_get(f->asked, "stop_sequences");
    for (size_t i = 0; t->stop[0] && i < json_array_size(asked); i++)
        if (str_eqz(json_str(json_array_get(asked, i)), t->stop)) return json_array_get(asked, i);
    return NULL;
}

static const char *stop_reason(const struct turn *t, const json_t *stop)
{
    struct str why = str_of(t->finish_reason);
    if (stop) return "stop_sequence";
    if (str_eqz(why, "length")) return "max_tokens";
    if (str_eqz(why, "tool_calls") || str_eqz(why, "function_call")) return "tool_use";
    if (str_eqz(why, "content_filter")) return "refusal";
    for (size_t i = 0; i < t->n_items; i++) /* some servers call it "stop" all the same */
        if (t->items[i].kind == TURN_CALL) return "tool_use";
    return "end_turn";
}

static json_t *or_null(const json_t *v)
{
    return v ? door_ref(v) : json_null();
}

static json_t *message_of(const struct turn *t, const struct door_facts *f)
{
    struct str model = str_of(t->model);
    if (!model.n) model = json_member_str(f->asked, "model");
    return json_pack("{s:o,s:s,s:s,s:o}", "id", id_of(f, "msg_", 0), "type", "message", "role",
                     "assistant", "model", door_text(model));
}

static enum err write_answer(struct buf *out, const struct turn *t, const struct door_facts *f,
                             struct errmsg *why)
{
    json_t *content = json_array();
    for (size_t i = 0; i < t->n_items; i++) {
        json_t *block = block_of(t, i, f, true);
        if (!block) {
            json_decref(content);
            return err_set(why, ERR_UNSUPPORTED, "the arguments of a tool call are no JSON object");
        }
        json_array_append_new(content, block);
    }
    const json_t *stop = stop_sequence(t, f);
    json_t *m = message_of(t, f);
    json_object_set_new(m, "content", content);
    json_object_set_new(m, "stop_reason", json_string(stop_reason(t, stop)));
    json_object_set_new(m, "stop_sequence", or_null(stop));
    json_object_set_new(m, "usage", usage_of(t));
    json_write(out, m);
    json_decref(m);
    return OK;
}

/* --- streams */
static void start(struct door_stream *s)
{
    json_t *m = message_of(&s->turn, &s->facts);
    json_object_set_new(m, "content", json_array());
    json_object_set_new(m, "stop_reason", json_null());
    json_object_set_new(m, "stop_sequence", json_null());
    json_object_set_new(m, "usage", usage_of(&s->turn)); /* the true one comes with message_delta */
    door_stream_event(s, "message_start",
                      json_pack("{s:s,s:o}", "type", "message_start", "message", m));
    door_stream_event(s, "ping", json_pack("{s:s}", "type", "ping"));
}

static void begin(struct door_stream *s, size_t i)
{
    door_stream_event(s, "content_block_start",
                      json_pack("{s:s,s:I,s:o}", "type", "content_block_start", "index",
                                (json_int_t)i, "content_block",
                                block_of(&s->turn, i, &s->facts, false)));
}

static void piece(struct door_stream *s, size_t i, struct str text)
{
    static const char *const types[][2] = {[TURN_REASONING] = {"thinking_delta", "thinking"},
                                           [TURN_TEXT] = {"text_delta", "text"},
                                           [TURN_REFUSAL] = {"text_delta", "text"},
                                           [TURN_CALL] = {"input_json_delta", "partial_json"}};
    const char *const *type = types[s->turn.items[i].kind];
    door_stream_event(s, "content_block_delta",
                      json_pack("{s:s,s:I,s:{s:s,s:o}}", "type", "content_block_delta", "index",
                                (json_int_t)i, "delta", "type", type[0], type[1], door_text(text)));
}

static void end(struct door_stream *s, size_t i)
{
    door_stream_event(s, "content_block_stop",
                      json_pack("{s:s,s:I}", "type", "content_block_stop", "index", (json_int_t)i));
}

static void finish(struct door_stream *s)
{
    const json_t *stop = stop_sequence(&s->turn, &s->facts);
    door_stream_event(s, "message_delta",
                      json_pack("{s:s,s:{s:s,s:o},s:o}", "type", "message_delta", "delta",
                                "stop_reason", stop_reason(&s->turn, stop), "stop_sequence",
                                or_null(stop), "usage", usage_of(&s->turn)));
    door_stream_event(s, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void fail(struct door_stream *s, const struct openai_error *e)
{
    door_stream_event(s, "error", error_object(e));
}

const struct door door_messages = {.name = "messages",
                                   .id_header = "request-id",
                                   .read = messages_read,
                                   .rename = messages_rename,
                                   .write_error = write_error,
                                   .write_answer = write_answer,
                                   .start = start,
                                   .begin = begin,
                                   .piece = piece,
                                   .end = end,
                                   .finish = finish,
                                   .fail = fail};

const struct door door_count_tokens = {.name = "count_tokens",
                                       .id_header = "request-id",
                                       .read = messages_read_prompt,
                                       .rename = messages_rename,
                                       .write_error = write_error};
