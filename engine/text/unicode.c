/* unicode.c - look-ups in the generated class and case tables: binary search over ranges, with a short cut for what
 * most text is made of (ASCII, CJK ideographs, Hangul syllables). */
#include "engine/text/unicode.h"

#include "engine/text/unicode_tables.h"

enum unicode_class unicode_class(uint32_t code)
{
    if (code >= 0x4E00 && code <= 0x9FFC) return UC_LO;
    if (code >= 0xAC00 && code <= 0xD7A3) return UC_LO;
    if (code > 0x10FFFF) return UC_CN;
    int lo = 0, hi = unicode_class_ranges_n; /* the range wanted is in [lo,hi) */
    if (code < 0x80) hi = 64;                /* ASCII alternates at most this often */
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (unicode_class_ranges[mid] >> 5 <= code)
            lo = mid;
        else
            hi = mid;
    }
    return (enum unicode_class)(unicode_class_ranges[lo] & 31);
}

bool unicode_is_space(uint32_t code)
{
    if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool unicode_is_cjk(uint32_t code)
{
    if (code < 0x3400) return false;
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
           (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B820 && code <= 0x2CEAF) ||
           (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

static uint32_t map_case(const struct unicode_case_range *ranges, int n, uint32_t code)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (ranges[mid].first <= code)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* Ranges of step 2 may interleave: the two before the insertion point are candidates. */
    for (int i = lo - 1; i >= 0 && i >= lo - 2; i--) {
        const struct unicode_case_range *r = &ranges[i];
        if (code <= r->last && (code - r->first) % (uint32_t)r->step == 0)
            return (uint32_t)((int64_t)code + r->delta);
    }
    return code;
}

uint32_t unicode_lower(uint32_t code)
{
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
    return map_case(unicode_lower_ranges, unicode_lower_ranges_n, code);
}

uint32_t unicode_upper(uint32_t code)
{
    if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
    return map_case(unicode_upper_ranges, unicode_upper_ranges_n, code);
}
