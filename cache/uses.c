/* uses.c - see uses.h. Open addressing. */
#include "cache/uses.h"

#include <string.h>

void uses_note(struct uses *u, struct hash128 id)
{
    size_t at = (size_t)id.lo % USES_MAX;
    for (size_t tries = 0; tries < USES_MAX; tries++, at = (at + 1) % USES_MAX) {
        if (u->times[at] && !hash_eq(u->ids[at], id)) continue;
        u->n += !u->times[at];
        u->ids[at] = id;
        if (u->times[at] < UINT32_MAX) u->times[at]++;
        return;
    }
}

void uses_clear(struct uses *u)
{
    memset(u, 0, sizeof *u);
}
