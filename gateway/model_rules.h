/* model_rules.h - which model answers for which: the rules of `route` (scenario.h) and the lines of `fallback` (fallback.h) that are in
 * force, as the start options or the knobs of these names say. Never changed: newer ones replace the whole, and a request keeps those it
 * began with, since it borrows names from them. Counted references. Pure. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_MODEL_RULES_H
#define DEJA_GATEWAY_MODEL_RULES_H
#include "gateway/scenario.h"

struct model_rules {
    int refs;
    struct scenario *scenario; /* NULL = none */
    char *fallbacks;
};

/* Lines are separated by line breaks or semicolons; "none" is no line. Both texts are copied; the caller has a reference. ERR_INVALID: e
 * says which and what would be right. */
MUST enum err model_rules_new(struct model_rules **out, struct str routes, struct str fallbacks,
                              struct errmsg *e);
struct model_rules *model_rules_ref(struct model_rules *m);
void model_rules_unref(struct model_rules *m); /* NULL is fine */

#endif
