/* library.c - see library.h. */
#include "cache/library.h"

#include "cache/knobs.h"

extern const char deja_lua_library[]; /* the files of lua/, made at build time */
extern const unsigned deja_lua_library_bytes;

void library_write(struct buf *out)
{
    buf_add(out, deja_lua_library, deja_lua_library_bytes);
    buf_char(out, '\n');
    knobs_write_lua(out);
}
