/* stream_text.h - turns generated tokens into text that may be sent: whole UTF-8 characters only, nothing that could
 * still become a stop string, nothing after one. Pure. One per generated choice; one thread.
 * concat(all pieces) is the same for every way of cutting the input. */
#ifndef DEJA_ENGINE_TEXT_STREAM_TEXT_H
#define DEJA_ENGINE_TEXT_STREAM_TEXT_H
#include "base/buf.h"

struct stream_text;
/* stops are copied; at most 16 of at most 1024 bytes each (ERR_RANGE beyond, ERR_INVALID for an empty one or bad UTF-8). */
MUST enum err stream_text_new(struct stream_text **out, const struct str *stops, size_t n_stops,
                              struct errmsg *e);
void stream_text_free(struct stream_text *s);
/* Feeds the bytes of one token; appends what may be sent now to out. Returns true when a stop string was completed:
 * the text before it has been appended, feed nothing more. */
bool stream_text_feed(struct stream_text *s, struct str bytes, struct buf *out);
/* The end without a stop string: appends what was held back; an unfinished character becomes U+FFFD. */
void stream_text_finish(struct stream_text *s, struct buf *out);
/* How many of the bytes that were fed stand in what has been appended so far; a broken sequence counts as what it was, not as the U+FFFD it
 * became. Those of a stop string and behind it never do. */
size_t stream_text_released(const struct stream_text *s);

#endif
