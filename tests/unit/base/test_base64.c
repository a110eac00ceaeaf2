/* Goal: every byte string comes back as it was, the RFC's own examples read as they stand there, and nothing else is taken. */
#include "base/base64.h"
#include "base/rng.h"
#include "tests/check.h"

TEST(the_examples_of_the_rfc_hold)
{
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        buf_init(&b, 100);
        base64_write(&b, rows[i][0], strlen(rows[i][0]));
        CHECK_STR(buf_view(&b), rows[i][1]);
        buf_clear(&b);
        CHECK(base64_read(&b, str_of(rows[i][1])) == OK);
        CHECK_STR(buf_view(&b), rows[i][0]);
        buf_fini(&b);
    }
}

TEST(all_lengths_come_back_as_they_were)
{
    struct rng rng;
    rng_seed(&rng, 7);
    for (size_t n = 0; n < 200; n++) {
        char bytes[200];
        struct buf text, back;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rng_u64(&rng);
        buf_init(&text, 1000);
        buf_init(&back, 1000);
        base64_write(&text, bytes, n);
        CHECK(base64_read(&back, buf_view(&text)) == OK);
        CHECK(str_eq(buf_view(&back), (struct str){bytes, n}));
        buf_fini(&text);
        buf_fini(&back);
    }
}

TEST(anything_else_is_refused)
{
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zg==Zg==", "=Zg=", "Z===", "Zm9 ", "Zm-_", "Zh==", "Zm9=", "===="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf b;
        buf_init(&b, 100);
        CHECK_AT(base64_read(&b, str_of(bad[i])) == ERR_INVALID, "%s is taken", bad[i]);
        buf_fini(&b);
    }
}

TEST_MAIN()
