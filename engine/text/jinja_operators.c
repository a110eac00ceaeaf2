/* jinja_operators.c - arithmetic, comparison, slices and %-formatting, with Python's rules. Integers are 64 bits: what does
 * not fit is an error. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja_eval.h"

static int64_t whole(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? v.b : v.i;
}

static struct jinja_value mismatch(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        jinja_fail_undefined(r, a.kind == JINJA_UNDEFINED ? a : b);
    else
        jinja_fail(r, ERR_INVALID, "unsupported operand types: %s and %s", jinja_kind_name(a),
                   jinja_kind_name(b));
    return jinja_undefined(NULL);
}

static struct jinja_value power_of_ints(struct jinja_run *r, int64_t base, int64_t n)
{
    int64_t v = 1;
    if (base == 0 || base == 1) return jinja_int(n ? base : 1);
    if (base == -1) return jinja_int(n % 2 ? -1 : 1);
    for (; n > 0 && !r->err; n--) /* overflows after 63 rounds at most */
        if (__builtin_mul_overflow(v, base, &v))
            jinja_fail(r, ERR_RANGE, "an integer is too large");
    return jinja_int(v);
}

static struct jinja_value int_arithmetic(struct jinja_run *r, enum jinja_op op, int64_t a,
                                         int64_t b)
{
    int64_t v = 0;
    bool over = false;
    if ((op == JINJA_FLOORDIV || op == JINJA_MOD) && (b == 0 || (a == INT64_MIN && b == -1))) {
        jinja_fail(r, ERR_INVALID, b ? "an integer is too large" : "division by zero");
        return jinja_int(0);
    }
    switch (op) {
    case JINJA_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case JINJA_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case JINJA_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case JINJA_FLOORDIV:
        v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case JINJA_MOD:
        v = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
        break;
    default:
        return power_of_ints(r, a, b);
    }
    if (over) jinja_fail(r, ERR_RANGE, "an integer is too large");
    return jinja_int(v);
}

static struct jinja_value float_arithmetic(struct jinja_run *r, enum jinja_op op, double a,
                                           double b)
{
    if ((op == JINJA_DIV || op == JINJA_FLOORDIV || op == JINJA_MOD) && b == 0) {
        jinja_fail(r, ERR_INVALID, "division by zero");
        return jinja_float(0);
    }
    switch (op) {
    case JINJA_ADD:
        return jinja_float(a + b);
    case JINJA_SUB:
        return jinja_float(a - b);
    case JINJA_MUL:
        return jinja_float(a * b);
    case JINJA_DIV:
        return jinja_float(a / b);
    case JINJA_FLOORDIV:
        return jinja_float(floor(a / b));
    case JINJA_MOD:
        return jinja_float(a - floor(a / b) * b);
    default:
        return jinja_float(pow(a, b));
    }
}

static struct jinja_value repeat(struct jinja_run *r, struct jinja_value v, int64_t times)
{
    if (v.kind == JINJA_STRING) {
        struct jinja_builder b = {NULL, 0, 0, 0};
        for (int64_t i = 0; i < times && v.s->n && !r->err; i++)
            jinja_build_string(r, &b, v.s);
        return jinja_as_markup(r, jinja_built(r, &b), v.s->markup);
    }
    struct jinja_value out = jinja_list_new(r, v.kind);
    for (int64_t i = 0; i < times && v.list->n && !r->err; i++)
        for (size_t k = 0; k < v.list->n && jinja_charge(r, 0); k++)
            jinja_list_add(r, out, v.list->at[k]);
    return out;
}

static struct jinja_value concat_lists(struct jinja_run *r, struct jinja_value a,
                                       struct jinja_value b)
{
    struct jinja_value out = jinja_list_new(r, a.kind);
    for (size_t k = 0; k < a.list->n && jinja_charge(r, 0); k++)
        jinja_list_add(r, out, a.list->at[k]);
    for (size_t k = 0; k < b.list->n && jinja_charge(r, 0); k++)
        jinja_list_add(r, out, b.list->at[k]);
    return out;
}

static struct jinja_value concat_text(struct jinja_run *r, struct jinja_value a,
                                      struct jinja_value b)
{
    struct jinja_builder out = {NULL, 0, 0, 0};
    a = jinja_to_string(r, a);
    b = jinja_to_string(r, b);
    if (r->err) return a;
    jinja_build_string(r, &out, a.s);
    jinja_build_string(r, &out, b.s);
    return jinja_built(r, &out);
}

/* a + b: with markup on one side, the other is escaped (a ~ b is not so). */
static struct jinja_value add_text(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    bool markup = a.s->markup || b.s->markup;
    if (markup && !a.s->markup) a = jinja_escape(r, a);
    if (markup && !b.s->markup) b = jinja_escape(r, b);
    return jinja_as_markup(r, concat_text(r, a, b), markup);
}

static bool is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

