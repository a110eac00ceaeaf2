/* jinja_functions.c - global functions of templates, and how arguments are read. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/text/jinja_eval.h"

enum { RANGE_MAX = 100000 }; /* as in Jinja's sandbox */

const struct jinja_value *jinja_arg(const struct jinja_args *a, size_t place, const char *name)
{
    if (place < a->n) return &a->at[place];
    for (size_t i = 0; i < a->n_named; i++)
        if (str_eqz(a->named[i].name, name)) return &a->named[i].value;
    return NULL;
}

struct str jinja_arg_text(struct jinja_run *r, const struct jinja_args *a, size_t place,
                          const char *name, struct str otherwise)
{
    const struct jinja_value *v = jinja_arg(a, place, name);
    if (!v || v->kind == JINJA_NONE) return otherwise;
    if (v->kind == JINJA_STRING) return jinja_flat(r, v->s);
    jinja_fail(r, ERR_INVALID, "argument %s: expected a string, not a %s", name,
               jinja_kind_name(*v));
    return otherwise;
}

int64_t jinja_arg_int(struct jinja_run *r, const struct jinja_args *a, size_t place,
                      const char *name, int64_t otherwise)
{
    const struct jinja_value *v = jinja_arg(a, place, name);
    if (!v || v->kind == JINJA_NONE) return otherwise;
    if (v->kind == JINJA_INT) return v->i;
    if (v->kind == JINJA_BOOL) return v->b;
    jinja_fail(r, ERR_INVALID, "argument %s: expected an integer, not a %s", name,
               jinja_kind_name(*v));
    return otherwise;
}

bool jinja_arg_truth(const struct jinja_args *a, size_t place, const char *name, bool otherwise)
{
    const struct jinja_value *v = jinja_arg(a, place, name);
    return v ? jinja_truth(*v) : otherwise;
}

struct jinja_args jinja_args_from(const struct jinja_args *a, size_t from)
{
    if (from > a->n) from = a->n;
    return (struct jinja_args){a->at ? a->at + from : NULL, a->n - from, a->named, a->n_named};
}

static struct jinja_value make_namespace(struct jinja_run *r, const struct jinja_args *args)
{
    struct jinja_value v = jinja_dict_new(r, JINJA_NAMESPACE);
    if (r->err) return v;
    if (args->n && args->at[0].kind == JINJA_DICT)
        for (size_t i = 0; i < args->at[0].dict->n; i++)
            jinja_dict_set(r, v.dict, args->at[0].dict->at[i].key, args->at[0].dict->at[i].value);
    for (size_t i = 0; i < args->n_named; i++)
        jinja_dict_set(r, v.dict, jinja_text(r, args->named[i].name, false), args->named[i].value);
    return v;
}

static struct jinja_value make_dict(struct jinja_run *r, const struct jinja_args *args)
{
    struct jinja_value v = make_namespace(r, args);
    v.kind = r->err ? v.kind : JINJA_DICT;
    return v;
}

static struct jinja_value make_range(struct jinja_run *r, const struct jinja_args *args)
{
    int64_t from = 0, to = jinja_arg_int(r, args, 0, "stop", 0),
            step = jinja_arg_int(r, args, 2, "step", 1);
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    if (args->n > 1) {
        from = to;
        to = jinja_arg_int(r, args, 1, "stop", 0);
    }
    if (step == 0) jinja_fail(r, ERR_INVALID, "range: the step is zero");
    if (r->err) return out;
    __int128 span = (__int128)to - from, size = step;
    if (step < 0) {
        span = -span;
        size = -size;
    }
    __int128 n = span > 0 ? (span - 1) / size + 1 : 0;
    if (n > RANGE_MAX) jinja_fail(r, ERR_RANGE, "range has more than %d elements", RANGE_MAX);
    for (int64_t k = 0; k < n && jinja_charge(r, 0); k++)
        jinja_list_add(r, out, jinja_int(from + k * step));
    return out;
}

static struct jinja_value raise_exception(struct jinja_run *r, const struct jinja_args *args)
{
    struct str why = STR("the template raised an exception");
    if (args->n) {
        struct jinja_value text = jinja_to_string(r, args->at[0]);
        if (!r->err) why = jinja_flat(r, text.s);
    }
    if (!r->err)
        r->err = err_set(r->e, ERR_INVALID, "%.*s", (int)(why.n < 220 ? why.n : 220), why.p);
    return jinja_undefined(NULL);
}

static struct jinja_value now_text(struct jinja_run *r, const struct jinja_args *args)
{
    char format[200], text[400];
    struct str f = jinja_arg_text(r, args, 0, "format", STR("%Y-%m-%d"));
    if (r->err || f.n >= sizeof format) {
        jinja_fail(r, ERR_INVALID, "strftime_now: the format is too long");
        return jinja_undefined(NULL);
    }
    memcpy(format, f.p, f.n);
    format[f.n] = 0;
    struct tm tm;
    time_t now = (time_t)r->now_s;
    if (!gmtime_r(&now, &tm)) jinja_fail(r, ERR_RANGE, "strftime_now: the clock is out of range");
    size_t n = r->err ? 0 : strftime(text, sizeof text, format, &tm);
    return jinja_text_copy(r, (struct str){text, n}, false);
}

static const struct {
    const char *name;
    struct jinja_value (*run)(struct jinja_run *r, const struct jinja_args *args);
} functions[] = {{"namespace", make_namespace},
                 {"dict", make_dict},
                 {"range", make_range},
                 {"raise_exception", raise_exception},
                 {"strftime_now", now_text}};

bool jinja_is_function(struct str name)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (str_eqz(name, functions[i].name)) return true;
    return false;
}

struct jinja_value jinja_call_function(struct jinja_run *r, struct str name,
                                       const struct jinja_args *args)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (str_eqz(name, functions[i].name)) return functions[i].run(r, args);
    return jinja_undefined(NULL);
}
