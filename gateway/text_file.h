/* text_file.h - a small file read whole at the start. Threading: any. */
#ifndef DEJA_GATEWAY_TEXT_FILE_H
#define DEJA_GATEWAY_TEXT_FILE_H
#include "base/buf.h"

/* Appends the file to out, whose bound is the largest size. ERR_NOT_FOUND, ERR_IO, ERR_TOO_LARGE: e begins with what and names the path. */
MUST enum err text_file_read(struct buf *out, const char *what, const char *path, struct errmsg *e);

#endif
