/* guard_align.c - longest common subsequence over content tokens, then partners for what is left, anywhere. Quadratic in at most
 * GUARD_TOKENS_MAX tokens: 37 KB of stack and about 10 microseconds for a usual question. */
#include "cache/guard_align.h"

#include <string.h>

static bool stems_meet(const struct guard_token *a, const struct guard_token *b)
{
    for (int i = 0; i < GUARD_STEMS_MAX; i++) {
        struct str s = i || a->stems[0].n ? a->stems[i] : a->text;
        if (!s.n) break;
        for (int j = 0; j < GUARD_STEMS_MAX; j++) {
            struct str r = j || b->stems[0].n ? b->stems[j] : b->text;
            if (!r.n) break;
            if (guard_equal(s, r)) return true;
        }
    }
    return false;
}

bool guard_tokens_equal(const struct guard_token *a, const struct guard_token *b)
{
    if (a->kind == GT_NUMBER || b->kind == GT_NUMBER)
        return a->kind == b->kind && guard_equal(a->canon, b->canon) &&
               guard_equal(a->unit, b->unit);
    if (guard_equal(a->canon, b->canon)) return true;
    if (a->kind != GT_WORD || b->kind != GT_WORD) return false;
    if (stems_meet(a, b)) return true;
    bool known_a = a->word && (a->word->classes & GC_KNOWN),
         known_b = b->word && (b->word->classes & GC_KNOWN);
    return known_a != known_b &&
           guard_typo(a->text, b->text); /* two ordinary words are never slips of each other */
}

typedef bool token_filter(const struct guard_token *k);
static bool is_content(const struct guard_token *k)
{
    return k->content;
}
static bool is_any(const struct guard_token *k)
{
    return k->kind <= GT_OTHER;
}

static size_t pick(const struct guard_text *t, token_filter *keep, uint8_t *index)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (keep(&t->tokens[i])) index[n++] = (uint8_t)i;
    return n;
}

/* Length of the longest common subsequence; its pairs are marked in used_a and used_b and named in partner. */
static size_t common(const struct guard_text *a, const uint8_t *ia, size_t na,
                     const struct guard_text *b, const uint8_t *ib, size_t nb, bool *used_a,
                     bool *used_b, uint8_t *partner)
{
    uint8_t len[GUARD_TOKENS_MAX + 1][GUARD_TOKENS_MAX + 1];
    bool equal[GUARD_TOKENS_MAX];
    for (size_t j = 0; j <= nb; j++)
        len[na][j] = 0;
    for (size_t i = na; i-- > 0;) {
        len[i][nb] = 0;
        for (size_t j = nb; j-- > 0;) {
            equal[j] = guard_tokens_equal(&a->tokens[ia[i]], &b->tokens[ib[j]]);
            uint8_t skip = len[i + 1][j] > len[i][j + 1] ? len[i + 1][j] : len[i][j + 1];
            uint8_t take = (uint8_t)(equal[j] ? len[i + 1][j + 1] + 1 : 0);
            len[i][j] = take > skip ? take : skip;
        }
    }
    size_t i = 0, j = 0;
    while (i < na && j < nb) {
        if (guard_tokens_equal(&a->tokens[ia[i]], &b->tokens[ib[j]]) &&
            len[i][j] == len[i + 1][j + 1] + 1) {
            partner[ia[i]] = ib[j];
            used_a[i++] = used_b[j++] = true;
        } else if (len[i + 1][j] >= len[i][j + 1])
            i++;
        else
            j++;
    }
    return len[0][0];
}

size_t guard_align_units(const struct guard_text *a, const struct guard_text *b)
{
    uint16_t row[GUARD_UNITS_MAX + 1] = {0};
    for (size_t i = 0; i < a->n_units; i++) {
        uint16_t diagonal = 0; /* of the row before, one to the left */
        for (size_t j = 0; j < b->n_units; j++) {
            uint16_t above = row[j + 1];
            if (guard_equal(a->units[i].text, b->units[j].text))
                row[j + 1] = (uint16_t)(diagonal + 1);
            else if (row[j] > above)
                row[j + 1] = row[j];
            diagonal = above;
        }
    }
    return row[b->n_units];
}

void guard_align(const struct guard_text *a, const struct guard_text *b,
                 struct guard_alignment *out)
{
    uint8_t ia[GUARD_TOKENS_MAX], ib[GUARD_TOKENS_MAX];
    bool used_a[GUARD_TOKENS_MAX] = {0}, used_b[GUARD_TOKENS_MAX] = {0};
    memset(out, 0, sizeof *out);
    out->all_a = pick(a, is_any, ia);
    out->all_b = pick(b, is_any, ib);
    out->all_in_order = common(a, ia, out->all_a, b, ib, out->all_b, used_a, used_b, out->partner);
    for (size_t i = 0; i < out->all_a; i++) {
        out->frame_a += a->tokens[ia[i]].weight;
        if (used_a[i]) out->frame += a->tokens[ia[i]].weight;
    }
    for (size_t j = 0; j < out->all_b; j++)
        out->frame_b += b->tokens[ib[j]].weight;
    memset(used_a, 0, sizeof used_a);
    memset(used_b, 0, sizeof used_b);
    out->n_a = pick(a, is_content, ia);
    out->n_b = pick(b, is_content, ib);
    memset(out->partner, GUARD_NO_PARTNER, sizeof out->partner);
    out->in_order = common(a, ia, out->n_a, b, ib, out->n_b, used_a, used_b, out->partner);
    for (size_t i = 0; i < out->n_a; i++) {
        out->weight_a += a->tokens[ia[i]].weight;
        if (used_a[i]) out->shared += a->tokens[ia[i]].weight;
    }
    for (size_t j = 0; j < out->n_b; j++)
        out->weight_b += b->tokens[ib[j]].weight;
    for (size_t i = 0; i < out->n_a; i++) {
        for (size_t j = 0; j < out->n_b && !used_a[i]; j++) {
            if (used_b[j] || !guard_tokens_equal(&a->tokens[ia[i]], &b->tokens[ib[j]])) continue;
            used_a[i] = used_b[j] = true;
            out->partner[ia[i]] = ib[j];
            out->moved++;
            out->shared += a->tokens[ia[i]].weight;
        }
    }
    for (size_t i = 0; i < out->n_a; i++)
        if (!used_a[i]) out->left_a[out->n_left_a++] = ia[i];
    for (size_t j = 0; j < out->n_b; j++)
        if (!used_b[j]) out->left_b[out->n_left_b++] = ib[j];
}
