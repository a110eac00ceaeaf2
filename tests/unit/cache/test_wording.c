/* test_wording.c - goal: a judged text is read as it was written, and nothing malformed is
 * taken for one. */
#include "cache/wording.h"

#include "tests/check.h"

static void good(struct str values[N_ENTRY_FIELDS])
{
    for (int i = 0; i < N_ENTRY_FIELDS; i++)
        values[i] = (struct str){NULL, 0};
    values[EF_VERSION] = STR("2");
    values[EF_ROLE] = STR("w");
    values[EF_PARTITION] = STR("000000000000000100000000000000ff");
    values[EF_QUESTION] = STR("where is it");
    values[EF_OF] = STR("0123456789abcdef0123456789abcdef");
    values[EF_NOT] = STR("11111111111111111111111111111111 22222222222222222222222222222222");
    values[EF_CREATED] = STR("100");
    values[EF_TTL] = STR("50");
    values[EF_BY] = STR("person");
}

TEST(a_judged_text_is_read)
{
    struct str values[N_ENTRY_FIELDS];
    struct wording w;
    struct errmsg e = {0};
    good(values);
    CHECK(wording_is(values));
    REQUIRE(wording_read((struct hash128){1, 2}, values, &w, &e) == OK);
    CHECK_STR(w.text, "where is it");
    CHECK_STR(w.by, "person");
    CHECK(w.of.hi == 0x0123456789abcdefu && w.n_vetoed == 2 &&
          w.vetoed[1].lo == 0x2222222222222222u && w.partition.lo == 0xff);
    CHECK_INT(w.created_s + w.ttl_s, 150);
    values[EF_OF] = STR("");
    values[EF_NOT] = (struct str){NULL, 0};
    REQUIRE(wording_read((struct hash128){1, 2}, values, &w, &e) == OK);
    CHECK(!w.of.hi && !w.of.lo && !w.n_vetoed);
}

TEST(a_spoilt_field_is_named_and_refused)
{
    static char long_text[WORDING_TEXT_BYTES_MAX + 2], many[(WORDING_VETOES_MAX + 1) * 33 + 1];
    memset(long_text, 'x', sizeof long_text - 1);
    for (int i = 0; i <= WORDING_VETOES_MAX; i++)
        memcpy(many + i * 33, "11111111111111111111111111111111 ", 33);
    const struct {
        enum entry_field f;
        const char *value;
        enum err want;
    } cases[] = {{EF_VERSION, NULL, ERR_CORRUPT},    {EF_VERSION, "3", ERR_UNSUPPORTED},
                 {EF_QUESTION, "", ERR_CORRUPT},     {EF_QUESTION, long_text, ERR_CORRUPT},
                 {EF_PARTITION, NULL, ERR_CORRUPT},  {EF_OF, "abc", ERR_CORRUPT},
                 {EF_NOT, "abc", ERR_CORRUPT},       {EF_NOT, many, ERR_CORRUPT},
                 {EF_CREATED, "", ERR_CORRUPT},      {EF_TTL, "0", ERR_CORRUPT},
                 {EF_TENANT, long_text, ERR_CORRUPT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str values[N_ENTRY_FIELDS];
        struct wording w;
        struct errmsg e = {0};
        good(values);
        values[cases[i].f] = cases[i].value ? str_of(cases[i].value) : (struct str){NULL, 0};
        CHECK_AT(wording_read((struct hash128){1, 2}, values, &w, &e) == cases[i].want, "case %zu",
                 i);
        CHECK(e.text[0]);
    }
    struct str none[N_ENTRY_FIELDS] = {{NULL, 0}};
    CHECK(!wording_is(none));
}

TEST_MAIN()
