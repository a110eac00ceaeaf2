/* str.c - slices and UTF-8; no allocation. */
#define _GNU_SOURCE
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}
static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool str_ends(struct str s, struct str x)
{
    return s.n >= x.n && str_eq(str_sub(s, s.n - x.n, x.n), x);
}

bool str_same_letters(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

struct str str_trim(struct str s)
{
    while (s.n && blank(s.p[s.n - 1]))
        s.n--;
    while (s.n && blank(*s.p))
        s.p++, s.n--;
    return s;
}

ptrdiff_t str_find(struct str s, struct str needle)
{
    if (!needle.n) return 0;
    const char *hit = s.n ? memmem(s.p, s.n, needle.p, needle.n) : NULL;
    return hit ? hit - s.p : -1;
}

bool str_next(struct str *s, char sep, struct str *head)
{
    if (!s->n) return false;
    ptrdiff_t at = str_find_char(*s, sep);
    *head = str_sub(*s, 0, at < 0 ? s->n : (size_t)at);
    *s = str_sub(*s, at < 0 ? s->n : (size_t)at + 1, s->n);
    return true;
}

bool str_lists(struct str list, char sep, struct str item)
{
    struct str part;
    while (str_next(&list, sep, &part))
        if (str_eq(part, item)) return true;
    return false;
}

enum { DISTANCE_BYTES_MAX = 64 };

static char name_fold(char c)
{
    return c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

int str_distance(struct str a, struct str b)
{
    int row[DISTANCE_BYTES_MAX + 1];
    if (a.n > DISTANCE_BYTES_MAX || b.n > DISTANCE_BYTES_MAX) return DISTANCE_BYTES_MAX;
    for (int j = 0; j <= (int)b.n; j++)
        row[j] = j;
    for (int i = 1; i <= (int)a.n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= (int)b.n; j++) {
            int change = diagonal + (name_fold(a.p[i - 1]) != name_fold(b.p[j - 1]));
            int step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[b.n];
}

enum err str_to_i64(struct str s, int64_t min, int64_t max, int64_t *out)
{
    char text[24];
    if (!s.n || s.n >= sizeof text) return ERR_INVALID;
    for (size_t i = 0; i < s.n; i++)
        if (!(s.p[i] >= '0' && s.p[i] <= '9') && !(i == 0 && s.p[0] == '-' && s.n > 1))
            return ERR_INVALID;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno || v < min || v > max) return ERR_RANGE;
    *out = v;
    return OK;
}

int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int str_percent(struct str s, size_t i)
{
    if (i + 2 >= s.n || s.p[i] != '%') return -1;
    int high = hex_value(s.p[i + 1]), low = hex_value(s.p[i + 2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

struct str str_u64(uint64_t v, char digits[STR_U64_BYTES])
{
    size_t i = STR_U64_BYTES;
    do
        digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    return (struct str){digits + i, STR_U64_BYTES - i};
}

void str_copy(char *out, size_t cap, struct str s)
{
    size_t n = s.n < cap ? s.n : cap - 1;
    if (n) memcpy(out, s.p, n);
    out[n] = 0;
}

enum err str_to_f64(struct str s, double *out)
{
    char text[64], *end;
    if (!s.n || s.n >= sizeof text || blank(*s.p)) return ERR_INVALID;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    double v = strtod(text, &end);
    if (end != text + s.n || !isfinite(v)) return ERR_INVALID;
    *out = v;
    return OK;
}

size_t utf8_decode(struct str s, uint32_t *cp)
{
    if (!s.n) return 0;
    const unsigned char *b = (const unsigned char *)s.p;
    if (b[0] < 0x80) return *cp = b[0], 1;
    size_t n = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || s.n < n) return 0;
    uint32_t v = b[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
        v = v << 6 | (b[i] & 0x3Fu);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (v < least[n] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return 0;
    *cp = v;
    return n;
}

/* Bytes of ASCII at the start, as far as eight at a time tell. */
static size_t ascii_eights(struct str s)
{
    size_t i = 0;
    for (uint64_t v; i + 8 <= s.n; i += 8) {
        memcpy(&v, s.p + i, 8);
        if (v & 0x8080808080808080u) break;
    }
    return i;
}

bool utf8_valid(struct str s)
{
    uint32_t cp;
    while (s.n) {
        size_t n = ascii_eights(s);
        if (!n) n = utf8_decode(s, &cp);
        if (!n) return false;
        s = str_sub(s, n, s.n);
    }
    return true;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) return out[0] = (char)cp, 1;
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* True when b[0..n) could still grow into a valid sequence. */
static bool unfinished(const unsigned char *b, size_t n)
{
    size_t want = b[0] >= 0xF0 && b[0] <= 0xF4  ? 4
                  : b[0] >= 0xE0 && b[0] < 0xF0 ? 3
                  : b[0] >= 0xC2 && b[0] < 0xE0 ? 2
                                                : 0;
    if (n >= want) return false;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xC0) != 0x80) return false;
    if (n < 2) return true;
    if (b[0] == 0xE0 && b[1] < 0xA0) return false;
    if (b[0] == 0xED && b[1] > 0x9F) return false;
    if (b[0] == 0xF0 && b[1] < 0x90) return false;
    return !(b[0] == 0xF4 && b[1] > 0x8F);
}

size_t utf8_complete(struct str s)
{
    for (size_t back = 1; back <= 3 && back <= s.n; back++)
        if (unfinished((const unsigned char *)s.p + s.n - back, back)) return s.n - back;
    return s.n;
}
