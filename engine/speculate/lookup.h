/* lookup.h - drafts without a model: what followed the last tokens when they came up before, in the prompt, in the answer so far, or in a
 * text the client expects ("prediction"). Costs one backward scan a step.
 * Pure; no allocation. Any thread.
 * Sources: prompt lookup decoding (Saxena 2023); suffix-based drafting, arXiv:2411.04975. */
#ifndef DEJA_ENGINE_SPECULATE_LOOKUP_H
#define DEJA_ENGINE_SPECULATE_LOOKUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOOKUP_MATCH_MIN = 3,    /* shorter repeats are chance: see docs/speed.md */
    LOOKUP_MATCH_MAX = 16,   /* longer ones are not told apart */
    LOOKUP_SCAN_MAX = 16384, /* tokens looked at; older ones are not */
    LOOKUP_PATHS_MAX = 4
};

struct lookup_text { /* where a continuation may come from */
    const int32_t *tokens;
    int n;
};
struct lookup_path {
    const int32_t *tokens; /* [n] borrowed from the text */
    int n;                 /* >= 1 */
    int match;             /* how many tokens before it agreed, LOOKUP_MATCH_MAX at most */
    bool expected;         /* found in the expected text */
};

/* What followed repeats of own's end: at most n_out <= LOOKUP_PATHS_MAX continuations of at most n_tokens tokens into out, none the
 * beginning of another, those of longer repeats first. Looks in expected first (it may be empty), then in own; of equally long repeats
 * in one text the last one comes first. Returns how many. */
int lookup_paths(struct lookup_text own, struct lookup_text expected, int n_tokens,
                 struct lookup_path *out, int n_out);

#endif
