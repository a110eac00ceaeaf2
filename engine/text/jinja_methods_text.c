/* jinja_methods_text.c - methods of strings, as Python has them. */
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

#define METHOD(name)                                                                               \
    static struct jinja_value name(struct jinja_run *r, struct jinja_value self,                   \
                                   const struct jinja_args *args)

static struct jinja_value strip(struct jinja_run *r, struct jinja_value self,
                                const struct jinja_args *args, bool left, bool right)
{
    struct str chars = jinja_arg_text(r, args, 0, "chars", (struct str){NULL, 0});
    return r->err ? self : jinja_trim(r, self.s, chars.p ? &chars : NULL, left, right);
}
METHOD(text_strip)
{
    return strip(r, self, args, true, true);
}
METHOD(text_lstrip)
{
    return strip(r, self, args, true, false);
}
METHOD(text_rstrip)
{
    return strip(r, self, args, false, true);
}

static bool is_space_at(struct str s, size_t i, size_t *n)
{
    uint32_t c;
    *n = unicode_next(s, i, &c);
    return unicode_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

/* split() without a separator: runs of white space, none at the ends. */
static struct jinja_value split_spaces(struct jinja_run *r, struct jinja_value self, int64_t most)
{
    struct str s = jinja_flat(r, self.s);
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    size_t i = 0, n;
    while (!r->err && i < s.n) {
        while (i < s.n && is_space_at(s, i, &n))
            i += n;
        if (i >= s.n) break;
        size_t from = i;
        if (most >= 0 && (int64_t)out.list->n == most) {
            struct jinja_value rest = jinja_part(r, self.s, from, s.n - from);
            if (!r->err) jinja_list_add(r, out, jinja_trim(r, rest.s, NULL, false, true));
            break;
        }
        while (i < s.n && !is_space_at(s, i, &n))
            i += n;
        jinja_list_add(r, out, jinja_part(r, self.s, from, i - from));
    }
    return out;
}

METHOD(text_split)
{
    struct str sep = jinja_arg_text(r, args, 0, "sep", (struct str){NULL, 0}),
               s = jinja_flat(r, self.s);
    int64_t most = jinja_arg_int(r, args, 1, "maxsplit", -1);
    if (r->err || !sep.p) return r->err ? self : split_spaces(r, self, most);
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    size_t from = 0;
    if (!sep.n) jinja_fail(r, ERR_INVALID, "split: the separator is empty");
    jinja_charge(r, s.n);
    for (int64_t n = 0; !r->err && (most < 0 || n < most); n++) {
        ptrdiff_t hit = str_find(str_sub(s, from, s.n), sep);
        if (hit < 0) break;
        jinja_list_add(r, out, jinja_part(r, self.s, from, (size_t)hit));
        from += (size_t)hit + sep.n;
    }
    jinja_list_add(r, out, jinja_part(r, self.s, from, s.n - from));
    return out;
}

/* Byte offset of the last sep in s before `end`, or -1. */
static ptrdiff_t find_last(struct str s, size_t end, struct str sep)
{
    for (size_t i = end < sep.n ? 0 : end - sep.n + 1; i > 0; i--)
        if (!memcmp(s.p + i - 1, sep.p, sep.n)) return (ptrdiff_t)i - 1;
    return -1;
}

METHOD(text_rsplit)
{
    struct str sep = jinja_arg_text(r, args, 0, "sep", STR("")), s = jinja_flat(r, self.s);
    int64_t most = jinja_arg_int(r, args, 1, "maxsplit", -1);
    if (!sep.n || most < 0) return text_split(r, self, args);
    struct jinja_value cut = jinja_list_new(r, JINJA_LIST), out = jinja_list_new(r, JINJA_LIST);
    size_t end = s.n;
    jinja_charge(r, s.n);
    for (int64_t n = 0; !r->err && n < most; n++) {
        ptrdiff_t hit = find_last(s, end, sep);
        if (hit < 0) break;
        jinja_list_add(r, cut,
                       jinja_part(r, self.s, (size_t)hit + sep.n, end - (size_t)hit - sep.n));
        end = (size_t)hit;
    }
    jinja_list_add(r, out, jinja_part(r, self.s, 0, end));
    for (size_t i = r->err ? 0 : cut.list->n; i > 0 && !r->err; i--)
        jinja_list_add(r, out, cut.list->at[i - 1]);
    return out;
}

METHOD(text_splitlines)
{
    (void)args;
    return jinja_split_lines(r, self.s);
}

METHOD(text_replace)
{
    const struct jinja_value *old = jinja_arg(args, 0, "old"), *new = jinja_arg(args, 1, "new");
    int64_t most = jinja_arg_int(r, args, 2, "count", -1);
    if (!old || !new) jinja_fail(r, ERR_INVALID, "replace needs two arguments");
    if (r->err) return self;
    return jinja_replace(r, self.s, jinja_need_text(r, *old), jinja_need_text(r, *new), most);
}

/* startswith and endswith take one string or a tuple of them. */
static struct jinja_value has_end(struct jinja_run *r, struct jinja_value self,
                                  const struct jinja_args *args, bool at_start)
{
    struct str s = jinja_flat(r, self.s);
    struct jinja_value one = args->n ? args->at[0] : jinja_undefined(NULL);
    bool several = one.kind == JINJA_TUPLE || one.kind == JINJA_LIST;
    size_t n = several ? one.list->n : 1;
    for (size_t i = 0; i < n && !r->err; i++) {
        struct str part = jinja_flat(r, jinja_need_text(r, several ? one.list->at[i] : one));
        if (!r->err && (at_start ? str_starts(s, part) : str_ends(s, part)))
            return jinja_bool(true);
    }
    return jinja_bool(false);
}
METHOD(text_startswith)
{
    return has_end(r, self, args, true);
}
METHOD(text_endswith)
{
    return has_end(r, self, args, false);
}

METHOD(text_removeprefix)
{
    struct str s = jinja_flat(r, self.s), part = jinja_arg_text(r, args, 0, "prefix", STR(""));
    return str_starts(s, part) ? jinja_part(r, self.s, part.n, s.n - part.n) : self;
}
METHOD(text_removesuffix)
{
    struct str s = jinja_flat(r, self.s), part = jinja_arg_text(r, args, 0, "suffix", STR(""));
    return str_ends(s, part) ? jinja_part(r, self.s, 0, s.n - part.n) : self;
}

static struct jinja_value change_case(struct jinja_run *r, struct jinja_value self,
                                      enum jinja_case how)
{
    return jinja_change_case(r, self.s, how);
}
METHOD(text_upper)
{
    (void)args;
    return change_case(r, self, JINJA_UPPER);
}
METHOD(text_lower)
{
    (void)args;
    return change_case(r, self, JINJA_LOWER);
}
METHOD(text_title)
{
    (void)args;
    return change_case(r, self, JINJA_TITLE_LETTERS);
}
METHOD(text_capitalize)
{
    (void)args;
    return change_case(r, self, JINJA_CAPITALIZE);
}

static int64_t chars_before(struct str s, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)s.p[i] & 0xC0) != 0x80;
    return n;
}
METHOD(text_find)
{
    struct str s = jinja_flat(r, self.s), part = jinja_arg_text(r, args, 0, "sub", STR(""));
    ptrdiff_t hit = jinja_charge(r, s.n) ? str_find(s, part) : -1;
    return jinja_int(hit < 0 ? -1 : chars_before(s, (size_t)hit));
}
METHOD(text_rfind)
{
    struct str s = jinja_flat(r, self.s), part = jinja_arg_text(r, args, 0, "sub", STR(""));
    ptrdiff_t hit = jinja_charge(r, s.n) ? find_last(s, s.n, part) : -1;
    return jinja_int(hit < 0 ? -1 : chars_before(s, (size_t)hit));
}
METHOD(text_count)
{
    struct str s = jinja_flat(r, self.s), part = jinja_arg_text(r, args, 0, "sub", STR(""));
    if (!part.n) return jinja_int((int64_t)jinja_chars(r, self.s) + 1);
    int64_t n = 0;
    jinja_charge(r, s.n);
    for (ptrdiff_t hit; !r->err && (hit = str_find(s, part)) >= 0; n++)
        s = str_sub(s, (size_t)hit + part.n, s.n);
    return jinja_int(n);
}
METHOD(text_join)
{
    return args->n ? jinja_join(r, self.s, jinja_items_of(r, args->at[0])) : self;
}

