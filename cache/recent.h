/* recent.h - the last decisions on similar questions, by the exact key of the question: what was measured, of which entry, and whether it
 * was served. When it becomes known whether the answer was right, this is what is learnt from. A fixed table; an older decision in the
 * same place makes room. Pure. Threading: the loop's thread. */
#ifndef DEJA_CACHE_RECENT_H
#define DEJA_CACHE_RECENT_H
#include "base/hash.h"
#include "cache/bound.h"

enum { RECENT_MAX = 4096 };
struct recent {
    struct hash128 question, entry;
    uint64_t text;  /* hash of the question's text: recents_text */
    uint64_t noted; /* filled in by recents_note: the later, the higher */
    struct bound_view view;
    bool served;
};
struct recents;
struct recents *recents_new(void);
void recents_free(struct recents *r);
void recents_note(struct recents *r, const struct recent *x);
/* entry NULL = whichever. NULL when it is not there (any more). */
const struct recent *recents_find(const struct recents *r, struct hash128 question,
                                  const struct hash128 *entry);
uint64_t recents_text(struct str text);
/* The latest decision on that entry for a question of this text (0 = any that was served). */
const struct recent *recents_latest(const struct recents *r, struct hash128 entry, uint64_t text);
void recents_drop(struct recents *r, struct hash128 question);

#endif
