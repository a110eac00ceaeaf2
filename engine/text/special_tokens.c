/* special_tokens.c - the tokens sorted by their bytes; a match narrows the range of candidates byte by byte, so that a file
 * with a hundred thousand of them costs a logarithm, not a factor. */
#include "engine/text/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct special_tokens {
    struct special_token *sorted;
    int n, n_user;
    int bucket[257]; /* tokens whose first byte is b: sorted[bucket[b] .. bucket[b+1]) */
};

static int by_text(const void *a, const void *b)
{
    const struct special_token *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c ? c : (x->text.n > y->text.n) - (x->text.n < y->text.n);
}

struct special_tokens *special_tokens_new(const struct special_token *tokens, int n)
{
    struct special_tokens *s = xcalloc(1, sizeof *s);
    s->n = n;
    s->sorted = xcalloc((size_t)n + 1, sizeof *s->sorted);
    for (int i = 0; i < n; i++) {
        ASSERT(tokens[i].text.n > 0);
        s->sorted[i] = tokens[i];
        s->n_user += !tokens[i].control;
    }
    if (n) qsort(s->sorted, (size_t)n, sizeof *s->sorted, by_text);
    int i = 0;
    for (int b = 0; b < 256; b++) {
        s->bucket[b] = i;
        while (i < n && (unsigned char)s->sorted[i].text.p[0] == b)
            i++;
    }
    s->bucket[256] = n;
    return s;
}

void special_tokens_free(struct special_tokens *s)
{
    if (!s) return;
    mem_free(s->sorted);
    mem_free(s);
}

bool special_tokens_any(const struct special_tokens *s, bool with_control)
{
    return with_control ? s->n > 0 : s->n_user > 0;
}

/* First index in [lo,hi) whose byte at depth is >= byte (all have more than depth bytes). */
static int lower(const struct special_tokens *s, int lo, int hi, size_t depth, int byte)
{
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if ((unsigned char)s->sorted[mid].text.p[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool special_tokens_at(const struct special_tokens *s, struct str text, size_t at,
                       size_t control_end, struct special_match *out)
{
    unsigned char first = (unsigned char)text.p[at];
    int lo = s->bucket[first], hi = s->bucket[first + 1];
    const struct special_token *best = NULL;
    for (size_t depth = 1; lo < hi; depth++) {
        if (s->sorted[lo].text.n == depth) { /* the shortest of a common prefix sorts first */
            if (!s->sorted[lo].control || at + depth <= control_end) best = &s->sorted[lo];
            lo++;
        }
        if (at + depth >= text.n) break;
        int byte = (unsigned char)text.p[at + depth];
        lo = lower(s, lo, hi, depth, byte);
        hi = lower(s, lo, hi, depth, byte + 1);
    }
    if (best) *out = (struct special_match){best->text.n, best->id, best->control};
    return best;
}
