/* headers.c - see headers.h. Offsets instead of pointers, because the text moves while it grows. */
#include "gateway/headers.h"

enum { FIRST_BYTES = 500 }; /* of room: most lists need no more */

void headers_init(struct header_list *l)
{
    l->n = 0;
    buf_init(&l->text, HEADERS_BYTES_MAX);
}

void headers_fini(struct header_list *l)
{
    buf_fini(&l->text);
}

bool headers_add(struct header_list *l, struct str name, struct str value)
{
    if (l->n == HEADERS_MAX || name.n + value.n > HEADERS_BYTES_MAX - l->text.n) return false;
    if (!l->text.cap) buf_reserve(&l->text, FIRST_BYTES);
    l->items[l->n].name_at = (uint32_t)l->text.n;
    l->items[l->n].name_n = (uint32_t)name.n;
    l->items[l->n].value_at = (uint32_t)(l->text.n + name.n);
    l->items[l->n].value_n = (uint32_t)value.n;
    buf_str(&l->text, name);
    buf_str(&l->text, value);
    if (buf_failed(&l->text)) return false;
    l->n++;
    return true;
}

void headers_at(const struct header_list *l, size_t i, struct str *name, struct str *value)
{
    ASSERT(i < l->n);
    *name = (struct str){l->text.p + l->items[i].name_at, l->items[i].name_n};
    *value = (struct str){l->text.p + l->items[i].value_at, l->items[i].value_n};
}

struct str headers_find(const struct header_list *l, const char *name)
{
    struct str wanted = str_of(name), n, v;
    for (size_t i = 0; i < l->n; i++) {
        headers_at(l, i, &n, &v);
        if (str_ieq(n, wanted)) return v;
    }
    return (struct str){0};
}

bool headers_again(const struct header_list *l, size_t i)
{
    struct str name, value, before;
    headers_at(l, i, &name, &value);
    for (size_t k = 0; k < i; k++) {
        headers_at(l, k, &before, &value);
        if (str_ieq(before, name)) return true;
    }
    return false;
}

size_t headers_view(const struct header_list *l, struct http_header out[HEADERS_MAX])
{
    for (size_t i = 0; i < l->n; i++)
        headers_at(l, i, &out[i].name, &out[i].value);
    return l->n;
}
