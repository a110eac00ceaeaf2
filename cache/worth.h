/* worth.h - what a stored answer is worth keeping for: what it saves each time it is used (tokens x latency), how often it is used, and
 * what it takes up. An entry's rank is the clock when it was last used plus uses x saved / bytes; the least goes first and sets the
 * clock, so that what was worth much once, and is not used any more, goes in the end. Pure.
 * Source: Greedy-Dual-Size with Frequency, Cherkasova, HP Labs HPL-98-69R1, 1998. */
#ifndef DEJA_CACHE_WORTH_H
#define DEJA_CACHE_WORTH_H
#include <stddef.h>
#include <stdint.h>

enum { WORTH_USES_MAX = 1000 }; /* more uses than that make no difference */

/* What one use saves; unknown parts (0) count as a small answer's. */
double worth_saved(int64_t tokens, int64_t latency_ms);
double worth_rank(double clock, uint32_t uses, double saved, size_t bytes);

#endif
