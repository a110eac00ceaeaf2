/* jinja_text_ops.c - operations on text that filters and methods share. Each keeps where its pieces came from. */
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

static const struct jinja_string empty = {.spans = NULL, .flat = ""};

const struct jinja_string *jinja_need_text(struct jinja_run *r, struct jinja_value v)
{
    if (v.kind == JINJA_STRING && !r->err) return v.s;
    if (v.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(r, v);
    else
        jinja_fail(r, ERR_INVALID, "expected a string, not a %s", jinja_kind_name(v));
    return &empty;
}

/* Python's str.isspace, as used by strip(): White_Space and the four separators among the control characters. */
static bool is_python_space(uint32_t c)
{
    return unicode_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

static bool in_set(struct str chars, struct str one)
{
    for (size_t i = 0; i < chars.n;) {
        uint32_t code;
        size_t n = unicode_next(chars, i, &code);
        if (n == one.n && !memcmp(chars.p + i, one.p, n)) return true;
        i += n;
    }
    return false;
}

static bool strips(const struct str *chars, struct str s, size_t at, size_t n, uint32_t code)
{
    return chars ? in_set(*chars, str_sub(s, at, n)) : is_python_space(code);
}

struct jinja_value jinja_trim(struct jinja_run *r, const struct jinja_string *s,
                              const struct str *chars, bool left, bool right)
{
    struct str t = jinja_flat(r, s);
    size_t from = 0, to = t.n;
    uint32_t code;
    while (left && from < to && jinja_charge(r, chars ? chars->n : 0)) {
        size_t n = unicode_next(t, from, &code);
        if (!strips(chars, t, from, n, code)) break;
        from += n;
    }
    while (right && to > from && jinja_charge(r, chars ? chars->n : 0)) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)t.p[start] & 0xC0) == 0x80)
            start--;
        size_t n = unicode_next(str_sub(t, 0, to), start, &code);
        if (start + n != to || !strips(chars, t, start, n, code)) break;
        to = start;
    }
    return jinja_as_markup(r, jinja_part(r, s, from, to - from), s->markup);
}

struct jinja_value jinja_replace(struct jinja_run *r, const struct jinja_string *s,
                                 const struct jinja_string *old, const struct jinja_string *new,
                                 int64_t most)
{
    struct str t = jinja_flat(r, s), needle = jinja_flat(r, old);
    struct jinja_builder b = {NULL, 0, 0, 0};
    size_t at = 0;
    if (!jinja_charge(r, t.n)) return jinja_undefined(NULL);
    for (int64_t count = 0; (most < 0 || count < most) && !r->err; count++) {
        ptrdiff_t hit = str_find(str_sub(t, at, t.n), needle);
        if (hit < 0 || (needle.n == 0 && at > t.n)) break;
        size_t step = (size_t)hit;
        uint32_t code;
        if (needle.n == 0 && count) { /* between all characters */
            if (at == t.n) break;
            step = unicode_next(t, at, &code);
        }
        struct jinja_value part = jinja_part(r, s, at, step);
        if (r->err) break;
        jinja_build_string(r, &b, part.s);
        jinja_build_string(r, &b, new);
        at += step + needle.n;
    }
    struct jinja_value rest = jinja_part(r, s, at, t.n - at);
    if (!r->err) jinja_build_string(r, &b, rest.s);
    return jinja_built(r, &b);
}

struct jinja_value jinja_join(struct jinja_run *r, const struct jinja_string *between,
                              struct jinja_value list)
{
    struct jinja_builder b = {NULL, 0, 0, 0};
    for (size_t i = 0; !r->err && i < list.list->n && jinja_charge(r, 0); i++) {
        if (i) jinja_build_string(r, &b, between);
        struct jinja_value one = jinja_to_string(r, list.list->at[i]);
        if (!r->err) jinja_build_string(r, &b, one.s);
    }
    return jinja_built(r, &b);
}

