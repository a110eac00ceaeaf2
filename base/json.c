/* json.c - strictness around jansson, and our own writers.
 * Plain texts are built by json_read.c; what that declines goes to jansson, for what is rare and for the message. Depth is checked in
 * one pass over the bytes before jansson recurses into them. The writers are ours because jansson's prints
 * reals with 17 digits (0.7 would become 0.69999999999999996) and has no canonical numbers. Pure, allocation aside. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_scan.h"
#include "base/mem.h"

enum { DEPTH_DEFAULT = 64, DEPTH_LIMIT = 2000 /* below jansson's own 2048 */, KEYS_ON_STACK = 32 };

#define EXACT_MAX 9007199254740992.0 /* 2^53: below it every integer is a double of its own */

struct place {
    size_t line, column; /* from 1; column counts bytes */
};

static struct place place_of(struct str text, size_t at)
{
    struct place p = {1, 1};
    for (size_t i = 0; i < at && i < text.n; i++) {
        p.column++;
        if (text.p[i] == '\n') p = (struct place){p.line + 1, 1};
    }
    return p;
}

/* Index just after the string that starts at text.p[i] == '"'; text.n when it never ends. */
static size_t skip_string(struct str text, size_t i)
{
    for (i++; i < text.n; i++) {
        if (text.p[i] == '"') return i + 1;
        if (text.p[i] == '\\') i++;
    }
    return text.n;
}

/* True and *at = the bracket that goes one level too deep. */
static bool too_deep(struct str text, int depth_max, size_t *at)
{
    int depth = 0;
    for (size_t i = 0; i < text.n;) {
        char c = text.p[i];
        if (c == '"') {
            i = skip_string(text, i);
            continue;
        }
        if ((c == '{' || c == '[') && ++depth > depth_max) return *at = i, true;
        if (c == '}' || c == ']') depth--;
        i++;
    }
    return false;
}

static enum err refuse(struct str text, const json_error_t *je, size_t *at, struct errmsg *e)
{
    size_t pos = je->position < 0 ? 0 : (size_t)je->position;
    if (pos > text.n) pos = text.n;
    if (at) *at = pos;
    struct place p = place_of(text, pos);
    const char *kind = json_error_code(je) == json_error_invalid_utf8    ? "invalid UTF-8, "
                       : json_error_code(je) == json_error_duplicate_key ? "a key given twice, "
                                                                         : "";
    return err_set(e, ERR_INVALID, "not valid JSON: line %zu, column %zu: %s%s", p.line, p.column,
                   kind, je->text);
}

/* jansson takes a NUL byte after the value for the end of the text; no JSON text holds one. */
static enum err refuse_nul(struct str text, size_t nul, size_t *at, struct errmsg *e)
{
    if (at) *at = nul;
    struct place p = place_of(text, nul);
    return err_set(e, ERR_INVALID, "not valid JSON: line %zu, column %zu: a control character, NUL",
                   p.line, p.column);
}

enum err json_parse_at(struct str text, int depth_max, json_t **out, size_t *at, struct errmsg *e)
{
    *out = NULL;
    if (at) *at = 0;
    if (depth_max <= 0) depth_max = DEPTH_DEFAULT;
    if (depth_max > DEPTH_LIMIT) depth_max = DEPTH_LIMIT;
    if (!str_trim(text).n) return err_set(e, ERR_INVALID, "not valid JSON: the text is empty");
    if ((*out = json_read(text, depth_max))) return OK;
    size_t deep;
    if (too_deep(text, depth_max, &deep)) {
        if (at) *at = deep;
        struct place p = place_of(text, deep);
        return err_set(e, ERR_TOO_LARGE, "line %zu, column %zu: nested deeper than %d levels",
                       p.line, p.column, depth_max);
    }
    ptrdiff_t nul = str_find_char(text, 0);
    if (nul >= 0) return refuse_nul(text, (size_t)nul, at, e);
    json_error_t je;
    *out =
        json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    return *out ? OK : refuse(text, &je, at, e);
}

enum err json_parse(struct str text, int depth_max, json_t **out, struct errmsg *e)
{
    return json_parse_at(text, depth_max, out, NULL, e);
}

/* The integer it was before all numbers were read as reals; NULL: it was none, or may have been another. */
static json_t *integer_of(const json_t *v)
{
    double r = json_is_real(v) ? json_real_value(v) : 0.5;
    return r == floor(r) && fabs(r) < EXACT_MAX ? json_integer((json_int_t)r) : NULL;
}

