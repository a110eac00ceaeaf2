/* err.h - the one list of expected failures, and the assert for programming errors.
 * Three kinds of failure: expected ones are an `enum err` (OK is 0); where a human reads the reason a
 * `struct errmsg *` comes last and gets a sentence; bugs are ASSERTed (on in release too).
 * Threading: everything here may be called from any thread. */
#ifndef DEJA_BASE_ERR_H
#define DEJA_BASE_ERR_H

#define MUST __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_i, arg_i) __attribute__((format(printf, fmt_i, arg_i)))

/* name, text a person may read */
#define ERR_LIST(X)                                                                                \
    X(OK, "ok")                                                                                    \
    X(ERR_INVALID, "invalid input")                                                                \
    X(ERR_RANGE, "value out of range")                                                             \
    X(ERR_NOT_FOUND, "not found")                                                                  \
    X(ERR_FULL, "full")                                                                            \
    X(ERR_TOO_LARGE, "too large")                                                                  \
    X(ERR_CANCELLED, "cancelled")                                                                  \
    X(ERR_TIMEOUT, "deadline passed")                                                              \
    X(ERR_CLOSED, "closed by the other side")                                                      \
    X(ERR_IO, "input/output error")                                                                \
    X(ERR_UNAVAILABLE, "not available now")                                                        \
    X(ERR_UNSUPPORTED, "not supported")                                                            \
    X(ERR_CORRUPT, "corrupt data")                                                                 \
    X(ERR_AGAIN, "more input needed")

enum err {
#define X(name, text) name,
    ERR_LIST(X)
#undef X
};

/* An error a human reads. text is always terminated, one sentence without a final full stop, and says where
 * and what would be right ("messages[3].content: expected a string"). Zero-initialise before use. */
struct errmsg {
    enum err code;
    char text[240];
};

/* The table's name ("ERR_FULL") and text. Never NULL. */
const char *err_name(enum err code);
const char *err_text(enum err code);

/* Fills *e (may be NULL) and returns code, so that `return err_set(e, ERR_INVALID, "...")` reads well.
 * A text too long is cut on a UTF-8 boundary. */
enum err err_set(struct errmsg *e, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "where: " before the text already in *e (may be NULL). Returns code. */
enum err err_prefix(struct errmsg *e, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Bugs only, never input. Prints the place, the version and the last log lines, then aborts. */
#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) assert_failed(__FILE__, __LINE__, #cond);                \
    } while (0)
__attribute__((noreturn)) void assert_failed(const char *file, int line,
                                             const char *cond); /* also read as C++ */

#endif
