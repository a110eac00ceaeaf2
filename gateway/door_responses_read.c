/* door_responses_read.c - a request of the Responses API as a chat request: instructions and input items become messages, tools,
 * format and reasoning take chat's form. What has no chat form is refused by name. Pure, allocation aside. */
#include "gateway/door_responses.h"

#include <string.h>

static const struct door_field fields[] = {
    {"model", DOOR_PASS, NULL},
    {"input", DOOR_READ, NULL},
    {"instructions", DOOR_READ, NULL},
    {"tools", DOOR_READ, NULL},
    {"tool_choice", DOOR_READ, NULL},
    {"parallel_tool_calls", DOOR_PASS, NULL},
    {"temperature", DOOR_PASS, NULL},
    {"top_p", DOOR_PASS, NULL},
    {"max_output_tokens", DOOR_PASS, "max_completion_tokens"},
    {"text", DOOR_READ, NULL},
    {"reasoning", DOOR_READ, NULL},
    {"stream", DOOR_READ, NULL},
    {"stream_options", DOOR_DROP, NULL},
    {"store", DOOR_READ, NULL},
    {"metadata", DOOR_READ, NULL},
    {"user", DOOR_PASS, NULL},
    {"safety_identifier", DOOR_PASS, NULL},
    {"prompt_cache_key", DOOR_PASS, NULL},
    {"prompt_cache_retention", DOOR_PASS, NULL},
    {"service_tier", DOOR_PASS, NULL},
    {"truncation", DOOR_READ, NULL},
    {"include", DOOR_READ, NULL},
    {"background", DOOR_READ, NULL},
    {"top_logprobs", DOOR_READ, NULL},
    {"max_tool_calls", DOOR_DROP, NULL}, /* counts calls of tools that the service runs */
    {"previous_response_id", DOOR_READ, NULL},
    {"conversation", DOOR_REFUSE,
     "conversations are not stored here: send the whole conversation in input"},
    {"prompt", DOOR_REFUSE, "there are no stored prompts here: send instructions and input"},
    {"context_management", DOOR_REFUSE, "this gateway does not edit conversations"},
    /* of chat, for servers that know them */
    {"cache", DOOR_PASS, NULL},
    {"stop", DOOR_PASS, NULL},
    {"seed", DOOR_PASS, NULL},
    {"top_k", DOOR_PASS, NULL},
    {"min_p", DOOR_PASS, NULL},
    {"presence_penalty", DOOR_PASS, NULL},
    {"frequency_penalty", DOOR_PASS, NULL},
    {"repetition_penalty", DOOR_PASS, NULL},
    {"logit_bias", DOOR_PASS, NULL},
    {"chat_template_kwargs", DOOR_PASS, NULL},
    {NULL, DOOR_READ, NULL}};

void responses_rename(struct openai_error *e)
{
    static const struct door_field renamed[] = {
        {"text.format", DOOR_PASS, "response_format"},
        {"max_output_tokens", DOOR_PASS, "max_completion_tokens"},
        {NULL, DOOR_READ, NULL}};
    door_rename(renamed, e);
}

/* --- parts */
static bool read_image(struct door_read *r, const char *path, const json_t *part, json_t *out)
{
    const json_t *detail = json_given(part, "detail");
    if (json_given(part, "file_id"))
        return door_refuse(r, door_at("%s.file_id", path).text, "unsupported_value",
                           "files are not stored here: send image_url");
    if (!door_string(r, path, part, "image_url", true) ||
        !door_string(r, path, part, "detail", false))
        return false;
    json_t *image = json_pack("{s:o}", "url", door_text(json_member_str(part, "image_url")));
    if (detail && !str_eqz(json_str(detail), "auto"))
        json_object_set_new(image, "detail", door_ref(detail));
    json_array_append_new(out, json_pack("{s:s,s:o}", "type", "image_url", "image_url", image));
    return true;
}

static bool read_file(struct door_read *r, const char *path, const json_t *part, json_t *out)
{
    static const char *const elsewhere[] = {"file_id", "file_url"};
    for (size_t i = 0; i < 2; i++)
        if (json_given(part, elsewhere[i]))
            return door_refuse(r, door_at("%s.%s", path, elsewhere[i]).text, "unsupported_value",
                               "files are not fetched here: send file_data");
    if (!door_string(r, path, part, "file_data", true) ||
        !door_string(r, path, part, "filename", false))
        return false;
    json_t *file = json_pack("{s:o}", "file_data", door_text(json_member_str(part, "file_data")));
    if (json_given(part, "filename"))
        json_object_set_new(file, "filename", door_text(json_member_str(part, "filename")));
    json_array_append_new(out, json_pack("{s:s,s:o}", "type", "file", "file", file));
    return true;
}

