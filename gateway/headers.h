/* headers.h - an owned list of header fields, in order, repeats kept. Pure. Bounded by bytes_max and HEADERS_MAX. */
#ifndef DEJA_GATEWAY_HEADERS_H
#define DEJA_GATEWAY_HEADERS_H
#include "base/buf.h"
#include "base/http_client.h"

enum { HEADERS_MAX = 128, HEADERS_BYTES_MAX = 64 * 1024 };

struct header_list {
    struct buf text;
    struct {
        uint32_t name_at, name_n, value_at, value_n;
    } items[HEADERS_MAX];
    size_t n;
};

void headers_init(struct header_list *l);
void headers_fini(struct header_list *l);
/* False: over a bound, nothing was added. */
bool headers_add(struct header_list *l, struct str name, struct str value);
void headers_at(const struct header_list *l, size_t i, struct str *name, struct str *value);
struct str headers_find(const struct header_list *l,
                        const char *name); /* first, ASCII case ignored; p NULL when absent */
/* Fills out[0..n) with views (borrowed until the next add); returns n <= HEADERS_MAX. */
/* Is the name of the one at i also that of one before it? */
bool headers_again(const struct header_list *l, size_t i);
size_t headers_view(const struct header_list *l, struct http_header out[HEADERS_MAX]);

#endif
