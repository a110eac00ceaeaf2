/* judge_weights.h - what a judge's yes is worth beside what the trained verifier says of the same pair: they err in different places, a
 * language model where one word changes the answer, the verifier where all words differ.
 *
 *   logit p = bias + judge * logit(yes) + verifier * logit(verifier), both logits within +-6
 *
 * Fitted by penalised likelihood on labelled pairs; the prior is the verifier alone, so few pairs give the judge little weight; no weight
 * is negative. Pure: same pairs, same order, same numbers.
 * Source: Naive Bayes with learnt exponents, that is logistic regression on log odds (Genest & Zidek 1986, logarithmic pooling). */
#ifndef DEJA_GATEWAY_JUDGE_WEIGHTS_H
#define DEJA_GATEWAY_JUDGE_WEIGHTS_H
#include <stdbool.h>
#include <stddef.h>

struct judge_weights { /* all 0: not measured */
    double bias, judge, verifier;
};
struct judge_label {
    double yes;      /* what the judge said, 0..1 */
    double verifier; /* what the verifier said, 0..1; below 0 = nothing */
    bool same;       /* what is so */
};
enum { JUDGE_WEIGHED_MIN = 20 };

bool judge_weights_measured(const struct judge_weights *w);
/* 0..1 */
double judge_weighed(const struct judge_weights *w, double yes, double verifier);
/* From the labels with a verifier's word; all 0 with fewer than JUDGE_WEIGHED_MIN of each kind. */
struct judge_weights judge_weights_fit(const struct judge_label *labels, size_t n);

#endif
