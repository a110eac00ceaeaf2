/* lookup.c - see lookup.h. */
#include "engine/speculate/lookup.h"

#include <string.h>

/* How many tokens before text[at] and before the end agree. */
static int agreement(const int32_t *text, int at, const int32_t *end, int n_end)
{
    int most = at < n_end ? at : n_end, n = 0;
    if (most > LOOKUP_MATCH_MAX) most = LOOKUP_MATCH_MAX;
    while (n < most && text[at - 1 - n] == end[-1 - n])
        n++;
    return n;
}

/* The place in text that continues the longest repeat: text[at..] follows it. -1: none. */
static int find(struct lookup_text text, int last, const int32_t *tokens, int n_tokens, int *match)
{
    int found = -1, first = last > LOOKUP_SCAN_MAX ? last - LOOKUP_SCAN_MAX : 0;
    int32_t newest = tokens[n_tokens - 1];
    for (int at = last; at > first && *match < LOOKUP_MATCH_MAX; at--) {
        if (text.tokens[at - 1] != newest) continue;
        int n = agreement(text.tokens, at, tokens + n_tokens, n_tokens);
        if (n <= *match) continue;
        *match = n;
        found = at;
    }
    return found;
}

struct lookup_found lookup_draft(const int32_t *tokens, int n_tokens, struct lookup_text expected,
                                 int32_t *out, int n_out)
{
    struct lookup_found f = {0, LOOKUP_MATCH_MIN - 1};
    struct lookup_text from = expected, own = {tokens, n_tokens};
    if (n_tokens < LOOKUP_MATCH_MIN || n_out < 1) return (struct lookup_found){0, 0};
    int at = find(expected, expected.n - 1, tokens, n_tokens, &f.match);
    int own_at = find(own, n_tokens - 1, tokens, n_tokens, &f.match);
    if (own_at >= 0) at = own_at, from = own;
    if (at < 0) return (struct lookup_found){0, 0};
    f.n = from.n - at < n_out ? from.n - at : n_out;
    memcpy(out, from.tokens + at, (size_t)f.n * sizeof *out);
    return f;
}
