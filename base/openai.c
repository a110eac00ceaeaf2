/* openai.c - the error object, and the end of a request. Pure, allocation aside. */
#include "base/openai.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Copies as much as fits, ending on a whole character. */
static void copy(char *out, size_t cap, const char *text)
{
    struct str s = str_sub(str_of(text), 0, cap - 1);
    s = str_sub(s, 0, utf8_complete(s));
    if (s.n) memcpy(out, s.p, s.n);
    out[s.n] = 0;
}

void openai_error_set(struct openai_error *e, int status, const char *type, const char *param,
                      const char *code, const char *fmt, ...)
{
    *e = (struct openai_error){.status = status};
    copy(e->type, sizeof e->type, type);
    copy(e->param, sizeof e->param, param ? param : "");
    copy(e->code, sizeof e->code, code ? code : "");
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof e->message) n = (int)utf8_complete(str_of(e->message));
    e->message[n] = 0;
}

void openai_error_param(struct openai_error *e, const char *param, const char *code,
                        const char *fmt, va_list ap)
{
    char text[sizeof e->message];
    vsnprintf(text, sizeof text, fmt, ap);
    openai_error_set(e, 400, "invalid_request_error", param, code, "%s: %s", param, text);
}

static void write_or_null(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\"%s\":", key);
    if (*value)
        json_write_string(out, str_of(value));
    else
        buf_z(out, "null");
}

void openai_error_write(struct buf *out, const struct openai_error *e)
{
    buf_z(out, "{\"error\":{\"message\":");
    json_write_string(out, str_of(e->message));
    buf_z(out, ",\"type\":");
    json_write_string(out, str_of(e->type));
    write_or_null(out, "param", e->param);
    write_or_null(out, "code", e->code);
    buf_z(out, "}}");
}

void openai_request_fini(struct openai_request *r)
{
    json_decref(r->body);
    mem_free(r->biases);
    *r = (struct openai_request){0};
}

/* Text of content made of parts: one part is borrowed, several are joined in scratch. */
static struct str join_parts(const json_t *parts, struct buf *scratch)
{
    struct str none = {"", 0}, one = none;
    size_t n = json_array_size(parts);
    for (size_t i = 0; i < n; i++) {
        struct str text = json_member_str(json_array_get(parts, i), "text");
        if (!text.p || !str_eqz(json_member_str(json_array_get(parts, i), "type"), "text"))
            return none;
        if (n == 1) return text;
        if (i) buf_char(scratch, '\n');
        buf_str(scratch, text);
    }
    return buf_failed(scratch) || !n ? one : buf_view(scratch);
}

struct str openai_last_user_text(const struct openai_request *r, struct buf *scratch)
{
    struct str none = {"", 0};
    size_t n = json_array_size(r->messages);
    const json_t *last = n ? json_array_get(r->messages, n - 1) : NULL;
    if (!str_eqz(json_member_str(last, "role"), "user")) return none;
    const json_t *content = json_object_get(last, "content");
    if (json_is_string(content)) return json_str(content);
    return join_parts(content, scratch);
}
