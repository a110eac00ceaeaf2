/* pick.h - which of several targets takes the next call: the best by the KV it holds against its load, ties by weight (the target whose
 * share is furthest behind). Pure: the caller says who may be asked at all. Threading: none.
 * Source of the tie rule: stride scheduling (Waldspurger & Weihl 1995): a target's pass grows by 1/weight a call, the least goes next. */
#ifndef DEJA_GATEWAY_PICK_H
#define DEJA_GATEWAY_PICK_H
#include <stdbool.h>

struct pick_target {
    bool allowed;
    int inflight;
    double weight;  /* > 0: its share of calls, and of load it may carry */
    double pass;    /* kept between calls: see pick_taken */
    double matched; /* share of the prompt it holds, 0..1 */
    double work;    /* tokens it was given lately, see route_score.h; counts with matched only */
};
/* Index of the best allowed one, or -1. with_matched: matched counts, load by load_weight; otherwise the least loaded. passed: the pass
 * of the last one picked, so that a target that was away does not catch up. */
int pick_best(const struct pick_target *t, int n, bool with_matched, double load_weight,
              double passed);
/* The pass of t once it has been picked; *passed follows. */
double pick_taken(const struct pick_target *t, double *passed);

#endif
