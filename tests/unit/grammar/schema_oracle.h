/* schema_oracle.h - a dumb second opinion on schemas: makes random ones, makes values that satisfy them, and checks values. It knows
 * only the keywords it makes itself. */
#ifndef DEJA_TESTS_SCHEMA_ORACLE_H
#define DEJA_TESTS_SCHEMA_ORACLE_H
#include "tests/unit/grammar/grammar_rig.h"

static const char *const oracle_words[] = {"a",
                                           "b",
                                           "name",
                                           "red",
                                           "x y",
                                           "\xc3\xa9t\xc3\xa9",
                                           "q\"t",
                                           "back\\",
                                           "tab\t",
                                           "",
                                           "\xe4\xbd\xa0\xe5\xa5\xbd",
                                           "long word here"};
enum { ORACLE_WORDS = sizeof oracle_words / sizeof *oracle_words };

static json_t *oracle_schema(struct rng *r, int depth);

static inline json_t *oracle_string_schema(struct rng *r)
{
    json_t *s = json_pack("{s:s}", "type", "string");
    if (rng_below(r, 3) == 0) {
        int least = (int)rng_below(r, 4);
        json_object_set_new(s, "minLength", json_integer(least));
        json_object_set_new(s, "maxLength", json_integer(least + (int)rng_below(r, 6)));
    } else if (rng_below(r, 4) == 0) {
        json_object_set_new(s, "pattern", json_string("^[a-c\"]{1,4}$"));
    }
    return s;
}

static inline json_t *oracle_number_schema(struct rng *r)
{
    bool integer = rng_below(r, 2);
    json_t *s = json_pack("{s:s}", "type", integer ? "integer" : "number");
    double lo = (double)rng_below(r, 4000) - 2000, hi = lo + (double)rng_below(r, 1500);
    if (!integer) lo /= 8, hi = hi / 8 + 1;
    if (rng_below(r, 2)) json_object_set_new(s, "minimum", json_real(lo));
    if (rng_below(r, 2))
        json_object_set_new(s, rng_below(r, 2) ? "maximum" : "exclusiveMaximum", json_real(hi + 1));
    return s;
}

static inline json_t *oracle_array_schema(struct rng *r, int depth)
{
    json_t *s = json_pack("{s:s,s:o}", "type", "array", "items", oracle_schema(r, depth + 1));
    int least = (int)rng_below(r, 3);
    if (rng_below(r, 3) == 0) {
        json_t *list = json_array();
        for (size_t n = 1 + rng_below(r, 2); n > 0; n--)
            json_array_append_new(list, oracle_schema(r, depth + 1));
        json_object_set_new(s, "prefixItems", list);
    }
    if (rng_below(r, 2)) json_object_set_new(s, "minItems", json_integer(least));
    if (rng_below(r, 2))
        json_object_set_new(s, "maxItems", json_integer(least + (int)rng_below(r, 3)));
    return s;
}

static inline json_t *oracle_object_schema(struct rng *r, int depth)
{
    json_t *s = json_pack("{s:s}", "type", "object"), *properties = json_object(),
           *required = json_array();
    for (size_t n = rng_below(r, 5); n > 0; n--) {
        const char *name = oracle_words[rng_below(r, ORACLE_WORDS)];
        if (json_object_get(properties, name)) continue;
        json_object_set_new(properties, name, oracle_schema(r, depth + 1));
        if (rng_below(r, 2)) json_array_append_new(required, json_string(name));
    }
    json_object_set_new(s, "properties", properties);
    json_object_set_new(s, "required", required);
    if (rng_below(r, 3) == 0)
        json_object_set_new(s, "additionalProperties", oracle_schema(r, depth + 1));
    else
        json_object_set_new(s, "additionalProperties", json_boolean(rng_below(r, 3) == 0));
    return s;
}

