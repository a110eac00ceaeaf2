/* draft.h - what may be said next: tokens that follow one another, or branch where several go on from one place. Node i follows node
 * parent[i] < i, or what has been said where that is DRAFT_ROOT; nodes behind one place differ, so any text is one path at most. Any
 * beginning of a draft is a draft. */
#ifndef DEJA_ENGINE_SPECULATE_DRAFT_H
#define DEJA_ENGINE_SPECULATE_DRAFT_H
#include <stdint.h>

enum { DRAFT_NODES_MAX = 31, DRAFT_DEPTH_MAX = 15, DRAFT_ROOT = -1 };
struct draft {
    int n;
    int32_t token[DRAFT_NODES_MAX];
    int8_t parent[DRAFT_NODES_MAX];
};

/* The node behind `at` that is `token`; -2: there is none. */
static inline int draft_child(const struct draft *d, int at, int32_t token)
{
    for (int i = at < 0 ? 0 : at + 1; i < d->n; i++)
        if (d->parent[i] == at && d->token[i] == token) return i;
    return -2;
}

#endif