static bool read_part(struct door_read *r, const char *path, const json_t *part, json_t *out)
{
    struct str type = json_member_str(part, "type");
    if (!json_is_object(part)) return door_refuse_type(r, path, "an object with a type", part);
    if (str_eqz(type, "input_text") || str_eqz(type, "output_text") || str_eqz(type, "text")) {
        if (!door_string(r, path, part, "text", true)) return false;
        json_array_append_new(out, door_text_part(json_member_str(part, "text")));
        return true;
    }
    if (str_eqz(type, "input_image")) return read_image(r, path, part, out);
    if (str_eqz(type, "input_file")) return read_file(r, path, part, out);
    if (str_eqz(type, "refusal")) {
        if (!door_string(r, path, part, "refusal", true)) return false;
        json_array_append_new(out, json_pack("{s:s,s:o}", "type", "refusal", "refusal",
                                             door_text(json_member_str(part, "refusal"))));
        return true;
    }
    return door_refuse(r, door_at("%s.type", path).text, "unsupported_value",
                       "expected \"input_text\", \"input_image\", \"input_file\", \"output_text\" "
                       "or \"refusal\"");
}

/* *out: the content of a chat message, owned. */
static bool read_content(struct door_read *r, const char *path, const json_t *v, json_t **out)
{
    if (json_is_string(v)) return *out = door_ref(v), true;
    if (!json_is_array(v)) return door_refuse_type(r, path, "a string or an array of parts", v);
    if (!json_array_size(v)) return door_refuse(r, path, "invalid_value", "the array is empty");
    json_t *parts = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (read_part(r, door_at("%s[%zu]", path, i).text, json_array_get(v, i), parts)) continue;
        json_decref(parts);
        return false;
    }
    *out = door_content(parts);
    return true;
}

/* --- items */
/* Thinking that came before goes with what the assistant said or called next. */
static void take_thought(struct door_read *r, json_t *message)
{
    if (!r->pending) return;
    json_object_set(message, "reasoning_content", r->pending);
    json_decref(r->pending);
    r->pending = NULL;
}

static bool read_message(struct door_read *r, const char *path, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    struct str role = json_member_str(item, "role");
    json_t *content;
    size_t i = 0;
    while (i < 4 && !str_eqz(role, roles[i]))
        i++;
    if (i == 4)
        return door_refuse(r, door_at("%s.role", path).text, "invalid_value",
                           "expected \"user\", \"assistant\", \"system\" or \"developer\"");
    if (!read_content(r, door_at("%s.content", path).text, json_given(item, "content"), &content))
        return false;
    json_t *m = json_pack("{s:s,s:o}", "role", roles[i], "content", content);
    if (i == 1) take_thought(r, m);
    json_array_append_new(r->messages, m);
    return true;
}

/* Calls go with the assistant's message before them, as chat has it. */
static bool read_call(struct door_read *r, const char *path, const json_t *item)
{
    if (!door_string(r, path, item, "call_id", true) || !door_string(r, path, item, "name", true) ||
        !door_string(r, path, item, "arguments", true))
        return false;
    size_t n = json_array_size(r->messages);
    json_t *m = n ? json_array_get(r->messages, n - 1) : NULL;
    if (!str_eqz(json_member_str(m, "role"), "assistant") || r->pending) {
        m = json_pack("{s:s,s:n}", "role", "assistant", "content");
        take_thought(r, m);
        json_array_append_new(r->messages, m);
    }
    json_t *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    json_array_append_new(calls,
                          json_pack("{s:o,s:s,s:{s:o,s:o}}", "id",
                                    door_text(json_member_str(item, "call_id")), "type", "function",
                                    "function", "name", door_text(json_member_str(item, "name")),
                                    "arguments", door_text(json_member_str(item, "arguments"))));
    return true;
}

