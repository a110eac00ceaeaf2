/* door_messages_read.c - a request of the Messages API as a chat request: system and content blocks become messages and parts, tools
 * and tool results take chat's form. What has no chat form is refused by name; what only steers the peer's own service (prompt
 * cache marks, service tier) is left out, since what is not sent upstream cannot change the answer. Pure, allocation aside. */
#include "gateway/door_messages.h"

#include <string.h>

enum { STOPS_MAX = OPENAI_STOPS_MAX };

static const struct door_field fields[] = {
    {"model", DOOR_PASS, NULL},
    {"messages", DOOR_READ, NULL},
    {"system", DOOR_READ, NULL},
    {"max_tokens", DOOR_PASS, NULL},
    {"stop_sequences", DOOR_READ, NULL},
    {"stream", DOOR_READ, NULL},
    {"temperature", DOOR_PASS, NULL},
    {"top_p", DOOR_PASS, NULL},
    {"top_k", DOOR_PASS, NULL},
    {"tools", DOOR_READ, NULL},
    {"tool_choice", DOOR_READ, NULL},
    {"metadata", DOOR_READ, NULL},
    {"thinking", DOOR_READ, NULL},
    {"output_config", DOOR_READ, NULL},
    {"output_format", DOOR_READ, NULL},
    {"service_tier", DOOR_DROP, NULL},
    {"cache_control", DOOR_DROP, NULL},
    {"inference_geo", DOOR_DROP, NULL},
    {"container", DOOR_REFUSE, "there are no containers behind this gateway"},
    {"mcp_servers", DOOR_REFUSE, "this gateway connects to no tool servers"},
    {"context_management", DOOR_REFUSE, "this gateway does not edit conversations"},
    /* of chat, for servers that know them */
    {"cache", DOOR_PASS, NULL},
    {"seed", DOOR_PASS, NULL},
    {"min_p", DOOR_PASS, NULL},
    {"presence_penalty", DOOR_PASS, NULL},
    {"frequency_penalty", DOOR_PASS, NULL},
    {"repetition_penalty", DOOR_PASS, NULL},
    {"logit_bias", DOOR_PASS, NULL},
    {"chat_template_kwargs", DOOR_PASS, NULL},
    {"reasoning_effort", DOOR_PASS, NULL},
    {NULL, DOOR_READ, NULL}};

void messages_rename(struct openai_error *e)
{
    static const struct door_field renamed[] = {{"stop_sequences", DOOR_PASS, "stop"},
                                                {"output_config", DOOR_PASS, "response_format"},
                                                {NULL, DOOR_READ, NULL}};
    door_rename(renamed, e);
}

/* --- parts of a content */
static bool read_text(struct door_read *r, const char *path, const json_t *block, json_t *parts)
{
    if (!door_string(r, path, block, "text", true)) return false;
    json_array_append_new(parts, door_text_part(json_member_str(block, "text")));
    return true;
}

static bool read_image(struct door_read *r, const char *path, const json_t *block, json_t *parts)
{
    const json_t *source = json_given(block, "source");
    struct door_path at = door_at("%s.source", path);
    struct str type = json_member_str(source, "type");
    struct buf url;
    if (!json_is_object(source)) return door_refuse_type(r, at.text, "an object", source);
    if (!door_string(r, at.text, source, "type", true)) return false;
    bool inline_bytes = str_eqz(type, "base64");
    if (!inline_bytes && !str_eqz(type, "url"))
        return door_refuse(r, door_at("%s.type", at.text).text, "unsupported_value",
                           "expected \"base64\" or \"url\"");
    if (inline_bytes ? !door_string(r, at.text, source, "media_type", true) ||
                           !door_string(r, at.text, source, "data", true)
                     : !door_string(r, at.text, source, "url", true))
        return false;
    buf_init(&url, SIZE_MAX / 2);
    if (inline_bytes) {
        buf_z(&url, "data:");
        buf_str(&url, json_member_str(source, "media_type"));
        buf_z(&url, ";base64,");
        buf_str(&url, json_member_str(source, "data"));
    } else {
        buf_str(&url, json_member_str(source, "url"));
    }
    json_array_append_new(parts, json_pack("{s:s,s:{s:o}}", "type", "image_url", "image_url", "url",
                                           door_text(buf_view(&url))));
    buf_fini(&url);
    return true;
}

static bool not_known(const struct door_read *r, const char *path, const char *expected)
{
    return door_refuse(r, door_at("%s.type", path).text, "unsupported_value", "expected %s",
                       expected);
}

/* --- the user's messages */
/* What the parts gathered so far make a message of; parts is empty afterwards. */
static void flush_user(struct door_read *r, json_t *parts)
{
    if (!json_array_size(parts)) return;
    json_array_append_new(r->messages, json_pack("{s:s,s:o}", "role", "user", "content",
                                                 door_content(json_copy(parts))));
    json_array_clear(parts);
}

