/* schema_merge.c - references, and several schemas that hold together as one schema. Results are new values owned by the build; parts
 * that must themselves hold together are wrapped in allOf and merged when they are compiled. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/schema.h"

enum {
    BRANCHES_MAX = 256,
    WORK_A_MERGE = 2000,
    WORK_A_PART = 50,
    WORK_A_VALUE = 4,
    BYTES_A_STEP = 16
};

static json_t *own(struct schema_build *b, json_t *v)
{
    json_array_append_new(b->made, v);
    return v;
}

enum err schema_without(struct schema_build *b, const json_t *schema, const char *name,
                        const json_t **out)
{
    json_t *copy = own(b, json_copy((json_t *)(uintptr_t)schema));
    json_object_del(copy, name);
    *out = copy;
    return OK;
}

/* --- references */
/* One part of a JSON pointer in a URI: %xx, then ~1 and ~0. */
static struct str unescape(struct str part, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < part.n; i++) {
        char c = part.p[i];
        if (c == '%' && i + 2 < part.n && hex_value(part.p[i + 1]) >= 0 &&
            hex_value(part.p[i + 2]) >= 0) {
            c = (char)(hex_value(part.p[i + 1]) * 16 + hex_value(part.p[i + 2]));
            i += 2;
        }
        bool tilde = c == '~' && i + 1 < part.n;
        if (tilde && part.p[i + 1] == '1') c = '/';
        if (tilde && (part.p[i + 1] == '0' || part.p[i + 1] == '1')) i++;
        buf_char(out, c);
    }
    return buf_view(out);
}

static const json_t *follow(const json_t *at, struct str part)
{
    int64_t i;
    if (json_is_object(at)) return json_object_getn(at, part.p, part.n);
    if (json_is_array(at) && str_to_i64(part, 0, INT32_MAX, &i) == OK)
        return json_array_get(at, (size_t)i);
    return NULL;
}

enum err schema_ref_target(struct schema_build *b, const json_t *ref, const json_t **out)
{
    struct str text = json_str(ref), part;
    if (!text.p) return schema_refuse(b, ERR_INVALID, "$ref: expected a string");
    if (!str_starts(text, STR("#")) || (text.n > 1 && text.p[1] != '/'))
        return schema_refuse(b, ERR_UNSUPPORTED,
                             "$ref: only references inside the schema are followed: \"#\" or "
                             "\"#/$defs/name\"");
    const json_t *at = b->root;
    struct buf key;
    buf_init(&key, text.n + 1);
    text = str_sub(text, text.n > 1 ? 2 : 1, text.n);
    bool more = text.n > 0;
    while (at && more) {
        more = str_find_char(text, '/') >= 0;
        str_next(&text, '/', &part);
        at = follow(at, unescape(part, &key));
    }
    buf_fini(&key);
    if (!at)
        return schema_refuse(b, ERR_INVALID, "$ref: nothing stands at \"%.100s\"",
                             json_string_value(ref));
    *out = at;
    return OK;
}

/* --- one keyword demanded twice */
struct merge {
    struct schema_build *b;
    json_t *out; /* begins as a copy of x */
    const json_t *x, *y;
    bool never; /* nothing can match both */
};

static enum err too_much(struct schema_build *b)
{
    return schema_refuse(b, ERR_TOO_LARGE, "too many schemas to combine");
}

static enum err cannot(struct merge *m, const char *key)
{
    if (m->b->budget->work <= 0) return too_much(m->b); /* before they were compared to their end */
    return schema_refuse(m->b, ERR_UNSUPPORTED,
                         "two demands of \"%.60s\" that hold together are not supported", key);
}

