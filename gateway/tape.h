/* tape.h - the bytes of one streamed reply, recorded once and read by any number of clients at their own speed.
 * A reader is just a position. The one range that only some readers want (the usage chunk of a stream) is marked and skipped
 * for the others. Pure. Owner: whoever records; bounded by bytes_max. */
#ifndef DEJA_GATEWAY_TAPE_H
#define DEJA_GATEWAY_TAPE_H
#include "base/buf.h"

struct tape {
    struct buf bytes;
    size_t base;                 /* position of bytes.p[0]: what was before has been dropped */
    size_t usage_from, usage_to; /* the marked range; equal = none */
    bool ended;                  /* nothing more will come */
};

void tape_init(struct tape *t, size_t bytes_max);
void tape_fini(struct tape *t);
size_t tape_end(const struct tape *t); /* the position after the last byte */
/* Appends whole frames. The second form marks them as the usage range; only the first such range is kept, later ones are
 * not recorded (usage is counted once). ERR_TOO_LARGE past the bound. */
MUST enum err tape_add(struct tape *t, struct str frames);
MUST enum err tape_add_usage(struct tape *t, struct str frames);
/* Appends one event whose data, without line breaks, is given. */
MUST enum err tape_add_data(struct tape *t, struct str data);
/* What a reader at *pos may have next, at most piece_max bytes; empty when it has everything so far. Moves *pos over the marked
 * range when the reader does not want it; the caller adds the piece's length once written. */
struct str tape_piece(const struct tape *t, size_t *pos, bool want_usage, size_t piece_max);
/* Drops what lies before pos (positions stay valid from there on). */
void tape_drop(struct tape *t, size_t pos);

#endif
