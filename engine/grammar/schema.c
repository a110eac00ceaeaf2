/* schema.c - takes one schema apart: references, alternatives, fixed values, types. */
#include "engine/grammar/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { PATH_BYTES_MAX = 4096, PATH_SHOWN = 110, MEMOS_MAX = 4096, WORK_A_SCHEMA = 500 };

/* --- places and messages */
size_t schema_push(struct schema_build *b, const char *name)
{
    size_t mark = b->path.n;
    buf_printf(&b->path, ".%s", name);
    return mark;
}
size_t schema_push_index(struct schema_build *b, size_t i)
{
    size_t mark = b->path.n;
    buf_printf(&b->path, "[%zu]", i);
    return mark;
}
size_t schema_push_key(struct schema_build *b, struct str key)
{
    size_t mark = b->path.n;
    key = str_sub(key, 0, 60);
    key.n = utf8_complete(key);
    buf_char(&b->path, '.');
    buf_str(&b->path, key);
    return mark;
}
void schema_pop(struct schema_build *b, size_t mark)
{
    if (b->path.n > mark) b->path.n = mark;
}

/* The end of a long path says more than its beginning. */
static struct str shown_path(const struct schema_build *b)
{
    struct str s = buf_view(&b->path);
    if (s.n <= PATH_SHOWN) return s;
    s = str_sub(s, s.n - PATH_SHOWN, PATH_SHOWN);
    while (s.n && ((unsigned char)*s.p & 0xC0) == 0x80)
        s = str_sub(s, 1, s.n);
    return s;
}

enum err schema_refuse(struct schema_build *b, enum err code, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct str path = shown_path(b);
    return err_set(b->e, code, STR_FMT ": %s", STR_ARG(path), text);
}

static enum err placed(struct schema_build *b, enum err code)
{
    struct str path = shown_path(b);
    return code ? err_prefix(b->e, code, STR_FMT, STR_ARG(path)) : OK;
}

/* --- rules */
int schema_rule_of(struct schema_build *b, const struct dfa *d)
{
    int rule = program_reserve(b->p);
    program_define(b->p, rule, d);
    return rule;
}

enum err schema_rule(struct schema_build *b, struct nfa *a, int start, int *rule)
{
    struct dfa d;
    enum err code = placed(b, dfa_from_nfa(&d, a, start, b->budget, b->e));
    nfa_fini(a);
    if (code) return code;
    *rule = schema_rule_of(b, &d);
    dfa_fini(&d);
    return OK;
}

enum err schema_count(struct schema_build *b, const json_t *schema, const char *name, uint32_t *out)
{
    const json_t *v = json_object_get(schema, name);
    if (!v) return OK;
    double n = json_number_value(v);
    if (!json_is_number(v) || !(n >= 0) || n != floor(n))
        return schema_refuse(b, ERR_INVALID, "%s: expected an integer of at least 0", name);
    *out = n < 1e9 ? (uint32_t)n : (uint32_t)1e9;
    return OK;
}

/* --- fixed values */
/* A value as JSON text with blanks where they are allowed; built from its end. */
static int value_text(struct nfa *a, const json_t *v, int next)
{
    if (json_is_array(v)) {
        next = nfa_bytes(a, ']', ']', 0, next);
        for (size_t i = json_array_size(v); i-- > 0;) {
            next = value_text(a, json_array_get(v, i), json_blank(a, next));
            if (i) next = nfa_bytes(a, ',', ',', 0, json_blank(a, next));
        }
        return nfa_bytes(a, '[', '[', 0, json_blank(a, next));
    }
    if (!json_is_object(v)) {
        struct buf text;
        buf_init(&text, 64 << 20);
        json_write(&text, v);
        next = nfa_text(a, buf_view(&text), next);
        buf_fini(&text);
        return next;
    }
    json_t *o = (json_t *)(uintptr_t)v;
    size_t n = json_object_size(v);
    void **its = xcalloc(n + 1, sizeof *its);
    size_t i = 0;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
        its[i++] = it;
    next = nfa_bytes(a, '}', '}', 0, next);
    while (i-- > 0) {
        struct str key = {json_object_iter_key(its[i]), json_object_iter_key_len(its[i])};
        next = value_text(a, json_object_iter_value(its[i]), json_blank(a, next));
        next = json_text(a, key, nfa_bytes(a, ':', ':', 0, json_blank(a, next)));
        if (i) next = nfa_bytes(a, ',', ',', 0, json_blank(a, next));
    }
    mem_free(its);
    return nfa_bytes(a, '{', '{', 0, json_blank(a, next));
}

