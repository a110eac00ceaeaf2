/* jinja_filters.c - filters of single values and of text; those of lists are in jinja_filters_list.c. */
#include <math.h>
#include <string.h>

#include "engine/text/jinja_eval.h"

#define FILTER(name)                                                                               \
    static struct jinja_value name(struct jinja_run *r, struct jinja_value v,                      \
                                   const struct jinja_args *args)
#define UNUSED_ARGS (void)args

FILTER(filter_default)
{
    bool falsy_too = jinja_arg_truth(args, 1, "boolean", false);
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default_value");
    if (v.kind != JINJA_UNDEFINED && !(falsy_too && !jinja_truth(v))) return v;
    return otherwise ? *otherwise : jinja_text(r, STR(""), false);
}

FILTER(filter_string)
{
    UNUSED_ARGS;
    return jinja_to_string(r, v);
}

FILTER(filter_safe)
{
    UNUSED_ARGS;
    return jinja_as_markup(r, jinja_to_string(r, v), true);
}

static struct jinja_value change_case(struct jinja_run *r, struct jinja_value v,
                                      enum jinja_case how)
{
    struct jinja_value s = jinja_to_string(r, v);
    return r->err ? s : jinja_change_case(r, s.s, how);
}
FILTER(filter_upper)
{
    UNUSED_ARGS;
    return change_case(r, v, JINJA_UPPER);
}
FILTER(filter_lower)
{
    UNUSED_ARGS;
    return change_case(r, v, JINJA_LOWER);
}
FILTER(filter_title)
{
    UNUSED_ARGS;
    return change_case(r, v, JINJA_TITLE);
}
FILTER(filter_capitalize)
{
    UNUSED_ARGS;
    return change_case(r, v, JINJA_CAPITALIZE);
}

FILTER(filter_trim)
{
    struct str chars = jinja_arg_text(r, args, 0, "chars", (struct str){NULL, 0});
    struct jinja_value s = jinja_to_string(r, v);
    return r->err ? s : jinja_trim(r, s.s, chars.p ? &chars : NULL, true, true);
}

FILTER(filter_replace)
{
    const struct jinja_value *old = jinja_arg(args, 0, "old"), *new = jinja_arg(args, 1, "new");
    int64_t most = jinja_arg_int(r, args, 2, "count", -1);
    struct jinja_value s = jinja_to_string(r, v);
    if (!old || !new) jinja_fail(r, ERR_INVALID, "replace needs two arguments");
    if (r->err) return s;
    return jinja_replace(r, s.s, jinja_need_text(r, *old), jinja_need_text(r, *new), most);
}

/* Lines after the first (or all, with first) moved right; empty ones only with blank. */
FILTER(filter_indent)
{
    const struct jinja_value *width = jinja_arg(args, 0, "width");
    bool first = jinja_arg_truth(args, 1, "first", false),
         blank = jinja_arg_truth(args, 2, "blank", false);
    char spaces[256];
    memset(spaces, ' ', sizeof spaces);
    struct str by = {spaces, 4};
    if (width && width->kind == JINJA_STRING)
        by = jinja_flat(r, width->s);
    else if (width)
        by.n = (size_t)jinja_arg_int(r, args, 0, "width", 4);
    if (width && width->kind != JINJA_STRING && by.n > sizeof spaces)
        jinja_fail(r, ERR_RANGE, "indent: a width from 0 to 256 is expected");
    jinja_need_text(r, v);
    struct jinja_value s = v, pad = jinja_text_copy(r, r->err ? STR("") : by, false);
    struct jinja_builder b = {NULL, 0, 0, 0};
    if (r->err) return s;
    jinja_build_string(r, &b,
                       s.s); /* a line end is added so that one at the end counts as a line */
    jinja_build(r, &b, (struct jinja_span){"\n", 1, false});
    struct jinja_value lines = jinja_built(r, &b);
    lines = r->err ? lines : jinja_split_lines(r, lines.s);
    b = (struct jinja_builder){NULL, 0, 0, 0};
    for (size_t i = 0; !r->err && i < lines.list->n; i++) {
        const struct jinja_string *line = lines.list->at[i].s;
        if (i) jinja_build(r, &b, (struct jinja_span){"\n", 1, false});
        if (i ? line->n || blank : first) jinja_build_string(r, &b, pad.s);
        jinja_build_string(r, &b, line);
    }
    return jinja_as_markup(r, jinja_built(r, &b), v.s->markup);
}

FILTER(filter_int)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default");
    struct jinja_value missing = otherwise ? *otherwise : jinja_int(0);
    double f;
    int64_t i;
    if (v.kind == JINJA_INT) return v;
    if (v.kind == JINJA_BOOL) return jinja_int(v.b);
    if (v.kind == JINJA_FLOAT) return fabs(v.f) < 9e18 ? jinja_int((int64_t)v.f) : missing;
    if (v.kind == JINJA_UNDEFINED) jinja_fail_undefined(r, v);
    if (v.kind != JINJA_STRING) return missing;
    struct str s = str_trim(jinja_flat(r, v.s));
    if (s.n && s.p[0] == '+') s = str_sub(s, 1, s.n);
    if (str_to_i64(s, INT64_MIN, INT64_MAX, &i) == OK) return jinja_int(i);
    if (str_to_f64(s, &f) == OK && fabs(f) < 9e18) return jinja_int((int64_t)f);
    return missing;
}

