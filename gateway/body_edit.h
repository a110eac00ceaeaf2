/* body_edit.h - changes single members of a JSON object in place of its text, so that every other byte reaches the upstream as the
 * client wrote it (numbers, escapes, blanks, unknown fields). Pure. The text must have passed json_parse: this file only finds
 * where values begin and end. */
#ifndef DEJA_GATEWAY_BODY_EDIT_H
#define DEJA_GATEWAY_BODY_EDIT_H
#include "base/buf.h"

struct body_edit {
    const char *name; /* top-level member */
    struct str value; /* JSON text to put there; p NULL = take the member out */
    bool add;         /* put it there when it is absent */
};
/* Appends the changed text. ERR_INVALID: not an object (nothing useful in out); ERR_TOO_LARGE: out is full. At most 8 edits. */
MUST enum err body_edit(struct buf *out, struct str json, const struct body_edit *edits,
                        size_t n_edits);

/* A top-level member's value as it is written; p NULL when there is none. The last of equal names. */
struct str body_member(struct str json, const char *name);

#endif
