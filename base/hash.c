/* hash.c - XXH3-128 with tagged, length-prefixed fields. */
#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

static struct hash128 from_xxh(XXH128_hash_t h)
{
    return (struct hash128){h.high64, h.low64};
}

struct hash128 hash_bytes(uint64_t seed, struct str bytes)
{
    return from_xxh(XXH3_128bits_withSeed(bytes.n ? bytes.p : "", bytes.n, seed));
}

void hash_hex(struct hash128 h, char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[h.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digits[h.lo >> (60 - 4 * i) & 15];
    }
    out[32] = 0;
}

enum err hash_from_hex(struct str hex, struct hash128 *out)
{
    if (hex.n != 32) return ERR_INVALID;
    uint64_t half[2] = {0, 0};
    for (size_t i = 0; i < 32; i++) {
        char c = hex.p[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0) return ERR_INVALID;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)v;
    }
    *out = (struct hash128){half[0], half[1]};
    return OK;
}

void hasher_open(struct hasher *h, uint64_t seed)
{
    h->state = XXH3_createState();
    ASSERT(h->state);
    XXH3_128bits_reset_withSeed(h->state, seed);
}

void hasher_field(struct hasher *h, char tag, struct str bytes)
{
    char head[9] = {tag};
    uint64_t n = bytes.n;
    memcpy(head + 1, &n, 8);
    XXH3_128bits_update(h->state, head, sizeof head);
    if (bytes.n) XXH3_128bits_update(h->state, bytes.p, bytes.n);
}

void hasher_u64(struct hasher *h, char tag, uint64_t v)
{
    hasher_field(h, tag, (struct str){(char *)&v, sizeof v});
}

struct hash128 hasher_close(struct hasher *h)
{
    struct hash128 out = from_xxh(XXH3_128bits_digest(h->state));
    XXH3_freeState(h->state);
    h->state = NULL;
    return out;
}