/* json_equal within the budget: when that is used up nothing is the same, and the next schema is refused. */
static bool same(struct schema_build *b, const json_t *x, const json_t *y)
{
    if (x == y) return true;
    b->budget->work -= WORK_A_VALUE;
    if (b->budget->work <= 0 || json_typeof(x) != json_typeof(y)) return false;
    if (json_is_array(x)) {
        size_t n = json_array_size(x), i = 0;
        if (n != json_array_size(y)) return false;
        while (i < n && same(b, json_array_get(x, i), json_array_get(y, i)))
            i++;
        return i == n;
    }
    if (!json_is_object(x)) {
        b->budget->work -= (int64_t)(json_string_length(x) / BYTES_A_STEP);
        return json_equal(x, y);
    }
    json_t *o = (json_t *)(uintptr_t)x;
    if (json_object_size(x) != json_object_size(y)) return false;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const json_t *twin =
            json_object_getn(y, json_object_iter_key(it), json_object_iter_key_len(it));
        if (!twin || !same(b, json_object_iter_value(it), twin)) return false;
    }
    return true;
}

static json_t *both(struct schema_build *b, const json_t *x, const json_t *y)
{
    return same(b, x, y) ? json_incref((json_t *)(uintptr_t)x)
                         : json_pack("{s:[O,O]}", "allOf", x, y);
}

static enum err merge_type(struct merge *m)
{
    static const char *const names[] = {"null",   "boolean", "object", "array",
                                        "string", "number",  "integer"};
    int x, y;
    enum err code = schema_types(m->b, m->x, &x);
    if (!code) code = schema_types(m->b, m->y, &y);
    if (code) return code;
    if (x & TYPE_NUMBER) x |= TYPE_INTEGER;
    if (y & TYPE_NUMBER) y |= TYPE_INTEGER;
    int types = x & y;
    if (types & TYPE_NUMBER) types &= ~TYPE_INTEGER;
    m->never |= !types;
    json_t *list = json_array();
    for (int i = 0; i < 7; i++)
        if (types >> i & 1) json_array_append_new(list, json_string(names[i]));
    json_object_set_new(m->out, "type", list);
    return OK;
}

static enum err merge_bound(struct merge *m, const char *key, bool larger)
{
    const json_t *x = json_object_get(m->x, key), *y = json_object_get(m->y, key);
    if (!json_is_number(x) || !json_is_number(y))
        return schema_refuse(m->b, ERR_INVALID, "%s: expected a number", key);
    bool take_y = larger ? json_number_value(y) > json_number_value(x)
                         : json_number_value(y) < json_number_value(x);
    if (take_y) json_object_set(m->out, key, (json_t *)(uintptr_t)y);
    return OK;
}

static enum err merge_enum(struct merge *m)
{
    const json_t *x = json_object_get(m->x, "enum"), *y = json_object_get(m->y, "enum");
    json_t *list = json_array();
    m->b->budget->work -= (int64_t)json_array_size(x) * (int64_t)json_array_size(y) * 10;
    for (size_t i = 0; i < json_array_size(x) && m->b->budget->work > 0; i++)
        for (size_t k = 0; k < json_array_size(y); k++)
            if (same(m->b, json_array_get(x, i), json_array_get(y, k))) {
                json_array_append(list, json_array_get(x, i));
                break;
            }
    json_object_set_new(m->out, "enum", list);
    return OK;
}

static enum err merge_required(struct merge *m)
{
    const json_t *x = json_object_get(m->x, "required"), *y = json_object_get(m->y, "required");
    json_t *list = json_copy((json_t *)(uintptr_t)x);
    for (size_t i = 0; i < json_array_size(y); i++)
        json_array_append(list, json_array_get(y, i));
    json_object_set_new(m->out, "required", list);
    return OK;
}

