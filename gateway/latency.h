/* latency.h - how long clients wait, by route and by what the cache did: time to the first byte, time per output token, and where in the
 * gateway the time goes. Stages are measured by pipeline.c with one reading of the clock at each change; everything is observed once,
 * at the end of the request. Refuses to measure what has no answer. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_LATENCY_H
#define DEJA_GATEWAY_LATENCY_H
#include "base/metrics.h"

struct exchange;
struct latency;

enum timed {
    TIMED_NONE,
    TIMED_READ,  /* body read and checked */
    TIMED_LIMIT, /* what its limits say */
    TIMED_KEY,
    TIMED_FIND,    /* in the exact cache; */
    TIMED_SIMILAR, /* or also embedded and compared */
    TIMED_PROMPT,  /* token ids of its prompt */
    TIMED_ROUTE,   /* which upstream */
    TIMED_QUEUE,
    TIMED_FIRST_BYTE, /* of an upstream, from having its slot to the head of its reply */
    TIMED_UPSTREAM,   /* from having its slot to the end */
    N_TIMED
};

struct stopwatch {
    enum timed now;
    uint64_t since_us;
    uint64_t us[N_TIMED];
};

/* The time since the last change belongs to what ran until now; next runs from here. */
void stopwatch_turn(struct stopwatch *w, enum timed next, uint64_t now_us);

struct latency *latency_new(struct metrics *m);
void latency_free(struct latency *l);
/* At the end of a request that uses the cache. */
void latency_count(struct latency *l, struct exchange *x, uint64_t now_us);
/* Microseconds to the first byte the client was given. */
uint64_t latency_first_byte_us(const struct exchange *x, uint64_t now_us);

#endif
