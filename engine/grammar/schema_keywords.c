/* schema_keywords.c - the one list of keywords: what each is about, and which are refused. */
#include <string.h>

#include "engine/grammar/schema.h"

enum keyword_class { ANNOTATION, KEPT, REFUSED };
static const struct {
    const char *name;
    enum keyword_class class;
    int type; /* it speaks of */
} keywords[] = {
    {"title", ANNOTATION, 0},
    {"description", ANNOTATION, 0},
    {"default", ANNOTATION, 0},
    {"examples", ANNOTATION, 0},
    {"example", ANNOTATION, 0},
    {"deprecated", ANNOTATION, 0},
    {"readOnly", ANNOTATION, 0},
    {"writeOnly", ANNOTATION, 0},
    {"contentMediaType", ANNOTATION, 0},
    {"contentEncoding", ANNOTATION, 0},
    {"externalDocs", ANNOTATION, 0},
    {"discriminator", ANNOTATION, 0},
    {"$comment", ANNOTATION, 0},
    {"$schema", ANNOTATION, 0},
    {"$id", ANNOTATION, 0},
    {"$anchor", ANNOTATION, 0},
    {"$defs", ANNOTATION, 0},
    {"definitions", ANNOTATION, 0},
    {"$ref", KEPT, 0},
    {"type", KEPT, 0},
    {"nullable", KEPT, 0},
    {"enum", KEPT, 0},
    {"const", KEPT, 0},
    {"anyOf", KEPT, 0},
    {"oneOf", KEPT, 0},
    {"allOf", KEPT, 0},
    {"properties", KEPT, TYPE_OBJECT},
    {"required", KEPT, TYPE_OBJECT},
    {"additionalProperties", KEPT, TYPE_OBJECT},
    {"minProperties", KEPT, TYPE_OBJECT},
    {"maxProperties", KEPT, TYPE_OBJECT},
    {"items", KEPT, TYPE_ARRAY},
    {"prefixItems", KEPT, TYPE_ARRAY},
    {"additionalItems", KEPT, TYPE_ARRAY},
    {"minItems", KEPT, TYPE_ARRAY},
    {"maxItems", KEPT, TYPE_ARRAY},
    {"uniqueItems", KEPT, TYPE_ARRAY},
    {"minLength", KEPT, TYPE_STRING},
    {"maxLength", KEPT, TYPE_STRING},
    {"pattern", KEPT, TYPE_STRING},
    {"format", KEPT, TYPE_STRING},
    {"minimum", KEPT, TYPE_NUMBER},
    {"maximum", KEPT, TYPE_NUMBER},
    {"exclusiveMinimum", KEPT, TYPE_NUMBER},
    {"exclusiveMaximum", KEPT, TYPE_NUMBER},
    {"multipleOf", KEPT, TYPE_NUMBER},
    {"not", REFUSED, 0},
    {"if", REFUSED, 0},
    {"then", REFUSED, 0},
    {"else", REFUSED, 0},
    {"dependentRequired", REFUSED, 0},
    {"dependentSchemas", REFUSED, 0},
    {"dependencies", REFUSED, 0},
    {"patternProperties", REFUSED, 0},
    {"propertyNames", REFUSED, 0},
    {"unevaluatedProperties", REFUSED, 0},
    {"unevaluatedItems", REFUSED, 0},
    {"contains", REFUSED, 0},
    {"minContains", REFUSED, 0},
    {"maxContains", REFUSED, 0},
    {"$dynamicRef", REFUSED, 0},
    {"$dynamicAnchor", REFUSED, 0},
    {"$recursiveRef", REFUSED, 0},
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

static int find(const char *key)
{
    for (int i = 0; i < N_KEYWORDS; i++)
        if (!strcmp(key, keywords[i].name)) return i;
    return -1;
}

/* Names that begin with x- are everybody's own. */
bool schema_is_annotation(const char *key)
{
    int i = find(key);
    return i < 0 ? !strncmp(key, "x-", 2) : keywords[i].class == ANNOTATION;
}

bool schema_is_constraint(const char *key)
{
    return find(key) >= 0 && !schema_is_annotation(key);
}

enum err schema_check_keywords(struct schema_build *b, const json_t *schema)
{
    json_t *o = (json_t *)(uintptr_t)schema; /* jansson's iterators take no const */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        int i = find(key);
        if (i >= 0 && keywords[i].class == REFUSED)
            return schema_refuse(b, ERR_UNSUPPORTED, "the keyword \"%s\" is not supported", key);
        if (i < 0 && b->strict && !schema_is_annotation(key))
            return schema_refuse(b, ERR_UNSUPPORTED, "unknown keyword \"%.60s\"", key);
    }
    return OK;
}

bool schema_constrains(const json_t *schema, const char *but)
{
    json_t *o = (json_t *)(uintptr_t)schema;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (schema_is_constraint(key) && (!but || strcmp(key, but) != 0)) return true;
    }
    return false;
}

static int type_of_name(struct str name)
{
    static const char *const names[] = {"null",   "boolean", "object", "array",
                                        "string", "number",  "integer"};
    for (int i = 0; i < 7; i++)
        if (str_eqz(name, names[i])) return 1 << i;
    return 0;
}

enum err schema_types(struct schema_build *b, const json_t *schema, int *types)
{
    const json_t *v = json_object_get(schema, "type");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    *types = 0;
    for (size_t i = 0; v && i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        int type = type_of_name(json_str(one));
        if (!type)
            return schema_refuse(b, ERR_INVALID,
                                 "type: expected null, boolean, object, array, string, number or "
                                 "integer");
        *types |= type;
    }
    if (v && !n) return schema_refuse(b, ERR_INVALID, "type: the list is empty");
    for (int i = 0; i < N_KEYWORDS && !v; i++)
        if (keywords[i].type && json_object_get(schema, keywords[i].name))
            *types |= keywords[i].type;
    return OK;
}
