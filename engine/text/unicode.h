/* unicode.h - character classes and case of code points, as the tokenizers need them. Knows nothing of normal forms
 * (normalise.h). Constants only; any thread.
 * Source: Unicode Character Database, through scripts/make_unicode_tables.py. */
#ifndef DEJA_ENGINE_TEXT_UNICODE_H
#define DEJA_ENGINE_TEXT_UNICODE_H
#include "base/str.h"

enum unicode_class {        /* general categories; those no scanner tells apart are merged */
                     UC_CN, /* unassigned */
                     UC_CC,
                     UC_CF,
                     UC_CO, /* private use, surrogates */
                     UC_LU,
                     UC_LL,
                     UC_LT,
                     UC_LM,
                     UC_LO,
                     UC_MN,
                     UC_MC, /* spacing and enclosing marks */
                     UC_ND,
                     UC_NO, /* letter and other numbers */
                     UC_P,
                     UC_S,
                     UC_ZS,
                     UC_ZL /* line and paragraph separators */
};

#define UNICODE_INVALID 0xFFFFFFFFu /* stands for one byte that is not UTF-8 */

enum unicode_class unicode_class(uint32_t code); /* UC_CN beyond U+10FFFF */
static inline bool unicode_is_letter(enum unicode_class c)
{
    return c >= UC_LU && c <= UC_LO;
}
static inline bool unicode_is_mark(enum unicode_class c)
{
    return c == UC_MN || c == UC_MC;
}
static inline bool unicode_is_number(enum unicode_class c)
{
    return c == UC_ND || c == UC_NO;
}
bool unicode_is_space(uint32_t code); /* property White_Space */
bool unicode_is_cjk(uint32_t code);   /* ideographs that BERT sets apart as words of their own */

/* One-to-one case mapping; the code itself when there is none. */
uint32_t unicode_lower(uint32_t code);
uint32_t unicode_upper(uint32_t code);

/* The character of s at byte `at` (< s.n): its length in bytes; 1 and UNICODE_INVALID for a stray byte. */
static inline size_t unicode_next(struct str s, size_t at, uint32_t *code)
{
    unsigned char c = (unsigned char)s.p[at];
    if (c < 0x80) {
        *code = c;
        return 1;
    }
    size_t n = utf8_decode((struct str){s.p + at, s.n - at}, code);
    if (n) return n;
    *code = UNICODE_INVALID;
    return 1;
}

#endif
