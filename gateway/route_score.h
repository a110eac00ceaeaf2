/* route_score.h - how good a target is for a prompt: the share of it that the target already holds as KV against how much busier than
 * the mean it is. Used by the choice of upstreams and, as it is, by the simulation in bench/bench_routing.c. Pure. */
#ifndef DEJA_GATEWAY_ROUTE_SCORE_H
#define DEJA_GATEWAY_ROUTE_SCORE_H
#include <math.h>
#include <stdint.h>

/* Load where prompts are known, in tokens: what was sent to be computed lately, fading, so that a target that is given much is spared
 * for a while even if it answers fast; and each call at work, which holds a place until it ends, however it ends. */
enum { ROUTE_HALF_LIFE_MS = 10000, ROUTE_CALL_TOKENS = 256 };
/* A mean below this is no load worth leaving a held prompt for: some seconds of a small machine. */
#define ROUTE_IDLE_TOKENS 4096.0f

static inline double route_fade(double tokens, uint64_t ms)
{
    return ms ? tokens * exp2(-(double)ms / ROUTE_HALF_LIFE_MS) : tokens;
}

/* How much busier than the mean, in means. A mean under least says nothing. */
static inline float route_overload(float load, float mean_load, float least)
{
    return (load - mean_load) / (mean_load > least ? mean_load : least);
}

/* matched: 0..1. load_weight: what a load of twice the mean costs, in shares of the prompt. */
static inline float route_score(float matched, float tokens, float mean_tokens, float load_weight)
{
    return matched - load_weight * route_overload(tokens, mean_tokens, ROUTE_IDLE_TOKENS);
}

/* A block on host or disk must be read back first, which still beats computing it. */
#define ROUTE_SLOW_BLOCK 0.8f
static inline float route_share(int blocks, int slow, int prompt_blocks)
{
    if (prompt_blocks <= 0) return 0;
    return ((float)blocks - (1 - ROUTE_SLOW_BLOCK) * (float)slow) / (float)prompt_blocks;
}

#endif
