/* slots.c - see slots.h. */
#include "gateway/slots.h"

int slots_bound(const struct slots *s)
{
    if (s->fixed) return s->fixed;
    return s->learnt > 0 ? (int)s->learnt : 0;
}

void slots_success(struct slots *s, int inflight)
{
    if (s->learnt <= 0 || inflight < (int)s->learnt) return;
    s->learnt += 1 / s->learnt;
    if (s->learnt >= SLOTS_FORGET) s->learnt = 0;
}

void slots_overload(struct slots *s, int inflight, uint64_t begun_ms, uint64_t now_ms)
{
    if (s->cut_ms && begun_ms <= s->cut_ms) return;
    double base = s->learnt > 0 && s->learnt < inflight ? s->learnt : inflight;
    s->learnt = base * 0.7 > 1 ? base * 0.7 : 1;
    s->cut_ms = now_ms ? now_ms : 1;
}
