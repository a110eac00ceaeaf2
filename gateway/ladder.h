/* ladder.h - what is tried, one step after the other, when a ticket's call has brought no answer and nothing has reached a client:
 *   elsewhere  the same model at another upstream (call.h does it; this only names it)
 *   fallback   another model, by the option `fallback`: what is stored of it, as if it had been asked for, else its own answer, which is
 *              stored under its own key or not at all
 *   stale      a stored answer past its lifetime, within what the request and the knob stale_if_error_s allow; semantic ones pass the
 *              same chain of guards as ever
 *   canned     the text of canned_answer_file, never stored
 *   refused    the error of the first call, with retry-after
 * Lines of batches do not climb, they are told the first error and tried again later.
 * Each is told in x-deja-degraded and counted. Nothing is taken for a fresh answer of the model asked for. A ticket that climbs is
 * unlisted: later requests begin anew. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_LADDER_H
#define DEJA_GATEWAY_LADDER_H
#include "gateway/ending.h"
#include "gateway/exchange.h"

struct ladder;

/* The call of t has ended, or must end now, with *e (used up). Goes on with the next step, or tells the riders. */
void ladder_next(struct ticket *t, struct ending *e);
/* t's call, cancelled for the next step, is over. False: no step waited for that. */
bool ladder_call_over(struct ticket *t);
bool ladder_waits(const struct ticket *t); /* for that: what still comes of the call is nothing */
/* The key the answer that comes now may be stored under; NULL: under none. */
const struct cache_key *ladder_key(const struct ticket *t);
/* The model last asked instead of the one the client named; p NULL: none. Borrowed from t's rules. */
struct str ladder_fallback(const struct ticket *t);
/* Puts the step that serves x, and how long x has waited, into x; fine without a ticket. */
void ladder_describe(struct exchange *x);
void ladder_free(struct ladder *l); /* NULL is fine */

#endif
