/* crypto.c - see crypto.h. Thin calls into libcrypto; a failure inside it (no algorithm, no memory) is a broken
 * installation and is asserted, never a state a client can cause. */
#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static void hex_of(const uint8_t digest[32], char out[65])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[64] = 0;
}

void sha256_bytes(struct str bytes, uint8_t out[32])
{
    int done = EVP_Digest(bytes.p ? bytes.p : "", bytes.n, out, NULL, EVP_sha256(), NULL);
    ASSERT(done == 1);
}

void sha256_hex(struct str bytes, char out[65])
{
    uint8_t digest[32];
    sha256_bytes(bytes, digest);
    hex_of(digest, out);
}

void hmac_sha256(struct str key, struct str bytes, uint8_t out[32])
{
    ASSERT(key.n <= INT32_MAX);
    unsigned n = 0;
    const unsigned char *done =
        HMAC(EVP_sha256(), key.p ? key.p : "", (int)key.n,
             (const unsigned char *)(bytes.p ? bytes.p : ""), bytes.n, out, &n);
    ASSERT(done && n == 32);
}

bool equal_constant_time(struct str a, struct str b)
{
    if (a.n != b.n) return false; /* the length of a secret is no secret here */
    return a.n == 0 || CRYPTO_memcmp(a.p, b.p, a.n) == 0;
}
