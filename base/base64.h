/* base64.h - base64 (RFC 4648, section 4) with padding. Pure. */
#ifndef DEJA_BASE_BASE64_H
#define DEJA_BASE_BASE64_H
#include "base/buf.h"

void base64_write(struct buf *out, const void *bytes, size_t n);
/* Appends the bytes. ERR_INVALID: not base64 (other characters, a length that is no multiple of four, padding elsewhere than at the
 * end); out may hold a part then. */
MUST enum err base64_read(struct buf *out, struct str text);

#endif
