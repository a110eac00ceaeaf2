/* multipart.h - reads multipart/form-data (RFC 7578, 2046) from foreign bytes, in pieces of any size. Strict: a body that does not begin
 * with the boundary, has a broken header line or no end is refused. Bounded: parts, header bytes a part; content is handed on, not kept.
 * Pure. Threading: one thread per reader. */
#ifndef DEJA_BASE_MULTIPART_H
#define DEJA_BASE_MULTIPART_H
#include "base/buf.h"

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_PARTS_MAX = 64, MULTIPART_HEADERS_MAX = 4096 };

/* Borrowed during on_part. */
struct multipart_part {
    struct str name, filename /* p NULL: not a file */, content_type;
};
struct multipart_handler {
    /* false: stop, the feed answers ERR_CANCELLED */
    bool (*on_part)(void *arg, const struct multipart_part *part);
    bool (*on_bytes)(void *arg,
                     struct str bytes); /* of the part last told, in order, never empty */
    void *arg;
};
struct multipart;

/* The boundary in a Content-Type of multipart/form-data; ERR_UNSUPPORTED: another type, ERR_INVALID: no usable boundary. */
MUST enum err multipart_boundary(struct str content_type, char out[MULTIPART_BOUNDARY_MAX + 1],
                                 struct errmsg *e);
struct multipart *multipart_new(const char *boundary, const struct multipart_handler *h);
void multipart_free(struct multipart *m);
/* ERR_INVALID with the reason; ERR_TOO_LARGE over a bound; ERR_CANCELLED by a handler. After an error feed no more. */
MUST enum err multipart_feed(struct multipart *m, struct str bytes, struct errmsg *e);
/* The body is over: ERR_INVALID when the closing boundary has not come. */
MUST enum err multipart_end(const struct multipart *m, struct errmsg *e);

#endif
