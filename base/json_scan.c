/* json_scan.c - see json_scan.h. Texts are looked at sixteen or eight bytes at a time. */
#include "base/json_scan.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static const uint64_t ONES = 0x0101010101010101u, HIGHS = 0x8080808080808080u;

void json_scan_begin(struct json_scan *s, struct str text, int depth_max)
{
    s->p = text.p;
    s->end = text.p + text.n;
    s->depth_left = depth_max;
    s->opened = s->keys_unlooked = false;
    s->n_keys = s->keys_from = 0;
}

char json_scan_peek(struct json_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

bool json_scan_at_end(struct json_scan *s)
{
    return !json_scan_peek(s) && s->p == s->end;
}

/* --- strings */
static uint64_t has_zero(uint64_t v)
{
    return (v - ONES) & ~v & HIGHS;
}

/* Past the bytes that may stand in a string as they are and need no look: ASCII but quote, backslash, control characters. */
static const char *skip_plain(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
                  blank = _mm_set1_epi8(' ');
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i low = _mm_cmplt_epi8(v, blank); /* signed: from 0x80 on as well */
        __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash));
        int stops = _mm_movemask_epi8(_mm_or_si128(low, marks));
        if (stops) return p + __builtin_ctz((unsigned)stops);
    }
#endif
    for (; end - p >= 8; p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        uint64_t stops = (v & HIGHS) | ((v - ONES * 0x20) & ~v & HIGHS) | has_zero(v ^ ONES * '"') |
                         has_zero(v ^ ONES * '\\');
        if (stops) break;
    }
    while (p < end && (unsigned char)(*p - 0x20) < 0x60 && *p != '"' && *p != '\\')
        p++;
    return p;
}

size_t json_scan_plain(struct str text)
{
    return text.n ? (size_t)(skip_plain(text.p, text.p + text.n) - text.p) : 0;
}

long json_scan_code_unit(const char *p, const char *end)
{
    long v = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* The length of the escape at p and what it stands for; 0 when it is none, or half a pair. */
static size_t read_escape(const char *p, const char *end, uint32_t *cp)
{
    static const char short_from[] = "\"\\/bfnrt", short_to[] = "\"\\/\b\f\n\r\t";
    if (end - p < 2) return 0;
    const char *hit = p[1] ? strchr(short_from, p[1]) : NULL;
    if (hit) return *cp = (unsigned char)short_to[hit - short_from], 2;
    long v = json_scan_code_unit(p, end);
    if (v < 0 || (v >= 0xDC00 && v <= 0xDFFF)) return 0;
    if (v < 0xD800 || v > 0xDBFF) return *cp = (uint32_t)v, 6;
    long low = json_scan_code_unit(p + 6, end);
    if (low < 0xDC00 || low > 0xDFFF) return 0;
    return *cp = (uint32_t)(0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00)), 12;
}

bool json_scan_string(struct json_scan *s, struct json_scan_text *out)
{
    if (json_scan_peek(s) != '"') return false;
    const char *from = s->p + 1, *p = from;
    out->escaped = false;
    for (;;) {
        uint32_t cp;
        p = skip_plain(p, s->end);
        if (p >= s->end || (unsigned char)*p < 0x20) return false;
        if (*p == '"') break;
        size_t n = *p == '\\' ? read_escape(p, s->end, &cp)
                              : utf8_decode((struct str){p, (size_t)(s->end - p)}, &cp);
        if (!n) return false;
        out->escaped |= *p == '\\';
        p += n;
    }
    out->raw = (struct str){from, (size_t)(p - from)};
    s->p = p + 1;
    return true;
}

size_t json_scan_unescape(struct str raw, char *out)
{
    const char *p = raw.p, *end = raw.p + raw.n;
    char *to = out;
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((slash ? slash : end) - p);
        uint32_t cp = 0;
        memcpy(to, p, n);
        to += n;
        p += n;
        if (p == end) break;
        p += read_escape(p, end, &cp);
        to += utf8_encode(cp, to);
    }
    return (size_t)(to - out);
}

/* --- numbers and words */
static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static const char *skip_digits(const char *p, const char *end)
{
    while (is_digit(p, end))
        p++;
    return p;
}

/* Past the fraction and the exponent at p; NULL when one is begun and not there. */
static const char *skip_fraction(const char *p, const char *end)
{
    if (p < end && *p == '.') {
        if (!is_digit(++p, end)) return NULL;
        p = skip_digits(p, end);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        if (++p < end && (*p == '+' || *p == '-')) p++;
        if (!is_digit(p, end)) return NULL;
        p = skip_digits(p, end);
    }
    return p;
}

