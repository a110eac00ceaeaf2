/* jinja_json.c - the tojson filter, as chat templates expect it: Python's json.dumps with ensure_ascii off, not Jinja's
 * HTML-safe form. The result is content when anything in it came from the request. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

enum { JSON_DEPTH_MAX = 100, JSON_BYTES_MAX = 16 << 20 };

struct json_writer {
    struct jinja_run *r;
    struct buf out;
    bool content, ascii, sort;
    bool pretty; /* line ends and indents */
    struct str indent, between, colon;
};

static void write_text(struct json_writer *w, struct str s)
{
    buf_char(&w->out, '"');
    for (size_t i = 0; i < s.n;) {
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        uint32_t code;
        size_t n = unicode_next(s, i, &code);
        const char *hit = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
        if (hit)
            buf_printf(&w->out, "\\%c", letter[hit - plain]);
        else if (code < 0x20 || (w->ascii && code == 0x7F))
            buf_printf(&w->out, "\\u%04x", code);
        else if (code == UNICODE_INVALID)
            buf_utf8(&w->out, 0xFFFD);
        else if (w->ascii && code >= 0x10000)
            buf_printf(&w->out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                       0xDC00 + ((code - 0x10000) & 0x3FF));
        else if (w->ascii && code > 0x7F)
            buf_printf(&w->out, "\\u%04x", code);
        else
            buf_add(&w->out, s.p + i, n);
        i += n;
    }
    buf_char(&w->out, '"');
}

static void new_line(struct json_writer *w, int depth)
{
    if (!w->pretty) return;
    buf_char(&w->out, '\n');
    for (int i = 0; i < depth; i++)
        buf_str(&w->out, w->indent);
}

static void write_value(struct json_writer *w, struct jinja_value v, int depth);

static void write_key(struct json_writer *w, struct jinja_value key)
{
    if (key.kind == JINJA_STRING) {
        write_value(w, key, 1);
    } else if (key.kind == JINJA_NONE || jinja_is_number(key)) {
        buf_char(&w->out, '"');
        write_value(w, key, 1);
        buf_char(&w->out, '"');
    } else {
        jinja_fail(w->r, ERR_INVALID, "tojson: a key is a %s", jinja_kind_name(key));
    }
}

static int by_key(const void *a, const void *b)
{
    const struct jinja_pair *x = *(const struct jinja_pair *const *)a,
                            *y = *(const struct jinja_pair *const *)b;
    struct str s = {x->key.s->flat, x->key.s->n}, t = {y->key.s->flat, y->key.s->n};
    int c = memcmp(s.p, t.p, s.n < t.n ? s.n : t.n);
    return c ? c : (s.n > t.n) - (s.n < t.n);
}

/* The pairs in the order they are to be written. */
static const struct jinja_pair **ordered(struct json_writer *w, const struct jinja_dict *d)
{
    const struct jinja_pair **p = jinja_alloc(w->r, (d->n + 1) * sizeof *p);
    for (size_t i = 0; p && i < d->n; i++) {
        p[i] = &d->at[i];
        if (!w->sort) continue;
        if (d->at[i].key.kind == JINJA_STRING)
            jinja_flat(w->r, d->at[i].key.s);
        else
            jinja_fail(w->r, ERR_INVALID, "tojson: sort_keys needs string keys");
    }
    if (p && w->sort && !w->r->err && d->n) qsort(p, d->n, sizeof *p, by_key);
    return w->r->err ? NULL : p;
}

static void write_dict(struct json_writer *w, const struct jinja_dict *d, int depth)
{
    const struct jinja_pair **pairs = ordered(w, d);
    if (!pairs) return;
    buf_char(&w->out, '{');
    for (size_t i = 0; i < d->n && !w->r->err; i++) {
        if (i) buf_str(&w->out, w->between);
        new_line(w, depth + 1);
        write_key(w, pairs[i]->key);
        buf_str(&w->out, w->colon);
        write_value(w, pairs[i]->value, depth + 1);
    }
    if (d->n) new_line(w, depth);
    buf_char(&w->out, '}');
}

