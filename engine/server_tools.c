/* server_tools.c - tools for models whose chat template knows none: they are described in the first message, past calls and their
 * results become text, in the form that toolcall.h then finds in the answer. Runs on the loop or a worker. */
#include <string.h>

#include "engine/server.h"

enum { TEXT_MAX = 32 << 20 };

static void describe(const json_t *tools, struct buf *out)
{
    buf_z(out, "You can call functions. To call one, write nothing but\n<tool_call>\n"
               "{\"name\": \"the function's name\", \"arguments\": {...}}\n</tool_call>\n"
               "The functions, each with the JSON schema of its arguments:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_write(out, json_object_get(json_array_get(tools, i), "function"));
        buf_char(out, '\n');
    }
}

static void write_calls(const json_t *calls, struct buf *out)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function"),
                     *arguments = json_object_get(function, "arguments");
        if (out->n) buf_char(out, '\n');
        buf_z(out, "<tool_call>\n{\"name\": ");
        json_write_string(out, json_member_str(function, "name"));
        buf_z(out, ", \"arguments\": ");
        if (json_is_string(arguments))
            buf_str(out, json_str(arguments));
        else
            json_write(out, arguments);
        buf_z(out, "}\n</tool_call>");
    }
}

static void set_content(json_t *message, struct buf *text)
{
    struct str s = buf_view(text);
    json_object_set_new(message, "content", json_stringn(s.n ? s.p : "", s.n));
}

/* One message in words a template without tools understands. */
static void adapt(json_t *m)
{
    struct buf text;
    const json_t *calls = json_object_get(m, "tool_calls");
    struct str role = json_member_str(m, "role"), content = json_member_str(m, "content");
    bool result = str_eqz(role, "tool") || str_eqz(role, "function");
    if (!result && !json_is_array(calls)) return;
    buf_init(&text, TEXT_MAX);
    if (result) buf_z(&text, "<tool_response>\n");
    buf_str(&text, content);
    if (result) buf_z(&text, "\n</tool_response>");
    write_calls(calls, &text);
    set_content(m, &text);
    if (result) json_object_set_new(m, "role", json_string("user"));
    json_object_del(m, "tool_calls");
    buf_fini(&text);
}

void tools_into_messages(const struct exchange *x, json_t *messages)
{
    size_t i;
    json_t *m;
    if (!x->server->forms || forms_toolcall(x->server->forms) != TOOLCALL_GENERIC) return;
    json_array_foreach(messages, i, m) adapt(m);
    m = json_array_get(messages, 0);
    if (!x->calls_on || !m) return;
    struct buf text;
    bool system = str_eqz(json_member_str(m, "role"), "system");
    buf_init(&text, TEXT_MAX);
    if (system) {
        buf_str(&text, json_member_str(m, "content"));
        buf_z(&text, "\n\n");
    }
    describe(x->request.tools, &text);
    if (!system) {
        buf_char(&text, '\n');
        buf_str(&text, json_member_str(m, "content"));
    }
    set_content(m, &text);
    buf_fini(&text);
}
