/* breaker.c - see breaker.h. */
#include "gateway/breaker.h"

#include "base/err.h"

void breaker_init(struct breaker *b, int failures_max, uint64_t open_ms)
{
    ASSERT(failures_max >= 1);
    *b = (struct breaker){.failures_max = failures_max, .open_ms = open_ms};
}

bool breaker_allow(struct breaker *b, uint64_t now_ms)
{
    if (!b->open_until_ms) return true;
    if (now_ms < b->open_until_ms) return false;
    if (b->probe_at_ms && now_ms - b->probe_at_ms < b->open_ms) return false;
    b->probe_at_ms = now_ms ? now_ms : 1;
    return true;
}

void breaker_success(struct breaker *b)
{
    b->failures = 0;
    b->open_until_ms = 0;
    b->probe_at_ms = 0;
}

void breaker_failure(struct breaker *b, uint64_t now_ms)
{
    bool was_probe = b->open_until_ms && b->probe_at_ms;
    if (b->failures < b->failures_max) b->failures++;
    b->probe_at_ms = 0;
    if (b->failures >= b->failures_max || was_probe) b->open_until_ms = now_ms + b->open_ms;
}

void breaker_forget(struct breaker *b)
{
    b->probe_at_ms = 0;
}

bool breaker_is_open(const struct breaker *b)
{
    return b->open_until_ms != 0;
}

uint64_t breaker_wait_ms(const struct breaker *b, uint64_t now_ms)
{
    if (!b->open_until_ms) return 0;
    if (now_ms < b->open_until_ms) return b->open_until_ms - now_ms;
    if (!b->probe_at_ms || now_ms - b->probe_at_ms >= b->open_ms) return 0;
    return b->open_ms - (now_ms - b->probe_at_ms);
}
