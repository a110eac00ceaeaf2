/* policy.h - is a candidate that no guard refuses similar enough? Scales of encoders cannot be compared, so the shipped numbers are
 * per embedder; an unknown one gets a number so high that only near-repeats pass. Pure. */
#ifndef DEJA_CACHE_POLICY_H
#define DEJA_CACHE_POLICY_H
#include "cache/guard.h"
#include "cache/knobs.h"

struct policy {
    double floor;        /* below: another topic, not even a candidate */
    double threshold[2]; /* lowest cosine that may count: English, Chinese */
};
struct policy policy_for(struct str embedder_id); /* as shipped */
/* With the operator's numbers in place of the shipped ones, where he gave any. */
struct policy policy_with(const struct policy *shipped, const struct cache_knobs *k);

struct policy_decision {
    bool hit;
    double threshold; /* what the cosine was held against */
    const char
        *reason; /* static: "semantic:same", "semantic:policy", "below_threshold", "below_floor" */
};
/* verdict->allowed must hold. client_min: 0 = none; it can only make the threshold higher, for explained rewordings too. */
struct policy_decision policy_decide(const struct policy *p, const struct guard_verdict *verdict,
                                     double cosine, double client_min);

#endif
