/* fallback.h - which models may answer for another one: `model=other,third` lines, read as text each time (a handful of lines, used only
 * when a model has failed). Pure. Threading: none. */
#ifndef DEJA_GATEWAY_FALLBACK_H
#define DEJA_GATEWAY_FALLBACK_H
#include "base/str.h"

enum { FALLBACKS_MAX = 4, FALLBACK_LINES_MAX = 256 };

/* ERR_INVALID: e names the line that is not `model=other,third`, names more than FALLBACKS_MAX, "*" as what may answer, a model as its own
 * fallback or one that another line is of, or is "none" (model_rules.h); or there are more than FALLBACK_LINES_MAX. */
MUST enum err fallback_check(const char *lines, struct errmsg *e);
/* The i-th model to ask for when `model` cannot answer ("*=other" holds for every model without a line of its own); p NULL: there are no
 * more. Borrowed from lines. */
struct str fallback_of(const char *lines, struct str model, int i);
/* fn for every model after a "=", in the order of the text, borrowed from lines. */
void fallback_each(const char *lines, void (*fn)(void *arg, struct str other), void *arg);

#endif
