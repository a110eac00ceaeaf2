/* library.h - the Redis Functions as they are loaded at every connection: the files of lua/, their heads as texts for deja_help, then the
 * table of knobs made from knobs.c, so that Redis checks what this program means. Pure. */
#ifndef DEJA_CACHE_LIBRARY_H
#define DEJA_CACHE_LIBRARY_H
#include "base/buf.h"

void library_write(struct buf *out);

#endif
