/* Goal: strings, UTF-8, buffers, hashes and errors behave at their edges. Method: tables. */
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

TEST(utf8_rejects_overlong_surrogate_and_beyond_range)
{
    CHECK(utf8_valid(STR("caf\xC3\xA9 \xF0\x9F\x98\x80 \xE4\xBD\xA0")));
    static const char *const bad[] = {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                      "\xFF",     "\xE4\xBD",     "\xC1\x81"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_AT(!utf8_valid(str_of(bad[i])), "case %zu accepted", i);
}

TEST(utf8_complete_holds_back_only_an_unfinished_tail)
{
    CHECK_INT(utf8_complete(STR("ab\xE4\xBD")), 2);
    CHECK_INT(utf8_complete(STR("ab\xF0\x9F\x98")), 2);
    CHECK_INT(utf8_complete(STR("ab\xFF")), 3);
    CHECK_INT(utf8_complete(STR("\xE4\xBD\xA0")), 3);
    CHECK_INT(utf8_complete(STR("a\xED\xA0")), 3); /* could only become a surrogate */
}

TEST(utf8_encode_then_decode_returns_every_scalar)
{
    for (uint32_t cp = 1; cp <= 0x10FFFF; cp += cp < 0x3000 ? 1 : 97) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        char out[4];
        uint32_t back = 0;
        size_t n = utf8_encode(cp, out);
        if (utf8_decode((struct str){out, n}, &back) != n || back != cp) CHECK_INT(back, cp);
    }
}

TEST(a_buffer_past_its_bound_fails_and_keeps_what_it_had)
{
    struct buf b;
    buf_init(&b, 8);
    buf_z(&b, "1234");
    buf_printf(&b, "%d", 56789);
    CHECK(buf_failed(&b));
    CHECK_STR(buf_view(&b), "1234");
    buf_z(&b, "5");
    CHECK_STR(buf_view(&b), "1234");
    buf_fini(&b);
}

TEST(hash_fields_are_framed)
{
    struct hasher a, b;
    hasher_open(&a, 1);
    hasher_field(&a, 'm', STR("ab"));
    hasher_field(&a, 'm', STR("c"));
    hasher_open(&b, 1);
    hasher_field(&b, 'm', STR("a"));
    hasher_field(&b, 'm', STR("bc"));
    struct hash128 x = hasher_close(&a), y = hasher_close(&b), z;
    CHECK(!hash_eq(x, y));
    char hex[33];
    hash_hex(x, hex);
    CHECK_INT(hash_from_hex(str_of(hex), &z), OK);
    CHECK(hash_eq(x, z));
    CHECK_INT(hash_from_hex(STR("xyz"), &z), ERR_INVALID);
}

TEST(numbers_are_read_whole_or_not_at_all)
{
    int64_t v = 0;
    CHECK_INT(str_to_i64(STR("-42"), -100, 100, &v), OK);
    CHECK_INT(v, -42);
    CHECK_INT(str_to_i64(STR("+1"), 0, 9, &v), ERR_INVALID);
    CHECK_INT(str_to_i64(STR("1 "), 0, 9, &v), ERR_INVALID);
    CHECK_INT(str_to_i64(STR(""), 0, 9, &v), ERR_INVALID);
    CHECK_INT(str_to_i64(STR("10"), 0, 9, &v), ERR_RANGE);
    double d;
    CHECK_INT(str_to_f64(STR("1e999"), &d), ERR_INVALID);
    CHECK_INT(str_to_f64(STR("0.25"), &d), OK);
    CHECK_NEAR(d, 0.25, 0);
}

TEST(hex_digits_of_either_case_have_a_value_and_nothing_else_has)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    for (int c = 0; c < 256; c++) {
        const char *hit = c ? strchr(digits, c) : NULL;
        ptrdiff_t at = hit ? hit - digits : -1;
        CHECK_INT(hex_value((char)c), at < 16 ? at : at - 6);
    }
}

TEST(long_error_text_is_cut_on_a_character)
{
    struct errmsg e = {0};
    char text[400];
    for (size_t i = 0; i + 3 <= 399; i += 3)
        memcpy(text + i, "\xE4\xBD\xA0", 4);
    CHECK_INT(err_set(&e, ERR_INVALID, "%s", text), ERR_INVALID);
    CHECK(utf8_valid(str_of(e.text)));
    err_prefix(&e, ERR_INVALID, "messages[%d]", 3);
    CHECK(str_starts(str_of(e.text), STR("messages[3]: ")));
}

TEST(arena_is_bounded_and_zeroed)
{
    struct arena *a = arena_new(10000);
    char *p = arena_alloc(a, 100);
    REQUIRE(p);
    CHECK_INT(p[99], 0);
    CHECK(!arena_alloc(a, 20000));
    int got = 0;
    while (got < 100 && arena_alloc(a, 1000))
        got++;
    CHECK(got >= 5 && got <= 12);
    arena_free(a);
}

TEST(str_find_and_next_walk_a_slice)
{
    CHECK_INT(str_find(STR("abcabd"), STR("abd")), 3);
    CHECK_INT(str_find(STR("ab"), STR("abc")), -1);
    struct str s = STR("a,,b"), head;
    CHECK(str_next(&s, ',', &head));
    CHECK_STR(head, "a");
    CHECK(str_next(&s, ',', &head));
    CHECK_STR(head, "");
    CHECK(str_next(&s, ',', &head));
    CHECK_STR(head, "b");
    CHECK(!str_next(&s, ',', &head));
}

TEST(touched_memory_is_there_and_keeps_what_it_holds)
{
    enum { N = 5 << 20 };
    char *p = mem_alloc_huge(N);
    REQUIRE(p);
    p[0] = 1;
    p[123457] = 2;
    p[N - 1] = 3;
    mem_touch(p, N);
    mem_touch(p + 123456, 2); /* anywhere within a page */
    mem_touch(NULL, 0);
    CHECK(p[0] == 1 && p[123457] == 2 && p[N - 1] == 3 && !p[7777]);
    mem_free_huge(p, N);
}

TEST(escapes_and_lists_are_read_as_they_stand)
{
    CHECK_INT(str_percent(STR("a%2Fb"), 1), '/');
    CHECK_INT(str_percent(STR("%fF"), 0), 255);
    CHECK_INT(str_percent(STR("a%2Fb"), 0), -1);
    CHECK_INT(str_percent(STR("%2"), 0), -1);
    CHECK_INT(str_percent(STR("%2g"), 0), -1);
    CHECK_INT(str_percent(STR(""), 0), -1);
    CHECK(str_lists(STR("a\nbc\n"), '\n', STR("bc")) && str_lists(STR("bc"), ',', STR("bc")));
    CHECK(!str_lists(STR("a,bcd"), ',', STR("bc")) && !str_lists(STR(""), ',', STR("")));
}

TEST_MAIN()
