/* sse.h - server-sent events (WHATWG HTML, section 9.2): a push reader and a writer. Pure.
 * The reader takes bytes in any pieces, handles \n, \r\n, \r, comments, a leading BOM, multi-line data; bounded event size. */
#ifndef DEJA_BASE_SSE_H
#define DEJA_BASE_SSE_H
#include "base/buf.h"

struct sse_event {
    struct str event; /* "" when none was named */
    struct str data;  /* lines joined by \n; borrowed during the callback */
    struct str id;
};
struct sse_reader;
struct sse_reader *sse_reader_new(size_t event_bytes_max);
void sse_reader_free(struct sse_reader *r);
/* Calls on_event for each event completed by these bytes. ERR_TOO_LARGE: an event passed the bound (reader is dead then).
 * A false from on_event stops at once with ERR_CANCELLED (the reader is dead then too). */
MUST enum err sse_reader_feed(struct sse_reader *r, struct str bytes,
                              bool (*on_event)(void *arg, const struct sse_event *ev), void *arg);
/* True when bytes of an unfinished event are waiting: at the end of a stream that means it was cut. */
bool sse_reader_pending(const struct sse_reader *r);

void sse_write_data(struct buf *out, struct str data); /* "data: ...\n\n", one line per \n */
void sse_write_event(struct buf *out, const char *event, struct str data); /* with "event: name" */

#endif
