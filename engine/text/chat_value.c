/* chat_value.c - request values (jansson) as template values, and the from_json filter. With chat_traits the only
 * files of the room that know jansson. */
#include <jansson.h>

#include "base/json.h"
#include "engine/text/jinja_eval.h"

enum { VALUE_DEPTH_MAX = 100 };
struct conversion {
    struct jinja_run *r;
    bool copy, content; /* of the strings */
};

static struct jinja_value text_of(const struct conversion *c, struct str s)
{
    return c->copy ? jinja_text_copy(c->r, s, c->content) : jinja_text(c->r, s, c->content);
}

static struct jinja_value convert(const struct conversion *c, const json_t *v, int depth)
{
    struct jinja_run *r = c->r;
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
        return text_of(c, (struct str){json_string_value(v), json_string_length(v)});
    case JSON_NULL:
        return out;
    case JSON_ARRAY:
        out = jinja_list_new(r, JINJA_LIST);
        for (size_t i = 0; i < json_array_size(v) && !r->err; i++)
            jinja_list_add(r, out, convert(c, json_array_get(v, i), depth + 1));
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
            pairs[i].key = text_of(c, str_of(key));
            pairs[i++].value = convert(c, member, depth + 1);
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
    const struct conversion borrowed = {r, false, true};
    return v ? convert(&borrowed, v, 0) : jinja_none();
}

struct jinja_value jinja_from_json_text(struct jinja_run *r, struct jinja_value v,
                                        const struct jinja_args *args)
{
    const struct jinja_string *text = jinja_need_text(r, v);
    const struct conversion copied = {r, true, jinja_has_content(text)};
    struct errmsg why = {.code = OK};
    json_t *parsed = NULL;
    (void)args;
    if (r->err || !jinja_charge(r, text->n)) return v;
    if (json_parse(jinja_flat(r, text), 0, &parsed, &why))
        jinja_fail(r, ERR_INVALID, "from_json: %s", why.text);
    else
        v = convert(&copied, parsed, 0);
    json_decref(parsed);
    return v;
}