static bool read_output(struct door_read *r, const char *path, const json_t *item)
{
    json_t *content;
    if (!door_string(r, path, item, "call_id", true)) return false;
    if (!read_content(r, door_at("%s.output", path).text, json_given(item, "output"), &content))
        return false;
    json_array_append_new(r->messages, json_pack("{s:s,s:o,s:o}", "role", "tool", "tool_call_id",
                                                 door_text(json_member_str(item, "call_id")),
                                                 "content", content));
    return true;
}

/* Its text, if it has any; what is encrypted can only be read where it was made. */
static bool read_reasoning(struct door_read *r, const json_t *item)
{
    struct buf text;
    const json_t *from = json_object_get(item, "content");
    if (!json_array_size(from)) from = json_object_get(item, "summary");
    buf_init(&text, SIZE_MAX / 2);
    for (size_t i = 0; i < json_array_size(from); i++) {
        if (i) buf_char(&text, '\n');
        buf_str(&text, json_member_str(json_array_get(from, i), "text"));
    }
    if (text.n) {
        json_decref(r->pending);
        r->pending = door_text(buf_view(&text));
    }
    buf_fini(&text);
    return true;
}

static bool read_item(struct door_read *r, struct door_path path, const json_t *item)
{
    struct str type = json_member_str(item, "type");
    if (!json_is_object(item)) return door_refuse_type(r, path.text, "an object", item);
    if (!type.p || str_eqz(type, "message")) return read_message(r, path.text, item);
    if (str_eqz(type, "function_call")) return read_call(r, path.text, item);
    if (str_eqz(type, "function_call_output")) return read_output(r, path.text, item);
    if (str_eqz(type, "reasoning")) return read_reasoning(r, item);
    return door_refuse(r, door_at("%s.type", path.text).text, "unsupported_value",
                       "expected \"message\", \"function_call\", \"function_call_output\" or "
                       "\"reasoning\"");
}

static bool read_input(struct door_read *r)
{
    const json_t *v = json_given(r->body, "input");
    if (!v)
        return door_refuse(r, "input", "missing_required_parameter",
                           "required, a string or an array of items");
    if (json_is_string(v)) {
        json_array_append_new(r->messages,
                              json_pack("{s:s,s:o}", "role", "user", "content", door_ref(v)));
        return true;
    }
    if (!json_is_array(v)) return door_refuse_type(r, "input", "a string or an array of items", v);
    if (!json_array_size(v)) return door_refuse(r, "input", "invalid_value", "the array is empty");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!read_item(r, door_at("input[%zu]", i), json_array_get(v, i))) return false;
    return true;
}

/* What was said before: of the answers this one goes on from. Their instructions do not hold here. */
static bool read_previous(struct door_read *r)
{
    if (!door_string(r, "", r->body, "previous_response_id", false)) return false;
    if (json_given(r->body, "previous_response_id") && !r->history)
        return door_refuse(r, "previous_response_id", "unsupported_parameter",
                           "there is no such response here: send the whole conversation in input");
    for (size_t i = 0; i < json_array_size(r->history); i++)
        if (!read_item(r, door_at("previous_response_id[%zu]", i), json_array_get(r->history, i)))
            return false;
    return true;
}

static bool read_instructions(struct door_read *r)
{
    const json_t *v = json_given(r->body, "instructions");
    if (!door_string(r, "", r->body, "instructions", false)) return false;
    if (v)
        json_array_append_new(r->messages,
                              json_pack("{s:s,s:o}", "role", "system", "content", door_ref(v)));
    return true;
}

/* --- options */
static bool read_format(struct door_read *r)
{
    const json_t *text = json_given(r->body, "text"), *format = json_given(text, "format"),
                 *verbosity = json_given(text, "verbosity");
    struct str type = json_member_str(format, "type");
    if (text && !json_is_object(text)) return door_refuse_type(r, "text", "an object", text);
    if (verbosity) json_object_set_new(r->chat, "verbosity", door_ref(verbosity));
    if (!format || str_eqz(type, "text")) return true;
    if (str_eqz(type, "json_object")) {
        json_object_set_new(r->chat, "response_format", json_pack("{s:s}", "type", "json_object"));
        return true;
    }
    if (!str_eqz(type, "json_schema"))
        return door_refuse(r, "text.format.type", "unsupported_value",
                           "expected \"text\", \"json_object\" or \"json_schema\"");
    if (!json_is_object(json_given(format, "schema")))
        return door_refuse_type(r, "text.format.schema", "an object", json_given(format, "schema"));
    static const char *const kept[] = {"name", "description", "schema", "strict"};
    json_t *schema = json_object();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (json_given(format, kept[i]))
            json_object_set_new(schema, kept[i], door_ref(json_given(format, kept[i])));
    json_object_set_new(r->chat, "response_format",
                        json_pack("{s:s,s:o}", "type", "json_schema", "json_schema", schema));
    return true;
}

