/* text_file.c - see text_file.h. */
#include "gateway/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum err text_file_read(struct buf *out, const char *what, const char *path, struct errmsg *e)
{
    char piece[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_NOT_FOUND, "%s: cannot open %s: %s", what, path, strerror(errno));
    ssize_t got;
    while ((got = read(fd, piece, sizeof piece)) > 0 && !buf_failed(out))
        buf_add(out, piece, (size_t)got);
    close(fd);
    memset(piece, 0, sizeof piece); /* may have been a key */
    if (got < 0) return err_set(e, ERR_IO, "%s: cannot read %s", what, path);
    if (buf_failed(out)) return err_set(e, ERR_TOO_LARGE, "%s: %s is too large", what, path);
    return OK;
}
