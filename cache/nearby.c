/* nearby.c - see nearby.h. */
#include "cache/nearby.h"

#include <string.h>

static bool too_old(const struct nearby *n, const struct question *q, int64_t now_s)
{
    return q->expires_s <= now_s - n->stale_s;
}

const struct question *nearby_alive(const struct nearby *n, int place, const struct question *q,
                                    int64_t now_s)
{
    if (!q) return NULL;
    bool old = too_old(n, q, now_s);
    if ((old && q->expires_s + n->keep_s <= now_s) ||
        (!q->judged && marks_void(n->marks, &q->scope))) {
        partition_remove(n->places[place], q->id);
        return NULL;
    }
    return old ? NULL : q;
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

void nearby_same(const struct nearby *n, const struct guard *g, uint64_t guards_off,
                 struct str question, void (*found)(void *arg, int place, const struct question *q),
                 void *arg)
{
    uint64_t normal = guard_normal(g, question);
    for (int i = 0; i < n->n_places; i++) {
        struct partition_walk walk = {0};
        const struct question *q;
        while ((q = partition_same_text(n->places[i], question, normal, &walk)))
            if (same_words(g, guards_off, question, q)) found(arg, i, q);
    }
}

void nearby_note_vetoes(struct nearby *n, const struct question *q)
{
    for (size_t i = 0; i < q->n_vetoed && n->n_vetoed < WORDING_VETOES_MAX; i++)
        n->vetoed[n->n_vetoed++] = q->vetoed[i];
}

bool nearby_forbids(const struct nearby *n, struct hash128 entry)
{
    for (size_t i = 0; i < n->n_vetoed; i++)
        if (hash_eq(n->vetoed[i], entry)) return true;
    return false;
}

/* --- by vector */
void nearby_want(struct nearby *n, size_t top_k)
{
    for (int i = 0; i < n->n_places; i++) {
        size_t judged = partition_judged(n->places[i]), extra = JUDGED_HITS_MAX;
        n->wanted[i] = top_k + (judged < extra ? judged : extra);
    }
}

/* Nothing may be removed once pointers are taken. */
static void sweep(const struct nearby *n, int64_t now_s)
{
    for (int p = 0; p < n->n_places; p++)
        for (size_t i = 0; i < n->n_hits[p]; i++) {
            struct partition *x = n->places[p];
            const struct question *q =
                nearby_alive(n, p, partition_question(x, n->hits[p][i].id), now_s);
            if (q && q->judged) (void)nearby_alive(n, p, partition_entry(x, q->entry), now_s);
        }
}

size_t nearby_texts(struct nearby *n, int64_t now_s, struct near_text *out)
{
    size_t count = 0, at[NEARBY_PLACES_MAX] = {0};
    sweep(n, now_s);
    memset(n->n_alive, 0, sizeof n->n_alive);
    for (;;) {
        int best = -1;
        for (int p = 0; p < n->n_places; p++)
            if (at[p] < n->n_hits[p] &&
                (best < 0 || n->hits[p][at[p]].score > n->hits[best][at[best]].score))
                best = p;
        if (best < 0) return count;
        const struct vector_hit *h = &n->hits[best][at[best]++];
        const struct question *q = partition_question(n->places[best], h->id), *own = q;
        if (!q || too_old(n, q, now_s) || n->n_alive[best] == n->wanted[best]) continue;
        if (q->judged) own = partition_entry(n->places[best], q->entry);
        n->n_alive[best]++;
        out[count++] =
            (struct near_text){q, own && too_old(n, own, now_s) ? NULL : own, (double)h->score};
    }
}

bool nearby_is_crowded(const struct nearby *n)
{
    for (int p = 0; p < n->n_places; p++)
        if (n->n_alive[p] < n->wanted[p] && n->n_hits[p] >= n->wanted[p] + STALE_HITS_MAX)
            return true;
    return false;
}

int nearby_place(const struct nearby *n, const struct question *q)
{
    int p = 0;
    while (p < n->n_places - 1 && partition_question(n->places[p], q->id.lo) != q)
        p++;
    return p;
}
