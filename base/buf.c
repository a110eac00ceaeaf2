/* buf.c - see buf.h. Grows by doubling, never past max. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t bytes_max)
{
    *b = (struct buf){.max = bytes_max};
}

void buf_fini(struct buf *b)
{
    mem_free(b->p);
    *b = (struct buf){.max = b->max};
}

bool buf_reserve(struct buf *b, size_t more)
{
    if (b->failed) return false;
    if (more > b->max || b->n > b->max - more) return b->failed = true, false;
    if (b->n + more + 1 <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->n + more + 1)
        cap *= 2;
    char *p = try_realloc(b->p, cap);
    if (!p) return b->failed = true, false;
    b->p = p;
    b->cap = cap;
    return true;
}

void buf_utf8(struct buf *b, uint32_t cp)
{
    char out[4];
    buf_add(b, out, utf8_encode(cp, out));
}

void buf_u64(struct buf *b, uint64_t v)
{
    char digits[STR_U64_BYTES];
    buf_str(b, str_u64(v, digits));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && buf_reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p) b->p[0] = 0;
}

void buf_consume(struct buf *b, size_t n)
{
    ASSERT(n <= b->n);
    if (!n) return;
    memmove(b->p, b->p + n, b->n - n + 1);
    b->n -= n;
}

bool buf_failed(const struct buf *b)
{
    return b->failed;
}
struct str buf_view(const struct buf *b)
{
    return (struct str){b->p, b->n};
}

char *buf_take(struct buf *b, size_t *n)
{
    char *p = b->p ? b->p : xstrndup("", 0);
    if (n) *n = b->n;
    *b = (struct buf){.max = b->max};
    return p;
}
