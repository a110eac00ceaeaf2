/* chat_value.c - request values (jansson) as template values. Strings are borrowed from the JSON and are content. The only file
 * of the room that knows jansson. */
#include <jansson.h>

#include "engine/text/jinja_eval.h"

enum { VALUE_DEPTH_MAX = 100 };

static struct jinja_value convert(struct jinja_run *r, const json_t *v, int depth)
{
    struct jinja_value out = jinja_none();
    if (depth > VALUE_DEPTH_MAX)
        jinja_fail(r, ERR_RANGE, "messages or tools are nested deeper than %d", VALUE_DEPTH_MAX);
    if (r->err) return out;
    switch (json_typeof(v)) {
    case JSON_TRUE:
        return jinja_bool(true);
    case JSON_FALSE:
        return jinja_bool(false);
    case JSON_INTEGER:
        return jinja_int(json_integer_value(v));
    case JSON_REAL:
        return jinja_float(json_real_value(v));
    case JSON_STRING:
        return jinja_text(r, (struct str){json_string_value(v), json_string_length(v)}, true);
    case JSON_NULL:
        return out;
    case JSON_ARRAY:
        out = jinja_list_new(r, JINJA_LIST);
        for (size_t i = 0; i < json_array_size(v) && !r->err; i++)
            jinja_list_add(r, out, convert(r, json_array_get(v, i), depth + 1));
        return out;
    case JSON_OBJECT: {
        const char *key;
        json_t *member;
        struct jinja_pair *pairs = NULL;
        size_t n = json_object_size(v), i = 0;
        out = jinja_dict_new(r, JINJA_DICT);
        if (n) pairs = jinja_alloc(r, n * sizeof *pairs);
        /* Keys of an object differ: no need to look for each one among those before. */
        json_object_foreach((json_t *)v, key, member)
        {
            if (!pairs || r->err || i == n) break;
            pairs[i].key = jinja_text(r, str_of(key), true);
            pairs[i++].value = convert(r, member, depth + 1);
        }
        if (r->err) return jinja_none();
        *out.dict = (struct jinja_dict){pairs, i, n};
        return out;
    }
    }
    return out;
}

struct jinja_value jinja_from_json(struct jinja_run *r, const struct json_t *v)
{
    return v ? convert(r, v, 0) : jinja_none();
}
