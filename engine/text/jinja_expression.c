/* jinja_expression.c - evaluates expressions: names, members, calls, chains. */
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/unicode.h"

bool jinja_enter_depth(struct jinja_run *r)
{
    if (!jinja_charge(r, 0)) return false;
    if (r->depth == JINJA_DEPTH_MAX) {
        jinja_fail(r, ERR_RANGE, "the template is nested or calls itself too deeply");
        return false;
    }
    r->depth++;
    return true;
}

static struct jinja_value undefined_key(struct jinja_run *r, struct str name)
{
    struct str *kept = jinja_alloc(r, sizeof *kept);
    if (kept) *kept = name;
    return jinja_undefined(kept);
}

/* Named for the error that using it gives. */
static struct jinja_value undefined_element(struct jinja_run *r, struct jinja_value v, int64_t i)
{
    char name[60];
    snprintf(name, sizeof name, "element %lld of a %s", (long long)i, jinja_kind_name(v));
    char *kept = jinja_alloc(r, strlen(name) + 1);
    if (!kept) return jinja_undefined(NULL);
    memcpy(kept, name, strlen(name));
    return undefined_key(r, (struct str){kept, strlen(name)});
}

static struct jinja_value method_of(struct jinja_run *r, struct jinja_value self, struct str name)
{
    struct jinja_method *m = jinja_alloc(r, sizeof *m);
    if (!m) return jinja_undefined(NULL);
    *m = (struct jinja_method){self, name};
    return (struct jinja_value){.kind = JINJA_METHOD, .method = m};
}

static struct jinja_value loop_member(struct jinja_run *r, struct jinja_value v,
                                      const struct str *name)
{
    const struct jinja_loop *l = v.loop;
    int64_t i = (int64_t)l->i, n = (int64_t)l->n;
    const struct {
        const char *name;
        struct jinja_value value;
    } members[] = {{"index", jinja_int(i + 1)},
                   {"index0", jinja_int(i)},
                   {"first", jinja_bool(i == 0)},
                   {"last", jinja_bool(i == n - 1)},
                   {"length", jinja_int(n)},
                   {"revindex", jinja_int(n - i)},
                   {"revindex0", jinja_int(n - i - 1)},
                   {"depth", jinja_int(1)},
                   {"depth0", jinja_int(0)}}; /* counts recursive loops only, which we refuse */
    for (size_t k = 0; k < sizeof members / sizeof members[0]; k++)
        if (str_eqz(*name, members[k].name)) return members[k].value;
    if (str_eqz(*name, "previtem")) return i > 0 ? l->items[i - 1] : jinja_undefined(name);
    if (str_eqz(*name, "nextitem")) return i + 1 < n ? l->items[i + 1] : jinja_undefined(name);
    return jinja_has_method(v, *name) ? method_of(r, v, *name) : jinja_undefined(name);
}

struct jinja_value jinja_member(struct jinja_run *r, struct jinja_value v, const struct str *name)
{
    if (r->err) return v;
    if (v.kind == JINJA_UNDEFINED) {
        jinja_fail_undefined(r, v);
        return v;
    }
    if (v.kind == JINJA_LOOP) return loop_member(r, v, name);
    if (v.kind == JINJA_MACRO && str_eqz(*name, "name"))
        return jinja_text(r, v.macro->node->text, false);
    if (jinja_has_method(v, *name)) return method_of(r, v, *name);
    if (v.kind == JINJA_DICT || v.kind == JINJA_NAMESPACE) {
        const struct jinja_value *found = jinja_dict_find_text(r, v.dict, *name);
        if (found) return *found;
    }
    return jinja_undefined(name);
}