/* Random; {"$ref":"#/$defs/node"} may stand anywhere below the top. */
static json_t *oracle_schema(struct rng *r, int depth)
{
    uint64_t kind = rng_below(r, depth > 3 ? 6 : 11);
    json_t *list;
    switch (kind) {
    case 0:
        return json_pack("{s:s}", "type", "null");
    case 1:
        return json_pack("{s:s}", "type", "boolean");
    case 2:
        list = json_array();
        for (size_t n = 1 + rng_below(r, 4); n > 0; n--)
            json_array_append_new(list, rng_below(r, 3)
                                            ? json_string(oracle_words[rng_below(r, ORACLE_WORDS)])
                                            : json_integer((int)rng_below(r, 50)));
        return json_pack("{s:o}", "enum", list);
    case 3:
        return oracle_number_schema(r);
    case 4:
    case 5:
        return oracle_string_schema(r);
    case 6:
        return oracle_array_schema(r, depth);
    case 7:
        list = json_array();
        for (size_t n = 2 + rng_below(r, 2); n > 0; n--)
            json_array_append_new(list, oracle_schema(r, depth + 1));
        return json_pack("{s:o}", "anyOf", list);
    case 8:
        return depth ? json_pack("{s:s}", "$ref", "#/$defs/node") : oracle_object_schema(r, depth);
    default:
        return oracle_object_schema(r, depth);
    }
}

/* A whole schema: the top, and what "node" is (recursive, but it may always end). */
static inline json_t *oracle_root(struct rng *r)
{
    json_t *s = oracle_schema(r, 0), *node = oracle_object_schema(r, 2), *defs = json_object();
    json_object_set_new(node, "required", json_array());
    json_object_set_new(
        json_object_get(node, "properties"), "next",
        json_pack("{s:[{s:s},{s:s}]}", "anyOf", "type", "null", "$ref", "#/$defs/node"));
    json_object_set_new(defs, "node", node);
    json_object_set_new(s, "$defs", defs);
    return s;
}

static inline bool oracle_valid(const json_t *root, const json_t *s, const json_t *v);

static inline bool oracle_valid_object(const json_t *root, const json_t *s, const json_t *v)
{
    const char *key;
    json_t *x, *properties = json_object_get(s, "properties"),
               *required = json_object_get(s, "required");
    const json_t *more = json_object_get(s, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
    {
        const json_t *one = json_object_get(properties, key);
        if (one ? !oracle_valid(root, one, x)
                : json_is_false(more) || (json_is_object(more) && !oracle_valid(root, more, x)))
            return false;
    }
    return true;
}

static inline bool oracle_valid_array(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *least = json_object_get(s, "minItems"), *most = json_object_get(s, "maxItems"),
                 *list = json_object_get(s, "prefixItems");
    size_t n = json_array_size(v);
    if ((least && n < (size_t)json_integer_value(least)) ||
        (most && n > (size_t)json_integer_value(most)))
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *item =
            i < json_array_size(list) ? json_array_get(list, i) : json_object_get(s, "items");
        if (!oracle_valid(root, item, json_array_get(v, i))) return false;
    }
    return true;
}

static inline bool oracle_valid_string(const json_t *s, const json_t *v)
{
    const json_t *least = json_object_get(s, "minLength"), *most = json_object_get(s, "maxLength");
    const char *text = json_string_value(v);
    int n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += (text[i] & 0xC0) != 0x80;
    if ((least && n < json_integer_value(least)) || (most && n > json_integer_value(most)))
        return false;
    if (!json_object_get(s, "pattern")) return true;
    return n >= 1 && n <= 4 && strspn(text, "abc\"") == json_string_length(v);
}

static inline bool oracle_valid_number(const json_t *s, const json_t *v)
{
    const json_t *least = json_object_get(s, "minimum"), *most = json_object_get(s, "maximum"),
                 *below = json_object_get(s, "exclusiveMaximum");
    double x = json_number_value(v);
    return !(least && x < json_number_value(least)) && !(most && x > json_number_value(most)) &&
           !(below && x >= json_number_value(below));
}

static inline bool oracle_valid(const json_t *root, const json_t *s, const json_t *v)
{
    const char *type = json_string_value(json_object_get(s, "type"));
    const json_t *list = json_object_get(s, "enum"), *any = json_object_get(s, "anyOf");
    if (json_object_get(s, "$ref"))
        return oracle_valid(root, json_object_get(json_object_get(root, "$defs"), "node"), v);
    for (size_t i = 0; i < json_array_size(any); i++)
        if (oracle_valid(root, json_array_get(any, i), v)) return true;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v)) return true;
    if (any || list || !type) return false;
    if (!strcmp(type, "null")) return json_is_null(v);
    if (!strcmp(type, "boolean")) return json_is_boolean(v);
    if (!strcmp(type, "integer")) return json_is_integer(v) && oracle_valid_number(s, v);
    if (!strcmp(type, "number")) return json_is_number(v) && oracle_valid_number(s, v);
    if (!strcmp(type, "string")) return json_is_string(v) && oracle_valid_string(s, v);
    if (!strcmp(type, "array")) return json_is_array(v) && oracle_valid_array(root, s, v);
    return json_is_object(v) && oracle_valid_object(root, s, v);
}

