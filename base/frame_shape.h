/* frame_shape.h - the frames of a stream are alike: one like the last but for a single text need not be parsed again. A shape is a frame's
 * bytes before and after the text of one member; a frame with the same bytes around another well-formed text differs from it in nothing
 * else, whatever the rest says. Pure. Bounded: frames of at most FRAME_SHAPE_BYTES are remembered. */
#ifndef DEJA_BASE_FRAME_SHAPE_H
#define DEJA_BASE_FRAME_SHAPE_H
#include "base/buf.h"

enum { FRAME_SHAPE_BYTES = 2048 };
struct frame_shape {
    size_t before, after; /* bytes; after 0 = nothing is remembered */
    char bytes[FRAME_SHAPE_BYTES];
};

/* Remembers data, valid JSON in which a member `key` with a string value stands exactly once at any depth. Forgets what was there; false
 * when that is all it does (it stands there more often, or not, the frame is too long, or it has line breaks). */
bool frame_shape_learn(struct frame_shape *s, struct str data, const char *key);
void frame_shape_forget(struct frame_shape *s);
/* True: data is of this shape; its text is appended to out, its escapes read (out NULL: nobody wants it). False: out is as it was, data
 * has to be parsed. Texts with \u escapes are always left to the parser. */
bool frame_shape_read(const struct frame_shape *s, struct str data, struct buf *out);

#endif
