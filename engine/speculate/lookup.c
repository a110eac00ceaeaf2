/* lookup.c - see lookup.h. */
#include "engine/speculate/lookup.h"

#include <string.h>

struct found {
    struct lookup_path *path;
    int n, n_max;
};

/* How many tokens before text[at] and before the end agree. */
static int agreement(const int32_t *text, int at, const int32_t *end, int n_end)
{
    int most = at < n_end ? at : n_end, n = 0;
    if (most > LOOKUP_MATCH_MAX) most = LOOKUP_MATCH_MAX;
    while (n < most && text[at - 1 - n] == end[-1 - n])
        n++;
    return n;
}

/* Whether one of the two says nothing that the other does not. */
static bool alike(const struct lookup_path *a, const struct lookup_path *b)
{
    int n = a->n < b->n ? a->n : b->n;
    return !memcmp(a->tokens, b->tokens, (size_t)n * sizeof *a->tokens);
}

static void drop(struct found *f, int i)
{
    f->n--;
    memmove(f->path + i, f->path + i + 1, (size_t)(f->n - i) * sizeof *f->path);
}

/* p to its place, behind those whose repeats are as long; what it makes needless goes. */
static void keep(struct found *f, const struct lookup_path *p)
{
    int at = 0;
    for (; at < f->n && f->path[at].match >= p->match; at++)
        if (alike(&f->path[at], p)) return;
    for (int i = f->n; i-- > at;)
        if (alike(&f->path[i], p)) drop(f, i);
    if (at >= f->n_max) return;
    if (f->n == f->n_max) f->n--;
    memmove(f->path + at + 1, f->path + at, (size_t)(f->n - at) * sizeof *f->path);
    f->path[at] = *p;
    f->n++;
}

/* The shortest repeat that would still be kept. */
static int wanted(const struct found *f)
{
    return f->n < f->n_max ? LOOKUP_MATCH_MIN : f->path[f->n - 1].match + 1;
}

/* Places in text up to `last` that continue a repeat of own's end: text[at..] follows it. */
static void scan(struct found *f, struct lookup_text text, bool expected, struct lookup_text own,
                 int n_tokens)
{
    int last = expected ? text.n - 1 : own.n - 1,
        first = last > LOOKUP_SCAN_MAX ? last - LOOKUP_SCAN_MAX : 0;
    int32_t newest = own.tokens[own.n - 1];
    for (int at = last; at > first && wanted(f) <= LOOKUP_MATCH_MAX; at--) {
        if (text.tokens[at - 1] != newest) continue;
        int match = agreement(text.tokens, at, own.tokens + own.n, own.n), n = text.n - at;
        if (match < wanted(f)) continue;
        keep(f,
             &(struct lookup_path){text.tokens + at, n < n_tokens ? n : n_tokens, match, expected});
    }
}

int lookup_paths(struct lookup_text own, struct lookup_text expected, int n_tokens,
                 struct lookup_path *out, int n_out)
{
    struct found f = {out, 0, n_out};
    if (own.n < LOOKUP_MATCH_MIN || n_tokens < 1 || n_out < 1) return 0;
    scan(&f, expected, true, own, n_tokens);
    scan(&f, own, false, own, n_tokens);
    return f.n;
}