static bool read_reasoning_options(struct door_read *r)
{
    const json_t *v = json_given(r->body, "reasoning"), *effort = json_given(v, "effort");
    if (v && !json_is_object(v)) return door_refuse_type(r, "reasoning", "an object", v);
    if (!door_string(r, "reasoning", v, "effort", false)) return false;
    if (effort) json_object_set_new(r->chat, "reasoning_effort", door_ref(effort));
    return true;
}

/* Options that stand where they ask for nothing, or for what is done anyway. */
static bool read_asides(struct door_read *r)
{
    const json_t *background = json_given(r->body, "background"),
                 *top = json_given(r->body, "top_logprobs"),
                 *include = json_given(r->body, "include"),
                 *metadata = json_given(r->body, "metadata"), *store = json_given(r->body, "store");
    if (background && !json_is_false(background))
        return door_refuse(r, "background", "unsupported_parameter",
                           "answers are given at once here: leave it out, or use the batch API");
    if (top && !(json_is_integer(top) && !json_integer_value(top)))
        return door_refuse(r, "top_logprobs", "unsupported_parameter",
                           "log-probabilities have no form here: ask /v1/chat/completions");
    if (include && !json_is_array(include))
        return door_refuse_type(r, "include", "an array of strings", include);
    for (size_t i = 0; i < json_array_size(include); i++)
        if (!str_eqz(json_str(json_array_get(include, i)), "reasoning.encrypted_content"))
            return door_refuse(r, "include", "unsupported_value",
                               "[%zu]: there is nothing of this kind here", i);
    if (metadata && !json_is_object(metadata))
        return door_refuse_type(r, "metadata", "an object", metadata);
    if (store && !json_is_boolean(store))
        return door_refuse_type(r, "store", "true or false", store);
    struct str truncation = json_member_str(r->body, "truncation");
    if (!door_string(r, "", r->body, "truncation", false)) return false;
    return !truncation.p || str_eqz(truncation, "disabled") || str_eqz(truncation, "auto") ||
           door_refuse(r, "truncation", "invalid_value", "expected \"auto\" or \"disabled\"");
}

/* --- tools */
static bool read_tool(struct door_read *r, size_t i, const json_t *tool, json_t *out)
{
    static const char *const kept[] = {"description", "parameters", "strict"};
    struct door_path at = door_at("tools[%zu]", i);
    if (!json_is_object(tool)) return door_refuse_type(r, at.text, "an object", tool);
    if (!str_eqz(json_member_str(tool, "type"), "function"))
        return door_refuse(r, door_at("%s.type", at.text).text, "unsupported_value",
                           "expected \"function\": tools that the service runs are not behind "
                           "this gateway");
    if (!door_string(r, at.text, tool, "name", true)) return false;
    json_t *function = json_pack("{s:o}", "name", door_text(json_member_str(tool, "name")));
    for (size_t k = 0; k < 3; k++)
        if (json_given(tool, kept[k]))
            json_object_set_new(function, kept[k], door_ref(json_given(tool, kept[k])));
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
    if (!v) return true;
    if (json_is_string(v)) return json_object_set_new(r->chat, "tool_choice", door_ref(v)), true;
    if (!json_is_object(v)) return door_refuse_type(r, "tool_choice", "a string or an object", v);
    if (!str_eqz(json_member_str(v, "type"), "function"))
        return door_refuse(r, "tool_choice.type", "unsupported_value", "expected \"function\"");
    if (!door_string(r, "tool_choice", v, "name", true)) return false;
    json_object_set_new(r->chat, "tool_choice",
                        json_pack("{s:s,s:{s:o}}", "type", "function", "function", "name",
                                  door_text(json_member_str(v, "name"))));
    return true;
}

enum err responses_read(struct str body, struct door_request *out, struct openai_error *e)
{
    static bool (*const steps[])(struct door_read * r) = {
        read_instructions,      read_previous, read_input, door_read_stream, read_format,
        read_reasoning_options, read_asides,   read_tools, read_choice,      NULL};
    return door_read_body(body, fields, steps, out, e);
}
