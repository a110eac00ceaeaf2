/* logistic.h - what some numbers say together: the weights of a logistic rule, fitted to cases of which the answer is known by penalised
 * likelihood (a normal prior each, so that few cases move them little), with Newton's steps, each halved until it leads downhill.
 * Pure: same cases, same order, same weights. */
#ifndef DEJA_CACHE_LOGISTIC_H
#define DEJA_CACHE_LOGISTIC_H
#include <stdbool.h>
#include <stddef.h>

enum { LOGISTIC_N = 3 };
#define LOGISTIC_LOGIT_MAX 6.0

struct logistic_prior {
    double mean[LOGISTIC_N], variance[LOGISTIC_N];
};
struct logistic_case {
    double x[LOGISTIC_N];
    bool yes;
    int fold; /* cases of one fold can be left out together */
};

double logistic_sigmoid(double z);
double logistic_logit(double p); /* within +-LOGISTIC_LOGIT_MAX, also of 0, 1 and NaN */
/* Moves b, from where it stands, to the likeliest weights without the cases of one fold (-1: with all). fixed ones stay. */
void logistic_fit(double b[LOGISTIC_N], const bool fixed[LOGISTIC_N],
                  const struct logistic_prior *prior, const struct logistic_case *cases, size_t n,
                  int without);

#endif