/* isdigit, isalpha, isalnum, isspace, isupper, islower */
static struct jinja_value all_chars(struct jinja_run *r, struct jinja_value self,
                                    bool (*holds)(uint32_t code))
{
    struct str s = jinja_flat(r, self.s);
    bool all = s.n > 0 && jinja_charge(r, s.n);
    for (size_t i = 0; all && i < s.n;) {
        uint32_t c;
        i += unicode_next(s, i, &c);
        all = holds(c);
    }
    return jinja_bool(all);
}
static bool is_digit(uint32_t c)
{
    return unicode_class(c) == UC_ND;
}
static bool is_alpha(uint32_t c)
{
    return unicode_is_letter(unicode_class(c));
}
static bool is_alnum(uint32_t c)
{
    return is_alpha(c) || unicode_is_number(unicode_class(c));
}
METHOD(text_isdigit)
{
    (void)args;
    return all_chars(r, self, is_digit);
}
METHOD(text_isalpha)
{
    (void)args;
    return all_chars(r, self, is_alpha);
}
METHOD(text_isalnum)
{
    (void)args;
    return all_chars(r, self, is_alnum);
}
METHOD(text_isspace)
{
    (void)args;
    return all_chars(r, self, unicode_is_space);
}
METHOD(text_isupper)
{
    struct jinja_args none = {NULL, 0, NULL, 0};
    (void)args;
    return jinja_bool(jinja_test(r, STR("upper"), self, &none));
}
METHOD(text_islower)
{
    struct jinja_args none = {NULL, 0, NULL, 0};
    (void)args;
    return jinja_bool(jinja_test(r, STR("lower"), self, &none));
}