bool json_scan_number(struct json_scan *s, struct json_scan_number *out)
{
    enum { SURE_DIGITS = 18, TEXT_MAX = 60 };
    bool negative = json_scan_peek(s) == '-';
    const char *from = s->p, *digits = from + negative, *p = skip_digits(digits, s->end);
    if (p == digits || (*digits == '0' && p - digits > 1) || p - digits > SURE_DIGITS) return false;
    const char *after = skip_fraction(p, s->end);
    if (!after || after - from > TEXT_MAX) return false;
    out->text = (struct str){from, (size_t)(after - from)};
    out->real = after != p;
    s->p = after;
    out->integer = 0;
    for (const char *d = digits; d < p; d++)
        out->integer = out->integer * 10 + (*d - '0');
    if (negative) out->integer = -out->integer;
    double v;
    return !out->real || str_to_f64(out->text, &v) == OK;
}

static bool word(struct json_scan *s, struct str w)
{
    if (json_scan_peek(s) != *w.p || (size_t)(s->end - s->p) < w.n || memcmp(s->p, w.p, w.n) != 0)
        return false;
    s->p += w.n;
    return true;
}

bool json_scan_null(struct json_scan *s)
{
    return word(s, STR("null"));
}

bool json_scan_true(struct json_scan *s)
{
    return word(s, STR("true"));
}

bool json_scan_false(struct json_scan *s)
{
    return word(s, STR("false"));
}

/* --- objects and arrays */
bool json_scan_open(struct json_scan *s, char open, int *outer)
{
    if (json_scan_peek(s) != open || s->depth_left <= 0) return false;
    s->depth_left--;
    s->p++;
    s->opened = true;
    *outer = s->keys_from;
    s->keys_from = s->n_keys;
    return true;
}

/* A comma, or the closing bracket; between them nothing else. */
static bool step(struct json_scan *s, char close, bool *more)
{
    char c = json_scan_peek(s);
    bool first = s->opened;
    s->opened = false;
    if (c == close) {
        s->p++;
        s->depth_left++;
        *more = false;
        return true;
    }
    *more = true;
    if (first) return true;
    if (c != ',') return false;
    s->p++;
    return true;
}

static bool is_new_key(struct json_scan *s, struct str key)
{
    if (s->keys_unlooked) return true;
    if (s->n_keys == JSON_SCAN_KEYS_MAX) return false;
    for (int i = s->keys_from; i < s->n_keys; i++)
        if (str_eq(s->keys[i], key)) return false;
    s->keys[s->n_keys++] = key;
    return true;
}

bool json_scan_key(struct json_scan *s, int outer, struct str *key, bool *more)
{
    struct json_scan_text name;
    if (!step(s, '}', more)) return false;
    if (!*more) {
        s->n_keys = s->keys_from;
        s->keys_from = outer;
        return true;
    }
    if (!json_scan_string(s, &name) || name.escaped || !is_new_key(s, name.raw) ||
        json_scan_peek(s) != ':')
        return false;
    s->p++;
    *key = name.raw;
    return true;
}

bool json_scan_item(struct json_scan *s, int outer, bool *more)
{
    if (!step(s, ']', more)) return false;
    if (!*more) s->keys_from = outer;
    return true;
}

static bool skip_object(struct json_scan *s)
{
    int outer;
    bool more;
    struct str key;
    if (!json_scan_open(s, '{', &outer)) return false;
    for (;;) {
        if (!json_scan_key(s, outer, &key, &more)) return false;
        if (!more) return true;
        if (!json_scan_skip(s)) return false;
    }
}

static bool skip_array(struct json_scan *s)
{
    int outer;
    bool more;
    if (!json_scan_open(s, '[', &outer)) return false;
    for (;;) {
        if (!json_scan_item(s, outer, &more)) return false;
        if (!more) return true;
        if (!json_scan_skip(s)) return false;
    }
}

bool json_scan_skip(struct json_scan *s)
{
    struct json_scan_text text;
    struct json_scan_number number;
    switch (json_scan_peek(s)) {
    case '{':
        return skip_object(s);
    case '[':
        return skip_array(s);
    case '"':
        return json_scan_string(s, &text);
    case 't':
        return json_scan_true(s);
    case 'f':
        return json_scan_false(s);
    case 'n':
        return json_scan_null(s);
    default:
        return json_scan_number(s, &number);
    }
}
