/* uses.h - how often which entry was served lately, until that is told. Bounded: what finds no room is not counted. Pure. */
#ifndef DEJA_CACHE_USES_H
#define DEJA_CACHE_USES_H
#include "base/hash.h"

enum { USES_MAX = 256 };
struct uses {
    struct hash128 ids[USES_MAX];
    uint32_t times[USES_MAX]; /* 0 = free */
    size_t n;
};
void uses_note(struct uses *u, struct hash128 id);
void uses_clear(struct uses *u);

#endif
