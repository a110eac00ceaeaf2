/* batch_line.c - see batch_line.h. */
#include "gateway/batch_line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gateway/body_edit.h"

bool batch_endpoint_known(struct str endpoint)
{
    static const char *const known[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                        "/v1/responses", "/v1/messages"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_eqz(endpoint, known[i])) return true;
    return false;
}

PRINTF_LIKE(4, 5)
static enum err refuse(struct batch_fault *why, const char *code, const char *param,
                       const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    why->code = code;
    why->param = param;
    int n = vsnprintf(why->message, sizeof why->message, fmt, ap);
    va_end(ap);
    struct str all = {why->message,
                      (size_t)n < sizeof why->message ? (size_t)n : sizeof why->message - 1};
    why->message[utf8_complete(all)] = 0;
    return ERR_INVALID;
}

static enum err check(struct batch_line *l, const char *endpoint, struct batch_fault *why)
{
    static const char *const names[] = {"custom_id", "method", "url"};
    struct str values[3];
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(l->doc, names[i]);
        values[i] = json_str(v);
        if (!v)
            return refuse(why, "missing_required_parameter", names[i],
                          "the line has no member \"%s\"", names[i]);
        if (json_is_string(v) && memchr(values[i].p, 0, values[i].n))
            return refuse(why, "invalid_type", names[i], "%s: it holds a NUL character", names[i]);
        if (!json_is_string(v))
            return refuse(why, "invalid_type", names[i], "%s: expected a string, not %s", names[i],
                          json_kind(v));
    }
    if (!values[0].n || values[0].n > CUSTOM_ID_BYTES_MAX)
        return refuse(why, "invalid_custom_id", "custom_id", "custom_id: expected 1 to %d bytes",
                      CUSTOM_ID_BYTES_MAX);
    if (!str_eqz(values[1], "POST"))
        return refuse(why, "invalid_method", "method", "method: expected POST");
    if (!str_eqz(values[2], endpoint))
        return refuse(why, "invalid_url", "url", "url: expected %s, the endpoint of the batch",
                      endpoint);
    const json_t *body = json_object_get(l->doc, "body");
    if (!json_is_object(body))
        return refuse(why, body ? "invalid_type" : "missing_required_parameter", "body",
                      "body: expected an object, not %s", json_kind(body));
    if (json_is_true(json_object_get(body, "stream")))
        return refuse(why, "unsupported_parameter", "body.stream",
                      "body.stream: answers of a batch are not streamed, leave it out");
    l->custom_id = values[0];
    return OK;
}

enum err batch_line_read(struct batch_line *out, struct str text, const char *endpoint,
                         struct batch_fault *why)
{
    struct errmsg e = {0};
    struct batch_line l = {0};
    if (text.n > BATCH_LINE_BYTES_MAX)
        return refuse(why, "line_too_large", "", "the line is over %d bytes", BATCH_LINE_BYTES_MAX);
    if (json_parse(text, 0, &l.doc, &e) != OK)
        return refuse(why, "invalid_json_line", "", "the line is not valid JSON: %s", e.text);
    enum err code = json_is_object(l.doc) ? check(&l, endpoint, why)
                                          : refuse(why, "invalid_json_line", "",
                                                   "expected an object, not %s", json_kind(l.doc));
    if (code != OK) {
        json_decref(l.doc);
        return code;
    }
    l.body = body_member(text, "body");
    *out = l;
    return OK;
}

void batch_line_fini(struct batch_line *l)
{
    json_decref(l->doc);
}

static void write_head(struct buf *out, const struct batch_answer *a)
{
    struct str id = str_of(a->batch);
    if (str_starts(id, STR("batch_"))) id = str_sub(id, 6, id.n);
    buf_printf(out, "{\"id\":\"batch_req_" STR_FMT "_%lld\",\"custom_id\":", STR_ARG(id),
               (long long)a->line);
    json_write_string(out, a->custom_id);
}

bool batch_body_ok(struct str body)
{
    json_t *doc = NULL;
    bool object = json_parse(body, 0, &doc, NULL) == OK && json_is_object(doc);
    json_decref(doc);
    return object;
}

bool batch_answer_write(struct buf *out, const struct batch_answer *a)
{
    write_head(out, a);
    buf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":", a->status);
    json_write_string(out, a->request_id);
    buf_z(out, ",\"body\":");
    size_t at = out->n;
    buf_str(out, a->body);
    if (buf_failed(out)) return false;
    /* a line break in valid JSON stands between its tokens */
    for (size_t i = at; i < out->n; i++)
        if (out->p[i] == '\n' || out->p[i] == '\r') out->p[i] = ' ';
    buf_z(out, "},\"error\":null}\n");
    return !buf_failed(out);
}

void batch_error_write(struct buf *out, const struct batch_answer *a, const char *code,
                       const char *message)
{
    write_head(out, a);
    buf_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":", code);
    json_write_string(out, str_of(message));
    buf_z(out, "}}\n");
}
