/* err.c - names, texts and formatting of expected failures; the end of the process for bugs. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#ifndef DEJA_VERSION
#define DEJA_VERSION "unknown"
#endif

static const struct {
    const char *name, *text;
} errors[] = {
#define X(name, text) {#name, text},
    ERR_LIST(X)
#undef X
};
enum { N_ERRORS = sizeof errors / sizeof errors[0] };

const char *err_name(enum err code)
{
    return (unsigned)code < N_ERRORS ? errors[code].name : "ERR_UNKNOWN";
}

const char *err_text(enum err code)
{
    return (unsigned)code < N_ERRORS ? errors[code].text : "unknown error";
}

/* Drops an incomplete last UTF-8 sequence left by a cut. */
static void cut_clean(char *s)
{
    size_t n = strlen(s), back = 0;
    while (back < n && back < 3 && ((unsigned char)s[n - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back >= n) return;
    unsigned char lead = (unsigned char)s[n - 1 - back];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (want > back + 1) s[n - 1 - back] = 0;
}

enum err err_set(struct errmsg *e, enum err code, const char *fmt, ...)
{
    if (!e) return code;
    e->code = code;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    if (n < 0) e->text[0] = 0;
    if (n >= (int)sizeof e->text) cut_clean(e->text);
    return code;
}

enum err err_prefix(struct errmsg *e, enum err code, const char *fmt, ...)
{
    if (!e) return code;
    char where[sizeof e->text], old[sizeof e->text];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    if (n < 0) where[0] = 0;
    memcpy(old, e->text, sizeof old);
    return err_set(e, code, "%s: %s", where, old);
}

_Noreturn void assert_failed(const char *file, int line, const char *cond)
{
    fprintf(stderr, "deja %s: bug at %s:%d: %s does not hold\n", DEJA_VERSION, file, line, cond);
    log_dump_recent();
    abort();
}
