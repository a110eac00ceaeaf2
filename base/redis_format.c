/* redis_format.c - redis_commandf: a command from a format. Pure but for the command it sends. */
#include <stdarg.h>
#include <string.h>

#include "base/buf.h"
#include "base/redis.h"

enum { WORDS_MAX = 32, BYTES_MAX = 512 << 20 /* what Redis takes */ };

/* Appends what the directive at f (just after '%') stands for and returns the directive's end; NULL: no such directive. */
static const char *directive(struct buf *out, const char *f, va_list *ap)
{
    if (*f == '%')
        buf_char(out, '%');
    else if (*f == 's')
        buf_z(out, va_arg(*ap, const char *));
    else if (*f == 'b')
        buf_str(out, *va_arg(*ap, const struct str *));
    else if (*f == 'd')
        buf_printf(out, "%d", va_arg(*ap, int));
    else if (strncmp(f, "lld", 3))
        return NULL;
    else {
        buf_printf(out, "%lld", va_arg(*ap, long long));
        f += 2;
    }
    return f + 1;
}

void redis_commandf(struct redis *r, int timeout_ms, redis_callback *cb, void *arg, const char *fmt,
                    ...)
{
    struct buf bytes;
    size_t ends[WORDS_MAX];
    struct str words[WORDS_MAX];
    int n = 0;
    va_list ap;
    buf_init(&bytes, BYTES_MAX);
    va_start(ap, fmt);
    while (*fmt) {
        if (*fmt == ' ') {
            fmt++;
            continue;
        }
        ASSERT(n < WORDS_MAX);
        while (*fmt && *fmt != ' ') {
            if (*fmt == '%')
                fmt = directive(&bytes, fmt + 1, &ap);
            else
                buf_char(&bytes, *fmt++);
            ASSERT(fmt);
        }
        ends[n++] = bytes.n;
    }
    va_end(ap);
    for (int i = 0; i < n; i++)
        words[i] = str_sub(buf_view(&bytes), i ? ends[i - 1] : 0, ends[i] - (i ? ends[i - 1] : 0));
    ASSERT(!buf_failed(&bytes));
    redis_command(r, n, words, timeout_ms, cb, arg);
    buf_fini(&bytes);
}
