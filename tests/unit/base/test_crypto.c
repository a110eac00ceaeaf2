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
