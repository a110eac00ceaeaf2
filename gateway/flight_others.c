/* flight_others.c - see flight_others.h. */
#include "gateway/flight_others.h"

void flight_others_told(struct flight_others *o, int n, bool known, uint64_t now_ms)
{
    *o = (struct flight_others){.told_ms = now_ms ? now_ms : 1, .n = n, .known = known};
}

void flight_others_heard(struct flight_others *o)
{
    o->n = o->n ? o->n : 1;
}

bool flight_others_none(const struct flight_others *o, uint64_t now_ms, uint64_t fresh_ms)
{
    return o->told_ms && o->known && !o->n && now_ms - o->told_ms <= fresh_ms;
}
