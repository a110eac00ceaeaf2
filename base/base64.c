/* base64.c - see base64.h. */
#include "base/base64.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_write(struct buf *out, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                     (left > 2 ? p[i + 2] : 0);
        char four[4] = {letters[v >> 18], letters[v >> 12 & 63],
                        left > 1 ? letters[v >> 6 & 63] : '=', left > 2 ? letters[v & 63] : '='};
        buf_add(out, four, 4);
    }
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

enum err base64_read(struct buf *out, struct str text)
{
    if (text.n % 4) return ERR_INVALID;
    for (size_t i = 0; i < text.n; i += 4) {
        const char *c = text.p + i;
        bool last = i + 4 == text.n;
        int pad = last && c[3] == '=' ? c[2] == '=' ? 2 : 1 : 0, v[4] = {0};
        for (int k = 0; k < 4 - pad; k++)
            if ((v[k] = value_of(c[k])) < 0) return ERR_INVALID;
        unsigned bits =
            (unsigned)v[0] << 18 | (unsigned)v[1] << 12 | (unsigned)v[2] << 6 | (unsigned)v[3];
        if (pad && bits & (pad == 2 ? 0xFFFFu : 0xFFu))
            return ERR_INVALID; /* two spellings of one */
        char three[3] = {(char)(bits >> 16 & 0xFF), (char)(bits >> 8 & 0xFF), (char)(bits & 0xFF)};
        buf_add(out, three, (size_t)(3 - pad));
    }
    return buf_failed(out) ? ERR_TOO_LARGE : OK;
}