static void write_list(struct json_writer *w, const struct jinja_list *l, int depth)
{
    buf_char(&w->out, '[');
    for (size_t i = 0; i < l->n && !w->r->err; i++) {
        if (i) buf_str(&w->out, w->between);
        new_line(w, depth + 1);
        write_value(w, l->at[i], depth + 1);
    }
    if (l->n) new_line(w, depth);
    buf_char(&w->out, ']');
}

static void write_float(struct json_writer *w, double f)
{
    if (isnan(f))
        buf_z(&w->out, "NaN");
    else if (isinf(f))
        buf_z(&w->out, f < 0 ? "-Infinity" : "Infinity");
    else
        jinja_write_float(&w->out, f);
}

static void write_value(struct json_writer *w, struct jinja_value v, int depth)
{
    if (depth > JSON_DEPTH_MAX)
        jinja_fail(w->r, ERR_RANGE, "tojson: nested deeper than %d", JSON_DEPTH_MAX);
    if (buf_failed(&w->out))
        jinja_fail(w->r, ERR_TOO_LARGE, "tojson: longer than %d bytes", JSON_BYTES_MAX);
    if (!jinja_charge(w->r, 0)) return;
    switch (v.kind) {
    case JINJA_NONE:
        buf_z(&w->out, "null");
        break;
    case JINJA_BOOL:
        buf_z(&w->out, v.b ? "true" : "false");
        break;
    case JINJA_INT:
        buf_printf(&w->out, "%lld", (long long)v.i);
        break;
    case JINJA_FLOAT:
        write_float(w, v.f);
        break;
    case JINJA_STRING:
        w->content |= jinja_has_content(v.s);
        write_text(w, jinja_flat(w->r, v.s));
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        write_list(w, v.list, depth);
        break;
    case JINJA_DICT:
        write_dict(w, v.dict, depth);
        break;
    default:
        jinja_fail(w->r, ERR_INVALID, "tojson: a %s has no JSON form", jinja_kind_name(v));
        break;
    }
}

static void read_layout(struct json_writer *w, const struct jinja_args *args, char spaces[64])
{
    struct jinja_run *r = w->r;
    const struct jinja_value *indent = jinja_arg(args, 1, "indent"),
                             *separators = jinja_arg(args, 2, "separators");
    w->ascii = jinja_arg_truth(args, 0, "ensure_ascii", false);
    w->sort = jinja_arg_truth(args, 3, "sort_keys", false);
    w->pretty = indent && indent->kind != JINJA_NONE;
    w->between = w->pretty ? STR(",") : STR(", ");
    w->colon = STR(": ");
    if (w->pretty && indent->kind == JINJA_STRING) {
        w->indent = jinja_flat(r, indent->s);
    } else if (w->pretty) {
        int64_t n = jinja_arg_int(r, args, 1, "indent", 0);
        memset(spaces, ' ', 64);
        w->indent = (struct str){spaces, n < 0 ? 0 : n > 64 ? 64 : (size_t)n};
    }
    bool pair = separators && (separators->kind == JINJA_TUPLE || separators->kind == JINJA_LIST) &&
                separators->list->n == 2;
    if (pair) {
        w->between = jinja_flat(r, jinja_need_text(r, separators->list->at[0]));
        w->colon = jinja_flat(r, jinja_need_text(r, separators->list->at[1]));
    }
}

struct jinja_value jinja_to_json(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args)
{
    struct json_writer w = {.r = r};
    char spaces[64];
    /* A lone positional argument is Jinja's own indent, elsewhere it is ensure_ascii: an integer tells. */
    struct jinja_frame_var named[2];
    struct jinja_args as_indent = {NULL, 0, named, 1};
    if (args->n == 1 && args->n_named == 0 && args->at[0].kind == JINJA_INT) {
        named[0] = (struct jinja_frame_var){STR("indent"), args->at[0]};
        args = &as_indent;
    }
    read_layout(&w, args, spaces);
    buf_init(&w.out, JSON_BYTES_MAX);
    write_value(&w, v, 0);
    struct jinja_value s = jinja_text_copy(r, buf_view(&w.out), w.content);
    buf_fini(&w.out);
    return s;
}