struct jinja_value jinja_index(struct jinja_run *r, struct jinja_value v, struct jinja_value key)
{
    if (r->err) return v;
    if (v.kind == JINJA_UNDEFINED) {
        jinja_fail_undefined(r, v);
        return v;
    }
    if (v.kind == JINJA_DICT) {
        const struct jinja_value *found = jinja_dict_find(r, v.dict, key);
        if (found) return *found;
    }
    if (key.kind == JINJA_STRING) {
        struct jinja_value name = undefined_key(r, jinja_flat(r, key.s));
        return r->err || v.kind == JINJA_DICT ? name : jinja_member(r, v, name.name);
    }
    if (key.kind != JINJA_INT && key.kind != JINJA_BOOL) return jinja_undefined(NULL);
    int64_t i = key.kind == JINJA_BOOL ? key.b : key.i;
    bool list = v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
    if (!list && v.kind != JINJA_STRING) return undefined_element(r, v, i);
    int64_t n = (int64_t)(list ? v.list->n : jinja_chars(r, v.s)), at = i < 0 ? i + n : i;
    if (at < 0 || at >= n) return undefined_element(r, v, i);
    if (list) return v.list->at[at];
    i = at;
    struct jinja_value part[3] = {jinja_int(i), jinja_int(i + 1), jinja_none()};
    return jinja_slice(r, v, part);
}

struct jinja_args jinja_eval_args(struct jinja_run *r, const struct jinja_node *call)
{
    struct jinja_args a = {NULL, 0, NULL, 0};
    if (!call->n_items) return a;
    a.at = jinja_alloc(r, (size_t)call->n_items * sizeof *a.at);
    a.named = jinja_alloc(r, (size_t)call->n_items * sizeof *a.named);
    if (!a.at || !a.named) return (struct jinja_args){NULL, 0, NULL, 0};
    for (int i = 0; i < call->n_items; i++) {
        const struct jinja_node *n = call->items[i];
        if (n->kind == JINJA_N_KEYWORD)
            a.named[a.n_named++] = (struct jinja_frame_var){n->text, jinja_eval(r, n->a)};
        else
            a.at[a.n++] = jinja_eval(r, n);
    }
    return a;
}

struct jinja_value jinja_call(struct jinja_run *r, struct jinja_value callee,
                              const struct jinja_args *args)
{
    if (r->err) return callee;
    switch (callee.kind) {
    case JINJA_MACRO:
        return jinja_call_macro(r, callee.macro, args);
    case JINJA_METHOD:
        return jinja_call_method(r, callee.method, args);
    case JINJA_FUNCTION:
        return jinja_call_function(r, *callee.name, args);
    case JINJA_UNDEFINED:
        jinja_fail_undefined(r, callee);
        return callee;
    default:
        jinja_fail(r, ERR_INVALID, "a %s cannot be called", jinja_kind_name(callee));
        return jinja_undefined(NULL);
    }
}

static struct jinja_value eval_name(struct jinja_run *r, const struct jinja_node *n)
{
    const struct jinja_value *v = jinja_frame_find(r, n->text);
    if (v) return *v;
    if (jinja_is_function(n->text))
        return (struct jinja_value){.kind = JINJA_FUNCTION, .name = &n->text};
    return jinja_undefined(&n->text);
}

static struct jinja_value eval_list(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value l = jinja_list_new(r, n->kind == JINJA_N_TUPLE ? JINJA_TUPLE : JINJA_LIST);
    for (int i = 0; i < n->n_items && !r->err; i++)
        jinja_list_add(r, l, jinja_eval(r, n->items[i]));
    return l;
}

static struct jinja_value eval_dict(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value d = jinja_dict_new(r, JINJA_DICT);
    for (int i = 0; i + 1 < n->n_items && !r->err; i += 2) {
        struct jinja_value key = jinja_eval(r, n->items[i]);
        jinja_dict_set(r, d.dict, key, jinja_eval(r, n->items[i + 1]));
    }
    return d;
}

static struct jinja_value eval_unary(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = jinja_eval(r, n->a);
    if (r->err) return v;
    if (n->op == JINJA_NOT) return jinja_bool(!jinja_truth(v));
    if (!jinja_is_number(v)) {
        if (v.kind == JINJA_UNDEFINED)
            jinja_fail_undefined(r, v);
        else
            jinja_fail(r, ERR_INVALID, "a sign before a %s", jinja_kind_name(v));
        return v;
    }
    if (n->op == JINJA_ADD) return v.kind == JINJA_BOOL ? jinja_int(v.b) : v;
    return jinja_arithmetic(r, JINJA_SUB, jinja_int(0), v);
}

