/* unicode_tables.h - layout of the generated Unicode tables; only unicode.c and normalise.c read them.
 * Constants only; any thread. */
#ifndef DEJA_ENGINE_TEXT_UNICODE_TABLES_H
#define DEJA_ENGINE_TEXT_UNICODE_TABLES_H
#include <stdint.h>

struct unicode_range {
    uint32_t first, last;
};
struct unicode_case_range { /* c = first + k * step <= last maps to c + delta */
    uint32_t first, last;
    int32_t step, delta;
};
struct unicode_combining_range {
    uint32_t first, last;
    uint8_t combining;
};
struct unicode_pair { /* one step of canonical decomposition; second is 0 for singletons */
    uint32_t code, first, second;
};
struct
    unicode_expansion { /* code points first..last expand to n each, one after the other in the pool */
    uint32_t first, last;
    uint16_t pool_from;
    uint8_t n;
};

extern const uint32_t unicode_class_ranges[];
extern const int unicode_class_ranges_n;
extern const struct unicode_case_range unicode_lower_ranges[], unicode_upper_ranges[];
extern const int unicode_lower_ranges_n, unicode_upper_ranges_n;
extern const struct unicode_combining_range unicode_combining_ranges[];
extern const int unicode_combining_ranges_n;
extern const struct unicode_range unicode_nfc_touched[];
extern const int unicode_nfc_touched_n;
extern const struct unicode_pair unicode_canonical[];
extern const int unicode_canonical_n;
extern const uint16_t unicode_compositions[];
extern const int unicode_compositions_n;
extern const struct unicode_expansion unicode_compat[];
extern const int unicode_compat_n;
extern const uint32_t unicode_compat_pool[];
extern const int unicode_compat_pool_n;

#endif
