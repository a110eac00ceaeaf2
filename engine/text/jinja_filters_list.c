/* jinja_filters_list.c - filters over lists, mappings and characters. */
#include <string.h>

#include "engine/text/jinja_eval.h"

#define FILTER(name)                                                                               \
    static struct jinja_value name(struct jinja_run *r, struct jinja_value v,                      \
                                   const struct jinja_args *args)
#define UNUSED_ARGS (void)args

struct jinja_value jinja_lazy_list(struct jinja_run *r)
{
    struct jinja_value v = jinja_list_new(r, JINJA_LIST);
    if (!r->err) v.list->lazy = true;
    return v;
}

FILTER(filter_length)
{
    UNUSED_ARGS;
    switch (v.kind) {
    case JINJA_STRING:
        return jinja_int((int64_t)jinja_chars(r, v.s));
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_int((int64_t)v.list->n);
    case JINJA_DICT:
        return jinja_int((int64_t)v.dict->n);
    case JINJA_LOOP:
        return jinja_int((int64_t)v.loop->n);
    case JINJA_UNDEFINED:
        return jinja_int(0);
    default:
        jinja_fail(r, ERR_INVALID, "a %s has no length", jinja_kind_name(v));
        return v;
    }
}

/* "a.b.0" or an index: members of members. */
static struct jinja_value at_path(struct jinja_run *r, struct jinja_value v,
                                  struct jinja_value path)
{
    if (path.kind != JINJA_STRING) return jinja_index(r, v, path);
    struct str rest = jinja_flat(r, path.s), name;
    for (int steps = 0; !r->err && steps < 32 && str_next(&rest, '.', &name); steps++) {
        int64_t i;
        bool number = str_to_i64(name, 0, INT64_MAX, &i) == OK;
        struct jinja_value key = number ? jinja_int(i) : jinja_text(r, name, false);
        v = v.kind == JINJA_UNDEFINED && steps ? v : jinja_index(r, v, key);
    }
    return v;
}

FILTER(filter_join)
{
    const struct jinja_value *between = jinja_arg(args, 0, "d"),
                             *path = jinja_arg(args, 1, "attribute");
    struct jinja_value items = jinja_items_of(r, v),
                       sep = between ? jinja_to_string(r, *between) : jinja_text(r, STR(""), false);
    if (path) {
        struct jinja_value members = jinja_list_new(r, JINJA_LIST);
        for (size_t i = 0; !r->err && i < items.list->n; i++)
            jinja_list_add(r, members, at_path(r, items.list->at[i], *path));
        items = members;
    }
    return r->err ? v : jinja_join(r, sep.s, items);
}

FILTER(filter_list)
{
    UNUSED_ARGS;
    struct jinja_value items = jinja_items_of(r, v), out = jinja_list_new(r, JINJA_LIST);
    for (size_t i = 0; !r->err && i < items.list->n && jinja_charge(r, 0); i++)
        jinja_list_add(r, out, items.list->at[i]);
    return out;
}

FILTER(filter_first)
{
    UNUSED_ARGS;
    struct jinja_value items = jinja_items_of(r, v);
    return !r->err && items.list->n ? items.list->at[0] : jinja_undefined(NULL);
}

FILTER(filter_last)
{
    UNUSED_ARGS;
    struct jinja_value items = jinja_items_of(r, v);
    return !r->err && items.list->n ? items.list->at[items.list->n - 1] : jinja_undefined(NULL);
}

FILTER(filter_reverse)
{
    UNUSED_ARGS;
    struct jinja_value items = jinja_items_of(r, v), out = jinja_lazy_list(r),
                       none = jinja_text(r, STR(""), false);
    for (size_t i = r->err ? 0 : items.list->n; i > 0 && jinja_charge(r, 0); i--)
        jinja_list_add(r, out, items.list->at[i - 1]);
    return v.kind == JINJA_STRING && !r->err ? jinja_join(r, none.s, out) : out;
}

FILTER(filter_items)
{
    UNUSED_ARGS;
    struct jinja_value out = jinja_lazy_list(r);
    if (v.kind == JINJA_UNDEFINED || r->err) return out;
    if (v.kind != JINJA_DICT)
        jinja_fail(r, ERR_INVALID, "items of a %s, expected a mapping", jinja_kind_name(v));
    for (size_t i = 0; !r->err && i < v.dict->n; i++) {
        struct jinja_value pair = jinja_list_new(r, JINJA_TUPLE);
        if (r->err) break;
        jinja_list_add(r, pair, v.dict->at[i].key);
        jinja_list_add(r, pair, v.dict->at[i].value);
        jinja_list_add(r, out, pair);
    }
    return out;
}

