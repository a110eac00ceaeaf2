/* retry.h - what a failed try means: whether another may follow, where, after how long, and what it says about the target; what a
 * Retry-After says; and the budget that keeps retries and hedges a small share of the traffic, so that a struggling upstream is not
 * asked thrice as much. Pure: time is an argument. Threading: none. Source of the budget: the common token-bucket form, a deposit a
 * request and a withdrawal a retry. */
#ifndef DEJA_GATEWAY_RETRY_H
#define DEJA_GATEWAY_RETRY_H
#include "base/str.h"

enum retry_where {
    RETRY_NO,
    RETRY_ELSEWHERE, /* another target only: this one may still be at work, or will say the same */
    RETRY_ANYWHERE   /* another target at once, else the same after a pause */
};
enum retry_verdict {
    TARGET_WELL,    /* it answers */
    TARGET_ERRED,   /* it answers, but with an error of its own: counts into its error rate */
    TARGET_BROKEN,  /* it does not answer: counts as a failure in a row */
    TARGET_UNKNOWN, /* says nothing about it */
};
struct retry_policy {
    enum retry_where where;
    enum retry_verdict verdict;
    bool
        degrades; /* nothing of it reached the client and another model, or an older answer, may do better */
};
/* A status line came. */
struct retry_policy retry_of_status(int status);
/* It ended before a status line. */
struct retry_policy retry_of_end(enum err code);

/* Milliseconds a Retry-After (or retry-after-ms) asks to wait: seconds, with a fraction too, or an HTTP date against now. false:
 * neither. At most RETRY_AFTER_MAX_MS. */
enum { RETRY_AFTER_MAX_MS = 3600 * 1000 };
bool retry_after_parse(struct str value, bool is_ms, int64_t now_unix_s, uint64_t *ms);

enum { BUDGET_RESERVE = 10, BUDGET_MAX = 1000 };
struct retry_budget {
    double percent, tokens;
    uint64_t at_ms;
};
/* percent 0: no retries at all. A tenth of BUDGET_RESERVE comes back each second without any request. */
void retry_budget_init(struct retry_budget *b, double percent, uint64_t now_ms);
void retry_budget_request(struct retry_budget *b, uint64_t now_ms);
bool retry_budget_take(struct retry_budget *b, uint64_t now_ms); /* false: it is spent */

#endif
