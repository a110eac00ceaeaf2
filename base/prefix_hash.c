/* prefix_hash.c - see prefix_hash.h. Fixed layouts with a tag and a length in front: two kinds of field never read as one another. */
#include "base/prefix_hash.h"

#include <stddef.h>
#include <string.h>

#include "base/err.h"

struct hash128 prefix_hash_start(const struct prefix_origin *o)
{
    struct field {
        char tag[8];
        uint64_t n_bytes;
        struct hash128 value;
    } in[] = {{"dejaroot", 16, o->root}, {"adapter", 16, o->adapter}, {"salt", 16, o->salt}};
    return hash_bytes(o->seed, (struct str){(const char *)in, sizeof in});
}

struct hash128 prefix_hash_next(uint64_t seed, struct hash128 parent, const int32_t *tokens, int n)
{
    struct {
        char tag[8];
        uint64_t parent_hi, parent_lo, n_tokens;
        int32_t tokens[PREFIX_BLOCK_TOKENS_MAX];
    } in;
    ASSERT(n > 0 && n <= PREFIX_BLOCK_TOKENS_MAX);
    size_t n_bytes = (size_t)n * sizeof *tokens;
    memcpy(in.tag, "dejablck", 8);
    in.parent_hi = parent.hi;
    in.parent_lo = parent.lo;
    in.n_tokens = (uint64_t)n;
    memcpy(in.tokens, tokens, n_bytes);
    return hash_bytes(seed,
                      (struct str){(const char *)&in, offsetof(__typeof__(in), tokens) + n_bytes});
}

size_t prefix_hash_chain(const struct prefix_origin *o, int block_tokens, const int32_t *tokens,
                         size_t n, struct hash128 *out, size_t max)
{
    struct hash128 parent = prefix_hash_start(o);
    size_t blocks = n / (size_t)block_tokens;
    if (blocks > max) blocks = max;
    for (size_t i = 0; i < blocks; i++)
        parent = out[i] =
            prefix_hash_next(o->seed, parent, tokens + i * (size_t)block_tokens, block_tokens);
    return blocks;
}

struct hash128 prefix_hash_salt(struct str salt)
{
    return salt.n ? hash_bytes(0x73616c74, salt) : (struct hash128){0, 0};
}

uint64_t prefix_hash_seed(struct str secret)
{
    return hash_bytes(0x64656a6170726678, secret).lo;
}