static bool has_type(const json_t *v, int types)
{
    int type = json_is_null(v)      ? TYPE_NULL
               : json_is_boolean(v) ? TYPE_BOOLEAN
               : json_is_object(v)  ? TYPE_OBJECT
               : json_is_array(v)   ? TYPE_ARRAY
               : json_is_string(v)  ? TYPE_STRING
               : json_is_integer(v) ? TYPE_NUMBER | TYPE_INTEGER
                                    : TYPE_NUMBER;
    if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v))) type |= TYPE_INTEGER;
    return !types || types & type;
}

static bool value_holds(const json_t *v, int types, const json_t *only)
{
    return has_type(v, types) && (!only || json_equal(only, v));
}

enum err schema_has_value(struct schema_build *b, const json_t *schema, bool *has)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    int types;
    *has = true;
    if (!only && !json_is_array(list)) return OK;
    enum err code = schema_types(b, schema, &types);
    if (code) return code;
    b->budget->work -= (int64_t)json_array_size(list);
    *has = !list && value_holds(only, types, NULL);
    for (size_t i = 0; i < json_array_size(list) && !*has; i++)
        *has = value_holds(json_array_get(list, i), types, only);
    return OK;
}

static enum err compile_values(struct schema_build *b, const json_t *schema, struct callee *out)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    json_t *o = (json_t *)(uintptr_t)schema;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        bool fine = !strcmp(key, "enum") || !strcmp(key, "const") || !strcmp(key, "type") ||
                    !strcmp(key, "nullable");
        if (!fine && schema_is_constraint(key))
            return schema_refuse(b, ERR_UNSUPPORTED,
                                 "\"%.60s\" beside enum or const is not supported: list the values "
                                 "that remain",
                                 key);
    }
    if (list && !json_is_array(list))
        return schema_refuse(b, ERR_INVALID, "enum: expected an array");
    int types, ways = -1;
    enum err code = schema_types(b, schema, &types);
    if (code) return code;
    struct nfa a;
    nfa_init(&a);
    int end = nfa_accept(&a);
    size_t n = list ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = list ? json_array_get(list, i) : only;
        if (!value_holds(v, types, only)) continue;
        int way = value_text(&a, v, end);
        ways = ways < 0 ? way : nfa_split(&a, ways, way);
    }
    if (ways < 0) {
        nfa_fini(&a);
        return schema_refuse(b, ERR_INVALID, "no value of enum or const is of its type");
    }
    *out = (struct callee){0, 0, GRAMMAR_NO_LIMIT};
    return schema_rule(b, &a, ways, &out->rule);
}

/* --- alternatives */
static enum err compile_word(struct schema_build *b, const char *one, const char *other,
                             struct callee *out)
{
    struct nfa a;
    nfa_init(&a);
    int end = nfa_accept(&a), start = nfa_text(&a, str_of(one), end);
    if (other) start = nfa_split(&a, start, nfa_text(&a, str_of(other), end));
    *out = (struct callee){0, 0, GRAMMAR_NO_LIMIT};
    return schema_rule(b, &a, start, &out->rule);
}

/* A rule that is any of these. */
static enum err compile_union(struct schema_build *b, const struct callee *ways, size_t n,
                              struct callee *out)
{
    struct nfa a;
    if (n == 1) {
        *out = ways[0];
        return OK;
    }
    nfa_init(&a);
    int end = nfa_accept(&a), start = nfa_call(&a, ways[0], 0, end);
    for (size_t i = 1; i < n; i++)
        start = nfa_split(&a, start, nfa_call(&a, ways[i], 0, end));
    *out = (struct callee){0, 0, GRAMMAR_NO_LIMIT};
    return schema_rule(b, &a, start, &out->rule);
}

