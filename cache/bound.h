/* bound.h - how likely is it that an entry's answer is wrong for a question, and up to which likelihood may answers be served so that
 * the share of wrong ones stays under a bound? Both are learnt from evidence: pairs of which it became known whether the answer was
 * right. Each entry has a threshold of its own this way: what is needed to be sure of it depends on how near other answers lie, on how
 * many of its own wordings lie near, and on its own record.
 *
 *   error   a logistic model over what was measured of the pair, fitted one piece of evidence at a time (a Newton step with the inverse
 *           of the summed curvature kept), plus a penalty of the entry, moved by the entry's own evidence alone and never a bonus
 *   limit   evidence is counted by the error that had been predicted before the truth was known. Served is what lies below the highest
 *           predicted error up to which the share of wrong ones, by its one-sided 95 % upper Wilson bound, stays under max_error.
 *           Nothing is served until enough is known: 1 % needs some 270 pieces without an error.
 *
 * The idea of learning a threshold for each entry online under a bound the user sets is vCache's (arXiv 2502.03771); estimate and limit
 * here are our own derivation. Pure: the same evidence in the same order gives the same model on every gateway. */
#ifndef DEJA_CACHE_BOUND_H
#define DEJA_CACHE_BOUND_H
#include <stdbool.h>
#include <stddef.h>

enum { BOUND_FEATURES = 7, BOUND_LEVELS = 80 };

/* What was measured of a pair. */
struct bound_view {
    double cosine, floor; /* of the nearest wording; the topic floor of the embedder */
    double rival;         /* cosine of the nearest text with another answer; -1 = none */
    double agree;         /* share of the nearest texts that have this answer, 0..1 */
    double verifier;      /* probability, -1 = none */
    bool chinese;
};
struct bound {
    double weight[BOUND_FEATURES];
    double spread[BOUND_FEATURES][BOUND_FEATURES]; /* inverse curvature */
    double right[BOUND_LEVELS], wrong[BOUND_LEVELS];
    double n; /* pieces of evidence */
};
struct bound_record { /* of one entry */
    double penalty;   /* on the logit of being right, <= 0 */
    double right, wrong;
};

void bound_init(struct bound *b);
/* Likelihood that the answer is wrong, 0..1. r NULL = no record. */
double bound_error(const struct bound *b, const struct bound_view *v, const struct bound_record *r);
/* weight: how much it counts, 0..1. */
void bound_learn(struct bound *b, const struct bound_view *v, struct bound_record *r, bool right,
                 double weight);

struct bound_limit {
    double error;     /* served is what is predicted below this; 0 = nothing yet */
    double n, wrong;  /* evidence below it */
    double share;     /* of all evidence */
    double low, high; /* Wilson 95 % interval of the share of wrong ones */
};
struct bound_limit bound_limit(const struct bound *b, double max_error);

/* Wilson score interval of wrong in n at z standard deviations; 0..1 when n is 0. */
void wilson(double wrong, double n, double z, double *low, double *high);

#endif
