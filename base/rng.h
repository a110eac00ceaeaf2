/* rng.h - xoshiro256** (Blackman & Vigna 2018, public domain algorithm), seeded; and the kernel's entropy.
 * A struct rng belongs to one thread. Same seed, same sequence, on every machine. */
#ifndef DEJA_BASE_RNG_H
#define DEJA_BASE_RNG_H
#include <stdint.h>

struct rng {
    uint64_t s[4];
};
void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
double rng_f64(struct rng *r);                     /* [0,1) with 53 bits */
uint64_t rng_below(struct rng *r, uint64_t bound); /* [0,bound), unbiased; bound > 0 */
uint64_t rng_entropy(void);                        /* from the kernel */

#endif
