/* breaker.h - stops calling a target that does not answer, and lets exactly one probe through when its pause is over.
 * Closed: calls pass. `failures_max` failures in a row open it for `open_ms`; then half open: one call is let through, the rest
 * is refused until that one has reported. Pure: time is an argument. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_BREAKER_H
#define DEJA_GATEWAY_BREAKER_H
#include <stdbool.h>
#include <stdint.h>

struct breaker {
    int failures_max;       /* >= 1 */
    uint64_t open_ms;       /* pause before a probe */
    int failures;           /* in a row */
    uint64_t open_until_ms; /* 0 = closed */
    uint64_t probe_at_ms;   /* when the one probe left; 0 = none is out */
};

void breaker_init(struct breaker *b, int failures_max, uint64_t open_ms);
/* True: the call may go, and its end must be reported with breaker_success, breaker_failure or breaker_forget. A probe that never
 * reports is given up after open_ms, so a lost report cannot close the door for ever. */
bool breaker_allow(struct breaker *b, uint64_t now_ms);
void breaker_success(struct breaker *b);
void breaker_failure(struct breaker *b, uint64_t now_ms);
void breaker_forget(
    struct breaker *b); /* the call ended without saying anything about the target (client left) */
bool breaker_is_open(const struct breaker *b); /* refuses, or lets only a probe through */
/* Milliseconds until a call may pass again; 0 when it may now. */
uint64_t breaker_wait_ms(const struct breaker *b, uint64_t now_ms);

#endif
