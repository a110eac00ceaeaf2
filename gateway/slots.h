/* slots.h - how many calls one upstream bears at a time. A number that is known (the operator's max_concurrency, or what Deja's engine
 * says of itself) holds as it is. Otherwise there is no bound until the upstream says it has too much (429, 503, 529): then seven tenths
 * of what was at work, and from there one more for each round of successes at the bound (additive increase, multiplicative decrease:
 * Chiu, Jain 1989). Pure: time is an argument. Threading: none. */
#ifndef DEJA_GATEWAY_SLOTS_H
#define DEJA_GATEWAY_SLOTS_H
#include <stdint.h>

enum { SLOTS_FORGET = 4096 }; /* calls at a time; beyond, there is no bound any more */

struct slots {
    int fixed;     /* 0 = not known */
    double learnt; /* 0 = no bound */
    uint64_t cut_ms;
};
int slots_bound(const struct slots *s); /* 0 = none */
/* inflight: calls at work there, the one that ended included. */
void slots_success(struct slots *s, int inflight);
/* A call begun at begun_ms was refused. Those begun before the last cut say nothing new. */
void slots_overload(struct slots *s, int inflight, uint64_t begun_ms, uint64_t now_ms);

#endif
