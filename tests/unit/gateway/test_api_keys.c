/* Goal: keys lead to their tenants and to no others; mistakes in the file are named by line and never show a key. */
#include "base/buf.h"
#include "gateway/api_keys.h"
#include "tests/check.h"

TEST(keys_are_found_with_comments_blank_lines_and_tabs_in_the_file)
{
    struct api_keys *k = NULL;
    struct errmsg e = {0};
    REQUIRE(api_keys_parse(&k,
                           STR("# shop\n\nsk-one\tshop-a\r\n  sk-two   shop-b  \nsk-three shop-a"),
                           "keys", &e) == OK);
    CHECK_INT(api_keys_count(k), 3);
    CHECK_STR(api_keys_find(k, STR("sk-one")), "shop-a");
    CHECK_STR(api_keys_find(k, STR("sk-two")), "shop-b");
    CHECK_STR(api_keys_find(k, STR("sk-three")), "shop-a");
    CHECK(!api_keys_find(k, STR("sk-on")).p && !api_keys_find(k, STR("")).p &&
          !api_keys_find(k, STR("sk-one ")).p);
    api_keys_free(k);
}

TEST(mistakes_are_named_by_line_without_showing_the_key)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"sk-a t\nsk-secret\n", "keys:2:"},
                 {"sk-secret bad tenant x", "keys:1:"},
                 {"sk-secret te/nant", "keys:1:"},
                 {"", "no key"},
                 {"sk-secret a\nsk-secret b", "twice"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct api_keys *k = NULL;
        struct errmsg e = {0};
        CHECK_INT(api_keys_parse(&k, str_of(cases[i].text), "keys", &e), ERR_INVALID);
        CHECK_AT(strstr(e.text, cases[i].says), "\"%s\" lacks \"%s\"", e.text, cases[i].says);
        CHECK_AT(!strstr(e.text, "sk-secret"), "\"%s\" shows the key", e.text);
    }
}

TEST(file_that_is_not_there_is_named)
{
    struct api_keys *k = NULL;
    struct errmsg e = {0};
    CHECK_INT(api_keys_load(&k, "/nonexistent/keys", &e), ERR_NOT_FOUND);
    CHECK(strstr(e.text, "/nonexistent/keys") != NULL);
}

TEST(open_mode_gives_every_bearer_a_tenant_of_its_own)
{
    char a[TENANT_BYTES], b[TENANT_BYTES], again[TENANT_BYTES], none[TENANT_BYTES];
    api_keys_open_tenant(STR("key-1"), a);
    api_keys_open_tenant(STR("key-2"), b);
    api_keys_open_tenant(STR("key-1"), again);
    api_keys_open_tenant(STR(""), none);
    CHECK(strcmp(a, b) && !strcmp(a, again));
    CHECK_Z(none, "public");
    CHECK(!strstr(a, "key-1"));
}

TEST(only_loopback_addresses_are_loopback)
{
    CHECK(address_is_loopback("127.0.0.1") && address_is_loopback("127.1.2.3"));
    CHECK(address_is_loopback("::1") && address_is_loopback("localhost"));
    CHECK(!address_is_loopback("0.0.0.0") && !address_is_loopback("::") &&
          !address_is_loopback("10.0.0.1") && !address_is_loopback(""));
}

TEST_MAIN()
