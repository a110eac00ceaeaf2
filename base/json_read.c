/* json_read.c - see json_read.h. json_scan finds the pieces and is the judge of what is plainly good; recursion is as deep as the text
 * nests, which depth_max bounds. Pure, allocation aside. */
#include "base/json_read.h"

#include "base/json_scan.h"
#include "base/mem.h"

static json_t *read_value(struct json_scan *s);

static json_t *read_string(struct json_scan *s)
{
    struct json_scan_text t;
    if (!json_scan_string(s, &t)) return NULL;
    if (!t.escaped) return json_stringn_nocheck(t.raw.p, t.raw.n);
    char *plain = try_malloc(t.raw.n);
    if (!plain) return NULL;
    json_t *v = json_stringn_nocheck(plain, json_scan_unescape(t.raw, plain));
    mem_free(plain);
    return v;
}

static json_t *read_number(struct json_scan *s)
{
    struct json_scan_number n;
    double v;
    if (!json_scan_number(s, &n)) return NULL;
    if (!n.real) return json_integer(n.integer);
    return str_to_f64(n.text, &v) == OK ? json_real(v) : NULL;
}

/* Adds the member that comes next; false when its key was there. */
static bool read_member(struct json_scan *s, json_t *object, struct str key)
{
    size_t before = json_object_size(object);
    json_t *v = read_value(s);
    return v && !json_object_setn_new_nocheck(object, key.p, key.n, v) &&
           json_object_size(object) > before;
}

static json_t *read_object(struct json_scan *s)
{
    int outer;
    bool more;
    struct str key;
    json_t *object = json_scan_open(s, '{', &outer) ? json_object() : NULL;
    while (object) {
        if (!json_scan_key(s, outer, &key, &more)) break;
        if (!more) return object;
        if (!read_member(s, object, key)) break;
    }
    json_decref(object);
    return NULL;
}

static json_t *read_array(struct json_scan *s)
{
    int outer;
    bool more;
    json_t *array = json_scan_open(s, '[', &outer) ? json_array() : NULL;
    while (array) {
        if (!json_scan_item(s, outer, &more)) break;
        if (!more) return array;
        json_t *v = read_value(s);
        if (!v || json_array_append_new(array, v)) break;
    }
    json_decref(array);
    return NULL;
}

static json_t *read_value(struct json_scan *s)
{
    switch (json_scan_peek(s)) {
    case '{':
        return read_object(s);
    case '[':
        return read_array(s);
    case '"':
        return read_string(s);
    case 't':
        return json_scan_true(s) ? json_true() : NULL;
    case 'f':
        return json_scan_false(s) ? json_false() : NULL;
    case 'n':
        return json_scan_null(s) ? json_null() : NULL;
    default:
        return read_number(s);
    }
}

json_t *json_read(struct str text, int depth_max)
{
    struct json_scan s;
    json_scan_begin(&s, text, depth_max);
    s.keys_unlooked = true;
    json_t *v = read_value(&s);
    if (!v || json_scan_at_end(&s)) return v;
    json_decref(v);
    return NULL;
}