static void restore_integers(json_t *v)
{
    const char *name;
    json_t *item, *whole;
    size_t i;
    json_object_foreach(v, name, item)
    {
        if ((whole = integer_of(item)))
            json_object_iter_set_new(v, json_object_key_to_iter(name), whole);
        else
            restore_integers(item);
    }
    json_array_foreach(v, i, item)
    {
        if ((whole = integer_of(item)))
            json_array_set_new(v, i, whole);
        else
            restore_integers(item);
    }
}

json_t *json_parse_loosely(struct str text)
{
    json_t *doc = json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (doc) return doc;
    doc = json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL,
                     NULL);
    restore_integers(doc);
    return doc;
}

/* Copies the escape at text.p[i] and returns its length. */
static size_t repair_escape(struct buf *out, struct str text, size_t i, bool *changed)
{
    const char *p = text.p + i, *end = text.p + text.n;
    long v = json_scan_code_unit(p, end), next = v >= 0 ? json_scan_code_unit(p + 6, end) : -1;
    bool high = v >= 0xD800 && v <= 0xDBFF, low = v >= 0xDC00 && v <= 0xDFFF;
    if (high && next >= 0xDC00 && next <= 0xDFFF) {
        buf_add(out, p, 12);
        return 12;
    }
    if (high || low) {
        buf_z(out, "\\ufffd");
        *changed = true;
        return 6;
    }
    struct str two =
        str_sub(text, i, 2); /* also keeps \\\\ together, so that what follows is no escape */
    bool ascii = two.n == 2 && (unsigned char)two.p[1] < 0x80;
    buf_add(out, two.p, ascii ? 2 : 1);
    return ascii ? 2 : 1;
}

bool json_repair(struct buf *out, struct str text)
{
    bool changed = false;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        if (text.p[i] == '\\') {
            i += repair_escape(out, text, i, &changed);
            continue;
        }
        size_t n = utf8_decode(str_sub(text, i, text.n), &cp);
        if (n)
            buf_add(out, text.p + i, n);
        else
            buf_utf8(out, 0xFFFD);
        changed |= !n;
        i += n ? n : 1;
    }
    return changed;
}

