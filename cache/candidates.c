/* candidates.c - see candidates.h. */
#include "cache/candidates.h"

bool candidate_vetoed_by(const struct question *q, struct hash128 entry)
{
    for (size_t i = 0; i < q->n_vetoed; i++)
        if (hash_eq(q->vetoed[i], entry)) return true;
    return false;
}

static bool has_entry(const struct candidate *list, size_t n, struct hash128 entry)
{
    for (size_t i = 0; i < n; i++)
        if (hash_eq(list[i].own->id, entry)) return true;
    return false;
}

/* Two entries with one answer are no rivals; an answer that is not known is another one. */
static bool answers_differ(const struct question *a, const struct question *b)
{
    return !hash_eq(a->id, b->id) && (!a->answer || a->answer != b->answer);
}

static void weigh(struct candidate *c, const struct near_text *texts, size_t n)
{
    int leading = 0, agreeing = 0;
    c->veto = c->rival = -1;
    for (size_t i = 0; i < n; i++) {
        const struct near_text *t = &texts[i];
        if (t->cosine > c->veto && candidate_vetoed_by(t->q, c->own->id)) c->veto = t->cosine;
        if (t->cosine > c->rival && t->own && answers_differ(t->own, c->own)) c->rival = t->cosine;
        if (!t->own || leading == AGREE_TEXTS) continue;
        leading++;
        agreeing += !answers_differ(t->own, c->own);
    }
    c->agree = leading ? (double)agreeing / leading : 0;
}

size_t candidates_gather(const struct near_text *texts, size_t n, struct candidate *out, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < n && count < max; i++) {
        const struct near_text *t = &texts[i];
        if (!t->own || has_entry(out, count, t->own->id)) continue;
        out[count] = (struct candidate){.q = t->q, .own = t->own, .cosine = t->cosine};
        weigh(&out[count++], texts, n);
    }
    return count;
}