static json_t *oracle_value(const json_t *root, const json_t *s, struct rng *r, int depth);

static inline json_t *oracle_any_value(struct rng *r)
{
    return rng_below(r, 2) ? json_pack("[i,b,n]", (int)rng_below(r, 99), (int)rng_below(r, 2))
                           : json_pack("{s:s}", "deep", oracle_words[rng_below(r, ORACLE_WORDS)]);
}

static inline json_t *oracle_object(const json_t *root, const json_t *s, struct rng *r, int depth)
{
    const char *key;
    json_t *x, *properties = json_object_get(s, "properties"),
               *required = json_object_get(s, "required");
    json_t *v = json_object(), *more = json_object_get(s, "additionalProperties");
    json_object_foreach(properties, key, x)
    {
        bool must = false;
        for (size_t i = 0; i < json_array_size(required); i++)
            must |= !strcmp(json_string_value(json_array_get(required, i)), key);
        if (must || (depth < 6 && rng_below(r, 2)))
            json_object_set_new(v, key, oracle_value(root, x, r, depth + 1));
    }
    for (size_t n = json_is_false(more) ? 0 : rng_below(r, 3); n > 0 && depth < 6; n--) {
        const char *name = oracle_words[rng_below(r, ORACLE_WORDS)];
        if (json_object_get(properties, name)) continue;
        json_object_set_new(v, name,
                            json_is_object(more) ? oracle_value(root, more, r, depth + 1)
                                                 : oracle_any_value(r));
    }
    return v;
}

static inline json_t *oracle_number(const json_t *s, struct rng *r)
{
    bool integer = !strcmp(json_string_value(json_object_get(s, "type")), "integer");
    for (int tries = 0;; tries++) {
        double x = (double)rng_below(r, 9000) - 4500;
        if (!integer) x /= tries % 2 ? 8 : 4;
        json_t *v = integer ? json_integer((json_int_t)x) : json_real(x);
        if (oracle_valid_number(s, v)) return v;
        json_decref(v);
    }
}

/* A value that satisfies the schema, members in its order. */
static json_t *oracle_value(const json_t *root, const json_t *s, struct rng *r, int depth)
{
    const char *type = json_string_value(json_object_get(s, "type"));
    const json_t *list = json_object_get(s, "enum"), *any = json_object_get(s, "anyOf");
    if (json_object_get(s, "$ref"))
        return oracle_value(root, json_object_get(json_object_get(root, "$defs"), "node"), r,
                            depth + 1);
    if (any)
        return oracle_value(root,
                            json_array_get(any, depth > 5 ? 0 : rng_below(r, json_array_size(any))),
                            r, depth);
    if (list) return json_incref(json_array_get(list, rng_below(r, json_array_size(list))));
    if (!strcmp(type, "null")) return json_null();
    if (!strcmp(type, "boolean")) return json_boolean(rng_below(r, 2));
    if (!strcmp(type, "integer") || !strcmp(type, "number")) return oracle_number(s, r);
    if (!strcmp(type, "object")) return oracle_object(root, s, r, depth);
    if (!strcmp(type, "string"))
        for (;;) {
            char text[16];
            size_t n = rng_below(r, 9);
            for (size_t i = 0; i < n; i++)
                text[i] = "abc\"\n /"[rng_below(r, json_object_get(s, "pattern") ? 4 : 7)];
            json_t *v = rng_below(r, 3) ? json_stringn(text, n)
                                        : json_string(oracle_words[rng_below(r, ORACLE_WORDS)]);
            if (oracle_valid_string(s, v)) return v;
            json_decref(v);
        }
    json_t *v = json_array(), *least = json_object_get(s, "minItems"),
           *most = json_object_get(s, "maxItems");
    size_t lo = least ? (size_t)json_integer_value(least) : 0,
           hi = most ? (size_t)json_integer_value(most) : lo + 2;
    size_t n = depth > 5 ? lo : lo + rng_below(r, hi - lo + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *prefix = json_array_get(json_object_get(s, "prefixItems"), i);
        json_array_append_new(
            v, oracle_value(root, prefix ? prefix : json_object_get(s, "items"), r, depth + 1));
    }
    return v;
}

#endif
