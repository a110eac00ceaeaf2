/* jinja_filters_more.c - filters that chat templates seldom use: pieces of lists, and text for people to look at. */
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

#define FILTER(name)                                                                               \
    static struct jinja_value name(struct jinja_run *r, struct jinja_value v,                      \
                                   const struct jinja_args *args)

/* Lists of `count` items each; the last one is filled up when there is something to fill it with. */
FILTER(filter_batch)
{
    int64_t count = jinja_arg_int(r, args, 0, "linecount", 1);
    const struct jinja_value *fill = jinja_arg(args, 1, "fill_with");
    struct jinja_value items = jinja_items_of(r, v), out = jinja_lazy_list(r), row = items;
    if (!r->err && count < 1) jinja_fail(r, ERR_INVALID, "batch needs a count of at least 1");
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        if (i % (uint64_t)count == 0) {
            row = jinja_list_new(r, JINJA_LIST);
            jinja_list_add(r, out, row);
        }
        jinja_list_add(r, row, items.list->at[i]);
    }
    if (r->err || !items.list->n || !fill || fill->kind == JINJA_NONE) return out;
    while (!r->err && row.list->n < (uint64_t)count)
        jinja_list_add(r, row, *fill);
    return out;
}

/* `count` lists of nearly the same length. */
FILTER(filter_slice)
{
    int64_t count = jinja_arg_int(r, args, 0, "slices", 1);
    const struct jinja_value *fill = jinja_arg(args, 1, "fill_with");
    struct jinja_value items = jinja_items_of(r, v), out = jinja_lazy_list(r);
    if (!r->err && count < 1) jinja_fail(r, ERR_INVALID, "slice needs a count of at least 1");
    if (r->err) return out;
    size_t each = items.list->n / (uint64_t)count, longer = items.list->n % (uint64_t)count, at = 0;
    for (int64_t k = 0; k < count && !r->err; k++) {
        struct jinja_value row = jinja_list_new(r, JINJA_LIST);
        size_t n = each + ((uint64_t)k < longer);
        for (size_t i = 0; i < n && jinja_charge(r, 0); i++)
            jinja_list_add(r, row, items.list->at[at++]);
        if (!r->err && fill && fill->kind != JINJA_NONE && (uint64_t)k >= longer)
            jinja_list_add(r, row, *fill);
        jinja_list_add(r, out, row);
    }
    return out;
}

FILTER(filter_center)
{
    int64_t width = jinja_arg_int(r, args, 0, "width", 80);
    struct jinja_value s = jinja_to_string(r, v);
    return r->err ? v : jinja_pad(r, s.s, width, STR(" "), JINJA_CENTER);
}

FILTER(filter_wordcount)
{
    struct jinja_value text = jinja_to_string(r, v);
    struct str s = r->err ? STR("") : jinja_flat(r, text.s);
    bool inside = false;
    int64_t n = 0;
    (void)args;
    jinja_charge(r, s.n);
    for (size_t i = 0; i < s.n && !r->err;) {
        uint32_t code;
        i += unicode_next(s, i, &code);
        enum unicode_class c = unicode_class(code);
        bool word = unicode_is_letter(c) || unicode_is_number(c) || code == '_';
        n += word && !inside;
        inside = word;
    }
    return jinja_int(n);
}

/* Cut to a length in characters, the end mark included, at a space unless killwords; a text only a little longer stays. */
FILTER(filter_truncate)
{
    int64_t length = jinja_arg_int(r, args, 0, "length", 255),
            leeway = jinja_arg_int(r, args, 3, "leeway", 5);
    bool killwords = jinja_arg_truth(args, 1, "killwords", false);
    struct str mark = jinja_arg_text(r, args, 2, "end", STR("..."));
    struct jinja_value s = jinja_to_string(r, v), end = jinja_text(r, mark, false);
    int64_t n_mark = r->err ? 0 : (int64_t)jinja_chars(r, end.s);
    if (!r->err && (length < n_mark || leeway < 0))
        jinja_fail(r, ERR_INVALID, "truncate: the length has no room for the end mark");
    if (r->err || (int64_t)jinja_chars(r, s.s) <= length + leeway) return s;
    struct jinja_value part[3] = {jinja_none(), jinja_int(length - n_mark), jinja_none()};
    s = jinja_slice(r, s, part);
    struct str t = r->err ? STR("") : jinja_flat(r, s.s);
    size_t keep = t.n;
    for (size_t i = t.n; i > 0 && !killwords && keep == t.n; i--)
        if (t.p[i - 1] == ' ') keep = i - 1;
    if (!r->err && !killwords) s = jinja_part(r, s.s, 0, keep);
    return jinja_arithmetic(r, JINJA_CONCAT, s, end);
}

const struct jinja_filter_entry jinja_more_filters[] = {
    {"batch", filter_batch},         {"slice", filter_slice},       {"center", filter_center},
    {"wordcount", filter_wordcount}, {"truncate", filter_truncate}, {NULL, NULL}};