static bool read_result_content(struct door_read *r, const char *path, const json_t *content,
                                json_t **out)
{
    *out = NULL;
    if (!content || json_is_string(content)) {
        *out = door_text(json_str(content));
        return true;
    }
    if (!json_is_array(content))
        return door_refuse_type(r, path, "a string or an array of blocks", content);
    json_t *parts = json_array();
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        struct door_path at = door_at("%s[%zu]", path, i);
        bool text = str_eqz(json_member_str(block, "type"), "text");
        if (text ? !read_text(r, at.text, block, parts)
                 : !not_known(r, at.text, "\"text\": a tool's result has no other chat form")) {
            json_decref(parts);
            return false;
        }
    }
    if (!json_array_size(parts)) json_array_append_new(parts, door_text_part(STR("")));
    *out = door_content(parts);
    return true;
}

static bool read_result(struct door_read *r, const char *path, const json_t *block, json_t *parts)
{
    json_t *content;
    if (json_array_size(parts))
        return door_refuse(r, path, "invalid_value",
                           "results of tools come first in a message, before text and images");
    if (!door_string(r, path, block, "tool_use_id", true)) return false;
    if (!read_result_content(r, door_at("%s.content", path).text, json_given(block, "content"),
                             &content))
        return false;
    if (json_is_true(json_object_get(block, "is_error"))) {
        struct door_path at = door_at("%s.is_error", path);
        door_count(r, at.text, json_object_get(block, "is_error"));
    }
    json_array_append_new(r->messages, json_pack("{s:s,s:o,s:o}", "role", "tool", "tool_call_id",
                                                 door_text(json_member_str(block, "tool_use_id")),
                                                 "content", content));
    return true;
}

static bool read_user_block(struct door_read *r, const char *path, const json_t *block,
                            json_t *parts)
{
    struct str type = json_member_str(block, "type");
    if (str_eqz(type, "text")) return read_text(r, path, block, parts);
    if (str_eqz(type, "image")) return read_image(r, path, block, parts);
    if (str_eqz(type, "tool_result")) return read_result(r, path, block, parts);
    return not_known(r, path, "\"text\", \"image\" or \"tool_result\"");
}

static bool read_user(struct door_read *r, const char *path, const json_t *blocks)
{
    json_t *parts = json_array();
    bool fine = true;
    for (size_t i = 0; i < json_array_size(blocks) && fine; i++)
        fine =
            read_user_block(r, door_at("%s[%zu]", path, i).text, json_array_get(blocks, i), parts);
    if (fine) flush_user(r, parts);
    json_decref(parts);
    return fine;
}

/* --- the assistant's */
struct said {
    json_t *parts, *calls;
    struct buf thought;
};

static bool read_use(struct door_read *r, const char *path, const json_t *block, struct said *s)
{
    const json_t *input = json_given(block, "input");
    struct buf arguments;
    if (!door_string(r, path, block, "id", true) || !door_string(r, path, block, "name", true))
        return false;
    if (!json_is_object(input))
        return door_refuse_type(r, door_at("%s.input", path).text, "an object", input);
    buf_init(&arguments, SIZE_MAX / 2);
    json_write(&arguments, input);
    json_array_append_new(s->calls,
                          json_pack("{s:o,s:s,s:{s:o,s:o}}", "id",
                                    door_text(json_member_str(block, "id")), "type", "function",
                                    "function", "name", door_text(json_member_str(block, "name")),
                                    "arguments", door_text(buf_view(&arguments))));
    buf_fini(&arguments);
    return true;
}

static bool read_said_block(struct door_read *r, const char *path, const json_t *block,
                            struct said *s)
{
    struct str type = json_member_str(block, "type");
    if (str_eqz(type, "text")) return read_text(r, path, block, s->parts);
    if (str_eqz(type, "tool_use")) return read_use(r, path, block, s);
    if (!str_eqz(type, "thinking"))
        return not_known(r, path, "\"text\", \"thinking\" or \"tool_use\"");
    if (!door_string(r, path, block, "thinking", true)) return false;
    if (s->thought.n) buf_char(&s->thought, '\n');
    buf_str(&s->thought, json_member_str(block, "thinking"));
    return true;
}

static void add_said(struct door_read *r, struct said *s)
{
    json_t *m = json_pack("{s:s}", "role", "assistant");
    json_object_set_new(m, "content",
                        json_array_size(s->parts) ? door_content(json_incref(s->parts))
                                                  : json_null());
    if (s->thought.n) json_object_set_new(m, "reasoning_content", door_text(buf_view(&s->thought)));
    if (json_array_size(s->calls)) json_object_set(m, "tool_calls", s->calls);
    json_array_append_new(r->messages, m);
}

