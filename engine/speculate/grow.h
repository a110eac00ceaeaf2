/* grow.h - a draft grown from several sources at once: each gives paths, which share their beginnings, and each new node gets the chance
 * that it will be said. Chances are learned by source, by how sure the source is of itself and by rank (how many others already stood
 * behind the same place), from what was then said, whether the node was checked or not: who stood behind a place of the text is known
 * then, so that what does not pay now is learned without spending a row on it.
 * Pure; no allocation. Threading: the step thread.
 * Sources: token trees, Miao et al. 2023, arXiv:2305.09781; growing by estimated chance, Li et al. 2024, arXiv:2406.16858. */
#ifndef DEJA_ENGINE_SPECULATE_GROW_H
#define DEJA_ENGINE_SPECULATE_GROW_H
#include <stdbool.h>

#include "engine/speculate/draft.h"

enum draft_source { DRAFT_FROM_TEXT, DRAFT_FROM_EXPECTED, DRAFT_FROM_MODEL, DRAFT_SOURCES };
enum { DRAFT_SURE_MAX = 5, DRAFT_RANKS = 3, GROW_NODES_MAX = 64 };

/* That a node behind what is said is said next. */
struct chances {
    struct chance {
        float p;
        int n; /* nodes seen */
    } of[DRAFT_SOURCES][DRAFT_SURE_MAX][DRAFT_RANKS];
};
void chances_init(struct chances *c); /* first guesses */

struct grown_node {
    int32_t token;
    int8_t parent;
    uint8_t source, sure, rank;
    double right; /* the chance that the text goes through it */
};
struct grown {
    struct grown_node node[GROW_NODES_MAX];
    int n;
};

/* The node behind `at` (DRAFT_ROOT at first) that is token; made when there is none, -2 where there is no room, or for a rank that is not
 * below `ranks`. sure: 0..DRAFT_SURE_MAX-1. */
int grow_node(struct grown *g, const struct chances *c, int at, int32_t token,
              enum draft_source source, int sure, int ranks);
/* Likeliest first; a parent stays before its children. */
void grow_sort(struct grown *g);
/* said[n] followed: moves the chances of all nodes that stood behind it. share_min: how much a single one moves at least, 0..1. */
void grow_learn(const struct grown *g, struct chances *c, const int32_t *said, int n,
                double share_min);

#endif
