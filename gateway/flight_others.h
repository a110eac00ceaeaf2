/* flight_others.h - are there other gateways that a call could be shared with? While there are none, nobody is asked who leads. Heard
 * of in two ways: each gateway's beat tells how many others have beaten lately, and one that begins to beat tells the others at once. Doubt
 * means others: alone is only who was known already at its beat, heard of nobody, and has been told so lately.
 * Pure: time is an argument. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_FLIGHT_OTHERS_H
#define DEJA_GATEWAY_FLIGHT_OTHERS_H
#include <stdbool.h>
#include <stdint.h>

struct flight_others {
    uint64_t told_ms; /* the last answer to a beat; 0 = none yet */
    int n;            /* others, as it said */
    bool known;       /* we were listed before that beat: nobody has lost sight of us */
};

/* A beat was answered. */
void flight_others_told(struct flight_others *o, int n, bool known, uint64_t now_ms);
/* Another one said that it is there. */
void flight_others_heard(struct flight_others *o);
/* fresh_ms: how long an answer is worth something. */
bool flight_others_none(const struct flight_others *o, uint64_t now_ms, uint64_t fresh_ms);

#endif
