/* schema_object.c - objects and arrays. */
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/schema.h"

struct member {
    struct str name;
    struct callee value;
    bool required;
};
struct members {
    struct member *at;
    size_t n;
    bool open; /* others may follow */
    struct callee more;
    uint32_t least, most; /* minProperties, maxProperties */
};

/* --- what the object holds */
static bool names(const json_t *list, struct str name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (str_eq(json_str(json_array_get(list, i)), name)) return true;
    return false;
}

static enum err check_lists(struct schema_build *b, const json_t *properties,
                            const json_t *required)
{
    if (properties && !json_is_object(properties))
        return schema_refuse(b, ERR_INVALID, "properties: expected an object, got %s",
                             json_kind(properties));
    if (required && !json_is_array(required))
        return schema_refuse(b, ERR_INVALID, "required: expected an array, got %s",
                             json_kind(required));
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)))
            return schema_refuse(b, ERR_INVALID, "required[%zu]: expected a string", i);
    b->budget->work -= (int64_t)(json_object_size(properties) * json_array_size(required));
    return b->budget->work > 0
               ? OK
               : schema_refuse(b, ERR_TOO_LARGE, "too many properties and required");
}

static enum err add_member(struct schema_build *b, struct members *m, struct str name,
                           const json_t *schema, bool required)
{
    if (json_is_false(schema))
        return required ? schema_refuse(b, ERR_INVALID, "a required member that nothing can match")
                        : OK;
    struct member *x = &m->at[m->n++];
    *x = (struct member){.name = name, .required = required};
    return schema_compile(b, schema, &x->value);
}

static enum err read_properties(struct schema_build *b, const json_t *properties,
                                const json_t *required, struct members *m)
{
    enum err code = OK;
    json_t *o = (json_t *)(uintptr_t)properties;
    size_t mark = schema_push(b, "properties");
    for (void *it = json_object_iter(o); it && !code; it = json_object_iter_next(o, it)) {
        struct str name = {json_object_iter_key(it), json_object_iter_key_len(it)};
        size_t inner = schema_push_key(b, name);
        code = add_member(b, m, name, json_object_iter_value(it), names(required, name));
        if (!code) schema_pop(b, inner);
    }
    if (!code) schema_pop(b, mark);
    return code;
}

/* Names that are required but not described. */
static enum err read_required(struct schema_build *b, const json_t *properties,
                              const json_t *required, const json_t *more, struct members *m)
{
    enum err code = OK;
    bool closed = more ? json_is_false(more) : false;
    for (size_t i = 0; i < json_array_size(required) && !code; i++) {
        struct str name = json_str(json_array_get(required, i));
        bool known = json_object_getn(properties, name.p, name.n) != NULL;
        for (size_t k = 0; k < i && !known; k++)
            known = str_eq(json_str(json_array_get(required, k)), name);
        b->budget->work -= (int64_t)i;
        if (known) continue;
        if (closed)
            return schema_refuse(b, ERR_INVALID,
                                 "required[%zu]: not in properties, and additionalProperties is "
                                 "false",
                                 i);
        json_t *any = json_true();
        code = add_member(b, m, name, json_is_object(more) ? more : any, true);
    }
    return code;
}

static enum err read_limits(struct schema_build *b, const json_t *schema, struct members *m)
{
    size_t n_required = 0;
    m->most = GRAMMAR_NO_LIMIT;
    enum err code = schema_count(b, schema, "minProperties", &m->least);
    if (!code) code = schema_count(b, schema, "maxProperties", &m->most);
    if (code) return code;
    for (size_t i = 0; i < m->n; i++)
        n_required += m->at[i].required;
    if (m->least <= n_required) m->least = 0;
    if (!m->open && m->most >= m->n) m->most = GRAMMAR_NO_LIMIT;
    if (m->least > 1)
        return schema_refuse(b, ERR_UNSUPPORTED,
                             "minProperties: above 1 and above what is required is not supported");
    if (m->most != GRAMMAR_NO_LIMIT && m->n)
        return schema_refuse(b, ERR_UNSUPPORTED,
                             "maxProperties beside properties is not supported");
    if (m->least > m->most || (m->least && !m->n && !m->open))
        return schema_refuse(b, ERR_INVALID, "minProperties: nothing can match");
    return OK;
}

static enum err read_members(struct schema_build *b, const json_t *schema, struct members *m)
{
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required"),
                 *more = json_object_get(schema, "additionalProperties");
    enum err code = check_lists(b, properties, required);
    if (code) return code;
    if (more && !json_is_object(more) && !json_is_boolean(more))
        return schema_refuse(b, ERR_INVALID, "additionalProperties: expected a schema");
    m->at = xcalloc(json_object_size(properties) + json_array_size(required) + 1, sizeof *m->at);
    code = read_properties(b, properties, required, m);
    if (!code) code = read_required(b, properties, required, more, m);
    m->open = more ? !json_is_false(more) : !properties;
    m->more = json_callee(RULE_VALUE);
    if (!code && json_is_object(more)) {
        size_t mark = schema_push(b, "additionalProperties");
        code = schema_compile(b, more, &m->more);
        if (!code) schema_pop(b, mark);
    }
    return code ? code : read_limits(b, schema, m);
}

