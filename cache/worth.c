/* worth.c - see worth.h. */
#include "cache/worth.h"

enum {
    TOKENS_UNKNOWN = 20,
    LATENCY_UNKNOWN_MS = 200,
    TOKENS_MAX = 100000,
    LATENCY_MAX_MS = 600000
};

double worth_saved(int64_t tokens, int64_t latency_ms)
{
    if (tokens <= 0) tokens = TOKENS_UNKNOWN;
    if (latency_ms <= 0) latency_ms = LATENCY_UNKNOWN_MS;
    if (tokens > TOKENS_MAX) tokens = TOKENS_MAX;
    if (latency_ms > LATENCY_MAX_MS) latency_ms = LATENCY_MAX_MS;
    return (double)tokens * (double)latency_ms;
}

double worth_rank(double clock, uint32_t uses, double saved, size_t bytes)
{
    if (uses > WORTH_USES_MAX) uses = WORTH_USES_MAX;
    return clock + (double)uses * saved / (double)(bytes ? bytes : 1);
}
