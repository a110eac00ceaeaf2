/* hash.h - keyed 128-bit fingerprints (XXH3-128; the only xxhash user). Fields are tagged and length-prefixed, so
 * that "ab","c" never meets "a","bc". Not a cryptographic hash: the seed keeps outsiders from steering it,
 * and whoever trusts a match compares what was hashed. Any thread; a hasher belongs to one. */
#ifndef DEJA_BASE_HASH_H
#define DEJA_BASE_HASH_H
#include "base/str.h"

struct hash128 {
    uint64_t hi, lo;
};
struct hasher {
    void *state;
};

struct hash128 hash_bytes(uint64_t seed, struct str bytes);
static inline bool hash_eq(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}
/* 32 lower-case hex digits and a NUL. */
void hash_hex(struct hash128 h, char out[33]);
MUST enum err hash_from_hex(struct str hex, struct hash128 *out);

/* hasher_open .. hasher_field* .. hasher_close (frees). */
void hasher_open(struct hasher *h, uint64_t seed);
void hasher_field(struct hasher *h, char tag, struct str bytes);
void hasher_u64(struct hasher *h, char tag, uint64_t v);
struct hash128 hasher_close(struct hasher *h);

#endif
