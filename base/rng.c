/* rng.c - see rng.h. */
#include "base/rng.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* splitmix64 spreads any seed over the whole state. */
void rng_seed(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        r->s[i] = z ^ z >> 31;
    }
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

double rng_f64(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t bound)
{
    ASSERT(bound);
    uint64_t limit = -bound % bound, v;
    do
        v = rng_u64(r);
    while (v < limit);
    return v % bound;
}

uint64_t rng_entropy(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) v = clock_us() * 0x9E3779B97F4A7C15u;
    return v;
}
