/* Goal: what the scanner passes over, json_parse takes as well, and pieces come out as they stand. Method: hand-made texts; random ones,
 * whole and damaged, compared with json_parse, each in an allocation of its own size. */
#include "base/json_scan.h"

#include "base/json.h"
#include "base/mem.h"
#include "tests/check.h"
#include "tests/unit/base/json_texts.h"

static bool skips(struct str text, int depth)
{
    struct json_scan s;
    json_scan_begin(&s, text, depth);
    return json_scan_skip(&s) && json_scan_at_end(&s);
}

TEST(usual_texts_are_passed_over)
{
    static const char *const good[] = {
        "{}",
        " [ ] ",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-17.25e+3",
        "123456789012345678",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
        "\"caf\xc3\xa9\"",
        "{\"a\":{\"a\":[1,{\"a\":2}]},\"b\":[[],[]],\"c\":{\"a\":1}}",
        "[{\"a\":1},{\"a\":1}]\r\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_AT(skips(str_of(good[i]), 64), "%s", good[i]);
}

TEST(what_is_invalid_or_rare_is_declined)
{
    static const struct str bad[] = {STR(""),
                                     STR("  "),
                                     STR("{"),
                                     STR("[1,]"),
                                     STR("{\"a\":1,}"),
                                     STR("{\"a\" 1}"),
                                     STR("{a:1}"),
                                     STR("[1 2]"),
                                     STR("01"),
                                     STR("1."),
                                     STR("-"),
                                     STR("1e"),
                                     STR("1e+"),
                                     STR("1e999"),
                                     STR("1234567890123456789"),
                                     STR("truex"),
                                     STR("nul"),
                                     STR("\"a"),
                                     STR("\"\\"),
                                     STR("\"\\u12\""),
                                     STR("\"\\ud800\""),
                                     STR("\"\\udc00\""),
                                     STR("\"\\ud800\\u0041\""),
                                     STR("\"\n\""),
                                     STR("\"\xff\""),
                                     STR("\"\xed\xa0\x80\""),
                                     STR("{\"a\":1,\"b\":2,\"a\":3}"),
                                     STR("{\"\\u0061\":1}"),
                                     STR("[1]\0"),
                                     STR("\"a\0b\""),
                                     STR("{}{}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_AT(!skips(bad[i], 64), STR_FMT, STR_ARG(bad[i]));
}

TEST(nesting_is_bounded)
{
    CHECK(skips(STR("[[[{\"a\":[]}]]]"), 5));
    CHECK(!skips(STR("[[[{\"a\":[]}]]]"), 4));
    CHECK(skips(STR("[[],[],[],[]]"), 2)); /* brackets beside each other do not add up */
}

TEST(more_keys_than_it_remembers_are_declined)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    for (int n = JSON_SCAN_KEYS_MAX; n <= JSON_SCAN_KEYS_MAX + 1; n++) {
        buf_clear(&b);
        for (int i = 0; i < n; i++)
            buf_printf(&b, "%c\"k%d\":0", i ? ',' : '{', i);
        buf_char(&b, '}');
        CHECK_INT(skips(buf_view(&b), 64), n == JSON_SCAN_KEYS_MAX);
    }
    buf_fini(&b);
}

TEST(pieces_come_out_as_they_stand)
{
    struct json_scan s;
    struct json_scan_text t;
    struct json_scan_number n;
    struct str key;
    int outer, inner;
    bool more;
    char plain[32];
    json_scan_begin(&s, STR("{\"a\" : -12, \"b\":[\"x\\u00e9\\n\\ud83d\\ude00\", 0.50]}"), 64);
    REQUIRE(json_scan_open(&s, '{', &outer) && json_scan_key(&s, outer, &key, &more) && more);
    CHECK_STR(key, "a");
    CHECK(!json_scan_null(&s) && !json_scan_true(&s) && json_scan_number(&s, &n) && !n.real);
    CHECK_INT(n.integer, -12);
    REQUIRE(json_scan_key(&s, outer, &key, &more) && more && json_scan_open(&s, '[', &inner));
    REQUIRE(json_scan_item(&s, inner, &more) && more && json_scan_string(&s, &t) && t.escaped);
    CHECK_STR(t.raw, "x\\u00e9\\n\\ud83d\\ude00");
    CHECK_STR(((struct str){plain, json_scan_unescape(t.raw, plain)}),
              "x\xc3\xa9\n\xf0\x9f\x98\x80");
    REQUIRE(json_scan_item(&s, inner, &more) && more && json_scan_number(&s, &n) && n.real);
    CHECK_STR(n.text, "0.50");
    REQUIRE(json_scan_item(&s, inner, &more) && !more);
    REQUIRE(json_scan_key(&s, outer, &key, &more) && !more && json_scan_at_end(&s));
}

TEST(what_it_passes_over_the_parser_takes)
{
    struct rng rng;
    struct buf b;
    int passed = 0;
    rng_seed(&rng, 7);
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 40000; i++) {
        json_t *v;
        char *p = text_exact(&b, &rng);
        bool good = skips((struct str){p, b.n}, 64);
        if (good)
            CHECK_AT(json_parse((struct str){p, b.n}, 64, &v, NULL) == OK, "%.*s", (int)b.n, p);
        if (good) json_decref(v), passed++;
        mem_free(p);
    }
    CHECK(passed > 5000);
    buf_fini(&b);
}

TEST_MAIN()
