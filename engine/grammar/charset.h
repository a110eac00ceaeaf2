/* charset.h - private to engine/grammar: a set of Unicode code points as sorted ranges. Pure. Bounded: a set that would need more than
 * CHARSET_RANGES_MAX ranges is marked failed, and what is added then is lost. */
#ifndef DEJA_ENGINE_GRAMMAR_CHARSET_H
#define DEJA_ENGINE_GRAMMAR_CHARSET_H
#include <stdbool.h>
#include <stdint.h>

enum { CHARSET_RANGES_MAX = 256, CHARSET_LAST = 0x10FFFF };

struct char_range {
    uint32_t lo, hi; /* both included */
};
/* Start from {0}. Ranges are sorted and apart after charset_tidy. */
struct charset {
    struct char_range range[CHARSET_RANGES_MAX];
    int n;
    bool failed;
};

void charset_add(struct charset *s, uint32_t lo, uint32_t hi);
void charset_add_all(struct charset *s, const struct charset *more);
/* Sorts and merges; surrogates, which no text can hold, are taken out. */
void charset_tidy(struct charset *s);
/* Everything else; tidy before and after. */
void charset_invert(struct charset *s);
/* out = those of s within lo..hi; s is tidy. */
void charset_within(const struct charset *s, uint32_t lo, uint32_t hi, struct charset *out);
bool charset_has(const struct charset *s, uint32_t c);

#endif