/* --- map, select, reject and their attribute forms */

/* map, select and reject take anything that is not true for an empty list. */
static struct jinja_value items_or_none(struct jinja_run *r, struct jinja_value v)
{
    return jinja_truth(v) ? jinja_items_of(r, v) : jinja_list_new(r, JINJA_LIST);
}

FILTER(filter_map)
{
    struct jinja_value items = items_or_none(r, v), out = jinja_lazy_list(r);
    const struct jinja_value *path = jinja_arg(args, 99, "attribute"),
                             *otherwise = jinja_arg(args, 99, "default");
    struct jinja_args rest = jinja_args_from(args, 1);
    if (!path && !args->n) jinja_fail(r, ERR_INVALID, "map needs a filter or an attribute");
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        struct jinja_value one = items.list->at[i];
        if (path) {
            one = at_path(r, one, *path);
            if (one.kind == JINJA_UNDEFINED && otherwise) one = *otherwise;
        } else {
            one = jinja_filter(r, jinja_flat(r, jinja_need_text(r, args->at[0])), one, &rest);
        }
        jinja_list_add(r, out, one);
    }
    return out;
}

static struct jinja_value choose(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args, bool by_attribute, bool keep)
{
    struct jinja_value items = items_or_none(r, v), out = jinja_lazy_list(r);
    size_t test_i = by_attribute ? 1 : 0;
    struct jinja_args rest = jinja_args_from(args, test_i + 1);
    if (by_attribute && !args->n)
        jinja_fail(r, ERR_INVALID, "selectattr and rejectattr need an attribute");
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        struct jinja_value one = items.list->at[i],
                           tested = by_attribute ? at_path(r, one, args->at[0]) : one;
        bool holds =
            args->n > test_i
                ? jinja_test(r, jinja_flat(r, jinja_need_text(r, args->at[test_i])), tested, &rest)
                : jinja_truth(tested);
        if (holds == keep) jinja_list_add(r, out, one);
    }
    return out;
}

FILTER(filter_select)
{
    return choose(r, v, args, false, true);
}
FILTER(filter_reject)
{
    return choose(r, v, args, false, false);
}
FILTER(filter_selectattr)
{
    return choose(r, v, args, true, true);
}
FILTER(filter_rejectattr)
{
    return choose(r, v, args, true, false);
}

/* --- sorting */

struct sort_item {
    struct jinja_value key, value;
};

static struct jinja_value sort_key(struct jinja_run *r, struct jinja_value v,
                                   const struct jinja_value *path, bool case_matters)
{
    struct str paths = path && path->kind == JINJA_STRING ? jinja_flat(r, path->s) : STR(""), one;
    if (str_find_char(paths, ',') >= 0) { /* by the first, then by the second.. */
        struct jinja_value keys = jinja_list_new(r, JINJA_LIST);
        while (!r->err && str_next(&paths, ',', &one)) {
            struct jinja_value part = jinja_text(r, one, false);
            jinja_list_add(r, keys, sort_key(r, v, &part, case_matters));
        }
        return keys;
    }
    if (path) v = at_path(r, v, *path);
    return v.kind == JINJA_STRING && !case_matters ? jinja_change_case(r, v.s, JINJA_LOWER) : v;
}

/* Stable merge sort, bottom up. reverse keeps equal ones in order, as Python does. */
static void sort_items(struct jinja_run *r, struct sort_item *at, size_t n, bool reverse)
{
    struct sort_item *from = at, *to = jinja_alloc(r, n * sizeof *to);
    for (size_t width = 1; to && width < n && !r->err; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n,
                   hi = lo + 2 * width < n ? lo + 2 * width : n;
            for (size_t k = lo, i = lo, j = mid; k < hi; k++) {
                bool left = j >= hi;
                if (!left && i < mid) {
                    int c = jinja_sort_order(r, from[j].key, from[i].key);
                    left = reverse ? c <= 0 : c >= 0;
                }
                to[k] = left ? from[i++] : from[j++];
            }
        }
        struct sort_item *swap = from;
        from = to;
        to = swap;
    }
    if (from != at && !r->err) memcpy(at, from, n * sizeof *at);
}