/* --- how it is written */
/* A key that is none of the declared names. */
static enum err other_key(struct schema_build *b, const struct members *m, struct callee *out)
{
    struct dfa all, declared, rest;
    struct nfa a;
    *out = json_callee(RULE_KEY);
    if (!m->n) {
        *out = json_callee(RULE_STRING);
        return OK;
    }
    nfa_init(&a);
    int end = nfa_accept(&a), ways = json_text(&a, m->at[0].name, end);
    for (size_t i = 1; i < m->n; i++)
        ways = nfa_split(&a, ways, json_text(&a, m->at[i].name, end));
    enum err code = dfa_from_nfa(&declared, &a, ways, b->budget, b->e);
    nfa_fini(&a);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    json_key_dfa(&all);
    code = dfa_product(&rest, &all, &declared, true, b->budget, b->e);
    dfa_fini(&all);
    dfa_fini(&declared);
    if (code) return err_prefix(b->e, code, STR_FMT, STR_ARG(buf_view(&b->path)));
    out->rule = schema_rule_of(b, &rest);
    dfa_fini(&rest);
    return OK;
}

/* The members from the last to the first: `later` is where one stands after some member, `first` before any. */
static int write_members(struct nfa *a, const struct members *m, struct callee key)
{
    int end = json_blank(a, nfa_bytes(a, '}', '}', EDGE_ENOUGH, nfa_accept(a)));
    int later = m->open ? json_more_members(a, key, m->more, end) : end;
    int first = m->least ? nfa_never(a) : end;
    if (m->open) {
        int one = nfa_call(a, key, EDGE_COUNT, json_colon_value(a, m->more, later));
        first = nfa_split(a, first, json_blank(a, one));
    }
    for (size_t i = m->n; i-- > 0;) {
        const struct member *x = &m->at[i];
        int member = json_blank(a, json_text(a, x->name, json_colon_value(a, x->value, later)));
        int next = nfa_bytes(a, ',', ',', EDGE_COUNT, member);
        first = x->required ? member : nfa_split(a, member, first);
        later = x->required ? next : nfa_split(a, next, later);
    }
    return nfa_bytes(a, '{', '{', 0, first);
}

enum err schema_object(struct schema_build *b, const json_t *schema, struct callee *out)
{
    struct members m = {0};
    struct callee key = json_callee(RULE_STRING);
    struct nfa a;
    enum err code = read_members(b, schema, &m);
    if (!code && m.open) code = other_key(b, &m, &key);
    if (!code) {
        nfa_init(&a);
        int start = write_members(&a, &m, key);
        /* counted only where nothing is declared, so that no limit can cut off what is required */
        *out = (struct callee){0, m.n ? 0 : m.least, m.most};
        code = schema_rule(b, &a, start, &out->rule);
    }
    mem_free(m.at);
    return code;
}

/* --- arrays */
struct array_form {
    const json_t *list; /* schemas of the first items, or NULL */
    const json_t *rest; /* schema of the others, false = there are none, NULL = any */
    uint32_t least, most;
};

static enum err read_array(struct schema_build *b, const json_t *schema, struct array_form *f)
{
    f->list = json_object_get(schema, "prefixItems");
    f->rest = json_object_get(schema, "items");
    if (!f->list && json_is_array(f->rest)) { /* the older form */
        f->list = f->rest;
        f->rest = json_object_get(schema, "additionalItems");
    }
    if (f->list && !json_is_array(f->list))
        return schema_refuse(b, ERR_INVALID, "prefixItems: expected an array of schemas");
    f->most = GRAMMAR_NO_LIMIT;
    enum err code = schema_count(b, schema, "minItems", &f->least);
    if (!code) code = schema_count(b, schema, "maxItems", &f->most);
    if (code) return code;
    if (json_is_true(json_object_get(schema, "uniqueItems")) && f->most > 1)
        return schema_refuse(b, ERR_UNSUPPORTED,
                             "uniqueItems is not supported: an automaton cannot compare items");
    for (size_t i = 0; i < json_array_size(f->list) && i < f->most; i++)
        if (json_is_false(json_array_get(f->list, i))) f->most = (uint32_t)i;
    if (f->least > f->most) return schema_refuse(b, ERR_INVALID, "minItems is above maxItems");
    if (json_is_false(f->rest) && f->least > json_array_size(f->list))
        return schema_refuse(b, ERR_INVALID, "minItems: more than there are items");
    return OK;
}

enum err schema_array(struct schema_build *b, const json_t *schema, struct callee *out)
{
    struct array_form f = {0};
    struct callee rest = json_callee(RULE_VALUE);
    enum err code = read_array(b, schema, &f);
    if (code) return code;
    size_t n = json_array_size(f.list);
    if (n > f.most) n = f.most;
    struct callee *items = xcalloc(n + 1, sizeof *items);
    size_t mark = schema_push(b, "prefixItems");
    for (size_t i = 0; i < n && !code; i++) {
        size_t inner = schema_push_index(b, i);
        code = schema_compile(b, json_array_get(f.list, i), &items[i]);
        if (!code) schema_pop(b, inner);
    }
    if (!code) schema_pop(b, mark);
    mark = schema_push(b, "items");
    if (json_is_false(f.rest) || f.most <= n)
        rest.rule = -1;
    else if (!code && f.rest && !json_is_true(f.rest))
        code = schema_compile(b, f.rest, &rest);
    if (!code) schema_pop(b, mark);
    if (!code) {
        struct nfa a;
        nfa_init(&a);
        int start = json_array_of(&a, items, (int)n, rest, f.least);
        *out = (struct callee){0, f.least, f.most};
        code = schema_rule(b, &a, start, &out->rule);
    }
    mem_free(items);
    return code;
}