struct str json_key_at(struct str text, size_t at)
{
    struct str key = {NULL, 0}, last = {NULL, 0};
    int depth = 0;
    for (size_t i = 0; i < text.n && i < at;) {
        char c = text.p[i];
        if (c == '"') {
            size_t end = skip_string(text, i);
            if (depth == 1 && end > i + 1) last = str_sub(text, i + 1, end - i - 2);
            if (depth == 1 && end == at && !key.n) return last; /* the key itself is at fault */
            i = end;
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (depth == 1 && c == ':') key = last;
        if (depth == 1 && c == ',') key = (struct str){NULL, 0};
        i++;
    }
    return key;
}

const char *json_kind(const json_t *v)
{
    if (!v) return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

static void write_escape(struct buf *out, unsigned char c)
{
    static const char shorts[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    for (const char *s = shorts; *s; s += 2) {
        if ((unsigned char)*s != c) continue;
        buf_add(out, (char[]){'\\', s[1]}, 2);
        return;
    }
    buf_printf(out, "\\u%04x", c);
}

void json_write_string(struct buf *out, struct str s)
{
    buf_char(out, '"');
    size_t from = 0, i = 0;
    while (i < s.n) {
        i += json_scan_plain(str_sub(s, i, s.n));
        if (i == s.n) break;
        unsigned char c = (unsigned char)s.p[i];
        uint32_t cp;
        size_t n = c < 0x80 ? 0 : utf8_decode(str_sub(s, i, s.n), &cp);
        if (n) {
            i += n;
            continue;
        }
        buf_add(out, s.p + from, i - from);
        if (c < 0x80)
            write_escape(out, c);
        else
            buf_utf8(out, 0xFFFD);
        from = ++i;
    }
    if (s.n > from) buf_add(out, s.p + from, s.n - from);
    buf_char(out, '"');
}

static void write_integer(struct buf *out, int64_t v)
{
    if (v < 0) buf_char(out, '-');
    buf_u64(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* What %.15g would print, for most numbers people write: a few decimals. n and the power of ten are exact, so their quotient is just what
 * reading the digits gives. False: not such a number. */
static bool write_decimal(struct buf *out, double v)
{
    static const double powers[] = {10, 100, 1000, 10000};
    double size = fabs(v);
    if (!(size >= 0.0001 && size < 1e9)) return false;
    for (int k = 0; k < 4; k++) {
        double n = nearbyint(size * powers[k]);
        if (n / powers[k] != size) continue;
        uint64_t digits = (uint64_t)n, unit = (uint64_t)powers[k];
        if (v < 0) buf_char(out, '-');
        buf_u64(out, digits / unit);
        buf_char(out, '.');
        for (digits %= unit; unit > 1; digits %= unit)
            unit /= 10, buf_char(out, (char)('0' + digits / unit));
        return true;
    }
    return false;
}

/* The shortest digits that read back as the same double. */
static void write_real(struct buf *out, double v, bool canonical)
{
    char text[40];
    if (canonical && v == floor(v) && fabs(v) < 0x1p63) {
        write_integer(out, (int64_t)v);
        return;
    }
    if (write_decimal(out, v)) return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    buf_z(out, text);
    if (!strpbrk(text, ".e")) buf_z(out, ".0");
}

static void write_value(struct buf *out, const json_t *v, bool canonical, int depth);

static void write_member(struct buf *out, struct str key, const json_t *v, bool canonical,
                         int depth)
{
    json_write_string(out, key);
    buf_char(out, ':');
    write_value(out, v, canonical, depth);
}

struct member {
    struct str key;
    const json_t *value;
};

static int by_key(const void *a, const void *b)
{
    struct str x = ((const struct member *)a)->key, y = ((const struct member *)b)->key;
    int order = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

static void write_sorted(struct buf *out, json_t *o, int depth)
{
    struct member few[KEYS_ON_STACK], *all = few;
    size_t n = json_object_size(o), i = 0;
    if (n > KEYS_ON_STACK) all = try_calloc(n, sizeof *all);
    if (!all) {
        out->failed = true;
        return;
    }
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        all[i++] = (struct member){{json_object_iter_key(it), json_object_iter_key_len(it)},
                                   json_object_iter_value(it)};
    qsort(all, n, sizeof *all, by_key);
    for (i = 0; i < n; i++) {
        if (i) buf_char(out, ',');
        write_member(out, all[i].key, all[i].value, true, depth);
    }
    if (all != few) mem_free(all);
}

static void write_object(struct buf *out, const json_t *v, bool canonical, int depth)
{
    json_t *o = (json_t *)(uintptr_t)v; /* jansson's iterators take no const */
    buf_char(out, '{');
    if (canonical) {
        write_sorted(out, o, depth);
    } else {
        bool first = true;
        for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
            if (!first) buf_char(out, ',');
            first = false;
            write_member(out, (struct str){json_object_iter_key(it), json_object_iter_key_len(it)},
                         json_object_iter_value(it), false, depth);
        }
    }
    buf_char(out, '}');
}

static void write_array(struct buf *out, const json_t *v, bool canonical, int depth)
{
    buf_char(out, '[');
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i) buf_char(out, ',');
        write_value(out, json_array_get(v, i), canonical, depth);
    }
    buf_char(out, ']');
}

static void write_value(struct buf *out, const json_t *v, bool canonical, int depth)
{
    if (depth > DEPTH_LIMIT + 48 || !v) {
        out->failed = true;
        return;
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        write_object(out, v, canonical, depth + 1);
        break;
    case JSON_ARRAY:
        write_array(out, v, canonical, depth + 1);
        break;
    case JSON_STRING:
        json_write_string(out, json_str(v));
        break;
    case JSON_INTEGER:
        write_integer(out, json_integer_value(v));
        break;
    case JSON_REAL:
        write_real(out, json_real_value(v), canonical);
        break;
    case JSON_TRUE:
        buf_z(out, "true");
        break;
    case JSON_FALSE:
        buf_z(out, "false");
        break;
    case JSON_NULL:
        buf_z(out, "null");
        break;
    }
}

void json_write(struct buf *out, const json_t *v)
{
    write_value(out, v, false, 0);
}
void json_write_canonical(struct buf *out, const json_t *v)
{
    write_value(out, v, true, 0);
}

struct str json_str(const json_t *v)
{
    if (!json_is_string(v)) return (struct str){NULL, 0};
    return (struct str){json_string_value(v), json_string_length(v)};
}

const json_t *json_given(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

struct str json_member_str(const json_t *object, const char *key)
{
    return json_str(json_object_get(object, key));
}
