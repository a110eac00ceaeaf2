/* test_unicode.c - classes, case and normal forms against values of the Unicode standard, at the places that are easy to get
 * wrong. The generated tables as a whole were compared with Python's unicodedata when they were made. */
#include "engine/text/normalise.h"
#include "engine/text/unicode.h"
#include "tests/check.h"

TEST(classes_follow_the_general_category)
{
    static const struct {
        uint32_t code;
        enum unicode_class class;
    } cases[] = {{'a', UC_LL},      {'Z', UC_LU},    {'0', UC_ND},     {' ', UC_ZS},
                 {'\n', UC_CC},     {'!', UC_P},     {'$', UC_S},      {0x01C5, UC_LT},
                 {0x02B0, UC_LM},   {0x4F60, UC_LO}, {0x0301, UC_MN},  {0x0903, UC_MC},
                 {0x20DD, UC_MC},   {0x2167, UC_NO}, {0xBD, UC_NO},    {0x2028, UC_ZL},
                 {0xE000, UC_CO},   {0x200D, UC_CF}, {0x1F600, UC_S},  {0xAC00, UC_LO},
                 {0x10FFFF, UC_CN}, {0x0378, UC_CN}, {0x20000, UC_LO}, {0x3002, UC_P},
                 {0x110000, UC_CN}, {0, UC_CC},      {0x10FFFD, UC_CO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_AT(unicode_class(cases[i].code) == cases[i].class, "U+%04X has class %d",
                 cases[i].code, unicode_class(cases[i].code));
}

TEST(case_maps_one_to_one)
{
    CHECK_INT(unicode_lower('A'), 'a');
    CHECK_INT(unicode_lower(0xC9), 0xE9);
    CHECK_INT(unicode_lower(0x100), 0x101); /* alternating pairs */
    CHECK_INT(unicode_lower(0x101), 0x101);
    CHECK_INT(unicode_lower(0x3A3), 0x3C3);
    CHECK_INT(unicode_lower(0x401), 0x451);
    CHECK_INT(unicode_lower(0x10400), 0x10428);
    CHECK_INT(unicode_upper(0x131), 'I');
    CHECK_INT(unicode_upper(0xDF), 0xDF); /* grows to SS: not one to one */
    CHECK_INT(unicode_lower(0x4F60), 0x4F60);
}

static void check_form(enum normal_form form, const char *in, const char *want)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    normalise(form, str_of(in), &out);
    CHECK_STR(buf_view(&out), want);
    if (form == NORMAL_NFC && strcmp(in, want)) CHECK(normalise_may_change_nfc(str_of(in)));
    buf_fini(&out);
}

TEST(normal_forms_compose_and_order)
{
    check_form(NORMAL_NFC, "cafe\u0301 cre\u0300me", "caf\u00e9 cr\u00e8me");
    check_form(NORMAL_NFC, "a\u0323\u0302", "\u1ead");        /* two steps */
    check_form(NORMAL_NFC, "a\u0302\u0323", "\u1ead");        /* out of order */
    check_form(NORMAL_NFC, "q\u0307\u0323", "q\u0323\u0307"); /* ordered only */
    check_form(NORMAL_NFC, "\u1100\u1161\u11a8", "\uac01");   /* Hangul */
    check_form(NORMAL_NFC, "\uac00\u11a8", "\uac01");
    check_form(NORMAL_NFC, "\u212b\u2126", "\u00c5\u03a9"); /* singletons */
    check_form(NORMAL_NFC, "\u0958", "\u0915\u093c");       /* excluded from composition */
    check_form(NORMAL_NFC, "\u0301a", "\u0301a");           /* starts with a mark */
    check_form(NORMAL_NFC, "a\xff\u0301", "a\xff\u0301");   /* a stray byte stands in between */
    check_form(NORMAL_NFC, "\ufb01", "\ufb01");
    check_form(NORMAL_NFKC, "\ufb01\u2460\uff21\u3000\u00bd", "fi1A 1\u20442");
    check_form(NORMAL_NFKC, "\uff76\uff9e", "\u30ac"); /* half-width kana with its mark */
    check_form(NORMAL_NFKC, "\u1e9b\u0323", "\u1e69");
}

TEST(plain_text_is_known_to_be_composed)
{
    CHECK(
        !normalise_may_change_nfc(STR("plain ASCII, caf\u00e9, \u4f60\u597d, \uac00, \U0001F600")));
    CHECK(normalise_may_change_nfc(STR("x\u0301")));
}

TEST(endless_marks_are_cut_into_runs)
{
    struct buf in, out;
    buf_init(&in, 1 << 20);
    buf_init(&out, 1 << 20);
    buf_char(&in, 'a');
    for (int i = 0; i < 100000; i++)
        buf_utf8(&in, i % 2 ? 0x0327 : 0x0301);
    normalise(NORMAL_NFC, buf_view(&in), &out);
    CHECK(!buf_failed(&out) && out.n > 100000);
    buf_fini(&in);
    buf_fini(&out);
}

TEST_MAIN()