/* Members of both demand both; members of one alone must suit the other's additionalProperties. */
static void merge_members(struct merge *m)
{
    const json_t *x = json_object_get(m->x, "properties"), *y = json_object_get(m->y, "properties"),
                 *more_x = json_object_get(m->x, "additionalProperties"),
                 *more_y = json_object_get(m->y, "additionalProperties");
    json_t *all = json_object();
    for (int side = 0; side < 2; side++) {
        json_t *mine = (json_t *)(uintptr_t)(side ? y : x);
        const json_t *other = side ? x : y, *more = side ? more_x : more_y;
        for (void *it = json_object_iter(mine); it; it = json_object_iter_next(mine, it)) {
            const char *key = json_object_iter_key(it);
            size_t n = json_object_iter_key_len(it);
            const json_t *v = json_object_iter_value(it), *twin = json_object_getn(other, key, n);
            if (json_object_getn(all, key, n)) continue;
            json_t *value = twin                   ? both(m->b, v, twin)
                            : json_is_false(more)  ? json_false()
                            : json_is_object(more) ? both(m->b, v, more)
                                                   : json_incref((json_t *)(uintptr_t)v);
            json_object_setn_new(all, key, n, value);
        }
    }
    if (x || y) json_object_set_new(m->out, "properties", all);
    if (!x && !y) json_decref(all);
    if (more_x && more_y) {
        bool closed = json_is_false(more_x) || json_is_false(more_y);
        json_t *more = closed                 ? json_false()
                       : json_is_true(more_x) ? json_incref((json_t *)(uintptr_t)more_y)
                       : json_is_true(more_y) ? json_incref((json_t *)(uintptr_t)more_x)
                                              : both(m->b, more_x, more_y);
        json_object_set_new(m->out, "additionalProperties", more);
    } else if (more_y) {
        json_object_set(m->out, "additionalProperties", (json_t *)(uintptr_t)more_y);
    }
}

/* (a or b) and (c or d) */
static enum err merge_any_of(struct merge *m, const char *key)
{
    const json_t *x = json_object_get(m->x, key), *y = json_object_get(m->y, key);
    size_t n = json_array_size(x) * json_array_size(y);
    if (!n || n > BRANCHES_MAX) return cannot(m, key);
    m->b->budget->work -= (int64_t)n * WORK_A_PART;
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(x); i++)
        for (size_t k = 0; k < json_array_size(y); k++)
            json_array_append_new(list, both(m->b, json_array_get(x, i), json_array_get(y, k)));
    json_object_set_new(m->out, key, list);
    return OK;
}

static enum err merge_items(struct merge *m, const char *key)
{
    const json_t *x = json_object_get(m->x, key), *y = json_object_get(m->y, key);
    if (json_is_array(x) || json_is_array(y) || json_object_get(m->x, "prefixItems") ||
        json_object_get(m->y, "prefixItems"))
        return cannot(m, key);
    json_object_set_new(m->out, key, both(m->b, x, y));
    return OK;
}

static enum err merge_key(struct merge *m, const char *key)
{
    static const char *const smallest[] = {"maxLength", "maxItems", "maxProperties", "maximum",
                                           "exclusiveMaximum"},
                             *const largest[] = {"minLength", "minItems", "minProperties",
                                                 "minimum", "exclusiveMinimum"};
    const json_t *x = json_object_get(m->x, key), *y = json_object_get(m->y, key);
    if (schema_is_annotation(key) || same(m->b, x, y)) return OK;
    for (int i = 0; i < 5; i++) {
        if (!strcmp(key, smallest[i])) return merge_bound(m, key, false);
        if (!strcmp(key, largest[i])) return merge_bound(m, key, true);
    }
    if (!strcmp(key, "type")) return merge_type(m);
    if (!strcmp(key, "enum")) return merge_enum(m);
    if (!strcmp(key, "const") && m->b->budget->work > 0) {
        m->never = true; /* they were compared to their end, and differ */
        return OK;
    }
    if (!strcmp(key, "required")) return merge_required(m);
    if (!strcmp(key, "properties") || !strcmp(key, "additionalProperties")) return OK;
    if (!strcmp(key, "anyOf") || !strcmp(key, "oneOf")) return merge_any_of(m, key);
    if (!strcmp(key, "items")) return merge_items(m, key);
    if (!strcmp(key, "nullable"))
        return json_object_set_new(m->out, key, json_boolean(json_is_true(x) && json_is_true(y)))
                   ? cannot(m, key)
                   : OK;
    if (!strcmp(key, "uniqueItems"))
        return json_object_set_new(m->out, key, json_boolean(json_is_true(x) || json_is_true(y)))
                   ? cannot(m, key)
                   : OK;
    return schema_is_constraint(key) ? cannot(m, key) : OK;
}

