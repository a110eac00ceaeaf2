/* gcra.h - the generic cell rate algorithm: at most `limit` units a period, kept as one number, the time at which the bucket is empty
 * again. A whole period's worth may come at once; afterwards units come back evenly. The same arithmetic runs in Redis for all gateways
 * together (lua/limits.lua); here it serves a gateway's own share while Redis is away. Times are microseconds
 * from any beginning that keeps them below 1e14: what a double resolves of them adds up. Pure.
 * Source: ITU-T I.371, annex A (virtual scheduling). */
#ifndef DEJA_GATEWAY_GCRA_H
#define DEJA_GATEWAY_GCRA_H
#include <stdbool.h>

struct gcra {
    double tat_us; /* theoretical arrival time: empty from then on; 0 = never used */
};
struct gcra_rate {
    double limit;     /* units a period, > 0 */
    double period_us; /* > 0 */
};

/* Do n units (>= 0) fit now? *wait_us (may be NULL): how long until they would, 0 when they do, -1 when n is more than the limit. Changes
 * nothing. n = 0 always fits. */
bool gcra_fits(const struct gcra *g, const struct gcra_rate *r, double now_us, double n,
               double *wait_us);
/* Takes n units whether they fit or not; n < 0 gives back what time has not given back already. */
void gcra_add(struct gcra *g, const struct gcra_rate *r, double now_us, double n);
/* Whole units that would fit now. */
double gcra_left(const struct gcra *g, const struct gcra_rate *r, double now_us);
/* How long until the bucket is empty, i.e. everything fits again. */
double gcra_empty_in_us(const struct gcra *g, double now_us);

#endif
