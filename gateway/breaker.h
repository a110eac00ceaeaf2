/* breaker.h - stops calling a target that does not answer, and lets exactly one probe through when its pause is over.
 * Closed: calls pass. `failures_max` failures in a row open it for `open_ms`; then half open: one call is let through, the rest
 * is refused until that one has reported. A target that answers, but with errors of its own, opens it too: when error_percent of its
 * last 32 answers (at least BREAKER_SAMPLES_MIN) were such.
 * What is wrong with a request must not look like a sick target: a request that fails again counts once, and while all but one tenant, or
 * all but one model, are served well there, it stays closed whatever that one meets.
 * Pure: time is an argument. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_BREAKER_H
#define DEJA_GATEWAY_BREAKER_H
#include <stdbool.h>
#include <stdint.h>

enum { BREAKER_SAMPLES_MAX = 32, BREAKER_SAMPLES_MIN = 10, BREAKER_OTHERS_MS = 10000 };

/* Whose call it was, as hashes; 0 = not known, or it is about the target alone. */
struct breaker_call {
    uint32_t request, tenant, model;
};
enum breaker_end { BREAKER_WELL, BREAKER_ERRED, BREAKER_BROKEN };
struct breaker_mark {
    struct breaker_call by;
    enum breaker_end end;
    uint64_t at_ms;
};
struct breaker {
    int failures_max;                               /* >= 1 */
    uint64_t open_ms;                               /* pause before a probe */
    int failures;                                   /* in a row, a request once */
    uint64_t open_until_ms;                         /* 0 = closed */
    uint64_t probe_at_ms;                           /* when the one probe left; 0 = none is out */
    int error_percent;                              /* 0 = errors are not counted */
    struct breaker_mark marks[BREAKER_SAMPLES_MAX]; /* the last ends, a ring */
    uint64_t n_marks;                               /* ever */
    uint64_t row_from, samples_from;                /* marks before these do not count */
};

void breaker_init(struct breaker *b, int failures_max, uint64_t open_ms);
/* True: the call may go, and its end must be reported with breaker_success, breaker_failure or breaker_forget. A probe that never
 * reports is given up after open_ms, so a lost report cannot close the door for ever. */
bool breaker_allow(struct breaker *b, uint64_t now_ms);
void breaker_success(struct breaker *b);
/* A probe of its own was answered: it is closed if it was open, but calls that fail are not outweighed. */
void breaker_probed(struct breaker *b);
void breaker_failure(struct breaker *b, struct breaker_call by, uint64_t now_ms);
/* One more answer, well or an error of the target's own. */
void breaker_sample(struct breaker *b, bool well, struct breaker_call by, uint64_t now_ms);
/* The call ended without saying anything about the target (client left). */
void breaker_forget(struct breaker *b);
bool breaker_is_open(const struct breaker *b); /* refuses, or lets only a probe through */
/* Milliseconds until a call may pass again; 0 when it may now. */
uint64_t breaker_wait_ms(const struct breaker *b, uint64_t now_ms);

#endif
