/* jinja_string.c - text as spans that remember where they came from, and values written as text the way Python does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/jinja_value.h"
#include "engine/text/unicode.h"

enum { WRITE_DEPTH_MAX = 100 };

struct jinja_value jinja_text(struct jinja_run *r, struct str s, bool content)
{
    struct jinja_string *t = jinja_alloc(r, sizeof *t);
    if (!t) return jinja_undefined(NULL);
    t->n = s.n;
    t->one = (struct jinja_span){s.p ? s.p : "", s.n, content};
    t->spans = &t->one;
    t->n_spans = s.n > 0;
    t->flat = t->one.p;
    return (struct jinja_value){.kind = JINJA_STRING, .s = t};
}

struct jinja_value jinja_text_copy(struct jinja_run *r, struct str s, bool content)
{
    char *p = jinja_alloc(r, s.n + 1);
    if (!p) return jinja_undefined(NULL);
    if (s.n) memcpy(p, s.p, s.n);
    return jinja_text(r, (struct str){p, s.n}, content);
}

struct jinja_value jinja_as_markup(struct jinja_run *r, struct jinja_value text, bool markup)
{
    if (r->err || text.s->markup == markup) return text;
    struct jinja_string *t = jinja_alloc(r, sizeof *t);
    if (!t) return text;
    *t = *text.s; /* its spans may stay inside the other: both live as long as the run */
    t->markup = markup;
    return (struct jinja_value){.kind = JINJA_STRING, .s = t};
}

struct str jinja_flat(struct jinja_run *r, const struct jinja_string *s)
{
    if (s->flat) return (struct str){s->flat, s->n};
    if (!jinja_charge(r, s->n / 16)) return (struct str){"", 0};
    char *p = jinja_alloc(r, s->n + 1);
    if (!p) return (struct str){"", 0};
    size_t at = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        memcpy(p + at, s->spans[i].p, s->spans[i].n);
        at += s->spans[i].n;
    }
    ((struct jinja_string *)s)->flat = p; /* a cache: the text itself does not change */
    return (struct str){p, s->n};
}

bool jinja_has_content(const struct jinja_string *s)
{
    for (size_t i = 0; i < s->n_spans; i++)
        if (s->spans[i].content) return true;
    return false;
}

void jinja_build(struct jinja_run *r, struct jinja_builder *b, struct jinja_span span)
{
    if (!span.n || !jinja_charge(r, 0)) return;
    struct jinja_span *last = b->n_spans ? &b->spans[b->n_spans - 1] : NULL;
    if (span.n > SIZE_MAX / 4 - b->n) jinja_fail(r, ERR_TOO_LARGE, "text is too long");
    b->n += span.n;
    if (last && last->content == span.content && last->p + last->n == span.p) {
        last->n += span.n;
        return;
    }
    if (b->n_spans == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 4;
        struct jinja_span *wider = jinja_alloc(r, cap * sizeof *wider);
        if (!wider) return;
        if (b->n_spans) memcpy(wider, b->spans, b->n_spans * sizeof *wider);
        b->spans = wider;
        b->cap = cap;
    }
    b->spans[b->n_spans++] = span;
}

void jinja_build_string(struct jinja_run *r, struct jinja_builder *b, const struct jinja_string *s)
{
    for (size_t i = 0; i < s->n_spans && !r->err; i++)
        jinja_build(r, b, s->spans[i]);
}

struct jinja_value jinja_built(struct jinja_run *r, struct jinja_builder *b)
{
    if (b->n_spans == 0) return jinja_text(r, STR(""), false);
    if (b->n_spans == 1)
        return jinja_text(r, (struct str){b->spans[0].p, b->spans[0].n}, b->spans[0].content);
    struct jinja_string *s = jinja_alloc(r, sizeof *s);
    if (!s) return jinja_undefined(NULL);
    s->n = b->n;
    s->spans = b->spans;
    s->n_spans = b->n_spans;
    return (struct jinja_value){.kind = JINJA_STRING, .s = s};
}

struct jinja_value jinja_part(struct jinja_run *r, const struct jinja_string *s, size_t from,
                              size_t n)
{
    struct jinja_builder b = {NULL, 0, 0, 0};
    size_t at = 0;
    jinja_charge(r, s->n_spans);
    for (size_t i = 0; i < s->n_spans && at < from + n; i++) {
        const struct jinja_span *p = &s->spans[i];
        size_t lo = from > at ? from - at : 0, hi = from + n - at < p->n ? from + n - at : p->n;
        if (lo < hi) jinja_build(r, &b, (struct jinja_span){p->p + lo, hi - lo, p->content});
        at += p->n;
    }
    return jinja_built(r, &b);
}

size_t jinja_chars(struct jinja_run *r, const struct jinja_string *s)
{
    struct str t = jinja_flat(r, s);
    size_t n = 0;
    if (!jinja_charge(r, t.n / 16)) return 0;
    for (size_t i = 0; i < t.n; i++)
        n += ((unsigned char)t.p[i] & 0xC0) != 0x80;
    return n;
}