/* "{} {0} {name}".format(..): no format specifications. */
METHOD(text_format)
{
    struct str s = jinja_flat(r, self.s);
    struct jinja_builder b = {NULL, 0, 0, 0};
    size_t next = 0, from = 0;
    for (size_t i = 0; i < s.n && !r->err; i++) {
        if (s.p[i] != '{' && s.p[i] != '}') continue;
        bool twice = i + 1 < s.n && s.p[i + 1] == s.p[i];
        struct jinja_value plain = jinja_part(r, self.s, from, i - from + twice);
        if (!r->err) jinja_build_string(r, &b, plain.s);
        from = i + 1 + twice;
        i += twice;
        if (twice || r->err) continue;
        ptrdiff_t n = s.p[i] == '{' ? str_find_char(str_sub(s, from, s.n), '}') : -1;
        struct str name = str_sub(s, from, n < 0 ? 0 : (size_t)n);
        int64_t place = 0;
        const struct jinja_value *v = NULL;
        if (n >= 0 && !name.n)
            v = next < args->n ? &args->at[next++] : NULL;
        else if (n >= 0 && str_to_i64(name, 0, 1000, &place) == OK)
            v = (size_t)place < args->n ? &args->at[place] : NULL;
        for (size_t k = 0; !v && n > 0 && k < args->n_named; k++)
            if (str_eq(args->named[k].name, name)) v = &args->named[k].value;
        if (!v) {
            jinja_fail(r, ERR_INVALID,
                       "format: a field has no value, or a format we do not support");
            break;
        }
        struct jinja_value text = jinja_to_string(r, *v);
        if (!r->err) jinja_build_string(r, &b, text.s);
        from += (size_t)n + 1;
        i = from - 1;
    }
    struct jinja_value rest =
        jinja_part(r, self.s, from < s.n ? from : s.n, from < s.n ? s.n - from : 0);
    if (!r->err) jinja_build_string(r, &b, rest.s);
    return jinja_built(r, &b);
}

METHOD(text_index)
{
    struct jinja_value at = text_find(r, self, args);
    if (!r->err && at.i < 0) jinja_fail(r, ERR_INVALID, "index: the text is not there");
    return at;
}

