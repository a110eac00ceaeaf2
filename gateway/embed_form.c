/* embed_form.c - see embed_form.h. */
#include "gateway/embed_form.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "base/openai_answer.h"

void embed_list_init(struct embed_list *l, size_t n)
{
    *l = (struct embed_list){.at = xcalloc(n ? n : 1, sizeof *l->at), .n = n, .tokens = -1};
    for (size_t i = 0; i < n; i++) {
        buf_init(&l->at[i].values, EMBED_DIM_MAX * sizeof(float));
        l->at[i].tokens = -1;
    }
}

void embed_list_fini(struct embed_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        buf_fini(&l->at[i].values);
    mem_free(l->at);
    *l = (struct embed_list){0};
}

static bool all_finite(const struct buf *values)
{
    for (size_t i = 0; i + sizeof(float) <= values->n; i += sizeof(float)) {
        float f;
        memcpy(&f, values->p + i, sizeof f);
        if (!isfinite(f)) return false;
    }
    return values->n && values->n % sizeof(float) == 0;
}

static bool read_numbers(struct buf *values, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *number = json_array_get(v, i);
        float f = (float)json_number_value(number);
        if (!json_is_number(number)) return false;
        buf_add(values, &f, sizeof f);
    }
    return !buf_failed(values);
}

static bool read_vector(struct embed_vector *out, const json_t *v)
{
    if (out->values.n) return false; /* its index came before */
    if (json_is_string(v) && base64_read(&out->values, json_str(v)) != OK) return false;
    if (!json_is_string(v) && !read_numbers(&out->values, v)) return false;
    return all_finite(&out->values);
}

static enum err read_list(struct embed_list *l, const json_t *reply, struct errmsg *e)
{
    const json_t *items = json_object_get(reply, "data"), *usage = json_object_get(reply, "usage"),
                 *tokens = json_object_get(usage, "prompt_tokens");
    if (json_array_size(items) != l->n)
        return err_set(e, ERR_INVALID, "data: %zu embeddings, expected %zu", json_array_size(items),
                       l->n);
    for (size_t i = 0; i < l->n; i++) {
        const json_t *item = json_array_get(items, i), *index = json_object_get(item, "index");
        int64_t at = index ? json_integer_value(index) : (int64_t)i;
        if (at < 0 || (size_t)at >= l->n ||
            !read_vector(&l->at[at], json_object_get(item, "embedding")))
            return err_set(e, ERR_INVALID,
                           "data[%zu]: expected an index of its own and a vector of numbers", i);
    }
    struct str model = json_member_str(reply, "model");
    if (strnlen(model.p ? model.p : "", model.n) == model.n && model.n < sizeof l->model)
        snprintf(l->model, sizeof l->model, STR_FMT, STR_ARG(model));
    if (json_is_integer(tokens) && json_integer_value(tokens) >= 0)
        l->tokens = openai_count(usage, "prompt_tokens");
    return OK;
}

enum err embed_read(struct embed_list *l, struct str json, struct errmsg *e)
{
    json_t *reply = NULL;
    if (json_parse(json, 0, &reply, e) != OK) return ERR_INVALID;
    enum err code = read_list(l, reply, e);
    json_decref(reply);
    return code;
}

void embed_share_tokens(struct embed_list *l, const size_t *text_bytes)
{
    size_t bytes = 0, before = 0;
    if (l->tokens < 0) return;
    for (size_t i = 0; i < l->n; i++)
        bytes += text_bytes[i];
    for (size_t i = 0; i < l->n; i++) { /* differences of a rounded sum: they add up exactly */
        double from = bytes ? (double)before / (double)bytes : (double)i / (double)l->n;
        before += text_bytes[i];
        double to = bytes ? (double)before / (double)bytes : (double)(i + 1) / (double)l->n;
        l->at[i].tokens = llround(to * (double)l->tokens) - llround(from * (double)l->tokens);
    }
}

static void write_vector(struct buf *out, const struct buf *values, bool base64)
{
    if (base64) {
        buf_char(out, '"');
        base64_write(out, values->p, values->n);
        buf_char(out, '"');
        return;
    }
    buf_char(out, '[');
    for (size_t i = 0; i < values->n; i += sizeof(float)) {
        float f;
        char text[24];
        memcpy(&f, values->p + i, sizeof f);
        int n = snprintf(text, sizeof text, "%s%.9g", i ? "," : "", (double)f);
        buf_add(out, text, (size_t)n);
    }
    buf_char(out, ']');
}

void embed_write(struct buf *out, const struct embed_list *l, bool base64)
{
    int64_t tokens = 0;
    buf_z(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < l->n; i++) {
        buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                   i);
        write_vector(out, &l->at[i].values, base64);
        buf_char(out, '}');
        if (l->at[i].tokens > 0) tokens += l->at[i].tokens;
    }
    buf_z(out, "],\"model\":");
    json_write_string(out, str_of(l->model));
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)tokens,
               (long long)tokens);
}

void embed_to_answer(const struct embed_vector *v, const char *model, struct openai_answer *out)
{
    struct buf text;
    *out = (struct openai_answer){.kind = OPENAI_EMBEDDING, .n_choices = 1};
    buf_init(&text, EMBED_DIM_MAX * 8);
    base64_write(&text, v->values.p, v->values.n);
    snprintf(out->model, sizeof out->model, "%s", model);
    snprintf(out->choices[0].finish_reason, sizeof out->choices[0].finish_reason, "stop");
    out->choices[0].message = json_pack("{s:s}", "text", text.p ? text.p : "");
    out->usage = (struct openai_usage){.prompt_tokens = v->tokens > 0 ? v->tokens : 0,
                                       .known = v->tokens >= 0};
    buf_fini(&text);
}

enum err embed_from_answer(struct embed_vector *v, const struct openai_answer *a)
{
    const json_t *message = a->n_choices == 1 ? a->choices[0].message : NULL;
    if (base64_read(&v->values, json_member_str(message, "text")) != OK || !all_finite(&v->values))
        return ERR_CORRUPT;
    v->tokens = a->usage.known ? a->usage.prompt_tokens : -1;
    return OK;
}
