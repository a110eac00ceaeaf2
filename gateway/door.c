/* door.c - see door.h: what reading a body has in common for all doors. */
#include "gateway/door.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHAT_BYTES_MAX = 64 << 20, TOOLS_MAX = 1024 };

/* Of the parsed request alone, never of what is sent: no client's field can have this name's first byte and no reader looks for it. */
#define KEY_MEMBER                                                                                 \
    "\x01"                                                                                         \
    "door"

void door_request_fini(struct door_request *r)
{
    json_decref(r->asked);
    json_decref(r->extra);
    buf_fini(&r->chat);
    buf_fini(&r->history);
    *r = (struct door_request){0};
}

enum err door_parse(const struct door *d, struct str body, struct door_request *asked,
                    struct openai_request *req, struct openai_error *e)
{
    enum err code = d->read(body, asked, e);
    if (code != OK) return code;
    code = openai_parse(req, OPENAI_CHAT, buf_view(&asked->chat), OPENAI_GATEWAY, e);
    if (code != OK) {
        d->rename(e);
        door_request_fini(asked);
    } else if (asked->extra) {
        json_object_set(req->body, KEY_MEMBER, asked->extra);
    }
    return code;
}

struct door_path door_at(const char *fmt, ...)
{
    struct door_path p;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p.text, sizeof p.text, fmt, ap);
    va_end(ap);
    return p;
}

bool door_refuse(const struct door_read *r, const char *param, const char *code, const char *fmt,
                 ...)
{
    va_list ap;
    va_start(ap, fmt);
    openai_error_param(r->e, param, code, fmt, ap);
    va_end(ap);
    return false;
}

bool door_refuse_type(const struct door_read *r, const char *param, const char *expected,
                      const json_t *got)
{
    return door_refuse(r, param, "invalid_type", "expected %s, got %s", expected, json_kind(got));
}

bool door_string(const struct door_read *r, const char *path, const json_t *object,
                 const char *name, bool required)
{
    const json_t *v = json_given(object, name);
    if (v ? json_is_string(v) : !required) return true;
    return door_refuse_type(r, *path ? door_at("%s.%s", path, name).text : name, "a string", v);
}

json_t *door_text(struct str s)
{
    return json_stringn_nocheck(s.p ? s.p : "", s.n);
}

bool door_read_stream(struct door_read *r)
{
    const json_t *v = json_given(r->body, "stream");
    if (v && !json_is_boolean(v)) return door_refuse_type(r, "stream", "true or false", v);
    if (!json_is_true(v)) return true;
    json_object_set_new(r->chat, "stream", json_true());
    json_object_set_new(r->chat, "stream_options", json_pack("{s:b}", "include_usage", 1));
    return true;
}

bool door_read_tools(struct door_read *r, bool (*read_tool)(struct door_read *r, size_t i,
                                                            const json_t *tool, json_t *out))
{
    const json_t *v = json_given(r->body, "tools");
    size_t n = json_array_size(v);
    if (v && !json_is_array(v)) return door_refuse_type(r, "tools", "an array", v);
    if (n > TOOLS_MAX)
        return door_refuse(r, "tools", "invalid_value", "%zu tools: expected at most %d", n,
                           TOOLS_MAX);
    if (!n) return true;
    json_t *tools = json_array();
    json_object_set_new(r->chat, "tools", tools);
    for (size_t i = 0; i < n; i++)
        if (!read_tool(r, i, json_array_get(v, i), tools)) return false;
    return true;
}

json_t *door_text_part(struct str text)
{
    return json_pack("{s:s,s:o}", "type", "text", "text", door_text(text));
}

json_t *door_content(json_t *parts)
{
    const json_t *only = json_array_size(parts) == 1 ? json_array_get(parts, 0) : NULL;
    json_t *text = json_object_get(only, "text");
    if (!text) return parts;
    json_incref(text);
    json_decref(parts);
    return text;
}

json_t *door_ref(const json_t *v)
{
    return json_incref((json_t *)(uintptr_t)v);
}

