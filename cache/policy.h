/* policy.h - is a candidate that no guard refuses similar enough? Scales of encoders cannot be compared, so the shipped numbers are
 * per embedder; an unknown one gets a number so high that only near-repeats pass. Pure. */
#ifndef DEJA_CACHE_POLICY_H
#define DEJA_CACHE_POLICY_H
#include "cache/calibrate.h"
#include "cache/guard.h"
#include "cache/knobs.h"

struct policy {
    double floor;                /* below: another topic, not even a candidate */
    double threshold[2];         /* lowest cosine that may count: English, Chinese */
    bool asked[2];               /* the operator named it */
    double verifier[2];          /* lowest probability the verifier may give */
    struct weighing weighing[2]; /* of what the verifier says */
    double unlike[2]; /* below it two questions an entry was served to are unlike; 0 = never */
};
struct policy policy_for(struct str embedder_id); /* as shipped */
/* With the operator's numbers in place of the shipped ones, where he gave any. */
struct policy policy_with(const struct policy *shipped, const struct cache_knobs *k);

/* Of this language ('z' or 'e'), made higher by the client's wish (0 = none). */
double policy_threshold(const struct policy *p, char language, double client_min);

/* Weighed anew for this namespace: then every candidate gets the verifier's second look, and the cosine counts too. */
bool policy_is_calibrated(const struct policy *p, char language);

/* What is known about a candidate that no guard refuses. */
struct policy_view {
    double cosine;
    double
        verifier; /* probability that the answer fits, 0..1; -1 = there is no verifier, or it is off */
    char language;
    double client_min; /* 0 = none; it can only make the cosine's threshold higher */
};
struct policy_decision {
    bool hit;
    bool by_verifier; /* the verifier's threshold decided, not the cosine's */
    double threshold; /* what decided was held against this */
    const char *
        reason; /* static: "semantic:policy", "semantic:verifier", "below_threshold", "below_floor", "verifier" */
};
/* Without a verifier the cosine must reach its threshold. With one the cosine need only say the same topic, unless the operator or the
 * client named a threshold, and the verifier must reach its own. */
struct policy_decision policy_decide(const struct policy *p, const struct policy_view *v);

#endif