FILTER(filter_float)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default");
    double f;
    if (v.kind == JINJA_UNDEFINED) jinja_fail_undefined(r, v);
    if (jinja_is_number(v)) return jinja_float(jinja_to_double(v));
    if (v.kind == JINJA_STRING && str_to_f64(str_trim(jinja_flat(r, v.s)), &f) == OK)
        return jinja_float(f);
    return otherwise ? *otherwise : jinja_float(0);
}

FILTER(filter_abs)
{
    UNUSED_ARGS;
    if (v.kind == JINJA_FLOAT) return jinja_float(fabs(v.f));
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL) {
        int64_t i = v.kind == JINJA_BOOL ? v.b : v.i;
        return i < 0 ? jinja_arithmetic(r, JINJA_SUB, jinja_int(0), v) : jinja_int(i);
    }
    jinja_fail(r, ERR_INVALID, "abs of a %s", jinja_kind_name(v));
    return v;
}

FILTER(filter_round)
{
    int64_t places = jinja_arg_int(r, args, 0, "precision", 0);
    struct str method = jinja_arg_text(r, args, 1, "method", STR("common"));
    if (!jinja_is_number(v) || places < -15 || places > 15)
        jinja_fail(r, ERR_INVALID, "round needs a number and -15 to 15 places");
    if (r->err) return v;
    double f = jinja_to_double(v), scale = pow(10, (double)places);
    if (v.kind != JINJA_FLOAT && places >= 0 && str_eqz(method, "common"))
        return filter_int(r, v, args);
    if (str_eqz(method, "ceil")) return jinja_float(ceil(f * scale) / scale);
    if (str_eqz(method, "floor")) return jinja_float(floor(f * scale) / scale);
    return jinja_float(nearbyint(f * scale) / scale);
}

FILTER(filter_escape)
{
    UNUSED_ARGS;
    return v.kind == JINJA_STRING && v.s->markup ? v : jinja_escape(r, v);
}
FILTER(filter_forceescape)
{
    UNUSED_ARGS;
    return jinja_escape(r, v);
}

FILTER(filter_format)
{
    struct jinja_value tuple = jinja_list_new(r, JINJA_TUPLE);
    for (size_t i = 0; i < args->n && !r->err; i++)
        jinja_list_add(r, tuple, args->at[i]);
    jinja_need_text(r, v);
    return r->err ? v : jinja_percent_format(r, v, tuple);
}

FILTER(filter_attr)
{
    struct jinja_value name = args->n ? args->at[0] : jinja_undefined(NULL);
    jinja_need_text(r, name);
    return r->err ? v : jinja_index(r, v, name);
}

static const struct jinja_filter_entry value_filters[] = {{"default", filter_default},
                                                          {"d", filter_default},
                                                          {"string", filter_string},
                                                          {"safe", filter_safe},
                                                          {"upper", filter_upper},
                                                          {"lower", filter_lower},
                                                          {"title", filter_title},
                                                          {"capitalize", filter_capitalize},
                                                          {"trim", filter_trim},
                                                          {"replace", filter_replace},
                                                          {"indent", filter_indent},
                                                          {"int", filter_int},
                                                          {"float", filter_float},
                                                          {"abs", filter_abs},
                                                          {"round", filter_round},
                                                          {"escape", filter_escape},
                                                          {"e", filter_escape},
                                                          {"forceescape", filter_forceescape},
                                                          {"from_json", jinja_from_json_text},
                                                          {"fromjson", jinja_from_json_text},
                                                          {"format", filter_format},
                                                          {"attr", filter_attr},
                                                          {"tojson", jinja_to_json},
                                                          {NULL, NULL}};

static jinja_filter_fn *find_filter(struct str name)
{
    const struct jinja_filter_entry *tables[] = {value_filters, jinja_list_filters,
                                                 jinja_more_filters};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct jinja_filter_entry *f = tables[t]; f->name; f++)
            if (str_eqz(name, f->name)) return f->run;
    return NULL;
}

bool jinja_is_filter(struct str name)
{
    return find_filter(name);
}

struct jinja_value jinja_filter(struct jinja_run *r, struct str name, struct jinja_value v,
                                const struct jinja_args *args)
{
    jinja_filter_fn *run = find_filter(name);
    if (!run)
        jinja_fail(r, ERR_UNSUPPORTED, "filter '%.*s' is not supported",
                   (int)(name.n < 40 ? name.n : 40), name.p);
    if (!jinja_enter_depth(r)) return v; /* map and select call filters by name */
    v = run(r, v, args);
    r->depth--;
    return v;
}
