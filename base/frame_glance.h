/* frame_glance.h - a look at one frame of a stream by who only passes it on: is it a chunk, which choices does it bring or finish, what did
 * it cost? Nothing is built. */
#ifndef DEJA_BASE_FRAME_GLANCE_H
#define DEJA_BASE_FRAME_GLANCE_H
#include "base/openai.h"

struct frame_glance {
    unsigned seen; /* choices by index, a bit each */
    char finish[OPENAI_N_MAX][sizeof((struct openai_choice *)0)
                                  ->finish_reason]; /* of those seen; "" = none told */
    struct openai_usage usage;
    bool
        alike; /* one choice, and nothing in the frame but its text that would add up with later ones */
    int choice; /* the last one's index */
};

/* True: openai_collector_feed would take it, and this is what it tells. False: nothing is said, ask that. */
bool frame_glance(struct str data, enum openai_kind kind, struct frame_glance *out);

#endif
