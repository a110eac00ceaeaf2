/* judge.h - asks a language model about near misses, after the client was answered, and turns what it says into approved wordings and
 * vetoes (lua/wordings_review.lua). One question at a time, in the batch class, no more a minute than the knob allows, out of a bounded
 * queue; a pair asked lately is not asked again; what fails is dropped and counted. The three nearest are asked about, and of those the
 * judge would approve the likeliest is; when there is none the next near ones are, up to the knob judge_top, until one would do; when
 * the same text comes again, those after them. While others wait, their nearest come first. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_JUDGE_H
#define DEJA_GATEWAY_JUDGE_H
#include "cache/cache.h"
#include "gateway/judge_prompt.h"

struct exchange;
struct gateway;
struct judge;

MUST enum err judge_open(struct judge **out, struct gateway *gw, struct errmsg *e);
void judge_close(struct judge *j); /* NULL is fine; before the gateway's client and Redis link */
/* f: a miss of x's look-up, or a hit by meaning. Does nothing unless x's knobs want a judge of it. */
void judge_offer(struct judge *j, const struct exchange *x, const struct cache_found *f);
/* Do two answers to one question say the same? done(yes: calibrated 0..1, or -1 when it could not be asked) exactly once, never before
 * this returns; also on judge_close. Beyond the queue's bound: ERR_FULL, and done never comes. */
MUST enum err judge_compare(struct judge *j, struct str model, char language, struct str a,
                            struct str b, void (*done)(void *arg, double yes), void *arg);

#endif
