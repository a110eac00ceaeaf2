/* served.c - see served.h. */
#include "cache/served.h"

#include <string.h>

#include "base/mem.h"

enum {
    VALUE_BYTES = 56,
    MEMBER_BYTES = 96,
    OBJECT_BYTES = 240
}; /* jansson's, with the allocator's own */

static size_t bytes_of(const json_t *v)
{
    size_t n = VALUE_BYTES, i;
    const char *name;
    json_t *each;
    if (json_is_string(v)) n += json_string_length(v);
    if (json_is_object(v)) n += OBJECT_BYTES;
    json_object_foreach((json_t *)(uintptr_t)v, name, each) n +=
        MEMBER_BYTES + strlen(name) + bytes_of(each);
    json_array_foreach(v, i, each) n += sizeof each + bytes_of(each);
    return n;
}

static size_t answer_bytes(const struct openai_answer *a)
{
    size_t n = sizeof(struct served) + bytes_of(a->extra) + bytes_of(a->usage_json);
    for (int i = 0; i < a->n_choices; i++)
        n += bytes_of(a->choices[i].message) + bytes_of(a->choices[i].logprobs) +
             bytes_of(a->choices[i].extra);
    return n;
}

enum err served_new(struct served **out, enum openai_kind kind, struct str stored, struct errmsg *e)
{
    struct served *v = xcalloc(1, sizeof *v);
    enum err code = openai_answer_parse(&v->answer, kind, stored, e);
    if (code != OK) {
        mem_free(v);
        return code;
    }
    struct buf json;
    buf_init(&json, stored.n + 64);
    openai_answer_write_json(&json, &v->answer);
    v->as_stored = !buf_failed(&json) && str_eq(buf_view(&json), stored);
    buf_fini(&json);
    v->bytes = answer_bytes(&v->answer);
    v->refs = 1;
    *out = v;
    return OK;
}

struct served *served_ref(struct served *v)
{
    v->refs++;
    return v;
}

void served_unref(struct served *v)
{
    if (!v || --v->refs) return;
    openai_answer_fini(&v->answer);
    mem_free(v);
}
