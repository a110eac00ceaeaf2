/* json_texts.h - random texts that are JSON, or nearly: values of every kind, then a few bytes changed; and answers put together of given
 * members. For tests that compare readers. */
#ifndef DEJA_TESTS_JSON_TEXTS_H
#define DEJA_TESTS_JSON_TEXTS_H
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"

static inline void text_value(struct buf *b, struct rng *rng, int depth)
{
    static const char *const atoms[] = {"null",
                                        "true",
                                        "false",
                                        "0",
                                        "-0",
                                        "1",
                                        "-17",
                                        "123456789012345678",
                                        "1234567890123456789",
                                        "99999999999999999999",
                                        "0.7",
                                        "1e3",
                                        "1E-2",
                                        "-0.0",
                                        "1e999",
                                        "01",
                                        "1.",
                                        ".5",
                                        "tru",
                                        "\"\"",
                                        "\"plain text of some length, more than eight bytes\"",
                                        "\"a\\nb\\\"c\\\\\"",
                                        "\"\\u0041\\u00e9\"",
                                        "\"\\ud83d\\ude00\"",
                                        "\"\\ud83d\"",
                                        "\"\\u0000\"",
                                        "\"caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd\"",
                                        "\"\xff\"",
                                        "\"tab\there\"",
                                        "\"\x7f\"",
                                        "\"\\x\"",
                                        "NaN"};
    static const char *const keys[] = {"a", "b", "content", "choices", "", "k\\u0061", "error"};
    uint64_t kind = rng_below(rng, depth > 0 ? 8 : 5);
    if (kind < 5) {
        buf_z(b, atoms[rng_below(rng, sizeof atoms / sizeof *atoms)]);
        return;
    }
    bool object = kind < 7;
    buf_char(b, object ? '{' : '[');
    for (uint64_t i = 0, n = rng_below(rng, 4); i < n; i++) {
        if (i) buf_z(b, rng_below(rng, 2) ? "," : " ,\n\t");
        if (object) {
            buf_char(b, '"');
            buf_z(b, keys[rng_below(rng, sizeof keys / sizeof *keys)]);
            if (rng_below(rng, 2)) buf_u64(b, i);
            buf_z(b, rng_below(rng, 2) ? "\":" : "\" : ");
        }
        text_value(b, rng, depth - 1);
    }
    buf_char(b, object ? '}' : ']');
}

/* Changes up to two bytes, in half of the texts. */
static inline void text_damage(struct buf *b, struct rng *rng)
{
    static const char bytes[] = "\"\\{}[],:0123456789.eE+-ntf \x01\x80\xc3";
    for (uint64_t n = rng_below(rng, 2) ? rng_below(rng, 3) : 0; n && b->n; n--)
        b->p[rng_below(rng, b->n)] = bytes[rng_below(rng, sizeof bytes)]; /* NUL too */
}

/* A text of the two above: b->n bytes in an allocation of just that size. */
static inline char *text_exact(struct buf *b, struct rng *rng)
{
    buf_clear(b);
    text_value(b, rng, 4);
    text_damage(b, rng);
    char *p = xmalloc(b->n);
    memcpy(p, b->p, b->n);
    return p;
}

struct texts {
    const char *const *list;
    size_t n;
};
#define TEXTS_OF(array) ((struct texts){array, sizeof(array) / sizeof *(array)})

static inline const char *text_of(struct rng *rng, struct texts from)
{
    return from.list[rng_below(rng, from.n)];
}

/* Goes on after "choices":[ with n choices made of parts, and up to two of tops beside them. */
static inline void text_choices(struct buf *b, struct rng *rng, uint64_t n, struct texts parts,
                                struct texts tops)
{
    for (uint64_t c = 0; c < n; c++) {
        buf_z(b, c ? ",{" : "{");
        for (uint64_t m = 0, k = rng_below(rng, 4); m < k; m++) {
            if (m) buf_char(b, ',');
            buf_z(b, text_of(rng, parts));
        }
        buf_char(b, '}');
    }
    buf_char(b, ']');
    for (uint64_t m = rng_below(rng, 3); m; m--) {
        buf_char(b, ',');
        buf_z(b, text_of(rng, tops));
    }
    buf_char(b, '}');
}

#endif