static struct jinja_value sorted_by(struct jinja_run *r, struct jinja_value items,
                                    const struct jinja_value *path, bool case_matters, bool reverse)
{
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    size_t n = r->err ? 0 : items.list->n;
    struct sort_item *at = jinja_alloc(r, n * sizeof *at);
    for (size_t i = 0; at && i < n && !r->err; i++)
        at[i] = (struct sort_item){sort_key(r, items.list->at[i], path, case_matters),
                                   items.list->at[i]};
    if (at && !r->err) sort_items(r, at, n, reverse);
    for (size_t i = 0; at && i < n && !r->err; i++)
        jinja_list_add(r, out, at[i].value);
    return out;
}

FILTER(filter_sort)
{
    const struct jinja_value *path = jinja_arg(args, 2, "attribute");
    bool reverse = jinja_arg_truth(args, 0, "reverse", false),
         case_matters = jinja_arg_truth(args, 1, "case_sensitive", false);
    return sorted_by(r, jinja_items_of(r, v), path && path->kind != JINJA_NONE ? path : NULL,
                     case_matters, reverse);
}

FILTER(filter_dictsort)
{
    struct str by = jinja_arg_text(r, args, 1, "by", STR("key"));
    struct jinja_value place = jinja_int(str_eqz(by, "value"));
    bool reverse = jinja_arg_truth(args, 2, "reverse", false),
         case_matters = jinja_arg_truth(args, 0, "case_sensitive", false);
    struct jinja_args none = {NULL, 0, NULL, 0};
    if (v.kind == JINJA_UNDEFINED) jinja_fail_undefined(r, v);
    return sorted_by(r, filter_items(r, v, &none), &place, case_matters, reverse);
}

FILTER(filter_unique)
{
    const struct jinja_value *path = jinja_arg(args, 1, "attribute");
    bool case_matters = jinja_arg_truth(args, 0, "case_sensitive", false);
    struct jinja_value items = jinja_items_of(r, v), seen = jinja_list_new(r, JINJA_LIST),
                       out = jinja_lazy_list(r);
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        struct jinja_value key = sort_key(r, items.list->at[i], path, case_matters);
        if (r->err || jinja_contains(r, seen, key)) continue;
        jinja_list_add(r, seen, key);
        jinja_list_add(r, out, items.list->at[i]);
    }
    return out;
}

static struct jinja_value extreme(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_args *args, int sign)
{
    const struct jinja_value *path = jinja_arg(args, 1, "attribute");
    bool case_matters = jinja_arg_truth(args, 0, "case_sensitive", false);
    struct jinja_value items = jinja_items_of(r, v), best = jinja_undefined(NULL), best_key = best;
    for (size_t i = 0; !r->err && i < items.list->n; i++) {
        struct jinja_value key = sort_key(r, items.list->at[i], path, case_matters);
        if (i && jinja_order(r, key, best_key) * sign <= 0) continue;
        best = items.list->at[i];
        best_key = key;
    }
    return best;
}
FILTER(filter_min)
{
    return extreme(r, v, args, -1);
}
FILTER(filter_max)
{
    return extreme(r, v, args, 1);
}

FILTER(filter_sum)
{
    const struct jinja_value *path = jinja_arg(args, 0, "attribute"),
                             *start = jinja_arg(args, 1, "start");
    struct jinja_value items = jinja_items_of(r, v), total = start ? *start : jinja_int(0);
    for (size_t i = 0; !r->err && i < items.list->n; i++)
        total = jinja_arithmetic(r, JINJA_ADD, total,
                                 path ? at_path(r, items.list->at[i], *path) : items.list->at[i]);
    return total;
}

const struct jinja_filter_entry jinja_list_filters[] = {{"length", filter_length},
                                                        {"count", filter_length},
                                                        {"join", filter_join},
                                                        {"list", filter_list},
                                                        {"first", filter_first},
                                                        {"last", filter_last},
                                                        {"reverse", filter_reverse},
                                                        {"items", filter_items},
                                                        {"map", filter_map},
                                                        {"select", filter_select},
                                                        {"reject", filter_reject},
                                                        {"selectattr", filter_selectattr},
                                                        {"rejectattr", filter_rejectattr},
                                                        {"sort", filter_sort},
                                                        {"dictsort", filter_dictsort},
                                                        {"unique", filter_unique},
                                                        {"min", filter_min},
                                                        {"max", filter_max},
                                                        {"sum", filter_sum},
                                                        {NULL, NULL}};
