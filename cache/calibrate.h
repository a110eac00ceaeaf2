/* calibrate.h - the verifier's word weighed anew for one namespace, from its own judged pairs. What people call the same question differs
 * from place to place: in a bank "how do I" against "can I" may be another answer, among people who chat it hardly ever is. So a small
 * logistic model of three numbers maps what the shipped verifier says, and how near the vectors lie, to the probability that holds there;
 * and the threshold is where no more than a named share of the pairs that differ would be served.
 *
 *   logit p = bias + weight * logit(verifier, within +-6) + cosine * (100 * cosine of the vectors - 90)
 *
 * bias 0, weight 1, cosine 0 is the verifier as shipped. Fitted by penalised likelihood (the shipped one is the prior), so that few
 * pairs move it little; neither weight is ever negative. The threshold is taken from scores of pairs the model was not fitted on (20
 * folds, each brought to the scale of the whole where the threshold lies), between two of the m-th highest that differ, m = max_wrong *
 * (n + 1): of pairs drawn alike that is the expected share, whatever their distribution. Pure: same pairs, same order, same numbers. */
#ifndef DEJA_CACHE_CALIBRATE_H
#define DEJA_CACHE_CALIBRATE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct weighing {
    double bias, weight, cosine;
};
bool weighing_is_plain(const struct weighing *w); /* the verifier as shipped */
/* 0..1. verifier: probability, 0..1; plain: returned as it is. */
double weighing_probability(const struct weighing *w, double verifier, double cosine);

struct calibrate_pair {
    double verifier, cosine;
    bool refused; /* by something no evidence outweighs: never served */
    bool right;   /* the answer may be used */
};
struct calibration {
    struct weighing weighing;
    double threshold;             /* served from this probability on */
    size_t n_right, n_wrong;      /* pairs of each kind */
    size_t right, wrong;          /* of these served, each by a model that had not seen it */
    double share_low, wrong_high; /* Wilson 95 %: of right / n_right and wrong / n_wrong */
};
enum { CALIBRATE_RIGHT_MIN = 20, CALIBRATE_PAIRS_MAX = 1 << 20 };
/* pairs in random order. max_wrong: 0.001..0.2. ERR_INVALID: too few pairs of a kind to tell such a share; *e says how many it takes. */
MUST enum err calibrate(struct calibration *out, const struct calibrate_pair *pairs, size_t n,
                        double max_wrong, struct errmsg *e);
/* Would the pair be served? */
bool calibration_serves(const struct calibration *c, const struct calibrate_pair *p);

#endif
