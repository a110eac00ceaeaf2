/* openai_messages.c - checks messages, their parts and tool calls, and the list of tools. Pure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/openai_check.h"

enum {
    WHERE_BYTES = 64,
    MESSAGES_MAX = 100000,
    PARTS_MAX = 4096,
    TOOLS_MAX = 1024,
    TOOL_CALLS_MAX = 1024
};

struct where {
    char path[WHERE_BYTES];
};

static struct where at(const char *fmt, ...) PRINTF_LIKE(1, 2);
static struct where at(const char *fmt, ...)
{
    struct where w;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w.path, sizeof w.path, fmt, ap);
    va_end(ap);
    return w;
}

/* A member that must be a string when required, or may be absent. */
static bool string_member(const struct openai_check *c, const char *path, const json_t *object,
                          const char *name, bool required)
{
    const json_t *v = json_given(object, name);
    if (v ? json_is_string(v) : !required) return true;
    return openai_refuse_type(c, at("%s.%s", path, name).path, "a string", v);
}

/* --- parts of a content */
enum part_class { PART_TEXT, PART_IMAGE, PART_AUDIO };
static const struct {
    const char *type, *member;
    enum part_class class;
    bool text; /* the member is a string, else an object */
} parts[] = {
    {"text", "text", PART_TEXT, true},
    {"refusal", "refusal", PART_TEXT, true},
    {"image_url", "image_url", PART_IMAGE, false},
    {"input_audio", "input_audio", PART_AUDIO, false},
    {"audio_url", "audio_url", PART_AUDIO, false},
    {"video_url", "video_url", PART_IMAGE, false},
    {"file", "file", PART_IMAGE, false},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static bool check_part(const struct openai_check *c, const char *path, const json_t *part)
{
    if (!json_is_object(part))
        return openai_refuse_type(c, path, "an object like {\"type\":\"text\",\"text\":\"...\"}",
                                  part);
    struct str type = json_member_str(part, "type");
    int i = 0;
    while (i < N_PARTS && !str_eqz(type, parts[i].type))
        i++;
    if (!type.p)
        return openai_refuse_type(c, at("%s.type", path).path, "a string",
                                  json_object_get(part, "type"));
    if (i == N_PARTS)
        return openai_refuse(c, at("%s.type", path).path, "invalid_value",
                             "unknown: expected text, refusal, image_url, input_audio, audio_url, "
                             "video_url or file");
    const json_t *v = json_given(part, parts[i].member);
    if (parts[i].text ? !json_is_string(v) : !json_is_object(v))
        return openai_refuse_type(c, at("%s.%s", path, parts[i].member).path,
                                  parts[i].text ? "a string" : "an object", v);
    if (parts[i].class == PART_TEXT) return true;
    if (c->strict == OPENAI_ENGINE)
        return openai_refuse(c, path, "unsupported_value",
                             "%s is not supported: this model reads text only", parts[i].type);
    if (parts[i].class == PART_AUDIO)
        c->r->has_audio = true;
    else
        c->r->has_image = true;
    return true;
}

static bool check_content(const struct openai_check *c, const char *message, const json_t *v)
{
    struct where w = at("%s.content", message);
    if (json_is_string(v)) return true;
    if (!json_is_array(v)) return openai_refuse_type(c, w.path, "a string or an array of parts", v);
    size_t n = json_array_size(v);
    if (!n)
        return openai_refuse(c, w.path, "invalid_value",
                             "the array is empty: expected at least one part");
    if (n > PARTS_MAX)
        return openai_refuse(c, w.path, "invalid_value", "%zu parts: expected at most %d", n,
                             PARTS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!check_part(c, at("%s[%zu]", w.path, i).path, json_array_get(v, i))) return false;
    return true;
}

/* --- messages */
static bool check_function(const struct openai_check *c, const char *path, const json_t *v)
{
    if (!json_is_object(v)) return openai_refuse_type(c, path, "an object", v);
    return string_member(c, path, v, "name", true) && string_member(c, path, v, "arguments", true);
}

static bool check_tool_calls(const struct openai_check *c, const char *message, const json_t *v)
{
    struct where w = at("%s.tool_calls", message);
    if (!json_is_array(v)) return openai_refuse_type(c, w.path, "an array", v);
    size_t n = json_array_size(v);
    if (n > TOOL_CALLS_MAX)
        return openai_refuse(c, w.path, "invalid_value", "%zu calls: expected at most %d", n,
                             TOOL_CALLS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *call = json_array_get(v, i);
        struct where item = at("%s[%zu]", w.path, i);
        if (!json_is_object(call)) return openai_refuse_type(c, item.path, "an object", call);
        if (!string_member(c, item.path, call, "id", true) ||
            !string_member(c, item.path, call, "type", false))
            return false;
        const json_t *type = json_given(call, "type");
        bool custom = type && !str_eqz(json_str(type), "function");
        if (custom && c->strict == OPENAI_ENGINE)
            return openai_refuse(c, at("%s.type", item.path).path, "unsupported_value",
                                 "expected \"function\"");
        if (!custom &&
            !check_function(c, at("%s.function", item.path).path, json_given(call, "function")))
            return false;
    }
    return true;
}

static bool check_assistant(const struct openai_check *c, const char *path, const json_t *m)
{
    const json_t *content = json_given(m, "content"), *calls = json_given(m, "tool_calls"),
                 *function = json_given(m, "function_call");
    if (calls && !check_tool_calls(c, path, calls)) return false;
    if (function && !check_function(c, at("%s.function_call", path).path, function)) return false;
    if (!string_member(c, path, m, "refusal", false)) return false;
    bool may_be_empty = calls || function || json_given(m, "refusal") || json_given(m, "audio");
    if (content || !may_be_empty) return check_content(c, path, content);
    return true;
}

static bool check_message(const struct openai_check *c, const char *path, const json_t *m)
{
    if (!json_is_object(m))
        return openai_refuse_type(c, path, "an object with role and content", m);
    struct str role = json_member_str(m, "role");
    if (!role.p)
        return openai_refuse_type(c, at("%s.role", path).path, "a string",
                                  json_object_get(m, "role"));
    if (!string_member(c, path, m, "name", false)) return false;
    if (str_eqz(role, "assistant")) return check_assistant(c, path, m);
    if (str_eqz(role, "tool"))
        return string_member(c, path, m, "tool_call_id", true) &&
               check_content(c, path, json_given(m, "content"));
    if (str_eqz(role, "function"))
        return string_member(c, path, m, "name", true) &&
               (!json_given(m, "content") || check_content(c, path, json_given(m, "content")));
    if (str_eqz(role, "user") || str_eqz(role, "system") || str_eqz(role, "developer"))
        return check_content(c, path, json_given(m, "content"));
    return openai_refuse(
        c, at("%s.role", path).path, "invalid_value",
        "unknown role: expected system, developer, user, assistant, tool or function");
}

/* Nothing but a role that says no more and a text, as nearly all are. */
static bool is_plain(const json_t *m)
{
    if (json_object_size(m) != 2 || !json_is_string(json_object_get(m, "content"))) return false;
    struct str role = json_member_str(m, "role");
    return str_eqz(role, "user") || str_eqz(role, "assistant") || str_eqz(role, "system") ||
           str_eqz(role, "developer");
}

bool openai_check_messages(const struct openai_check *c)
{
    const json_t *v = c->r->messages = openai_given(c, "messages");
    if (!v)
        return openai_refuse(c, "messages", "missing_required_parameter",
                             "required, an array of messages");
    if (!json_is_array(v)) return openai_refuse_type(c, "messages", "an array of messages", v);
    size_t n = json_array_size(v);
    if (!n)
        return openai_refuse(c, "messages", "invalid_value",
                             "the array is empty: expected at least one message");
    if (n > MESSAGES_MAX)
        return openai_refuse(c, "messages", "invalid_value", "%zu messages: expected at most %d", n,
                             MESSAGES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(v, i);
        if (!is_plain(m) && !check_message(c, at("messages[%zu]", i).path, m)) return false;
    }
    return true;
}

/* --- tools */
static bool check_tool(const struct openai_check *c, size_t i, const json_t *tool)
{
    struct str type = json_member_str(tool, "type");
    if (!json_is_object(tool))
        return openai_refuse(c, "tools", "invalid_type", "[%zu]: expected an object, got %s", i,
                             json_kind(tool));
    if (!type.p)
        return openai_refuse(c, "tools", "invalid_type", "[%zu].type: expected a string, got %s", i,
                             json_kind(json_object_get(tool, "type")));
    if (!str_eqz(type, "function"))
        return c->strict != OPENAI_ENGINE ||
               openai_refuse(c, "tools", "unsupported_value",
                             "[%zu].type: this engine knows only \"function\"", i);
    const json_t *function = json_given(tool, "function"),
                 *parameters = json_given(function, "parameters"),
                 *about = json_given(function, "description");
    if (!json_is_object(function))
        return openai_refuse(c, "tools", "invalid_type",
                             "[%zu].function: expected an object, got %s", i, json_kind(function));
    if (!json_member_str(function, "name").n)
        return openai_refuse(c, "tools", "invalid_type",
                             "[%zu].function.name: expected a name, got %s", i,
                             json_kind(json_object_get(function, "name")));
    if (parameters && !json_is_object(parameters))
        return openai_refuse(c, "tools", "invalid_type",
                             "[%zu].function.parameters: expected an object, got %s", i,
                             json_kind(parameters));
    if (about && !json_is_string(about))
        return openai_refuse(c, "tools", "invalid_type",
                             "[%zu].function.description: expected a string, got %s", i,
                             json_kind(about));
    return true;
}

static bool names_a_tool(const json_t *tools, struct str name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (str_eq(json_member_str(json_object_get(json_array_get(tools, i), "function"), "name"),
                   name))
            return true;
    return false;
}

static bool check_choice(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "tool_choice");
    if (!v) return true;
    struct str word = json_str(v);
    if (str_eqz(word, "none")) c->r->tool_choice = OPENAI_TOOLS_NONE;
    if (str_eqz(word, "none") || str_eqz(word, "auto")) return true;
    if (word.p && !str_eqz(word, "required"))
        return openai_refuse(c, "tool_choice", "invalid_value",
                             "expected \"none\", \"auto\", \"required\" or an object");
    if (!word.p && !json_is_object(v))
        return openai_refuse_type(c, "tool_choice", "\"none\", \"auto\", \"required\" or an object",
                                  v);
    if (!c->r->tools)
        return openai_refuse(c, "tool_choice", "invalid_value", "allowed only with tools");
    c->r->tool_choice = word.p ? OPENAI_TOOLS_REQUIRED : OPENAI_TOOLS_NAMED;
    if (word.p) return true;
    if (!str_eqz(json_member_str(v, "type"), "function"))
        return c->strict != OPENAI_ENGINE ||
               openai_refuse(c, "tool_choice", "unsupported_value",
                             "type: this engine knows only \"function\"");
    struct str name = c->r->tool_name = json_member_str(json_object_get(v, "function"), "name");
    if (!name.n)
        return openai_refuse(c, "tool_choice", "invalid_type",
                             "function.name: expected the name of a tool");
    return names_a_tool(c->r->tools, name) ||
           openai_refuse(c, "tool_choice", "invalid_value", "function.name: no such tool in tools");
}

bool openai_check_tools(const struct openai_check *c)
{
    const json_t *v = openai_given(c, "tools"), *functions = openai_given(c, "functions"),
                 *parallel = openai_given(c, "parallel_tool_calls");
    if (v && !json_is_array(v)) return openai_refuse_type(c, "tools", "an array", v);
    size_t n = json_array_size(v);
    if (n > TOOLS_MAX)
        return openai_refuse(c, "tools", "invalid_value", "%zu tools: expected at most %d", n,
                             TOOLS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!check_tool(c, i, json_array_get(v, i))) return false;
    c->r->tools = n ? v : NULL;
    if (functions && !json_is_array(functions))
        return openai_refuse_type(c, "functions", "an array", functions);
    if (functions && c->strict == OPENAI_ENGINE)
        return openai_refuse(c, "functions", "unsupported_value", "this engine knows only tools");
    if (parallel && !json_is_boolean(parallel))
        return openai_refuse_type(c, "parallel_tool_calls", "true or false", parallel);
    c->r->parallel_tool_calls = !json_is_false(parallel);
    return check_choice(c);
}
