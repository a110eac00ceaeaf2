/* jinja_value.c - lists, dicts, truth, equality and order, with Python's rules. */
#include "engine/text/jinja_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/unicode.h"

enum { COMPARE_DEPTH_MAX = 100 };

void jinja_fail(struct jinja_run *r, enum err err, const char *fmt, ...)
{
    char why[200];
    if (r->err) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    r->err = err_set(r->e, err, "chat template line %d: %s", r->line, why);
}

void *jinja_alloc(struct jinja_run *r, size_t n)
{
    void *p = r->err ? NULL : arena_alloc(r->arena, n ? n : 1);
    if (!p) jinja_fail(r, ERR_TOO_LARGE, "the template uses too much memory");
    return p;
}

void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    struct str name = v.name ? *v.name : STR("value");
    jinja_fail(r, ERR_INVALID, "'%.*s' is undefined", (int)(name.n < 60 ? name.n : 60), name.p);
}

bool jinja_charge(struct jinja_run *r, size_t work)
{
    if (r->err) return false;
    r->steps -= 1 + (int64_t)(work / 16);
    if (r->steps >= 0) return true;
    jinja_fail(r, ERR_RANGE, "the template takes too many steps");
    return false;
}

struct jinja_value jinja_undefined(const struct str *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}
struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}
struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .b = b};
}
struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_INT, .i = i};
}
struct jinja_value jinja_float(double f)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .f = f};
}

struct jinja_value jinja_list_new(struct jinja_run *r, enum jinja_kind list_or_tuple)
{
    struct jinja_list *l = jinja_alloc(r, sizeof *l);
    return l ? (struct jinja_value){.kind = list_or_tuple, .list = l} : jinja_undefined(NULL);
}

/* Room for one more element of `size` bytes: the array, moved when it was full. NULL on failure. */
static void *grow(struct jinja_run *r, void *at, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return at;
    size_t wider = *cap ? *cap * 2 : 4;
    void *p = jinja_alloc(r, wider * size);
    if (!p) return NULL;
    if (n) memcpy(p, at, n * size);
    *cap = wider;
    return p;
}

void jinja_list_add(struct jinja_run *r, struct jinja_value list, struct jinja_value v)
{
    if (r->err) return;
    struct jinja_list *l = list.list;
    struct jinja_value *at = grow(r, l->at, l->n, &l->cap, sizeof v);
    if (!at) return;
    l->at = at;
    l->at[l->n++] = v;
}

struct jinja_value jinja_dict_new(struct jinja_run *r, enum jinja_kind dict_or_namespace)
{
    struct jinja_dict *d = jinja_alloc(r, sizeof *d);
    return d ? (struct jinja_value){.kind = dict_or_namespace, .dict = d} : jinja_undefined(NULL);
}

struct jinja_value *jinja_dict_find(struct jinja_run *r, const struct jinja_dict *d,
                                    struct jinja_value key)
{
    if (key.kind == JINJA_STRING) return jinja_dict_find_text(r, d, jinja_flat(r, key.s));
    if (!jinja_charge(r, d->n)) return NULL;
    for (size_t i = 0; i < d->n; i++)
        if (jinja_equal(r, d->at[i].key, key)) return &d->at[i].value;
    return NULL;
}

struct jinja_value *jinja_dict_find_text(struct jinja_run *r, const struct jinja_dict *d,
                                         struct str key)
{
    if (!jinja_charge(r, d->n)) return NULL;
    for (size_t i = 0; i < d->n; i++) {
        const struct jinja_value *k = &d->at[i].key;
        if (k->kind == JINJA_STRING && k->s->n == key.n && str_eq(jinja_flat(r, k->s), key))
            return &d->at[i].value;
    }
    return NULL;
}

void jinja_dict_set(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value v)
{
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT || key.kind == JINJA_NAMESPACE) {
        jinja_fail(r, ERR_INVALID, "a %s cannot be a key", jinja_kind_name(key));
        return;
    }
    struct jinja_value *place = jinja_dict_find(r, d, key);
    if (r->err) return;
    if (place) {
        *place = v;
        return;
    }
    struct jinja_pair *at = grow(r, d->at, d->n, &d->cap, sizeof *at);
    if (!at) return;
    d->at = at;
    d->at[d->n++] = (struct jinja_pair){key, v};
}

bool jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.b;
    case JINJA_INT:
        return v.i != 0;
    case JINJA_FLOAT:
        return v.f != 0;
    case JINJA_STRING:
        return v.s->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->n > 0 || v.list->lazy;
    case JINJA_DICT:
        return v.dict->n > 0;
    default:
        return true;
    }
}

