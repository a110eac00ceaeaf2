/* Goal: the JSON reader is strict where jansson is not, the writers are exact, and keys have one canonical form.
 * Method: tables of (text, expected); every input lies in an allocation of its own size, so that a sanitizer sees one byte too far. */
#include "base/json.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

static enum err parse_exact(struct str s, int depth, json_t **out, struct errmsg *e)
{
    char *p = xmalloc(s.n);
    if (s.n) memcpy(p, s.p, s.n);
    enum err code = json_parse((struct str){p, s.n}, depth, out, e);
    mem_free(p);
    return code;
}

static void check_write(struct str in, const char *plain, const char *canonical)
{
    struct errmsg e = {0};
    json_t *v;
    enum err code = parse_exact(in, 0, &v, &e);
    CHECK_AT(code == OK, "%.*s: %s", (int)in.n, in.p, e.text);
    if (code) return;
    struct buf b;
    buf_init(&b, 1 << 20);
    json_write(&b, v);
    CHECK_STR(buf_view(&b), plain);
    buf_clear(&b);
    json_write_canonical(&b, v);
    CHECK_STR(buf_view(&b), canonical);
    buf_fini(&b);
    json_decref(v);
}

TEST(texts_that_are_not_json_are_refused_with_place)
{
    static const struct {
        struct str in;
        const char *says;
    } bad[] = {
        {STR(""), "empty"},
        {STR(" \n\t"), "empty"},
        {STR("{\"a\":1} xyz"), "line 1, column"},
        {STR("{\"a\":1}{}"), "end of file"},
        {STR("{'a':1}"), "line 1"},
        {STR("{/*c*/\"a\":1}"), "line 1"},
        {STR("{\"a\":1,}"), "line 1"},
        {STR("[1,]"), "line 1"},
        {STR("NaN"), "NaN"},
        {STR("[Infinity]"), "Infinity"},
        {STR("[-Infinity]"), "line"},
        {STR("[1e999]"), "overflow"},
        {STR("[-1e999]"), "overflow"},
        {STR("[01]"), "line"},
        {STR("[1.]"), "line"},
        {STR("[.5]"), "line"},
        {STR("[+1]"), "line"},
        {STR("[0x10]"), "line"},
        {STR("[99999999999999999999]"), "too big"},
        {STR("[-99999999999999999999]"), "too big"},
        {STR("{\"a\":1,\n \"a\":2}"), "line 2"},
        {STR("{\"a\":1,\"a\":2}"), "duplicate"},
        {STR("{\"x\":{\"b\":1,\"\\u0062\":2}}"), "duplicate"},
        {STR("[\"a\nb\"]"), "newline"},
        {STR("[\"\\x41\"]"), "escape"},
        {STR("[\"\\ud800\"]"), "Unicode"},
        {STR("[\"\\ude00\\ud83d\"]"), "Unicode"},
        {STR("[\"\\u12\"]"), "escape"},
        {STR("[\"ab\xff\"]"), "UTF-8"},
        {STR("[\"\xc0\xaf\"]"), "UTF-8"},
        {STR("[\"\xed\xa0\x80\"]"), "UTF-8"},
        {STR("[\"\xf4\x90\x80\x80\"]"), "UTF-8"},
        {STR("[\"\xe4\xbd\"]"), "UTF-8"},
        {STR("[\"caf\xe9\"]"), "UTF-8"},
        {STR("\xff\xfe{\0"), "line 1"},
        {STR("[1]\0"), "line 1"},
        {STR("\0[1]"), "line 1"},
        {STR("[1\0,2]"), "line 1"},
        {STR("[\"a\0b\"]"), "control character"},
        {STR("{\"a\\u0000b\":1}"), "NUL"},
        {STR("{\"a\":1"), "line 1"},
        {STR("\"abc"), "line 1"},
        {STR("tru"), "line 1"},
        {STR("{1:2}"), "line 1"},
        {STR("{\"a\" 1}"), "line 1"},
        {STR("\"\\"), "line 1"},
        {STR("\xef\xbb\xbf{}"), "line 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct errmsg e = {0};
        json_t *v;
        enum err code = parse_exact(bad[i].in, 0, &v, &e);
        CHECK_AT(code == ERR_INVALID && !v && strstr(e.text, bad[i].says), "%zu %.*s: %s: %s", i,
                 (int)bad[i].in.n, bad[i].in.p, err_name(code), e.text);
    }
}

TEST(depth_is_bounded_before_anything_recurses)
{
    struct errmsg e = {0};
    json_t *v;
    struct buf b;
    buf_init(&b, 8 << 20);
    for (int i = 0; i < 1000000; i++)
        buf_z(&b, "{\"a\":");
    CHECK_INT(parse_exact(buf_view(&b), 0, &v, &e), ERR_TOO_LARGE);
    CHECK(strstr(e.text, "column 321: nested deeper than 64 levels"));
    buf_clear(&b);
    for (int i = 0; i < 64; i++)
        buf_char(&b, '[');
    for (int i = 0; i < 64; i++)
        buf_char(&b, ']');
    CHECK_INT(parse_exact(buf_view(&b), 0, &v, &e), OK);
    json_decref(v);
    CHECK_INT(parse_exact(buf_view(&b), 63, &v, &e), ERR_TOO_LARGE);
    buf_clear(&b);
    buf_z(&b, "[\"");
    for (int i = 0; i < 100; i++)
        buf_z(&b, "[{\\\"");
    buf_z(&b, "\"]");
    CHECK_INT(parse_exact(buf_view(&b), 0, &v, &e), OK); /* brackets in a string are text */
    json_decref(v);
    buf_fini(&b);
}

TEST(plain_writing_keeps_order_and_shortest_numbers)
{
    check_write(STR("{\"b\":1,\"a\":[0.7,1.0,1e300,-0.1],\"c\":{}}"),
                "{\"b\":1,\"a\":[0.7,1.0,1e+300,-0.1],\"c\":{}}",
                "{\"a\":[0.7,1,1e+300,-0.1],\"b\":1,\"c\":{}}");
    check_write(STR("[\"a\\u0000\\u001f\\\"\\\\\\/\\n\\t\\r\\b\\f\\u007f\\u4f60\\ud83d\\ude00\"]"),
                "[\"a\\u0000\\u001f\\\"\\\\/\\n\\t\\r\\b\\f\x7f\xe4\xbd\xa0\xf0\x9f\x98\x80\"]",
                "[\"a\\u0000\\u001f\\\"\\\\/\\n\\t\\r\\b\\f\x7f\xe4\xbd\xa0\xf0\x9f\x98\x80\"]");
    check_write(STR("true"), "true", "true");
    check_write(STR(" null "), "null", "null");
    check_write(STR("[]"), "[]", "[]");
}

TEST(canonical_numbers_have_one_spelling)
{
    check_write(STR("[0,0.0,-0,-0.0,0e0,1,1.0,1e0,10e-1,100,1e2]"),
                "[0,0.0,0,-0.0,0.0,1,1.0,1.0,1.0,100,100.0]", "[0,0,0,0,0,1,1,1,1,100,100]");
    check_write(STR("[9007199254740993,9223372036854775807,-9223372036854775808]"),
                "[9007199254740993,9223372036854775807,-9223372036854775808]",
                "[9007199254740993,9223372036854775807,-9223372036854775808]");
    check_write(STR("[0.1,1e-1,0.10]"), "[0.1,0.1,0.1]", "[0.1,0.1,0.1]");
    check_write(STR("[0.30000000000000004]"), "[0.30000000000000004]", "[0.30000000000000004]");
}

TEST(canonical_keys_are_sorted_by_bytes_at_every_level)
{
    check_write(STR("{\"b\":{\"z\":1,\"y\":2},\"\":0,\"ab\":3,\"a\":4,\"B\":5}"),
                "{\"b\":{\"z\":1,\"y\":2},\"\":0,\"ab\":3,\"a\":4,\"B\":5}",
                "{\"\":0,\"B\":5,\"a\":4,\"ab\":3,\"b\":{\"y\":2,\"z\":1}}");
    struct buf in, out;
    buf_init(&in, 1 << 16);
    buf_init(&out, 1 << 16);
    for (int i = 0; i < 100; i++) /* more keys than the stack array holds */
        buf_printf(&in, "%c\"k%02d\":%d", i ? ',' : '{', 99 - i, i);
    buf_char(&in, '}');
    json_t *v;
    REQUIRE(json_parse(buf_view(&in), 0, &v, NULL) == OK);
    json_write_canonical(&out, v);
    CHECK(str_starts(buf_view(&out), STR("{\"k00\":99,\"k01\":98,")));
    CHECK(str_ends(buf_view(&out), STR(",\"k99\":0}")));
    json_decref(v);
    buf_fini(&in);
    buf_fini(&out);
}

TEST(invalid_utf8_in_a_written_string_becomes_replacement_characters)
{
    struct buf b;
    buf_init(&b, 1000);
    json_write_string(&b, STR("a\xff"
                              "b\xe4\xbd\0\xf0\x9f\x98\x80"));
    CHECK_STR(buf_view(&b), "\"a\xef\xbf\xbd"
                            "b\xef\xbf\xbd\xef\xbf\xbd\\u0000\xf0\x9f\x98\x80\"");
    buf_fini(&b);
}

TEST(nul_in_a_string_is_kept)
{
    json_t *v;
    REQUIRE(json_parse(STR("{\"s\":\"before\\u0000after\",\"n\":1,\"z\":null}"), 0, &v, NULL) ==
            OK);
    struct str s = json_member_str(v, "s");
    CHECK_INT(s.n, 12);
    CHECK(str_eq(s, STR("before\0after")));
    CHECK(!json_member_str(v, "n").p && !json_member_str(v, "z").p &&
          !json_member_str(v, "absent").p);
    json_decref(v);
}

TEST(the_failing_member_is_named)
{
    struct str in = STR("{\"model\":\"m\",\"meta\":{\"max_tokens\":[1]},\"max_tokens\":"
                        "99999999999999999999,\"x\":1}");
    json_t *v;
    size_t at;
    struct errmsg e = {0};
    CHECK_INT(json_parse_at(in, 0, &v, &at, &e), ERR_INVALID);
    CHECK_STR(json_key_at(in, at), "max_tokens");
    CHECK_STR(json_key_at(in, 10), "model");
    CHECK_STR(json_key_at(in, 35), "meta");
    CHECK_STR(json_key_at(in, 0), "");
    CHECK_STR(json_key_at(STR("{\"a\":\"b"), 7), "a");
    CHECK_STR(json_key_at(STR("[1,2"), 2), "");
}

TEST(what_clients_read_is_read_loosely_and_integers_stay_integers)
{
    json_t *v = json_parse_loosely(STR("{\"big\":18446744073709551616,\"n\":[3,-4,0.5],\"in\":{"
                                       "\"i\":7,\"max\":9007199254740993}}"));
    REQUIRE(v);
    CHECK(json_is_real(json_object_get(v, "big")));
    const json_t *n = json_object_get(v, "n"), *in = json_object_get(v, "in");
    CHECK_INT(json_integer_value(json_array_get(n, 0)), 3);
    CHECK_INT(json_integer_value(json_array_get(n, 1)), -4);
    CHECK(json_real_value(json_array_get(n, 2)) == 0.5);
    CHECK_INT(json_integer_value(json_object_get(in, "i")), 7);
    json_decref(v);
    v = json_parse_loosely(STR("{\"a\":1,\"a\":9007199254740993}"));
    CHECK_INT(json_integer_value(json_object_get(v, "a")), 9007199254740993);
    json_decref(v);
    CHECK(!json_parse_loosely(STR("{\"a\":1e400}")));
    CHECK(!json_parse_loosely(STR("{\"a\":")));
    CHECK(!json_parse_loosely(STR("")));
}

TEST(repair_makes_a_careless_peers_text_parse)
{
    static const struct {
        struct str in, out;
    } rows[] = {
        {STR("{\"a\":\"\\ud83d\"}"), STR("{\"a\":\"\\ufffd\"}")},
        {STR("\"\\ude00\\ud83d\""), STR("\"\\ufffd\\ufffd\"")},
        {STR("\"\\ud83d\\ude00\""), STR("\"\\ud83d\\ude00\"")},
        {STR("\"\\\\ud83d\""), STR("\"\\\\ud83d\"")}, /* an escaped backslash, then letters */
        {STR("\"a\xff\xe4\xbd\""), STR("\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"")},
        {STR("\"\\\xff\""), STR("\"\\\xef\xbf\xbd\"")},
        {STR("\\ud8"), STR("\\ud8")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        buf_init(&b, 1000);
        bool changed = json_repair(&b, rows[i].in);
        CHECK_AT(str_eq(buf_view(&b), rows[i].out), "row %zu: %.*s", i, (int)b.n, b.p);
        CHECK_INT(changed, !str_eq(rows[i].in, rows[i].out));
        buf_fini(&b);
    }
}

TEST(every_prefix_and_every_flipped_byte_is_handled)
{
    struct str text =
        STR("{\"a\":[1,-2.5e3,true,null,\"\\ud83d\\ude00\xe4\xbd\xa0\"],\"b\":{\"c\":\"\\n\"}}");
    for (size_t n = 0; n < text.n; n++) {
        json_t *v;
        enum err code = parse_exact(str_sub(text, 0, n), 0, &v, NULL);
        CHECK_AT(code == ERR_INVALID, "a prefix of %zu bytes passed", n);
    }
    char copy[128];
    for (size_t i = 0; i < text.n * 256; i++) {
        memcpy(copy, text.p, text.n);
        copy[i / 256] = (char)(i % 256);
        json_t *v;
        if (parse_exact((struct str){copy, text.n}, 0, &v, NULL)) continue;
        struct buf b;
        buf_init(&b, 1000);
        json_write(&b, v);
        json_t *again;
        CHECK(json_parse(buf_view(&b), 0, &again, NULL) == OK && json_equal(v, again));
        json_decref(again);
        json_decref(v);
        buf_fini(&b);
    }
}

TEST(many_keys_do_not_slow_down_quadratically)
{
    struct buf b;
    buf_init(&b, 64 << 20);
    for (int i = 0; i < 200000; i++)
        buf_printf(&b, "%c\"k%d\":\"v\"", i ? ',' : '{', i);
    buf_char(&b, '}');
    json_t *v;
    REQUIRE(json_parse(buf_view(&b), 0, &v, NULL) == OK);
    CHECK_INT(json_object_size(v), 200000);
    json_decref(v);
    buf_fini(&b);
}

/* As the C library would print it with the fewest digits that read back. */
static void check_real(double v)
{
    char digits_of[40];
    struct buf b, want;
    json_t *r = json_real(v);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(digits_of, sizeof digits_of, "%.*g", digits, v);
        if (strtod(digits_of, NULL) == v) break;
    }
    buf_init(&b, 100);
    buf_init(&want, 100);
    buf_z(&want, digits_of);
    if (!strpbrk(digits_of, ".e")) buf_z(&want, ".0");
    json_write(&b, r);
    CHECK_STR(buf_view(&b), want.p);
    buf_fini(&b);
    buf_fini(&want);
    json_decref(r);
}

TEST(reals_are_written_as_the_c_library_writes_them)
{
    static const double some[] = {0.7,
                                  0.1,
                                  -0.25,
                                  1,
                                  -1,
                                  1.5,
                                  100.001,
                                  0.0001,
                                  0.00011,
                                  0.00009,
                                  1234.5678,
                                  0.30000000000000004,
                                  1e9,
                                  999999999.9999,
                                  1e15,
                                  1e16,
                                  123456.00001,
                                  5e-324,
                                  1.7976931348623157e308,
                                  0.0,
                                  1e21,
                                  2.5e-7};
    struct rng rng;
    rng_seed(&rng, 2);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        check_real(some[i]);
    for (int i = 0; i < 20000; i++) {
        double digits = (double)rng_below(&rng, i & 1 ? 100000 : 100000000000);
        static const double powers[] = {1, 10, 100, 1000, 10000, 100000, 1e6};
        check_real(digits / powers[rng_below(&rng, 7)] * (i & 2 ? 1 : -1));
        check_real(rng_f64(&rng) * 2);
    }
}

TEST_MAIN()