static enum err compile_any_of(struct schema_build *b, const json_t *schema, const char *name,
                               struct callee *out)
{
    const json_t *list = json_object_get(schema, name), *rest, *whole;
    size_t n = json_array_size(list), kept = 0;
    if (!n) return schema_refuse(b, ERR_INVALID, "%s: expected an array of schemas", name);
    bool more = schema_constrains(schema, name);
    enum err code = schema_without(b, schema, name, &rest);
    struct callee *ways = xcalloc(n, sizeof *ways);
    size_t at = schema_push(b, name);
    for (size_t i = 0; i < n && !code; i++) {
        const json_t *branch = json_array_get(list, i);
        if (json_is_false(branch)) continue;
        size_t mark = schema_push_index(b, i);
        whole = branch;
        if (more)
            code = schema_merge(b, rest, branch, &whole);
        else if (json_object_get(branch, "allOf"))
            code = schema_resolve(b, branch, &whole);
        if (!code && !json_is_false(whole)) code = schema_compile(b, whole, &ways[kept++]);
        if (!code) schema_pop(b, mark);
    }
    if (!code) schema_pop(b, at);
    if (!code && !kept) code = schema_refuse(b, ERR_INVALID, "%s: nothing can match", name);
    if (!code) code = compile_union(b, ways, kept, out);
    mem_free(ways);
    return code;
}

/* --- types */
static enum err compile_type(struct schema_build *b, const json_t *schema, int type,
                             struct callee *out)
{
    switch (type) {
    case TYPE_NULL:
        return compile_word(b, "null", NULL, out);
    case TYPE_BOOLEAN:
        return compile_word(b, "true", "false", out);
    case TYPE_OBJECT:
        return schema_object(b, schema, out);
    case TYPE_ARRAY:
        return schema_array(b, schema, out);
    case TYPE_STRING:
        return schema_string(b, schema, out);
    default:
        return schema_number(b, schema, type == TYPE_INTEGER, out);
    }
}

static enum err compile_types(struct schema_build *b, const json_t *schema, struct callee *out)
{
    int types;
    struct callee ways[8];
    size_t n = 0;
    enum err code = schema_types(b, schema, &types);
    bool null = json_is_true(json_object_get(schema, "nullable"));
    if (!types && !code) {
        *out = json_callee(RULE_VALUE);
        return OK;
    }
    if (types & TYPE_NUMBER) types &= ~TYPE_INTEGER;
    if (null) types |= TYPE_NULL;
    for (int type = TYPE_NULL; type <= TYPE_INTEGER && !code; type *= 2)
        if (types & type) code = compile_type(b, schema, type, &ways[n++]);
    return code ? code : compile_union(b, ways, n, out);
}

/* --- references */
static enum err compile_ref(struct schema_build *b, const json_t *target, struct callee *out)
{
    for (int i = 0; i < b->n_memo; i++)
        if (b->memo[i].schema == target) {
            *out = b->memo[i].known ? b->memo[i].callee
                                    : (struct callee){b->memo[i].rule, 0, GRAMMAR_NO_LIMIT};
            return OK;
        }
    if (b->n_memo == MEMOS_MAX) return schema_refuse(b, ERR_TOO_LARGE, "too many references");
    if (b->n_memo == b->cap_memo) {
        b->cap_memo = b->cap_memo ? 2 * b->cap_memo : 16;
        b->memo = xrealloc(b->memo, (size_t)b->cap_memo * sizeof *b->memo);
    }
    int i = b->n_memo++, rule = program_reserve(b->p);
    b->memo[i] = (struct schema_memo){.schema = target, .rule = rule};
    enum err code = schema_compile(b, target, out);
    if (code) return code;
    b->memo[i].callee = *out;
    b->memo[i].known = true;
    struct nfa a;
    struct dfa d;
    nfa_init(&a);
    int start = nfa_call(&a, *out, 0, nfa_accept(&a));
    code = placed(b, dfa_from_nfa(&d, &a, start, b->budget, b->e));
    nfa_fini(&a);
    if (code) return code;
    program_define(b->p, rule, &d);
    dfa_fini(&d);
    return OK;
}

