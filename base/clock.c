/* clock.c - the only callers of clock_gettime outside the log. */
#include "base/clock.h"

#include <time.h>

static uint64_t read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t clock_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}
uint64_t clock_ms(void)
{
    return read_us(CLOCK_MONOTONIC) / 1000u + 1;
}
int64_t clock_wall_s(void)
{
    return (int64_t)(read_us(CLOCK_REALTIME) / 1000000u);
}
