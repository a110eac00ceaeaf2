/* trace.h - the trace a request belongs to (W3C Trace Context, level 1): what came in `traceparent` is gone on with, under a span of
 * ours; nothing or something malformed begins a new trace. Pure. Threading: none.
 * Source: https://www.w3.org/TR/trace-context/ section 3.2 (form), 4.3 (mutating). */
#ifndef DEJA_GATEWAY_TRACE_H
#define DEJA_GATEWAY_TRACE_H
#include "base/hash.h"

enum { TRACE_PARENT_BYTES = 55, TRACE_SAMPLED = 1 };

struct trace {
    char id[33];   /* 32 lower-case hex digits, never all 0 */
    char span[17]; /* ours, 16 digits */
    uint8_t flags;
    bool given; /* it came from the client: its tracestate passes too */
};

/* given: the value of the one traceparent field, empty for none. fresh: random, for an id of a new trace; span: random.
 * sampled_percent: share of new traces that are marked as sampled, decided by the id. */
void trace_begin(struct trace *t, struct str given, struct hash128 fresh, uint64_t span,
                 double sampled_percent);
/* "00-ID-SPAN-FLAGS", terminated. */
void trace_write(const struct trace *t, char out[TRACE_PARENT_BYTES + 1]);

#endif