static enum err compile_object(struct schema_build *b, const json_t *schema, struct callee *out)
{
    const json_t *target = schema, *ref = json_object_get(schema, "$ref"), *null;
    enum err code = schema_check_keywords(b, schema);
    if (code) return code;
    if (ref && !schema_constrains(schema, "$ref")) {
        code = schema_ref_target(b, ref, &target);
        return code ? code : compile_ref(b, target, out);
    }
    null = json_object_get(schema, "nullable");
    if (null && !json_is_boolean(null))
        return schema_refuse(b, ERR_INVALID, "nullable: expected true or false");
    if (ref || json_object_get(schema, "allOf")) {
        code = schema_resolve(b, schema, &target);
        if (!code && json_is_false(target))
            code = schema_refuse(b, ERR_INVALID, "nothing can match: no type is left, or no value");
        return code ? code : schema_compile(b, target, out);
    }
    const char *any = json_object_get(schema, "anyOf")   ? "anyOf"
                      : json_object_get(schema, "oneOf") ? "oneOf"
                                                         : NULL;
    bool fixed = json_object_get(schema, "enum") || json_object_get(schema, "const");
    if (!any && !fixed) return compile_types(b, schema, out);
    struct callee ways[2];
    code = any ? compile_any_of(b, schema, any, &ways[0]) : compile_values(b, schema, &ways[0]);
    if (code || any || !json_is_true(null)) {
        *out = ways[0];
        return code;
    }
    code = compile_word(b, "null", NULL, &ways[1]);
    return code ? code : compile_union(b, ways, 2, out);
}

enum err schema_compile(struct schema_build *b, const json_t *schema, struct callee *out)
{
    b->budget->work -= WORK_A_SCHEMA;
    if (b->budget->work <= 0) return schema_refuse(b, ERR_TOO_LARGE, "too many schemas");
    if (json_is_true(schema)) {
        *out = json_callee(RULE_VALUE);
        return OK;
    }
    if (json_is_false(schema)) return schema_refuse(b, ERR_INVALID, "false matches nothing");
    if (!json_is_object(schema))
        return schema_refuse(b, ERR_INVALID, "expected a schema (an object), got %s",
                             json_kind(schema));
    if (b->depth == SCHEMA_DEPTH_MAX)
        return schema_refuse(b, ERR_TOO_LARGE, "schemas are nested deeper than %d",
                             SCHEMA_DEPTH_MAX);
    b->depth++;
    enum err code = compile_object(b, schema, out);
    b->depth--;
    return code;
}

/* --- the whole */
void schema_build_init(struct schema_build *b, struct program *p, struct grammar_budget *budget,
                       struct errmsg *e)
{
    *b = (struct schema_build){.p = p, .budget = budget, .e = e, .made = json_array()};
    buf_init(&b->path, PATH_BYTES_MAX);
}

void schema_build_fini(struct schema_build *b)
{
    mem_free(b->memo);
    json_decref(b->made);
    buf_fini(&b->path);
}

static void begin(struct schema_build *b, const json_t *schema, bool strict, const char *path)
{
    b->root = schema;
    b->strict = strict;
    b->depth = 0;
    buf_clear(&b->path);
    buf_z(&b->path, path);
}

enum err schema_build_root(struct schema_build *b, const json_t *schema, bool strict,
                           const char *path, struct callee *out)
{
    begin(b, schema, strict, path);
    if (!json_is_object(schema)) return schema_compile(b, schema, out);
    return compile_ref(b, schema, out);
}

enum err schema_build_object(struct schema_build *b, const json_t *schema, bool strict,
                             const char *path, struct callee *out)
{
    if (str_eqz(json_member_str(schema, "type"), "object"))
        return schema_build_root(b, schema, strict, path, out);
    begin(b, schema, strict, path);
    json_t *both = json_pack("{s:[O,{s:s}]}", "allOf", schema, "type", "object");
    json_array_append_new(b->made, both);
    return schema_compile(b, both, out);
}
