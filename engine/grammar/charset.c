/* charset.c - see charset.h. */
#include "engine/grammar/charset.h"

#include "base/err.h"

enum { SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

void charset_add(struct charset *s, uint32_t lo, uint32_t hi)
{
    ASSERT(lo <= hi && hi <= CHARSET_LAST);
    if (s->n == CHARSET_RANGES_MAX) charset_tidy(s);
    if (s->n == CHARSET_RANGES_MAX)
        s->failed = true;
    else
        s->range[s->n++] = (struct char_range){lo, hi};
}

void charset_add_all(struct charset *s, const struct charset *more)
{
    for (int i = 0; i < more->n; i++)
        charset_add(s, more->range[i].lo, more->range[i].hi);
    s->failed |= more->failed;
}

static void sort(struct char_range *r, int n)
{
    for (int i = 1; i < n; i++) { /* short, and mostly sorted already */
        struct char_range x = r[i];
        int k = i;
        for (; k > 0 && r[k - 1].lo > x.lo; k--)
            r[k] = r[k - 1];
        r[k] = x;
    }
}

/* One range more at most, and only when there is room for it. */
static void cut_surrogates(struct charset *s)
{
    for (int i = 0; i < s->n; i++) {
        struct char_range *r = &s->range[i];
        if (r->hi < SURROGATE_FIRST || r->lo > SURROGATE_LAST) continue;
        bool before = r->lo<SURROGATE_FIRST, after = r->hi> SURROGATE_LAST;
        uint32_t hi = r->hi;
        if (before && after) {
            r->hi = SURROGATE_FIRST - 1;
            if (s->n == CHARSET_RANGES_MAX) {
                s->failed = true;
                return;
            }
            for (int k = s->n++; k > i + 1; k--)
                s->range[k] = s->range[k - 1];
            s->range[i + 1] = (struct char_range){SURROGATE_LAST + 1, hi};
        } else if (before) {
            r->hi = SURROGATE_FIRST - 1;
        } else if (after) {
            r->lo = SURROGATE_LAST + 1;
        } else {
            s->n--;
            for (int k = i--; k < s->n; k++)
                s->range[k] = s->range[k + 1];
        }
    }
}

void charset_tidy(struct charset *s)
{
    int n = 0;
    sort(s->range, s->n);
    for (int i = 0; i < s->n; i++) {
        if (n && s->range[i].lo <= s->range[n - 1].hi + 1) {
            if (s->range[i].hi > s->range[n - 1].hi) s->range[n - 1].hi = s->range[i].hi;
        } else {
            s->range[n++] = s->range[i];
        }
    }
    s->n = n;
    cut_surrogates(s);
}

void charset_invert(struct charset *s)
{
    charset_tidy(s);
    struct charset out = {.failed = s->failed};
    uint32_t from = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->range[i].lo > from) charset_add(&out, from, s->range[i].lo - 1);
        from = s->range[i].hi + 1;
    }
    if (from <= CHARSET_LAST) charset_add(&out, from, CHARSET_LAST);
    charset_tidy(&out);
    *s = out;
}

void charset_within(const struct charset *s, uint32_t lo, uint32_t hi, struct charset *out)
{
    out->n = 0;
    out->failed = s->failed;
    for (int i = 0; i < s->n; i++) {
        uint32_t a = s->range[i].lo > lo ? s->range[i].lo : lo,
                 b = s->range[i].hi < hi ? s->range[i].hi : hi;
        if (a <= b) charset_add(out, a, b);
    }
}

bool charset_has(const struct charset *s, uint32_t c)
{
    for (int i = 0; i < s->n; i++)
        if (c >= s->range[i].lo && c <= s->range[i].hi) return true;
    return false;
}
