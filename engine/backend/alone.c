/* alone.c - see alone.h. */
#include "engine/backend/alone.h"

bool alone_now(const struct alone *a, uint64_t now_us)
{
    return now_us < a->until_us;
}

void alone_note(struct alone *a, uint64_t now_us, uint64_t own_us, uint64_t waited_us)
{
    if (now_us - a->window_us >= ALONE_WINDOW_US) {
        /* a whole window after the last span without loss: what was learnt is forgotten */
        if (a->window_us && a->lost_us < ALONE_WINDOW_US / ALONE_SHARE) a->span_us = 0;
        a->window_us = now_us;
        a->lost_us = 0;
    }
    if (waited_us < ALONE_WAIT_US || waited_us <= own_us) return;
    a->lost_us += waited_us;
    if (a->lost_us < ALONE_WINDOW_US / ALONE_SHARE) return;
    a->span_us = a->span_us ? 2 * a->span_us : ALONE_SPAN_US;
    if (a->span_us > ALONE_SPAN_MAX_US) a->span_us = ALONE_SPAN_MAX_US;
    a->until_us = now_us + a->span_us;
    a->window_us = a->until_us;
    a->lost_us = 0;
}
