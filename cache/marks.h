/* marks.h - what must not be used although it is there: entries asked for before a mass removal of their tenant, model, namespace or one
 * of their tags (each removal has a number, an epoch, counted in Redis), answers that were called wrong for their entry, and entries that
 * were set aside (lua/quarantine.lua). A gateway
 * that knows the marks needs to find none of the removed entries: it sees at each one whether it still counts. Pure; time is an argument.
 * Threading: the loop's thread. */
#ifndef DEJA_CACHE_MARKS_H
#define DEJA_CACHE_MARKS_H
#include "base/hash.h"

enum { MARKS_SCOPES_MAX = 65536, MARKS_DENIED_MAX = 65536, MARKS_ASIDE_MAX = 16384 };

struct marks;
struct marks *marks_new(void);
void marks_free(struct marks *m);
void marks_clear(struct marks *m); /* but the count, which never goes back */

int64_t marks_now(const struct marks *m); /* the epoch of what is asked for from now on */
/* scope as in Redis: "all", "tenant:T", "model:M", "ns:N", "tag:G", or "now" for the count. Others are kept and mean nothing.
 * ERR_FULL past MARKS_SCOPES_MAX: then everything older than this epoch counts as void, which is safe. */
MUST enum err marks_set(struct marks *m, struct str scope, int64_t epoch);

/* Where an entry belongs, in the form that is asked about. */
struct mark_scope {
    uint64_t tenant, model, ns; /* marks_name of each */
    struct str tags;            /* "a,b", borrowed */
    int64_t epoch;
};
uint64_t marks_name(const char *kind, struct str name); /* kind "tenant", "model", "ns", "tag" */
bool marks_void(const struct marks *m, const struct mark_scope *s);

/* answer: entry_answer_hash, 0 is never denied. Past the bound the ones nearest to their end go. */
void marks_deny(struct marks *m, struct hash128 entry, uint64_t answer, int64_t until_s);
bool marks_denied(const struct marks *m, struct hash128 entry, uint64_t answer, int64_t now_s);

/* An entry that many unlike questions hit answers equal requests and approved wordings only, until somebody clears it; a cleared one is not
 * set aside again by what gateways see. ERR_FULL past MARKS_ASIDE_MAX. */
enum marks_aside { ASIDE_NOT, ASIDE_SET, ASIDE_CLEARED };
MUST enum err marks_set_aside(struct marks *m, struct hash128 entry, enum marks_aside state);
enum marks_aside marks_aside(const struct marks *m, struct hash128 entry);
size_t marks_aside_count(const struct marks *m); /* ASIDE_SET now */

#endif