/* A keyword of y alone that would change what one of x means. */
static bool lists_clash(const json_t *x, const char *key)
{
    bool list = json_object_get(x, "prefixItems") || json_is_array(json_object_get(x, "items"));
    return (!strcmp(key, "prefixItems") && json_object_get(x, "items")) ||
           (!strcmp(key, "items") && list) || (!strcmp(key, "additionalItems") && list);
}

/* What a merge makes anew of a schema, besides its own few members. */
static size_t n_parts(const json_t *schema)
{
    return json_object_size(schema) + json_object_size(json_object_get(schema, "properties")) +
           json_array_size(json_object_get(schema, "required"));
}

static enum err merge_resolved(struct schema_build *b, const json_t *x, const json_t *y,
                               const json_t **out)
{
    if (json_is_false(x) || json_is_false(y)) {
        *out = json_false();
        return OK;
    }
    if (!json_is_object(x) || !json_is_object(y)) {
        *out = json_is_object(x) ? x : y;
        return json_is_true(x) || json_is_true(y) || json_is_object(*out)
                   ? OK
                   : schema_refuse(b, ERR_INVALID, "expected a schema");
    }
    b->budget->work -= WORK_A_MERGE + (int64_t)(n_parts(x) + n_parts(y)) * WORK_A_PART;
    if (b->budget->work <= 0) return too_much(b);
    struct merge m = {b, own(b, json_copy((json_t *)(uintptr_t)x)), x, y, false};
    enum err code = OK;
    bool has_value = true;
    json_t *o = (json_t *)(uintptr_t)y;
    for (void *it = json_object_iter(o); it && !code; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (json_object_get(x, key))
            code = merge_key(&m, key);
        else if (lists_clash(x, key))
            code = cannot(&m, key);
        else
            json_object_set(m.out, key, json_object_iter_value(it));
    }
    if (!code) merge_members(&m);
    if (!code && !m.never) code = schema_has_value(b, m.out, &has_value);
    *out = m.never || !has_value ? json_false() : m.out;
    return code;
}

enum err schema_merge(struct schema_build *b, const json_t *x, const json_t *y, const json_t **out)
{
    enum err code = schema_resolve(b, x, &x);
    if (!code) code = schema_resolve(b, y, &y);
    return code ? code : merge_resolved(b, x, y, out);
}

static enum err resolve(struct schema_build *b, const json_t *schema, const json_t **out)
{
    const json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf"),
                 *target;
    enum err code = OK;
    *out = schema;
    if (!ref && !all) return OK;
    code = schema_check_keywords(b, schema);
    if (!code && ref) {
        code = schema_ref_target(b, ref, &target);
        if (!code) code = schema_without(b, schema, "$ref", out);
        if (!code) code = schema_merge(b, *out, target, out);
        return code;
    }
    if (!code && !json_array_size(all))
        code = schema_refuse(b, ERR_INVALID, "allOf: expected an array of schemas");
    if (!code) code = schema_without(b, schema, "allOf", out);
    for (size_t i = 0; i < json_array_size(all) && !code; i++)
        code = schema_merge(b, *out, json_array_get(all, i), out);
    return code;
}

enum err schema_resolve(struct schema_build *b, const json_t *schema, const json_t **out)
{
    if (b->depth == SCHEMA_DEPTH_MAX)
        return schema_refuse(b, ERR_TOO_LARGE,
                             "allOf and $ref refer to each other without end, or deeper than %d",
                             SCHEMA_DEPTH_MAX);
    b->depth++;
    enum err code = resolve(b, schema, out);
    b->depth--;
    return code;
}
