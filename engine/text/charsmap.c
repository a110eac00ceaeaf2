/* charsmap.c - see charsmap.h. */
#include "engine/text/charsmap.h"

#include <string.h>

#include "base/mem.h"
#include "engine/text/unicode.h"

struct charsmap {
    uint32_t *units;
    uint32_t n_units;
    char *strings;
    size_t n_strings; /* bytes; the last one is NUL */
};

enum err charsmap_new(struct charsmap **out, struct str bytes, struct errmsg *e)
{
    *out = NULL;
    uint32_t trie_bytes = 0;
    if (bytes.n >= 4) memcpy(&trie_bytes, bytes.p, 4);
    if (bytes.n < 8 || trie_bytes < 4 || trie_bytes % 4 || trie_bytes > bytes.n - 4 ||
        bytes.n > (size_t)64 << 20)
        return err_set(e, ERR_CORRUPT, "the precompiled charsmap's trie does not fit its %zu bytes",
                       bytes.n);
    struct charsmap *c = xcalloc(1, sizeof *c);
    c->n_units = trie_bytes / 4;
    c->units = xmalloc(trie_bytes);
    memcpy(c->units, bytes.p + 4, trie_bytes);
    c->n_strings = bytes.n - 4 - trie_bytes;
    c->strings = xstrndup(bytes.p + 4 + trie_bytes, c->n_strings);
    c->n_strings++;
    *out = c;
    return OK;
}

void charsmap_free(struct charsmap *c)
{
    if (!c) return;
    mem_free(c->units);
    mem_free(c->strings);
    mem_free(c);
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Bytes of the longest key at the start of s and the offset of its replacement; 0 when there is none. */
static size_t longest(const struct charsmap *c, struct str s, uint32_t *string)
{
    size_t found = 0;
    uint32_t at = offset_of(c->units[0]);
    for (size_t i = 0; i < s.n; i++) {
        unsigned char byte = (unsigned char)s.p[i];
        at ^= byte;
        if (at >= c->n_units) break;
        uint32_t unit = c->units[at];
        if ((unit & (1u << 31 | 0xFF)) != byte) break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (at >= c->n_units) break;
        *string = c->units[at] & ~(1u << 31);
        if (*string < c->n_strings) found = i + 1;
    }
    return found;
}

void charsmap_apply(const struct charsmap *c, struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t string = 0, code;
        size_t n = longest(c, str_sub(text, i, 64), &string);
        if (n) {
            buf_z(out, c->strings + string);
        } else {
            n = unicode_next(text, i, &code);
            if (code == UNICODE_INVALID)
                buf_utf8(out, 0xFFFD);
            else
                buf_add(out, text.p + i, n);
        }
        i += n;
    }
}
