/* lookup.h - drafts without a model: what followed the last tokens when they came up before, in the prompt, in the answer so far, or in a
 * text the client expects ("prediction"). Costs one backward scan a step.
 * Pure; no allocation. Any thread.
 * Sources: prompt lookup decoding (Saxena 2023); suffix-based drafting, arXiv:2411.04975. */
#ifndef DEJA_ENGINE_SPECULATE_LOOKUP_H
#define DEJA_ENGINE_SPECULATE_LOOKUP_H
#include <stddef.h>
#include <stdint.h>

enum {
    LOOKUP_MATCH_MIN = 3,   /* shorter repeats are chance: see docs/speed.md */
    LOOKUP_MATCH_MAX = 16,  /* longer ones are not told apart */
    LOOKUP_SCAN_MAX = 16384 /* tokens looked at; older ones are not */
};

struct lookup_text { /* where a continuation may come from */
    const int32_t *tokens;
    int n;
};
struct lookup_found {
    int n;     /* tokens in out; 0 = nothing found */
    int match; /* how many tokens before it agreed, LOOKUP_MATCH_MAX at most */
};

/* What followed the longest repeat of the end of tokens[n_tokens]; at most n_out ids into out. Looks in expected first (it may be empty),
 * then in tokens itself; of equally long repeats the last one counts. */
struct lookup_found lookup_draft(const int32_t *tokens, int n_tokens, struct lookup_text expected,
                                 int32_t *out, int n_out);

#endif
