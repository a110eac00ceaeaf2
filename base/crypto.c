/* crypto.c - see crypto.h. Thin calls into libcrypto; a failure inside it (no algorithm, no memory) is a broken
 * installation and is asserted, never a state a client can cause. */
#include "base/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { READ_BYTES = 1 << 20 };

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

void sha1_bytes(struct str bytes, uint8_t out[20])
{
    int done = EVP_Digest(bytes.p ? bytes.p : "", bytes.n, out, NULL, EVP_sha1(), NULL);
    ASSERT(done == 1);
}

void sha256_hex(struct str bytes, char out[65])
{
    uint8_t digest[32];
    sha256_bytes(bytes, digest);
    hex_of(digest, out);
}

/* ERR_IO with errno set when a read fails. */
static enum err digest_fd(int fd, EVP_MD_CTX *md, char *block)
{
    for (;;) {
        ssize_t n = read(fd, block, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ERR_IO;
        if (n == 0) return OK;
        int done = EVP_DigestUpdate(md, block, (size_t)n);
        ASSERT(done == 1);
    }
}

enum err sha256_file_hex(const char *path, char out[65], struct errmsg *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
                       strerror(errno));
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char *block = xmalloc(READ_BYTES);
    uint8_t digest[32];
    int begun = md ? EVP_DigestInit_ex(md, EVP_sha256(), NULL) : 0;
    ASSERT(begun == 1);
    enum err result = digest_fd(fd, md, block);
    if (result) {
        err_set(e, result, "%s: %s", path, strerror(errno));
    } else {
        int done = EVP_DigestFinal_ex(md, digest, NULL);
        ASSERT(done == 1);
        hex_of(digest, out);
    }
    EVP_MD_CTX_free(md);
    mem_free(block);
    close(fd);
    return result;
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
