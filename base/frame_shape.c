/* frame_shape.c - see frame_shape.h. */
#include "base/frame_shape.h"

#include <string.h>

#include "base/json_scan.h"

void frame_shape_forget(struct frame_shape *s)
{
    s->before = s->after = 0;
}

/* Bytes up to the quote that ends the text at the start of s; s.n when there is none. */
static size_t text_bytes(struct str s)
{
    size_t i = 0;
    while (i < s.n && s.p[i] != '"')
        i += s.p[i] == '\\' ? 2 : 1;
    return i < s.n ? i : s.n;
}

/* Where the text of the member begins, or 0. The name in quotes before a colon can be nothing but a member: inside a text its quotes
 * would be escaped. */
static size_t find_text(struct str data, const char *key)
{
    char name[48];
    size_t n = strlen(key), found = 0;
    if (n + 3 > sizeof name) return 0;
    name[0] = '"';
    memcpy(name + 1, key, n);
    name[n + 1] = '"';
    for (size_t at = 0; at < data.n;) {
        ptrdiff_t hit = str_find(str_sub(data, at, data.n - at), (struct str){name, n + 2});
        if (hit < 0) break;
        size_t i = at + (size_t)hit + n + 2;
        at = i;
        while (i < data.n && data.p[i] == ' ')
            i++;
        if (i >= data.n || data.p[i] != ':') continue; /* a value, not a name */
        i++;
        while (i < data.n && data.p[i] == ' ')
            i++;
        if (found || i >= data.n || data.p[i] != '"') return 0;
        found = i + 1;
    }
    return found;
}

bool frame_shape_learn(struct frame_shape *s, struct str data, const char *key)
{
    frame_shape_forget(s);
    if (data.n > FRAME_SHAPE_BYTES || str_find_char(data, '\n') >= 0 ||
        str_find_char(data, '\r') >= 0)
        return false;
    size_t from = find_text(data, key);
    if (!from) return false;
    size_t to = from + text_bytes(str_sub(data, from, data.n - from));
    if (to >= data.n) return false;
    s->before = from;
    s->after = data.n - to;
    memcpy(s->bytes, data.p, from);
    memcpy(s->bytes + from, data.p + to, s->after);
    return true;
}

/* What stands for an escaped character, or 0. */
static char escaped(char c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case '"':
    case '\\':
    case '/':
        return c;
    default:
        return 0;
    }
}

/* Is it the inside of a JSON text without \u? *escapes: there are some. */
static bool text_is_plain(struct str text, bool *escapes)
{
    size_t sure = json_scan_plain(text);
    *escapes = false;
    if (sure == text.n) return true;
    for (size_t i = sure; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c == '"' || c < 0x20) return false;
        if (c != '\\') continue;
        *escapes = true;
        if (++i >= text.n || !escaped(text.p[i])) return false;
    }
    return utf8_valid(text);
}

bool frame_shape_read(const struct frame_shape *s, struct str data, struct buf *out)
{
    size_t around = s->before + s->after;
    bool escapes;
    if (!s->after || data.n < around || memcmp(data.p, s->bytes, s->before) != 0 ||
        memcmp(data.p + data.n - s->after, s->bytes + s->before, s->after) != 0)
        return false;
    struct str text = str_sub(data, s->before, data.n - around);
    if (!text_is_plain(text, &escapes)) return false;
    if (!out) return true;
    if (!escapes) {
        buf_str(out, text);
        return true;
    }
    for (size_t i = 0; i < text.n; i++)
        buf_char(out, text.p[i] == '\\' ? escaped(text.p[++i]) : text.p[i]);
    return true;
}