struct jinja_value jinja_split_lines(struct jinja_run *r, const struct jinja_string *s)
{
    struct str t = jinja_flat(r, s);
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    size_t from = 0;
    for (size_t i = 0; i < t.n && !r->err;) {
        uint32_t c;
        size_t n = unicode_next(t, i, &c);
        bool end = (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
                   c == 0x2029;
        if (end) {
            jinja_list_add(r, out, jinja_part(r, s, from, i - from));
            if (c == '\r' && i + 1 < t.n && t.p[i + 1] == '\n') n = 2;
            from = i + n;
        }
        i += n;
    }
    if (from < t.n) jinja_list_add(r, out, jinja_part(r, s, from, t.n - from));
    return out;
}

struct jinja_value jinja_pad(struct jinja_run *r, const struct jinja_string *s, int64_t width,
                             struct str fill, enum jinja_side side)
{
    struct jinja_builder b = {NULL, 0, 0, 0};
    uint32_t code;
    int64_t n = (int64_t)jinja_chars(r, s), pad = width > n ? width - n : 0;
    if (!r->err && (!fill.n || unicode_next(fill, 0, &code) != fill.n))
        jinja_fail(r, ERR_INVALID, "text is filled up with one character");
    int64_t before = side == JINJA_LEFT    ? 0
                     : side == JINJA_RIGHT ? pad
                                           : pad / 2 + (pad & width & 1);
    for (int64_t i = 0; i <= pad && !r->err; i++) { /* each round is paid for */
        if (i == before) jinja_build_string(r, &b, s);
        if (i < pad) jinja_build(r, &b, (struct jinja_span){fill.p, fill.n, false});
    }
    return jinja_as_markup(r, jinja_built(r, &b), s->markup);
}

struct jinja_value jinja_escape(struct jinja_run *r, struct jinja_value v)
{
    static const struct {
        const char *plain, *escaped;
    } pairs[] = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    v = jinja_to_string(r, v);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0] && !r->err; i++) {
        struct jinja_value old = jinja_text(r, str_of(pairs[i].plain), false),
                           new = jinja_text(r, str_of(pairs[i].escaped), false);
        if (!r->err) v = jinja_replace(r, v.s, old.s, new.s, -1);
    }
    return jinja_as_markup(r, v, true);
}

/* One character in the wanted case; German sharp s and the dotted I grow. */
static void put_case(struct buf *out, uint32_t code, bool upper)
{
    if (upper && code == 0xDF)
        buf_z(out, "SS");
    else if (!upper && code == 0x130)
        buf_z(out, "i\xcc\x87");
    else
        buf_utf8(out, upper ? unicode_upper(code) : unicode_lower(code));
}

/* Does a word of title() start after this character? As in Jinja's title filter. */
static bool opens_word(uint32_t code)
{
    return is_python_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
           code == '<';
}

static bool has_case(uint32_t code)
{
    enum unicode_class c = unicode_class(code);
    return c == UC_LU || c == UC_LL || c == UC_LT;
}

struct jinja_value jinja_change_case(struct jinja_run *r, const struct jinja_string *s,
                                     enum jinja_case how)
{
    struct jinja_builder b = {NULL, 0, 0, 0};
    bool start = true; /* of the text, or of a word */
    for (size_t i = 0; i < s->n_spans && !r->err; i++) {
        struct str t = {s->spans[i].p, s->spans[i].n};
        struct buf out;
        buf_init(&out, t.n * 3 + 16);
        jinja_charge(r, t.n);
        for (size_t k = 0; k < t.n && !r->err;) {
            uint32_t code;
            size_t n = unicode_next(t, k, &code);
            bool upper = how == JINJA_UPPER || (start && how != JINJA_LOWER);
            if (code == UNICODE_INVALID)
                buf_add(&out, t.p + k, n);
            else
                put_case(&out, code, upper);
            start = how == JINJA_TITLE           ? opens_word(code)
                    : how == JINJA_TITLE_LETTERS ? !has_case(code)
                                                 : false;
            k += n;
        }
        struct jinja_value piece = jinja_text_copy(r, buf_view(&out), s->spans[i].content);
        if (!r->err) jinja_build_string(r, &b, piece.s);
        buf_fini(&out);
    }
    return jinja_as_markup(r, jinja_built(r, &b), s->markup && how != JINJA_TITLE);
}
