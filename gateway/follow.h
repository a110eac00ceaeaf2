/* follow.h - similar questions follow one in flight (knob join_similar): what passes every step of the cache's decision against a question
 * that is being asked (cache.h, CACHE_COMING) waits for that ticket's answer. Once the answer is kept, which it is only when it is whole
 * and good, everybody behind the ticket gets it, as if it had been stored before; with `live` a stream is followed from its first piece
 * on, and shares its end. When the ticket fails, falls back to another model, grows beyond what may be joined or brings an answer the
 * cache would refuse, all of them go on by themselves at once, and follow nobody else.
 * Bounds: riders and followers together are at most coalesce_max; the wait is the leader's own. Who follows is asked for nothing upstream
 * and leads nobody. Only within one gateway. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_FOLLOW_H
#define DEJA_GATEWAY_FOLLOW_H
#include "gateway/exchange.h"

struct ticket;
struct cache_found;

/* Will an answer that is on its way do for x? */
bool follow_allowed(const struct exchange *x);
/* found: CACHE_COMING. False: it has ended meanwhile, or has no room. */
bool follow_board(struct exchange *x, const struct cache_found *found);
void follow_leave(struct exchange *x); /* its client has gone; fine where it follows nobody */

/* For ticket.c and forward.c. Its question may be followed from now on, until follow_close; then those left go on by themselves. */
void follow_open(struct ticket *t, const struct exchange *leader);
void follow_close(struct ticket *t);
/* The first frame is on the tape: with `live` those that stream become riders. */
void follow_stream(struct ticket *t);
/* The answer is whole; everybody behind t gets it if the cache has kept it, or would. */
void follow_answer(struct ticket *t, const struct openai_answer *a);

#endif
