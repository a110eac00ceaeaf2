/* str.h - borrowed slices of bytes and UTF-8. A struct str owns nothing and may hold NUL bytes. Any thread. */
#ifndef DEJA_BASE_STR_H
#define DEJA_BASE_STR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

struct str {
    const char *p; /* may be NULL when n is 0 */
    size_t n;
};
#define STR(lit) ((struct str){"" lit, sizeof(lit) - 1})
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).n, (s).p ? (s).p : ""

/* The smallest are here for the compiler to see through: names known when it compiles cost no strlen. */
static inline struct str str_of(const char *terminated) /* NULL -> empty */
{
    return (struct str){terminated, terminated ? strlen(terminated) : 0};
}
static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n));
}
static inline bool str_eqz(struct str a, const char *terminated)
{
    return str_eq(a, str_of(terminated));
}
bool str_same_letters(const char *a, const char *b, size_t n);
static inline bool str_ieq(struct str a, struct str b) /* ASCII case ignored */
{
    return a.n == b.n && str_same_letters(a.p, b.p, a.n);
}
static inline struct str str_sub(struct str s, size_t from, size_t n) /* clamped */
{
    if (from > s.n) from = s.n;
    if (n > s.n - from) n = s.n - from;
    return (struct str){s.p ? s.p + from : NULL, n};
}
static inline bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_sub(s, 0, prefix.n), prefix);
}
bool str_ends(struct str s, struct str suffix);
struct str str_trim(struct str s); /* ASCII white space off both ends */
/* Index of the first match, or -1. */
ptrdiff_t str_find(struct str s, struct str needle);
static inline ptrdiff_t str_find_char(struct str s, char c)
{
    const char *hit = s.n ? (const char *)memchr(s.p, c, s.n) : NULL;
    return hit ? hit - s.p : -1;
}
/* Cuts at the first sep: *head gets what is before it, *s what follows. False when s was empty. */
bool str_next(struct str *s, char sep, struct str *head);
/* Is item, as it stands, one of those between the seps of list? */
bool str_lists(struct str list, char sep, struct str item);
/* Letters to insert, drop or change to get from a to b (Levenshtein; ASCII case ignored, '-' and '_' are one), for "did you mean".
 * Texts over 64 bytes are 64 away from everything. */
int str_distance(struct str a, struct str b);
/* Whole slice as a decimal integer in [min,max]; no sign but '-', no spaces, no '+'. */
MUST enum err str_to_i64(struct str s, int64_t min, int64_t max, int64_t *out);
/* A hexadecimal digit's value, or -1. */
int hex_value(char c);
/* The byte that %XX at s.p[i] stands for (RFC 3986, 2.1), or -1 where there is no such three. */
int str_percent(struct str s, size_t i);
/* v in decimal, within digits; many times as fast as printf. */
enum { STR_U64_BYTES = 20 };
struct str str_u64(uint64_t v, char digits[STR_U64_BYTES]);
/* Copies as much as fits, terminated. */
void str_copy(char *out, size_t cap, struct str s);
MUST enum err str_to_f64(struct str s, double *out); /* finite only */

/* UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF). */
bool utf8_valid(struct str s);
/* Bytes of the valid sequence at the start and its code point; 0 when invalid, cut off or empty. */
size_t utf8_decode(struct str s, uint32_t *code_point);
/* Bytes written (1..4); code_point must be a scalar value. */
size_t utf8_encode(uint32_t code_point, char out[4]);
/* Length of the longest prefix made of whole characters (invalid bytes count as whole); what is left is an
 * unfinished sequence of at most 3 bytes. */
size_t utf8_complete(struct str s);

#endif