/* "a=b".partition("="): what is before it, it, and what follows; without it the whole text and two empty ones. */
static struct jinja_value split_in_three(struct jinja_run *r, struct jinja_value self,
                                         const struct jinja_args *args, bool last)
{
    struct str s = jinja_flat(r, self.s), sep = jinja_arg_text(r, args, 0, "sep", STR(""));
    struct jinja_value out = jinja_list_new(r, JINJA_TUPLE);
    if (!r->err && !sep.n) jinja_fail(r, ERR_INVALID, "partition: the separator is empty");
    if (r->err || !jinja_charge(r, s.n)) return out;
    ptrdiff_t hit = last ? find_last(s, s.n, sep) : str_find(s, sep);
    size_t at = hit >= 0 ? (size_t)hit : last ? 0 : s.n, n = hit >= 0 ? sep.n : 0;
    jinja_list_add(r, out, jinja_part(r, self.s, 0, at));
    jinja_list_add(r, out, jinja_part(r, self.s, at, n));
    jinja_list_add(r, out, jinja_part(r, self.s, at + n, s.n - at - n));
    return out;
}
METHOD(text_partition)
{
    return split_in_three(r, self, args, false);
}
METHOD(text_rpartition)
{
    return split_in_three(r, self, args, true);
}

static struct jinja_value justify(struct jinja_run *r, struct jinja_value self,
                                  const struct jinja_args *args, enum jinja_side side)
{
    int64_t width = jinja_arg_int(r, args, 0, "width", 0);
    struct str fill = jinja_arg_text(r, args, 1, "fillchar", STR(" "));
    return jinja_pad(r, self.s, width, fill, side);
}
METHOD(text_ljust)
{
    return justify(r, self, args, JINJA_LEFT);
}
METHOD(text_rjust)
{
    return justify(r, self, args, JINJA_RIGHT);
}
METHOD(text_center)
{
    return justify(r, self, args, JINJA_CENTER);
}
METHOD(text_zfill)
{
    struct str s = jinja_flat(r, self.s);
    int64_t width = jinja_arg_int(r, args, 0, "width", 0);
    bool sign = s.n && (s.p[0] == '-' || s.p[0] == '+');
    if (!sign || r->err) return jinja_pad(r, self.s, width, STR("0"), JINJA_RIGHT);
    struct jinja_value digits = jinja_part(r, self.s, 1, s.n - 1),
                       out = jinja_part(r, self.s, 0, 1);
    if (r->err) return self;
    digits = jinja_pad(r, digits.s, width - 1, STR("0"), JINJA_RIGHT);
    return jinja_arithmetic(r, JINJA_CONCAT, out, digits);
}

const struct jinja_text_method jinja_text_methods[] = {{"strip", text_strip},
                                                       {"lstrip", text_lstrip},
                                                       {"rstrip", text_rstrip},
                                                       {"split", text_split},
                                                       {"rsplit", text_rsplit},
                                                       {"splitlines", text_splitlines},
                                                       {"replace", text_replace},
                                                       {"startswith", text_startswith},
                                                       {"endswith", text_endswith},
                                                       {"removeprefix", text_removeprefix},
                                                       {"removesuffix", text_removesuffix},
                                                       {"upper", text_upper},
                                                       {"lower", text_lower},
                                                       {"title", text_title},
                                                       {"capitalize", text_capitalize},
                                                       {"find", text_find},
                                                       {"rfind", text_rfind},
                                                       {"count", text_count},
                                                       {"join", text_join},
                                                       {"format", text_format},
                                                       {"isdigit", text_isdigit},
                                                       {"isalpha", text_isalpha},
                                                       {"isalnum", text_isalnum},
                                                       {"isspace", text_isspace},
                                                       {"isupper", text_isupper},
                                                       {"islower", text_islower},
                                                       {"isnumeric", text_isdigit},
                                                       {"isdecimal", text_isdigit},
                                                       {"index", text_index},
                                                       {"partition", text_partition},
                                                       {"rpartition", text_rpartition},
                                                       {"ljust", text_ljust},
                                                       {"rjust", text_rjust},
                                                       {"center", text_center},
                                                       {"zfill", text_zfill},
                                                       {NULL, NULL}};
