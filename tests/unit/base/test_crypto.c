/* test_crypto.c - digests against the published vectors (FIPS 180-4 examples, RFC 4231), compare of equal and unequal. */
#include "base/crypto.h"

#include <unistd.h>

#include "base/log.h"
#include "tests/check.h"

TEST(sha256_gives_the_published_digests)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hex[65];
        sha256_hex(str_of(cases[i].text), hex);
        CHECK_Z(hex, cases[i].hex);
    }
}

TEST(sha1_gives_the_published_digest)
{
    static const uint8_t want[20] = {0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e,
                                     0x25, 0x71, 0x78, 0x50, 0xc2, 0x6c, 0x9c, 0xd0, 0xd8, 0x9d};
    uint8_t got[20];
    sha1_bytes(STR("abc"), got);
    CHECK(!memcmp(got, want, sizeof want));
}

TEST(digest_of_a_file_equals_digest_of_its_bytes)
{
    char path[] = "/tmp/deja_test_crypto_XXXXXX", a[65], b[65];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    static char bytes[(1 << 20) + 4097]; /* over one read block */
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 >> 3);
    CHECK_INT(write(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    struct errmsg e = {0};
    CHECK_INT(sha256_file_hex(path, a, &e), OK);
    sha256_hex((struct str){bytes, sizeof bytes}, b);
    CHECK_Z(a, b);
    unlink(path);
}

TEST(digest_of_an_absent_file_or_a_folder_is_an_error_with_the_path)
{
    char hex[65];
    struct errmsg e = {0};
    CHECK_INT(sha256_file_hex("/nonexistent/file", hex, &e), ERR_NOT_FOUND);
    CHECK(strstr(e.text, "/nonexistent/file"));
    CHECK_INT(sha256_file_hex("/tmp", hex, &e), ERR_IO);
}

TEST(hmac_gives_the_rfc_4231_digests)
{
    static const uint8_t want1[4] = {0xb0, 0x34, 0x4c, 0x61}, want2[4] = {0x5b, 0xdc, 0xc1, 0x46};
    char key[20];
    memset(key, 0x0b, sizeof key);
    uint8_t out[32];
    hmac_sha256((struct str){key, sizeof key}, STR("Hi There"), out);
    CHECK(!memcmp(out, want1, 4));
    hmac_sha256(STR("Jefe"), STR("what do ya want for nothing?"), out);
    CHECK(!memcmp(out, want2, 4));
    hmac_sha256((struct str){NULL, 0}, (struct str){NULL, 0},
                out); /* empty key and text are legal */
    CHECK_INT(out[0], 0xb6);
}

TEST(compare_tells_equal_from_unequal)
{
    CHECK(equal_constant_time(STR("sk-abc"), STR("sk-abc")));
    CHECK(!equal_constant_time(STR("sk-abc"), STR("sk-abd")));
    CHECK(!equal_constant_time(STR("sk-abc"), STR("sk-ab")));
    CHECK(equal_constant_time(STR(""), (struct str){NULL, 0}));
}

TEST_MAIN()
