/* normalise.c - canonical decomposition, ordering and composition, one starter and its marks at a time. */
#include "engine/text/normalise.h"

#include <string.h>

#include "engine/text/unicode.h"
#include "engine/text/unicode_tables.h"

enum { HANGUL_S = 0xAC00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7 };
enum { N_L = 19, N_V = 21, N_T = 28, N_S = N_L * N_V * N_T };

static uint8_t combining(uint32_t code)
{
    if (code < 0x300) return 0;
    int lo = 0, hi = unicode_combining_ranges_n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (unicode_combining_ranges[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == unicode_combining_ranges_n || unicode_combining_ranges[lo].first > code) return 0;
    return unicode_combining_ranges[lo].combining;
}

static const struct unicode_pair *canonical_pair(uint32_t code)
{
    int lo = 0, hi = unicode_canonical_n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (unicode_canonical[mid].code < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < unicode_canonical_n && unicode_canonical[lo].code == code ? &unicode_canonical[lo]
                                                                          : NULL;
}

static int decompose_compat(uint32_t code, uint32_t out[DECOMPOSED_MAX])
{
    int lo = 0, hi = unicode_compat_n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (unicode_compat[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == unicode_compat_n || unicode_compat[lo].first > code) return 0;
    const struct unicode_expansion *e = &unicode_compat[lo];
    ASSERT(e->n <= DECOMPOSED_MAX);
    memcpy(out, unicode_compat_pool + e->pool_from + (code - e->first) * e->n, e->n * sizeof *out);
    return e->n;
}

int normalise_decompose(uint32_t code, bool compat, uint32_t out[DECOMPOSED_MAX])
{
    out[0] = code;
    if (code < 0xA0) return 1;
    if (code >= HANGUL_S && code < HANGUL_S + N_S) {
        uint32_t s = code - HANGUL_S;
        out[0] = HANGUL_L + s / (N_V * N_T);
        out[1] = HANGUL_V + s % (N_V * N_T) / N_T;
        out[2] = HANGUL_T + s % N_T;
        return s % N_T ? 3 : 2;
    }
    int n = compat ? decompose_compat(code, out) : 0;
    if (n) return n;
    /* Only the first part can be decomposed further; at most 4 steps in the data, the bound is for safety. */
    uint32_t tail[DECOMPOSED_MAX];
    int n_tail = 0;
    const struct unicode_pair *p;
    while (n_tail < DECOMPOSED_MAX - 1 && (p = canonical_pair(code))) {
        if (p->second) tail[n_tail++] = p->second;
        code = p->first;
    }
    out[0] = code;
    for (int i = 0; i < n_tail; i++)
        out[1 + i] = tail[n_tail - 1 - i];
    return 1 + n_tail;
}

/* The primary composite of a and b, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V)
        return HANGUL_S + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    if (a - HANGUL_S < N_S && (a - HANGUL_S) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1)
        return a + (b - HANGUL_T);
    int lo = 0, hi = unicode_compositions_n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        const struct unicode_pair *p = &unicode_canonical[unicode_compositions[mid]];
        if (p->first < a || (p->first == a && p->second < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == unicode_compositions_n) return 0;
    const struct unicode_pair *p = &unicode_canonical[unicode_compositions[lo]];
    return p->first == a && p->second == b ? p->code : 0;
}

/* A starter and the marks after it. */
struct run {
    uint32_t code[256];
    uint8_t class[256];
    int n;
};

static void run_order(struct run *r)
{
    for (int i = 1; i < r->n; i++) {
        uint32_t code = r->code[i];
        uint8_t class = r->class[i];
        int j = i;
        for (; class && j > 0 && r->class[j - 1] > class; j--) {
            r->code[j] = r->code[j - 1];
            r->class[j] = r->class[j - 1];
        }
        r->code[j] = code;
        r->class[j] = class;
    }
}

static void run_compose(struct run *r)
{
    run_order(r);
    if (r->n < 2 || r->class[0]) return;
    int n = 1;
    uint8_t last = 0; /* class of the last mark kept: equal or higher ones are blocked */
    for (int i = 1; i < r->n; i++) {
        uint32_t c = last < r->class[i] ? compose(r->code[0], r->code[i]) : 0;
        if (c) {
            r->code[0] = c;
            continue;
        }
        last = r->class[i];
        r->code[n] = r->code[i];
        r->class[n++] = r->class[i];
    }
    r->n = n;
}

static void run_flush(struct run *r, struct buf *out)
{
    run_compose(r);
    for (int i = 0; i < r->n; i++)
        buf_utf8(out, r->code[i]);
    r->n = 0;
}

static void run_add(struct run *r, uint32_t code, struct buf *out)
{
    uint8_t class = combining(code);
    if (class == 0 && r->n) {
        run_compose(r);
        uint32_t c = r->n == 1 && r->class[0] == 0 ? compose(r->code[0], code) : 0;
        if (c) {
            r->code[0] = c;
            return;
        }
        run_flush(r, out);
    } else if (r->n == (int)(sizeof r->class / sizeof r->class[0])) {
        run_flush(r, out);
    }
    r->code[r->n] = code;
    r->class[r->n++] = class;
}

void normalise(enum normal_form form, struct str text, struct buf *out)
{
    struct run r = {.n = 0};
    uint32_t parts[DECOMPOSED_MAX];
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        size_t n = unicode_next(text, i, &code);
        if (code == UNICODE_INVALID) {
            run_flush(&r, out);
            buf_char(out, text.p[i]);
        } else if (code < 0x80 && r.n == 0 &&
                   (i + 1 == text.n || (unsigned char)text.p[i + 1] < 0x80)) {
            buf_char(out, text.p[i]); /* nothing can join it */
        } else {
            int n_parts = normalise_decompose(code, form == NORMAL_NFKC, parts);
            for (int k = 0; k < n_parts; k++)
                run_add(&r, parts[k], out);
        }
        i += n;
    }
    run_flush(&r, out);
}

bool normalise_may_change_nfc(struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t code;
        i += unicode_next(text, i, &code);
        if (code < 0x300 || code == UNICODE_INVALID || (code >= 0x4E00 && code <= 0x9FFF)) continue;
        int lo = 0, hi = unicode_nfc_touched_n;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (unicode_nfc_touched[mid].last < code)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo < unicode_nfc_touched_n && unicode_nfc_touched[lo].first <= code) return true;
    }
    return false;
}