static struct jinja_value eval_chain(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = jinja_eval(r, n->a);
    for (int i = 0; i < n->n_items && !r->err; i++) {
        struct jinja_value next = jinja_eval(r, n->items[i]->a);
        r->line = n->items[i]->line;
        v = jinja_arithmetic(r, n->items[i]->op, v, next);
    }
    return v;
}

static struct jinja_value eval_compare(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value left = jinja_eval(r, n->a);
    for (int i = 0; i < n->n_items && !r->err; i++) {
        struct jinja_value right = jinja_eval(r, n->items[i]->a);
        if (r->err || !jinja_compare(r, n->items[i]->op, left, right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static struct jinja_value eval_logic(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = jinja_none();
    for (int i = 0; i < n->n_items && !r->err; i++) {
        v = jinja_eval(r, n->items[i]);
        if (jinja_truth(v) == (n->op == JINJA_OR)) break;
    }
    return v;
}

static struct jinja_value eval_slice(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = jinja_eval(r, n->a), part[3];
    for (int i = 0; i < 3; i++)
        part[i] = n->items[i] ? jinja_eval(r, n->items[i]) : jinja_none();
    if (!r->err && v.kind == JINJA_UNDEFINED) jinja_fail_undefined(r, v);
    return r->err ? v : jinja_slice(r, v, part);
}

/* Only arithmetic and what hides in it needs a value that is there; printing and tests take undefined ones. */
static struct jinja_value eval_filter(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = n->a ? jinja_eval(r, n->a) : r->block_text;
    struct jinja_args args = jinja_eval_args(r, n);
    r->line = n->line;
    return r->err ? v : jinja_filter(r, n->text, v, &args);
}

static struct jinja_value eval_test(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value v = jinja_eval(r, n->a);
    struct jinja_args args = jinja_eval_args(r, n);
    r->line = n->line;
    return r->err ? v : jinja_bool(jinja_test(r, n->text, v, &args) != (n->i != 0));
}

static struct jinja_value eval_call(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value callee = jinja_eval(r, n->a);
    struct jinja_args args = jinja_eval_args(r, n);
    r->line = n->line;
    return jinja_call(r, callee, &args);
}

static struct jinja_value eval_node(struct jinja_run *r, const struct jinja_node *n)
{
    struct jinja_value a;
    switch (n->kind) {
    case JINJA_N_NONE:
        return jinja_none();
    case JINJA_N_BOOL:
        return jinja_bool(n->i);
    case JINJA_N_INT:
        return jinja_int(n->i);
    case JINJA_N_FLOAT:
        return jinja_float(n->f);
    case JINJA_N_STRING:
        return jinja_text(r, n->text, false);
    case JINJA_N_NAME:
        return eval_name(r, n);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
        return eval_list(r, n);
    case JINJA_N_DICT:
        return eval_dict(r, n);
    case JINJA_N_UNARY:
        return eval_unary(r, n);
    case JINJA_N_CHAIN:
        return eval_chain(r, n);
    case JINJA_N_COMPARE:
        return eval_compare(r, n);
    case JINJA_N_LOGIC:
        return eval_logic(r, n);
    case JINJA_N_CHOICE:
        a = jinja_eval(r, n->b);
        if (r->err) return a;
        return jinja_truth(a) ? jinja_eval(r, n->a)
               : n->c         ? jinja_eval(r, n->c)
                              : jinja_undefined(NULL);
    case JINJA_N_MEMBER:
        a = jinja_eval(r, n->a);
        return jinja_member(r, a, &n->text);
    case JINJA_N_INDEX:
        a = jinja_eval(r, n->a);
        return jinja_index(r, a, jinja_eval(r, n->b));
    case JINJA_N_SLICE:
        return eval_slice(r, n);
    case JINJA_N_CALL:
        return eval_call(r, n);
    case JINJA_N_FILTER:
        return eval_filter(r, n);
    case JINJA_N_TEST:
        return eval_test(r, n);
    default:
        jinja_fail(r, ERR_UNSUPPORTED, "not an expression");
        return jinja_undefined(NULL);
    }
}

struct jinja_value jinja_eval(struct jinja_run *r, const struct jinja_node *n)
{
    if (!jinja_enter_depth(r)) return jinja_undefined(NULL);
    r->line = n->line;
    struct jinja_value v = eval_node(r, n);
    r->depth--;
    return v;
}