void door_count(struct door_read *r, const char *name, const json_t *v)
{
    if (!r->extra) r->extra = json_object();
    json_object_set_new(r->extra, name, door_ref(v));
}

static const struct door_field *field_of(const struct door_field *fields, const char *name)
{
    while (fields->name && strcmp(fields->name, name))
        fields++;
    return fields->name ? fields : NULL;
}

static bool sort_member(struct door_read *r, const struct door_field *fields, struct str name,
                        const json_t *v)
{
    char shown[64];
    const struct door_field *f = strlen(name.p) == name.n ? field_of(fields, name.p) : NULL;
    if (json_is_null(v)) return true;
    snprintf(shown, sizeof shown, STR_FMT, STR_ARG(str_sub(name, 0, sizeof shown - 1)));
    shown[utf8_complete(str_of(shown))] = 0;
    if (!f)
        return door_refuse(r, shown, "unknown_parameter",
                           "there is no such field, or none that has a meaning here");
    if (f->rule == DOOR_REFUSE) return door_refuse(r, shown, "unsupported_parameter", "%s", f->as);
    if (f->rule == DOOR_PASS) json_object_set_new(r->chat, f->as ? f->as : f->name, door_ref(v));
    if (f->rule == DOOR_KEY) door_count(r, f->name, v);
    return true;
}

static bool sort_members(struct door_read *r, const struct door_field *fields)
{
    json_t *o = (json_t *)(uintptr_t)r->body;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        if (!sort_member(r, fields,
                         (struct str){json_object_iter_key(it), json_object_iter_key_len(it)},
                         json_object_iter_value(it)))
            return false;
    return true;
}

enum err door_read_body(struct str body, const struct door_field *fields,
                        bool (*const *steps)(struct door_read *r), struct door_request *out,
                        struct openai_error *e)
{
    struct errmsg why = {0};
    json_t *history = NULL;
    *out = (struct door_request){.history = out->history};
    *e = (struct openai_error){0};
    bool past = !out->history.n || json_parse(buf_view(&out->history), 0, &history, &why) == OK;
    if (!past || json_parse(body, 0, &out->asked, &why) != OK) {
        openai_error_set(e, past ? 400 : 500, past ? "invalid_request_error" : "server_error", "",
                         "invalid_json", "%s: %s", past ? "body" : "what was kept", why.text);
        json_decref(history);
        door_request_fini(out);
        return ERR_INVALID;
    }
    struct door_read r = {.body = out->asked,
                          .history = history,
                          .chat = json_object(),
                          .messages = json_array(),
                          .e = e};
    bool fine = json_is_object(out->asked);
    if (!fine)
        openai_error_set(e, 400, "invalid_request_error", "", "invalid_type",
                         "body: expected a JSON object, got %s", json_kind(out->asked));
    fine = fine && sort_members(&r, fields);
    for (; fine && *steps; steps++)
        fine = (*steps)(&r);
    if (fine) {
        json_object_set(r.chat, "messages", r.messages);
        buf_init(&out->chat, CHAT_BYTES_MAX);
        json_write(&out->chat, r.chat);
        if (buf_failed(&out->chat)) fine = door_refuse(&r, "body", "too_large", "it is too large");
    }
    json_decref(r.chat);
    json_decref(r.messages);
    json_decref(r.pending);
    json_decref(history);
    out->extra = r.extra;
    if (fine) return OK;
    door_request_fini(out);
    return ERR_INVALID;
}

void door_rename(const struct door_field *fields, struct openai_error *e)
{
    struct str param = str_of(e->param);
    const struct door_field *f = fields;
    while (f->name && !(f->rule == DOOR_PASS && f->as && str_eqz(param, f->as)))
        f++;
    if (!f->name || !str_starts(str_of(e->message), param)) return;
    struct openai_error old = *e;
    openai_error_set(e, old.status, old.type, f->name, old.code, "%s%s", f->name,
                     old.message + param.n);
}
