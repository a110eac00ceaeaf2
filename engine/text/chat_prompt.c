/* chat_prompt.c - see chat_prompt.h. */
#include "engine/text/chat_prompt.h"

#include "base/json.h"

enum { STEPS_MAX = 20000000 };

/* ---- messages in the form that templates expect ---- */
static struct str part_text(const json_t *part)
{
    struct str text = json_is_string(part) ? json_str(part) : json_member_str(part, "text");
    return text.p ? text : json_member_str(part, "refusal");
}

/* Parts joined by line breaks; templates expect a string. */
json_t *chat_content(const json_t *content)
{
    if (json_is_string(content)) return json_incref((json_t *)content);
    struct buf b;
    buf_init(&b, CHAT_PROMPT_MAX);
    size_t i;
    json_t *part;
    json_array_foreach(content, i, part)
    {
        if (i) buf_char(&b, '\n');
        buf_str(&b, part_text(part));
    }
    json_t *v = json_stringn(b.p ? b.p : "", b.n);
    buf_fini(&b);
    return v ? v : json_string("");
}

/* Most templates want call arguments as an object; clients send them as a string of JSON. */
static json_t *plain_calls(const json_t *calls)
{
    json_t *out = json_deep_copy(calls);
    size_t i;
    json_t *call;
    json_array_foreach(out, i, call)
    {
        json_t *function = json_object_get(call, "function"), *parsed;
        struct str text = json_member_str(function, "arguments");
        struct errmsg e;
        if (!text.p || json_parse(text, 0, &parsed, &e)) continue;
        if (json_is_object(parsed))
            json_object_set_new(function, "arguments", parsed);
        else
            json_decref(parsed);
    }
    return out;
}

static json_t *plain_messages(const json_t *messages, const struct chat_traits *traits)
{
    json_t *out = json_array(), *m;
    size_t i;
    json_array_foreach(messages, i, m)
    {
        json_t *copy = json_copy(m); /* shallow: the request stays as it came */
        const json_t *calls = json_object_get(m, "tool_calls");
        if (str_eqz(json_member_str(m, "role"), "developer"))
            json_object_set_new(copy, "role", json_string("system"));
        const json_t *content = json_object_get(m, "content"),
                     *refusal = json_object_get(m, "refusal");
        bool refused =
            !json_is_string(content) && !json_is_array(content) && json_is_string(refusal);
        json_t *text = chat_content(refused ? refusal : content);
        if (json_is_array(calls) && traits->null_content && !json_string_length(text)) {
            json_decref(text);
            text = json_null();
        }
        json_object_set_new(copy, "content", text);
        if (json_is_array(calls) && !traits->arguments_as_text)
            json_object_set_new(copy, "tool_calls", plain_calls(calls));
        json_array_append_new(out, copy);
    }
    return out;
}

/* ---- tools for templates that know none: described in the first message, past calls and their results become text, in the form
 * that toolcall.h then finds in the answer ---- */
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
    buf_init(&text, CHAT_PROMPT_MAX);
    if (result) buf_z(&text, "<tool_response>\n");
    buf_str(&text, content);
    if (result) buf_z(&text, "\n</tool_response>");
    write_calls(calls, &text);
    set_content(m, &text);
    if (result) json_object_set_new(m, "role", json_string("user"));
    json_object_del(m, "tool_calls");
    buf_fini(&text);
}

static void tools_into_messages(const json_t *tools, json_t *messages)
{
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) adapt(m);
    m = json_array_get(messages, 0);
    if (!tools || !m) return;
    struct buf text;
    bool system = str_eqz(json_member_str(m, "role"), "system");
    buf_init(&text, CHAT_PROMPT_MAX);
    if (system) {
        buf_str(&text, json_member_str(m, "content"));
        buf_z(&text, "\n\n");
    }
    describe(tools, &text);
    if (!system) {
        buf_char(&text, '\n');
        buf_str(&text, json_member_str(m, "content"));
    }
    set_content(m, &text);
    buf_fini(&text);
}

enum err chat_prompt_encode(const struct chat_reader *r, const struct chat_prompt *p,
                            struct token_list *out, struct errmsg *e)
{
    if (!r->template) return err_set(e, ERR_UNSUPPORTED, "this model has no chat template");
    json_t *messages = plain_messages(p->messages, &r->traits);
    if (r->tools_in_words) tools_into_messages(p->tools, messages);
    struct chat_render_options o = {.messages = messages,
                                    .tools = p->tools,
                                    .add_generation_prompt = true,
                                    .bos_token = r->bos,
                                    .eos_token = r->eos,
                                    .variables = p->variables,
                                    .now_s = p->now_s,
                                    .text_max = CHAT_PROMPT_MAX,
                                    .steps_max = STEPS_MAX};
    struct chat_rendering rendering;
    enum err code = chat_template_render(r->template, &o, &rendering, e);
    json_decref(messages);
    if (code) return code;
    tokenizer_encode_segments(r->tokenizer, buf_view(&rendering.text), rendering.segments,
                              rendering.n_segments, TOKENIZE_PARSE_SPECIAL, out);
    chat_rendering_fini(&rendering);
    return OK;
}
