/* prefix_hash.h - the identity of a full KV block, computed alike by the engine that holds it and by the gateway that looks for it: a
 * keyed 128-bit hash over tagged, length-prefixed {root (model file), adapter, salt} for the start of a chain, then {parent, token ids}.
 * Two prompts share a block's identity when they agree on everything up to its end, and (but for a collision) only then; a holder
 * compares the token ids, a router that is wrong loses a little time. Never text, never XOR. Pure. Any thread. */
#ifndef DEJA_BASE_PREFIX_HASH_H
#define DEJA_BASE_PREFIX_HASH_H
#include "base/hash.h"

enum { PREFIX_BLOCK_TOKENS_MAX = 256 };

/* What computations may be shared across: everybody with the same seed, model file, adapter and salt (zero = none, all tenants). */
struct prefix_origin {
    uint64_t seed;
    struct hash128 root, adapter, salt;
};
struct hash128 prefix_hash_start(const struct prefix_origin *o);
/* The block of tokens[n] after parent; 1 <= n <= PREFIX_BLOCK_TOKENS_MAX. */
struct hash128 prefix_hash_next(uint64_t seed, struct hash128 parent, const int32_t *tokens, int n);
/* Identities of all full blocks of tokens[n], at most max of them, into out. Returns how many. */
size_t prefix_hash_chain(const struct prefix_origin *o, int block_tokens, const int32_t *tokens,
                         size_t n, struct hash128 *out, size_t max);
/* What a salt in words (x-deja-salt) is as a field; "" is no salt. */
struct hash128 prefix_hash_salt(struct str salt);
/* The engine's key of a chain when gateways know it by a common secret: engines with one secret name equal blocks alike. */
uint64_t prefix_hash_seed(struct str secret);

#endif