struct jinja_value jinja_arithmetic(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                                    struct jinja_value b)
{
    if (r->err) return a;
    if (op == JINJA_CONCAT) return concat_text(r, a, b);
    if (jinja_is_number(a) && jinja_is_number(b)) {
        bool floats = a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT || op == JINJA_DIV ||
                      (op == JINJA_POW && whole(b) < 0);
        return floats ? float_arithmetic(r, op, jinja_to_double(a), jinja_to_double(b))
                      : int_arithmetic(r, op, whole(a), whole(b));
    }
    if (op == JINJA_ADD && a.kind == b.kind) {
        if (a.kind == JINJA_STRING) return add_text(r, a, b);
        if (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE) return concat_lists(r, a, b);
    }
    if (op == JINJA_MOD && a.kind == JINJA_STRING) return jinja_percent_format(r, a, b);
    bool counts_b = b.kind == JINJA_INT || b.kind == JINJA_BOOL,
         counts_a = a.kind == JINJA_INT || a.kind == JINJA_BOOL;
    if (op == JINJA_MUL && is_sequence(a) && counts_b) return repeat(r, a, whole(b));
    if (op == JINJA_MUL && is_sequence(b) && counts_a) return repeat(r, b, whole(a));
    return mismatch(r, a, b);
}

bool jinja_compare(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                   struct jinja_value b)
{
    switch (op) {
    case JINJA_EQ:
        return jinja_equal(r, a, b);
    case JINJA_NE:
        return !jinja_equal(r, a, b);
    case JINJA_IN:
        return jinja_contains(r, b, a);
    case JINJA_NOT_IN:
        return !jinja_contains(r, b, a);
    default:
        break;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        mismatch(r, a, b);
        return false;
    }
    int c = jinja_order(r, a, b);
    return op == JINJA_LT ? c < 0 : op == JINJA_LE ? c <= 0 : op == JINJA_GT ? c > 0 : c >= 0;
}

/* Start, stop, step clamped to n elements, as Python's slice.indices(); *count = elements taken. */
static bool slice_indices(struct jinja_run *r, const struct jinja_value part[3], int64_t n,
                          int64_t idx[3], int64_t *count)
{
    for (int i = 0; i < 3; i++) {
        if (part[i].kind == JINJA_NONE || part[i].kind == JINJA_INT || part[i].kind == JINJA_BOOL)
            continue;
        jinja_fail(r, ERR_INVALID, "a slice needs integers, not a %s", jinja_kind_name(part[i]));
        return false;
    }
    int64_t step = part[2].kind == JINJA_NONE ? 1 : whole(part[2]);
    if (step == 0) {
        jinja_fail(r, ERR_INVALID, "a slice step is zero");
        return false;
    }
    if (step < -n - 1) step = -n - 1;
    if (step > n + 1) step = n + 1;
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        int64_t v = (i == 0) == (step > 0) ? lo : hi;
        if (part[i].kind != JINJA_NONE) {
            v = whole(part[i]);
            if (v < 0) v = v < -n ? lo : v + n < lo ? lo : v + n;
            if (v > hi) v = hi;
        }
        idx[i] = v;
    }
    idx[2] = step;
    int64_t span = step > 0 ? idx[1] - idx[0] : idx[0] - idx[1], size = step > 0 ? step : -step;
    *count = span > 0 ? (span + size - 1) / size : 0;
    return true;
}

static struct jinja_value slice_text(struct jinja_run *r, struct jinja_value v,
                                     const struct jinja_value part[3])
{
    struct str s = jinja_flat(r, v.s);
    size_t n = jinja_chars(r, v.s);
    int64_t idx[3], count;
    if (r->err || !slice_indices(r, part, (int64_t)n, idx, &count)) return v;
    if (count == 0) return jinja_text(r, STR(""), false);
    if (n == s.n && idx[2] == 1) return jinja_part(r, v.s, (size_t)idx[0], (size_t)count);
    uint32_t *at = jinja_alloc(r, (n + 2) * sizeof *at); /* byte offset of each character */
    if (!at) return v;
    size_t k = 0;
    for (size_t i = 0; i < s.n; i++)
        if (((unsigned char)s.p[i] & 0xC0) != 0x80) at[k++] = (uint32_t)i;
    at[k] = (uint32_t)s.n;
    if (k == 0) return jinja_text(r, STR(""), false); /* continuation bytes only */
    if (idx[2] == 1) return jinja_part(r, v.s, at[idx[0]], at[idx[0] + count] - at[idx[0]]);
    struct jinja_builder b = {NULL, 0, 0, 0};
    for (int64_t c = 0, i = idx[0]; c < count && !r->err; c++, i += idx[2]) {
        struct jinja_value one = jinja_part(r, v.s, at[i], at[i + 1] - at[i]);
        if (!r->err) jinja_build_string(r, &b, one.s);
    }
    return jinja_built(r, &b);
}

struct jinja_value jinja_slice(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_value part[3])
{
    if (r->err) return v;
    if (v.kind == JINJA_STRING) return jinja_as_markup(r, slice_text(r, v, part), v.s->markup);
    if (v.kind != JINJA_LIST && v.kind != JINJA_TUPLE) {
        static const struct str name = {"a slice", 7};
        return jinja_undefined(&name);
    }
    int64_t idx[3], count;
    if (!slice_indices(r, part, (int64_t)v.list->n, idx, &count)) return v;
    struct jinja_value out = jinja_list_new(r, v.kind);
    for (int64_t c = 0, i = idx[0]; c < count && jinja_charge(r, 0); c++, i += idx[2])
        jinja_list_add(r, out, v.list->at[i]);
    return out;
}