void jinja_write_float(struct buf *out, double f)
{
    char s[40];
    if (isnan(f)) return buf_z(out, "nan");
    if (isinf(f)) return buf_z(out, f < 0 ? "-inf" : "inf");
    int precision = 0;
    do
        snprintf(s, sizeof s, "%.*e", precision, f);
    while (strtod(s, NULL) != f && precision++ < 17);
    int exponent = atoi(strchr(s, 'e') + 1);
    if (exponent < -4 ||
        exponent >= 16) { /* d.ddde-05: at least two digits of exponent, as C writes them too */
        buf_z(out, s);
        return;
    }
    int decimals = precision - exponent;
    buf_printf(out, "%.*f", decimals > 1 ? decimals : 1, f);
}

/* repr() of a string: the quotes it needs least escapes with. */
static void write_quoted(struct buf *out, struct str s)
{
    char quote = str_find_char(s, '\'') >= 0 && str_find_char(s, '"') < 0 ? '"' : '\'';
    buf_char(out, quote);
    for (size_t i = 0; i < s.n;) {
        uint32_t code;
        size_t n = unicode_next(s, i, &code);
        enum unicode_class class = unicode_class(code);
        if (code == (uint32_t)quote || code == '\\')
            buf_printf(out, "\\%c", (int)code);
        else if (code == '\n')
            buf_z(out, "\\n");
        else if (code == '\r')
            buf_z(out, "\\r");
        else if (code == '\t')
            buf_z(out, "\\t");
        else if (code < 0x20 || (code >= 0x7F && code < 0xA1) || code == 0xAD)
            buf_printf(out, "\\x%02x", code);
        else if (class <= UC_CO || class == UC_ZL || (class == UC_ZS && code != ' '))
            buf_printf(out, code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        else
            buf_add(out, s.p + i, n);
        i += n;
    }
    buf_char(out, quote);
}

struct writer {
    struct jinja_run *r;
    struct buf out;
    bool content; /* something from the request was written */
};

static void write_repr(struct writer *w, struct jinja_value v, int depth);

static void write_list(struct writer *w, struct jinja_value v, int depth)
{
    const struct jinja_list *l = v.list;
    bool tuple = v.kind == JINJA_TUPLE;
    buf_char(&w->out, tuple ? '(' : '[');
    for (size_t i = 0; i < l->n && !w->r->err; i++) {
        if (i) buf_z(&w->out, ", ");
        write_repr(w, l->at[i], depth + 1);
    }
    buf_z(&w->out, tuple ? l->n == 1 ? ",)" : ")" : "]");
}

static void write_dict(struct writer *w, const struct jinja_dict *d, int depth)
{
    buf_char(&w->out, '{');
    for (size_t i = 0; i < d->n && !w->r->err; i++) {
        if (i) buf_z(&w->out, ", ");
        write_repr(w, d->at[i].key, depth + 1);
        buf_z(&w->out, ": ");
        write_repr(w, d->at[i].value, depth + 1);
    }
    buf_char(&w->out, '}');
}

static void write_repr(struct writer *w, struct jinja_value v, int depth)
{
    if (depth > WRITE_DEPTH_MAX)
        jinja_fail(w->r, ERR_RANGE, "a value is nested too deeply to be written");
    if (buf_failed(&w->out)) jinja_fail(w->r, ERR_TOO_LARGE, "a value is too long to be written");
    if (!jinja_charge(w->r, 0)) return;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        buf_z(&w->out, depth ? "Undefined" : "");
        break;
    case JINJA_NONE:
        buf_z(&w->out, "None");
        break;
    case JINJA_BOOL:
        buf_z(&w->out, v.b ? "True" : "False");
        break;
    case JINJA_INT:
        buf_printf(&w->out, "%lld", (long long)v.i);
        break;
    case JINJA_FLOAT:
        jinja_write_float(&w->out, v.f);
        break;
    case JINJA_STRING:
        w->content |= jinja_has_content(v.s);
        write_quoted(&w->out, jinja_flat(w->r, v.s));
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        write_list(w, v, depth);
        break;
    case JINJA_DICT:
        write_dict(w, v.dict, depth);
        break;
    default:
        jinja_fail(w->r, ERR_INVALID, "a %s cannot be written as text", jinja_kind_name(v));
        break;
    }
}

struct jinja_value jinja_to_string(struct jinja_run *r, struct jinja_value v)
{
    if (v.kind == JINJA_STRING || r->err) return v;
    struct writer w = {.r = r};
    buf_init(&w.out, (size_t)16 << 20);
    write_repr(&w, v, 0);
    struct jinja_value s = jinja_text_copy(r, buf_view(&w.out), w.content);
    buf_fini(&w.out);
    return s;
}