static bool read_assistant(struct door_read *r, const char *path, const json_t *blocks)
{
    struct said s = {json_array(), json_array(), {0}};
    bool fine = true;
    buf_init(&s.thought, SIZE_MAX / 2);
    for (size_t i = 0; i < json_array_size(blocks) && fine; i++)
        fine = read_said_block(r, door_at("%s[%zu]", path, i).text, json_array_get(blocks, i), &s);
    if (fine) add_said(r, &s);
    json_decref(s.parts);
    json_decref(s.calls);
    buf_fini(&s.thought);
    return fine;
}

static bool read_message(struct door_read *r, size_t i, const json_t *m)
{
    struct door_path path = door_at("messages[%zu]", i), at = door_at("%s.content", path.text);
    const json_t *content = json_given(m, "content");
    struct str role = json_member_str(m, "role");
    if (!json_is_object(m))
        return door_refuse_type(r, path.text, "an object with role and content", m);
    bool user = str_eqz(role, "user");
    if (!user && !str_eqz(role, "assistant"))
        return door_refuse(r, door_at("%s.role", path.text).text, "invalid_value",
                           "expected \"user\" or \"assistant\" (a system prompt goes in system)");
    if (json_is_string(content)) {
        json_array_append_new(r->messages,
                              json_pack("{s:s,s:o}", "role", user ? "user" : "assistant", "content",
                                        door_ref(content)));
        return true;
    }
    if (!json_is_array(content))
        return door_refuse_type(r, at.text, "a string or an array of blocks", content);
    if (!json_array_size(content))
        return door_refuse(r, at.text, "invalid_value", "the array is empty");
    return user ? read_user(r, at.text, content) : read_assistant(r, at.text, content);
}

static bool read_messages(struct door_read *r)
{
    const json_t *v = json_given(r->body, "messages");
    size_t n = json_array_size(v);
    if (!v)
        return door_refuse(r, "messages", "missing_required_parameter",
                           "required, an array of messages");
    if (!json_is_array(v)) return door_refuse_type(r, "messages", "an array of messages", v);
    if (!n) return door_refuse(r, "messages", "invalid_value", "the array is empty");
    for (size_t i = 0; i < n; i++)
        if (!read_message(r, i, json_array_get(v, i))) return false;
    if (!str_eqz(json_member_str(json_array_get(v, n - 1), "role"), "assistant")) return true;
    return door_refuse(r, "messages", "unsupported_value",
                       "the last one must be of the user: an answer begun by the client has no "
                       "chat form");
}

static bool read_system(struct door_read *r)
{
    const json_t *v = json_given(r->body, "system");
    if (!v) return true;
    json_t *parts = json_array();
    bool fine = true;
    if (json_is_string(v))
        json_array_append_new(parts, door_text_part(json_str(v)));
    else if (!json_is_array(v))
        fine = door_refuse_type(r, "system", "a string or an array of text blocks", v);
    for (size_t i = 0; i < json_array_size(v) && fine; i++) {
        const json_t *block = json_array_get(v, i);
        struct door_path at = door_at("system[%zu]", i);
        fine = str_eqz(json_member_str(block, "type"), "text") ? read_text(r, at.text, block, parts)
                                                               : not_known(r, at.text, "\"text\"");
    }
    if (fine && json_array_size(parts))
        json_array_append_new(r->messages, json_pack("{s:s,s:o}", "role", "system", "content",
                                                     door_content(json_incref(parts))));
    json_decref(parts);
    return fine;
}

/* --- options */
static bool read_stops(struct door_read *r)
{
    const json_t *v = json_given(r->body, "stop_sequences");
    if (!v || (json_is_array(v) && !json_array_size(v))) return true;
    if (!json_is_array(v)) return door_refuse_type(r, "stop_sequences", "an array of strings", v);
    if (json_array_size(v) > STOPS_MAX)
        return door_refuse(r, "stop_sequences", "unsupported_value",
                           "%zu strings: upstreams take at most %d", json_array_size(v), STOPS_MAX);
    json_object_set_new(r->chat, "stop", door_ref(v));
    return true;
}

static bool read_labels(struct door_read *r)
{
    const json_t *metadata = json_given(r->body, "metadata"),
                 *thinking = json_given(r->body, "thinking");
    if (metadata && !json_is_object(metadata))
        return door_refuse_type(r, "metadata", "an object", metadata);
    if (!door_string(r, "metadata", metadata, "user_id", false)) return false;
    struct str user = json_member_str(metadata, "user_id");
    if (user.n) json_object_set_new(r->chat, "user", door_text(user));
    if (thinking && !json_is_object(thinking))
        return door_refuse_type(r, "thinking", "an object", thinking);
    /* no common chat form: the upstream thinks as it is set up to, and asking for it counts */
    if (thinking && !str_eqz(json_member_str(thinking, "type"), "disabled"))
        door_count(r, "thinking", thinking);
    return true;
}

