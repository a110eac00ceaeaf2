/* shadow_compare.c - see shadow_compare.h. Marks from tests/data/answer_pairs.jsonl (40 pairs of FAQ answers, half of them the same):
 * the cosine above which no differing pair lies that states the same facts, and the one below which no same pair lies. */
#include "gateway/shadow_compare.h"

#include <string.h>

static const struct {
    const char *in_id; /* part of the embedder's id, lower case */
    struct shadow_scale scale;
} measured[] = {{"e5-small", {0.95, 0.90}}, {"minilm", {0.85, 0.50}}, {"", {0.99, 0.0}}};

struct shadow_scale shadow_scale_for(struct str embedder_id)
{
    char lower[160];
    size_t n = embedder_id.n < sizeof lower ? embedder_id.n : sizeof lower, i = 0;
    for (size_t at = 0; at < n; at++) {
        char c = embedder_id.p[at];
        lower[at] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    while (measured[i].in_id[0] && str_find((struct str){lower, n}, str_of(measured[i].in_id)) < 0)
        i++;
    return measured[i].scale;
}

/* Guards on what both answers can be pinned down on; those that only make one careful; the others say nothing of answers worded freely. */
static const char *const facts[] = {"number", "unit", "currency", "date", NULL};
static const char *const doubts[] = {"negation", "antonym", "time", "relative_time", NULL};

static bool is_in(const char *const *list, const char *name)
{
    for (size_t i = 0; list[i]; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

/* Bits of the guards that are not in keep. */
static uint64_t all_but(const char *const *keep)
{
    uint64_t off = 0;
    for (size_t i = 0; guard_names[i] && i < 64; i++)
        if (!is_in(keep, guard_names[i])) off |= UINT64_C(1) << i;
    return off;
}

/* The same words but for a piece: a guard that sees a difference there is believed. */
static bool is_nearly_equal(const struct guard_verdict *v)
{
    return !v->allowed && v->shared >= 0.7f;
}

static bool same_bytes(struct str a, struct str b)
{
    return str_eq(str_trim(a), str_trim(b));
}

enum shadow_verdict shadow_compare(const struct guard *g, const struct shadow_scale *s,
                                   struct str a, struct str b, double cosine)
{
    struct guard_verdict v;
    if (same_bytes(a, b)) return SHADOW_SAME;
    if (cosine < 0) return SHADOW_UNCLEAR;
    if (cosine < s->differ) return SHADOW_DIFFERS;
    guard_check_without(g, all_but(facts), a, b, &v);
    if (!v.allowed && is_in(facts, v.refused_by)) return SHADOW_DIFFERS;
    guard_check_without(g, all_but(doubts), a, b, &v);
    if (!v.allowed && is_in(doubts, v.refused_by)) return SHADOW_UNCLEAR;
    guard_check(g, a, b, &v);
    return cosine >= s->same && !is_nearly_equal(&v) ? SHADOW_SAME : SHADOW_UNCLEAR;
}
