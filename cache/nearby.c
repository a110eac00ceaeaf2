/* nearby.c - see nearby.h. */
#include "cache/nearby.h"

/* Removed, expired and worthless ones go out of the index here. */
static const struct question *alive(const struct nearby *n, struct partition *p,
                                    const struct question *q, int64_t now_s)
{
    if (q && (q->expires_s <= now_s || (!q->judged && marks_void(n->marks, &q->scope)))) {
        partition_remove(p, q->id);
        return NULL;
    }
    return q;
}

static bool forbidden(const struct nearby *n, struct hash128 entry)
{
    for (size_t i = 0; i < n->n_vetoed; i++)
        if (hash_eq(n->vetoed[i], entry)) return true;
    return false;
}

/* --- the same text */
static bool same_words(const struct guard *g, uint64_t guards_off, struct str question,
                       const struct question *q)
{
    struct guard_verdict v;
    if (str_eq(q->text, question)) return true;
    guard_check_without(g, guards_off, question, q->text, &v);
    return v.same;
}

static void note_vetoes(struct nearby *n, const struct question *q)
{
    for (size_t i = 0; i < q->n_vetoed && n->n_vetoed < WORDING_VETOES_MAX; i++)
        n->vetoed[n->n_vetoed++] = q->vetoed[i];
}

size_t nearby_same(struct nearby *n, const struct guard *g, const struct cache_knobs *k,
                   struct str question, int64_t now_s, struct nearby_text *out, size_t max)
{
    uint64_t normal = guard_normal(g, question);
    size_t found = 0, kept = 0;
    for (int i = 0; i < n->n_places; i++) {
        struct partition_walk walk = {0};
        const struct question *q;
        while ((q = partition_same_text(n->places[i], question, normal, &walk))) {
            if (!same_words(g, k->guards_off, question, q)) continue;
            note_vetoes(n, q);
            if (found < max && (q->entry.hi || q->entry.lo) && knobs_same_words(k, q->judged))
                out[found++] = (struct nearby_text){q->entry, i};
        }
    }
    for (size_t i = 0; i < found; i++) {
        struct partition *p = n->places[out[i].place];
        const struct question *own = alive(n, p, partition_entry(p, out[i].entry), now_s);
        if (own && own->trust >= k->trust_min && !(k->vetoes && forbidden(n, out[i].entry)))
            out[kept++] = out[i];
    }
    return kept;
}

/* --- by vector */
void nearby_search(struct nearby *n, const float *vec, size_t top_k)
{
    for (int i = 0; i < n->n_places; i++) {
        size_t judged = partition_judged(n->places[i]), extra = NEARBY_HITS_MAX - CANDIDATES_MAX;
        n->n_hits[i] = partition_search(n->places[i], vec,
                                        top_k + (judged < extra ? judged : extra), n->hits[i]);
    }
}

/* Nothing may be removed once pointers are taken. */
static void sweep(struct nearby *n, int64_t now_s)
{
    n->swept = 0;
    for (int p = 0; p < n->n_places; p++)
        for (size_t i = 0; i < n->n_hits[p]; i++) {
            struct partition *x = n->places[p];
            const struct question *q = alive(n, x, partition_question(x, n->hits[p][i].id), now_s);
            n->swept += !q;
            if (q && q->judged) (void)alive(n, x, partition_entry(x, q->entry), now_s);
        }
}

/* All places merged, best first; a curated text before an equal other. */
static size_t merge(const struct nearby *n, struct near_text *out)
{
    size_t count = 0, at[NEARBY_PLACES_MAX] = {0};
    for (;;) {
        int best = -1;
        for (int p = 0; p < n->n_places; p++)
            if (at[p] < n->n_hits[p] &&
                (best < 0 || n->hits[p][at[p]].score > n->hits[best][at[best]].score))
                best = p;
        if (best < 0) return count;
        const struct vector_hit *h = &n->hits[best][at[best]++];
        const struct question *q = partition_question(n->places[best], h->id);
        if (!q) continue;
        out[count++] = (struct near_text){
            q, q->judged ? partition_entry(n->places[best], q->entry) : q, (double)h->score};
    }
}

size_t nearby_candidates(struct nearby *n, int64_t now_s, struct chain_item *items, size_t max)
{
    struct near_text texts[NEARBY_PLACES_MAX * NEARBY_HITS_MAX];
    struct candidate found[CANDIDATES_MAX];
    sweep(n, now_s);
    size_t n_texts = merge(n, texts);
    size_t count =
        candidates_gather(texts, n_texts, found, max < CANDIDATES_MAX ? max : CANDIDATES_MAX);
    for (size_t i = 0; i < count; i++)
        items[i] =
            (struct chain_item){.c = found[i], .text_vetoed = forbidden(n, found[i].own->id)};
    return count;
}
