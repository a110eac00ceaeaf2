/* eval_read.c - question files of an evaluation. See eval.h. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cache/eval.h"

enum { LINE_BYTES_MAX = 1 << 20, ITEMS_MAX = 1 << 20 };

struct reading {
    struct eval_file *out;
    struct eval_texts *texts;
    size_t cap;
    bool begun;
    struct errmsg *e;
};

static enum err text_of(const json_t *line, const char *name, struct str *out, struct errmsg *e)
{
    const json_t *v = json_object_get(line, name);
    if (!json_is_string(v) || !json_string_length(v))
        return err_set(e, ERR_INVALID, "\"%s\": expected a text", name);
    *out = json_str(v);
    return OK;
}

static char language_of(const json_t *line, struct str text)
{
    struct str said = json_member_str(line, "lang");
    return said.n ? (said.p[0] == 'z' ? 'z' : 'e') : guard_language(text);
}

static enum err read_pair(struct reading *r, const json_t *line)
{
    const json_t *first = json_object_get(line, "a"), *second = json_object_get(line, "b");
    if (json_is_array(first) || json_is_array(second) || json_is_object(first) ||
        json_is_object(second)) { /* conversations */
        r->out->skipped++;
        return OK;
    }
    struct str a, b, category = json_member_str(line, "category");
    enum err code = text_of(line, "a", &a, r->e);
    if (code == OK) code = text_of(line, "b", &b, r->e);
    if (code) return code;
    const json_t *same = json_object_get(line, "same");
    if (!json_is_boolean(same))
        return err_set(r->e, ERR_INVALID, "\"same\": expected true or false");
    struct eval_pair *p = &r->out->pairs[r->out->n++];
    *p = (struct eval_pair){.a = eval_texts_add(r->texts, a),
                            .b = eval_texts_add(r->texts, b),
                            .same = json_is_true(same),
                            .language = language_of(line, b)};
    snprintf(p->category, sizeof p->category, STR_FMT, STR_ARG(category));
    return OK;
}

/* An array of texts, or of objects with a text "q". */
static enum err read_texts(struct reading *r, const json_t *list, const char *name, int *out,
                           int *n)
{
    json_t *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        const json_t *text = json_is_object(v) ? json_object_get(v, "q") : v;
        if (!json_is_string(text) || !json_string_length(text))
            return err_set(r->e, ERR_INVALID, "\"%s\"[%zu]: expected a text", name, i);
        if (*n == EVAL_WORDINGS_MAX)
            return err_set(r->e, ERR_INVALID, "\"%s\": at most %d texts", name, EVAL_WORDINGS_MAX);
        out[(*n)++] = eval_texts_add(r->texts, json_str(text));
    }
    return OK;
}

static enum err read_faq(struct reading *r, const json_t *line)
{
    struct str q;
    enum err code = text_of(line, "q", &q, r->e);
    if (code) return code;
    struct eval_faq *f = &r->out->faqs[r->out->n++];
    *f = (struct eval_faq){.q = eval_texts_add(r->texts, q), .language = language_of(line, q)};
    const json_t *near = json_object_get(line, "near");
    const char *near_name = near ? "near" : "differ";
    code = read_texts(r, json_object_get(line, "same"), "same", f->same, &f->n_same);
    if (code) return code;
    return read_texts(r, near ? near : json_object_get(line, "differ"), near_name, f->near,
                      &f->n_near);
}

static enum err read_ask(struct reading *r, const json_t *line)
{
    struct str q, answer;
    enum err code = text_of(line, "q", &q, r->e);
    if (code == OK) code = text_of(line, "answer", &answer, r->e);
    if (code) return code;
    r->out->asks[r->out->n++] =
        (struct eval_ask){eval_texts_add(r->texts, q), hash_bytes(2, answer).lo | 1};
    return OK;
}

static enum eval_kind kind_of(const json_t *line)
{
    if (json_object_get(line, "a") && json_object_get(line, "b")) return EVAL_PAIRS;
    return json_object_get(line, "same") || json_object_get(line, "near") ||
                   json_object_get(line, "differ")
               ? EVAL_FAQ
               : EVAL_STREAM;
}

static void make_room(struct reading *r)
{
    struct eval_file *f = r->out;
    if (f->n < r->cap) return;
    r->cap = r->cap ? r->cap * 2 : 256;
    if (f->kind == EVAL_PAIRS)
        f->pairs = xrealloc(f->pairs, r->cap * sizeof *f->pairs);
    else if (f->kind == EVAL_FAQ)
        f->faqs = xrealloc(f->faqs, r->cap * sizeof *f->faqs);
    else
        f->asks = xrealloc(f->asks, r->cap * sizeof *f->asks);
}

static enum err read_line(struct reading *r, struct str line)
{
    static enum err (*const readers[])(struct reading *, const json_t *) = {
        [EVAL_PAIRS] = read_pair, [EVAL_FAQ] = read_faq, [EVAL_STREAM] = read_ask};
    json_t *v = NULL;
    enum err code = json_parse(line, 0, &v, r->e);
    if (code) return code;
    if (!json_is_object(v)) {
        code = err_set(r->e, ERR_INVALID, "expected an object");
    } else {
        if (!r->begun) r->out->kind = kind_of(v);
        r->begun = true;
        make_room(r);
        code = readers[r->out->kind](r, v);
    }
    json_decref(v);
    return code;
}

void eval_file_fini(struct eval_file *f)
{
    mem_free(f->pairs);
    mem_free(f->faqs);
    mem_free(f->asks);
}

enum err eval_read(struct eval_file *out, const char *path, struct eval_texts *t, struct errmsg *e)
{
    *out = (struct eval_file){.name = path};
    struct reading r = {.out = out, .texts = t, .e = e};
    FILE *file = fopen(path, "r");
    if (!file) return err_set(e, ERR_NOT_FOUND, "%s: cannot be read", path);
    char *line = xmalloc(LINE_BYTES_MAX);
    enum err code = OK;
    for (size_t n = 1; code == OK && fgets(line, LINE_BYTES_MAX, file); n++) {
        struct str text = str_trim(str_of(line));
        if (text.n && text.p[0] != '#') code = read_line(&r, text);
        if (code == OK && out->n == ITEMS_MAX)
            code = err_set(e, ERR_TOO_LARGE, "more than %d lines", ITEMS_MAX);
        if (code) (void)err_prefix(e, code, "%s:%zu", path, n);
    }
    mem_free(line);
    (void)fclose(file);
    if (code == OK && !out->n) code = err_set(e, ERR_INVALID, "%s: holds no questions", path);
    if (code) eval_file_fini(out);
    return code;
}