static bool read_format(struct door_read *r)
{
    const json_t *config = json_given(r->body, "output_config"),
                 *format = json_given(r->body, "output_format"),
                 *effort = json_given(config, "effort");
    if (config && !json_is_object(config))
        return door_refuse_type(r, "output_config", "an object", config);
    if (!door_string(r, "output_config", config, "effort", false)) return false;
    if (effort) json_object_set_new(r->chat, "reasoning_effort", door_ref(effort));
    const char *at = format ? "output_format" : "output_config.format";
    if (!format) format = json_given(config, "format");
    if (!format) return true;
    const json_t *schema = json_given(format, "schema");
    if (!str_eqz(json_member_str(format, "type"), "json_schema"))
        return door_refuse(r, door_at("%s.type", at).text, "unsupported_value",
                           "expected \"json_schema\"");
    if (!json_is_object(schema))
        return door_refuse_type(r, door_at("%s.schema", at).text, "an object", schema);
    json_object_set_new(r->chat, "response_format",
                        json_pack("{s:s,s:{s:s,s:o,s:b}}", "type", "json_schema", "json_schema",
                                  "name", "output", "schema", door_ref(schema), "strict", 1));
    return true;
}

static bool need_max_tokens(struct door_read *r)
{
    if (json_given(r->body, "max_tokens")) return true;
    return door_refuse(r, "max_tokens", "missing_required_parameter", "required, an integer");
}

/* --- tools */
static bool read_tool(struct door_read *r, size_t i, const json_t *tool, json_t *out)
{
    struct door_path at = door_at("tools[%zu]", i);
    const json_t *schema = json_given(tool, "input_schema"),
                 *about = json_given(tool, "description"), *strict = json_given(tool, "strict");
    struct str type = json_member_str(tool, "type");
    if (!json_is_object(tool)) return door_refuse_type(r, at.text, "an object", tool);
    if (type.p && !str_eqz(type, "custom"))
        return door_refuse(r, door_at("%s.type", at.text).text, "unsupported_value",
                           "expected \"custom\": tools that the service runs are not behind this "
                           "gateway");
    if (!door_string(r, at.text, tool, "name", true) ||
        !door_string(r, at.text, tool, "description", false))
        return false;
    if (!json_is_object(schema))
        return door_refuse_type(r, door_at("%s.input_schema", at.text).text, "an object", schema);
    json_t *function = json_pack("{s:o}", "name", door_text(json_member_str(tool, "name")));
    if (about) json_object_set_new(function, "description", door_ref(about));
    json_object_set_new(function, "parameters", door_ref(schema));
    if (strict) json_object_set_new(function, "strict", door_ref(strict));
    json_array_append_new(out, json_pack("{s:s,s:o}", "type", "function", "function", function));
    return true;
}

static bool read_tools(struct door_read *r)
{
    return door_read_tools(r, read_tool);
}

static bool read_choice(struct door_read *r)
{
    const json_t *v = json_given(r->body, "tool_choice");
    struct str type = json_member_str(v, "type");
    json_t *choice = NULL;
    if (!v) return true;
    if (!json_is_object(v)) return door_refuse_type(r, "tool_choice", "an object", v);
    if (str_eqz(type, "auto") || str_eqz(type, "none")) {
        choice = door_text(type);
    } else if (str_eqz(type, "any")) {
        choice = door_text(STR("required"));
    } else if (str_eqz(type, "tool")) {
        if (!door_string(r, "tool_choice", v, "name", true)) return false;
        choice = json_pack("{s:s,s:{s:o}}", "type", "function", "function", "name",
                           door_text(json_member_str(v, "name")));
    } else {
        return door_refuse(r, "tool_choice.type", "invalid_value",
                           "expected \"auto\", \"any\", \"tool\" or \"none\"");
    }
    json_object_set_new(r->chat, "tool_choice", choice);
    if (json_is_true(json_object_get(v, "disable_parallel_tool_use")))
        json_object_set_new(r->chat, "parallel_tool_calls", json_false());
    return true;
}

enum err messages_read(struct str body, struct door_request *out, struct openai_error *e)
{
    static bool (*const steps[])(struct door_read * r) = {
        need_max_tokens, read_system, read_messages, read_stops,  door_read_stream,
        read_labels,     read_format, read_tools,    read_choice, NULL};
    return door_read_body(body, fields, steps, out, e);
}

enum err messages_read_prompt(struct str body, struct door_request *out, struct openai_error *e)
{
    static bool (*const steps[])(struct door_read * r) = {read_system, read_messages, read_stops,
                                                          read_labels, read_format,   read_tools,
                                                          read_choice, NULL};
    return door_read_body(body, fields, steps, out, e);
}
