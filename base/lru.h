/* lru.h - a list of things in the order of their last use, threaded through them: each has a struct lru_link as its first member, and a
 * pointer to the one is a pointer to the other. Owns nothing. Threading: its owner's. */
#ifndef DEJA_BASE_LRU_H
#define DEJA_BASE_LRU_H
#include <stddef.h>

struct lru_link {
    struct lru_link *newer, *older; /* NULL at the ends */
};
struct lru {
    struct lru_link *newest, *oldest; /* NULL when empty: a zero-initialised struct */
};

/* x, on no list, is the newest. */
static inline void lru_push(struct lru *l, struct lru_link *x)
{
    *x = (struct lru_link){.older = l->newest};
    if (l->newest)
        l->newest->newer = x;
    else
        l->oldest = x;
    l->newest = x;
}

static inline void lru_remove(struct lru *l, struct lru_link *x)
{
    if (x->newer)
        x->newer->older = x->older;
    else
        l->newest = x->older;
    if (x->older)
        x->older->newer = x->newer;
    else
        l->oldest = x->newer;
    *x = (struct lru_link){NULL, NULL};
}

#endif
