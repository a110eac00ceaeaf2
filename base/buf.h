/* buf.h - a growing byte buffer with a mandatory bound. Once an append would pass the bound (or memory is gone)
 * the buffer is marked failed and further appends do nothing: append freely, check buf_failed once.
 * p is always terminated (the NUL is not counted) after the first append. Owner: the struct's holder. */
#ifndef DEJA_BASE_BUF_H
#define DEJA_BASE_BUF_H
#include <stdbool.h>
#include <string.h>

#include "base/str.h"

struct buf {
    char *p; /* NULL while empty and never appended to */
    size_t n, cap, max;
    bool failed;
};

void buf_init(struct buf *b, size_t bytes_max);
void buf_fini(struct buf *b);                 /* frees; b may be used again after buf_init */
bool buf_reserve(struct buf *b, size_t more); /* room for so much more, or b is marked failed */
static inline void buf_add(struct buf *b, const void *bytes, size_t n)
{
    bool fits = !b->failed && n < b->cap && b->n < b->cap - n && b->n + n <= b->max;
    if (!fits && !buf_reserve(b, n)) return;
    if (n) memcpy(b->p + b->n, bytes, n);
    b->n += n;
    b->p[b->n] = 0;
}
static inline void buf_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.n);
}
static inline void buf_z(struct buf *b, const char *terminated)
{
    buf_add(b, terminated, strlen(terminated));
}
static inline void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_u64(struct buf *b, uint64_t v); /* decimal */
void buf_utf8(struct buf *b, uint32_t code_point);
void buf_clear(struct buf *b);             /* n = 0, failed = false; keeps memory */
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes */
bool buf_failed(const struct buf *b);
struct str buf_view(const struct buf *b); /* borrowed until the next append */
/* Hands the bytes over (free with mem_free); *n may be NULL. b is empty afterwards. Never NULL. */
char *buf_take(struct buf *b, size_t *n);

#endif