/* %-5s, %.3s: spaces to a width in characters, cut to a precision. */
static void format_text(struct jinja_run *r, struct jinja_builder *out, const char *spec,
                        struct jinja_value v)
{
    static const char spaces[] = "                                ";
    bool left = false;
    size_t width = 0, at = 1;
    for (; spec[at] && strchr("-+ #0", spec[at]); at++)
        left |= spec[at] == '-';
    for (; spec[at] >= '0' && spec[at] <= '9'; at++)
        width = width * 10 + (size_t)(spec[at] - '0');
    v = jinja_to_string(r, v);
    if (spec[at] == '.' && !r->err) {
        int64_t most = 0;
        for (at++; spec[at] >= '0' && spec[at] <= '9'; at++)
            most = most * 10 + (spec[at] - '0');
        struct jinja_value part[3] = {jinja_none(), jinja_int(most), jinja_none()};
        v = jinja_slice(r, v, part);
    }
    size_t n = r->err ? 0 : jinja_chars(r, v.s);
    if (left && !r->err) jinja_build_string(r, out, v.s);
    for (size_t pad = width > n ? width - n : 0; pad && !r->err;) {
        size_t piece = pad < sizeof spaces - 1 ? pad : sizeof spaces - 1;
        jinja_build(r, out, (struct jinja_span){spaces, piece, false});
        pad -= piece;
    }
    if (!left && !r->err) jinja_build_string(r, out, v.s);
}

/* One conversion: flags, width and precision were copied to spec[0..n); type is its letter. */
static void format_one(struct jinja_run *r, struct jinja_builder *out, char *spec, size_t n,
                       char type, struct jinja_value v)
{
    char text[1400]; /* 309 digits before the point, up to 999 behind it */
    if (type == 's') {
        spec[n] = 0;
        format_text(r, out, spec, v);
        return;
    }
    if (!jinja_is_number(v)) {
        jinja_fail(r, ERR_INVALID, "%%%c needs a number, not a %s", type, jinja_kind_name(v));
        return;
    }
    if (strchr("dixX", type)) {
        memcpy(spec + n, "ll", 2);
        spec[n + 2] = type;
        spec[n + 3] = 0;
        double f = jinja_to_double(v);
        if (!(fabs(f) <= 9e18)) /* NaN too */
            jinja_fail(r, ERR_RANGE, "an integer is too large");
        else
            snprintf(text, sizeof text, spec,
                     v.kind == JINJA_FLOAT ? (long long)f : (long long)whole(v));
    } else {
        spec[n] = type;
        spec[n + 1] = 0;
        snprintf(text, sizeof text, spec, jinja_to_double(v));
    }
    if (r->err) return;
    struct jinja_value s = jinja_text_copy(r, str_of(text), false);
    if (!r->err) jinja_build_string(r, out, s.s);
}

struct jinja_value jinja_percent_format(struct jinja_run *r, struct jinja_value format,
                                        struct jinja_value values)
{
    struct str f = jinja_flat(r, format.s);
    struct jinja_builder out = {NULL, 0, 0, 0};
    size_t used = 0;
    for (size_t i = 0; i < f.n && !r->err;) {
        size_t from = i;
        while (i < f.n && f.p[i] != '%')
            i++;
        struct jinja_value plain = jinja_part(r, format.s, from, i - from);
        if (!r->err) jinja_build_string(r, &out, plain.s);
        if (i >= f.n) break;
        char spec[24];
        size_t n = 0;
        int digits = 0;
        spec[n++] = f.p[i++];
        for (; i < f.n && n < 12 && strchr("-+ #0123456789.", f.p[i]); i++) {
            digits += f.p[i] >= '0' && f.p[i] <= '9';
            spec[n++] = f.p[i];
        }
        char type = i < f.n ? f.p[i++] : 0;
        if (type == '%') {
            struct jinja_value percent = jinja_text(r, STR("%"), false);
            if (!r->err) jinja_build_string(r, &out, percent.s);
            continue;
        }
        if (!type || !strchr("sdixXfFgGeE", type) || digits > 3) {
            jinja_fail(r, ERR_UNSUPPORTED, "a %% format is not supported");
            break;
        }
        bool tuple = values.kind == JINJA_TUPLE;
        if (tuple ? used >= values.list->n : used > 0)
            jinja_fail(r, ERR_INVALID, "not enough values for the %% format");
        else
            format_one(r, &out, spec, n, type, tuple ? values.list->at[used] : values);
        used++;
    }
    bool maybe_mapping = /* those may be left over, says Python */
        values.kind == JINJA_DICT || values.kind == JINJA_LIST || values.kind == JINJA_UNDEFINED;
    if (values.kind == JINJA_TUPLE ? used < values.list->n : !used && !maybe_mapping)
        jinja_fail(r, ERR_INVALID, "more values than the %% format has places for");
    return jinja_built(r, &out);
}
