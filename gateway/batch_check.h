/* batch_check.h - checks the input of a batch, chunk by chunk: finds its lines, refuses what is wrong with line number, code and message,
 * and custom_ids that come twice. Pure. Threading: one thread at a time. */
#ifndef DEJA_GATEWAY_BATCH_CHECK_H
#define DEJA_GATEWAY_BATCH_CHECK_H
#include "base/buf.h"

enum { BATCH_ERRORS_MAX = 100 }; /* reported; the check stops there */

struct batch_check;
struct batch_span { /* a line within its chunk, its line break left out */
    uint32_t at, n;
};

struct batch_check *batch_check_new(const char *endpoint, int64_t lines_max, uint64_t seed);
void batch_check_free(struct batch_check *c);
/* The next chunk; lines do not go on in the chunk after it. False: enough is wrong, feed no more. */
bool batch_check_feed(struct batch_check *c, struct str chunk);
/* The lines of the last chunk that are requests, n of them, borrowed until the next feed; of no use when there are errors. */
const struct batch_span *batch_check_lines(const struct batch_check *c, size_t *n);
/* After the last chunk (an input without requests is wrong too). Empty: all is well; else the list a client reads in "errors". */
struct str batch_check_end(struct batch_check *c);

#endif
