/* merge_heap.h - the pairs of one long word that may merge: lowest rank first, then leftmost. Entries go stale when their
 * symbols change; who pops them sees that by x and y. Private to the room, for tokenizer_bpe and tokenizer_spm. One thread. */
#ifndef DEJA_ENGINE_TEXT_MERGE_HEAP_H
#define DEJA_ENGINE_TEXT_MERGE_HEAP_H
#include <stddef.h>
#include <stdint.h>

enum { MERGE_NEVER = INT32_MAX }; /* the rank of a pair that does not merge */

struct merge_candidate {
    int32_t rank, left; /* left: the left symbol of the pair */
    int32_t x, y;       /* the user's */
};
struct merge_heap {
    struct merge_candidate
        *at; /* the user's; room for all pushes: the n-1 first pairs and at most two
                                 * more for each of at most n-1 merges, so 3n */
    size_t n;
};

static inline int merge_before(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static inline void merge_push(struct merge_heap *h, struct merge_candidate c)
{
    size_t i = h->n++;
    for (; i && merge_before(&c, &h->at[(i - 1) / 2]); i = (i - 1) / 2)
        h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = c;
}

/* n > 0 */
static inline struct merge_candidate merge_pop(struct merge_heap *h)
{
    struct merge_candidate top = h->at[0], last = h->at[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && merge_before(&h->at[child + 1], &h->at[child])) child++;
        if (!merge_before(&h->at[child], &last)) break;
        h->at[i] = h->at[child];
    }
    h->at[i] = last;
    return top;
}

#endif