const char *jinja_kind_name(struct jinja_value v)
{
    static const char *const names[] = {
        "undefined value", "none",    "boolean",   "integer", "float", "string", "list",
        "tuple",           "mapping", "namespace", "loop",    "macro", "method", "function"};
    return names[v.kind];
}

bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL;
}

double jinja_to_double(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT ? v.f : v.kind == JINJA_BOOL ? v.b : (double)v.i;
}

static int64_t whole(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? v.b : v.i;
}

static bool equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth);

static bool equal_lists(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(r, a->at[i], b->at[i], depth + 1)) return false;
    return true;
}

static bool equal_dicts(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *other = jinja_dict_find(r, b, a->at[i].key);
        if (!other || !equal(r, a->at[i].value, *other, depth + 1)) return false;
    }
    return true;
}

static bool equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth)
{
    if (depth > COMPARE_DEPTH_MAX)
        jinja_fail(r, ERR_RANGE, "values are nested too deeply to compare");
    if (!jinja_charge(r, 0)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
            return jinja_to_double(a) == jinja_to_double(b);
        return whole(a) == whole(b);
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return a.s->n == b.s->n && jinja_charge(r, a.s->n / 16) &&
               str_eq(jinja_flat(r, a.s), jinja_flat(r, b.s));
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(r, a.list, b.list, depth);
    case JINJA_DICT:
        return equal_dicts(r, a.dict, b.dict, depth);
    default:
        return a.dict == b.dict;
    }
}

bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return equal(r, a, b, 0);
}

static int order_bytes(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int order(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth)
{
    if (!jinja_charge(r, 0)) return 0;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT)
            return (whole(a) > whole(b)) - (whole(a) < whole(b));
        double x = jinja_to_double(a), y = jinja_to_double(b);
        return (x > y) - (x < y);
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        if (!jinja_charge(r, a.s->n / 16)) return 0;
        return order_bytes(jinja_flat(r, a.s), jinja_flat(r, b.s));
    }
    bool lists = a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE);
    if (!lists || depth > COMPARE_DEPTH_MAX) {
        jinja_fail(r, ERR_INVALID, "%s and %s have no order", jinja_kind_name(a),
                   jinja_kind_name(b));
        return 0;
    }
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
        if (equal(r, a.list->at[i], b.list->at[i], depth + 1)) continue;
        return order(r, a.list->at[i], b.list->at[i], depth + 1);
    }
    return (a.list->n > b.list->n) - (a.list->n < b.list->n);
}

int jinja_order(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return order(r, a, b, 0);
}

int jinja_sort_order(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return equal(r, a, b, 0) ? 0 : order(r, a, b, 0);
}

struct jinja_value jinja_items_of(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_value out = jinja_list_new(r, JINJA_LIST);
    if (r->err) return out;
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return out;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *out.list = *v.list;
        out.list->lazy = false;
        out.list->cap = out.list->n; /* appending must not write into the other's memory */
        return out;
    case JINJA_DICT:
        for (size_t i = 0; i < v.dict->n && jinja_charge(r, 0); i++)
            jinja_list_add(r, out, v.dict->at[i].key);
        return out;
    case JINJA_STRING: {
        struct str s = jinja_flat(r, v.s);
        for (size_t i = 0; i < s.n && jinja_charge(r, 0);) {
            uint32_t code;
            size_t n = unicode_next(s, i, &code);
            jinja_list_add(r, out, jinja_part(r, v.s, i, n));
            i += n;
        }
        return out;
    }
    default:
        jinja_fail(r, ERR_INVALID, "a %s cannot be iterated", jinja_kind_name(v));
        return out;
    }
}

bool jinja_contains(struct jinja_run *r, struct jinja_value all, struct jinja_value one)
{
    switch (all.kind) {
    case JINJA_UNDEFINED:
        return false;
    case JINJA_STRING:
        if (one.kind != JINJA_STRING) {
            jinja_fail(r, ERR_INVALID, "'in <string>' needs a string, not a %s",
                       jinja_kind_name(one));
            return false;
        }
        return jinja_charge(r, all.s->n) &&
               str_find(jinja_flat(r, all.s), jinja_flat(r, one.s)) >= 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        for (size_t i = 0; i < all.list->n && !r->err; i++)
            if (jinja_equal(r, all.list->at[i], one)) return true;
        return false;
    case JINJA_DICT:
        return jinja_dict_find(r, all.dict, one) != NULL;
    default:
        jinja_fail(r, ERR_INVALID, "'in' needs a list, mapping or string, not a %s",
                   jinja_kind_name(all));
        return false;
    }
}
