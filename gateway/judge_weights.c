/* judge_weights.c - see judge_weights.h. */
#include "gateway/judge_weights.h"

#include <string.h>

#include "base/mem.h"
#include "cache/logistic.h"

enum { N = LOGISTIC_N };
/* The verifier alone, until something is known. */
static const struct logistic_prior prior = {.mean = {0, 0, 1}, .variance = {16, 1, 1}};

bool judge_weights_measured(const struct judge_weights *w)
{
    return w->judge > 0 || w->verifier > 0;
}

double judge_weighed(const struct judge_weights *w, double yes, double verifier)
{
    return logistic_sigmoid(w->bias + w->judge * logistic_logit(yes) +
                            w->verifier * logistic_logit(verifier));
}

struct judge_weights judge_weights_fit(const struct judge_label *labels, size_t n)
{
    size_t of[2] = {0, 0}, n_cases = 0;
    double b[N];
    bool fixed[N] = {false, false, false};
    for (size_t i = 0; i < n; i++)
        if (labels[i].verifier >= 0) of[labels[i].same]++;
    if (of[0] < JUDGE_WEIGHED_MIN || of[1] < JUDGE_WEIGHED_MIN) return (struct judge_weights){0};
    struct logistic_case *cases = xcalloc(of[0] + of[1], sizeof *cases);
    for (size_t i = 0; i < n; i++)
        if (labels[i].verifier >= 0)
            cases[n_cases++] = (struct logistic_case){
                .x = {1, logistic_logit(labels[i].yes), logistic_logit(labels[i].verifier)},
                .yes = labels[i].same};
    memcpy(b, prior.mean, sizeof b);
    logistic_fit(b, fixed, &prior, cases, n_cases, -1);
    for (int k = 1; k < N; k++)
        if (b[k] < 0) {
            b[k] = 0;
            fixed[k] = true;
            logistic_fit(b, fixed, &prior, cases, n_cases, -1);
        }
    mem_free(cases);
    return (struct judge_weights){b[0], b[1], b[2]};
}
