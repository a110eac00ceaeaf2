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
    CHECK_Z(api_keys_find(k, STR("sk-one"))->tenant, "shop-a");
    CHECK_Z(api_keys_find(k, STR("sk-two"))->tenant, "shop-b");
    CHECK_Z(api_keys_find(k, STR("sk-three"))->tenant, "shop-a");
    CHECK(!api_keys_find(k, STR("sk-on")) && !api_keys_find(k, STR("")) &&
          !api_keys_find(k, STR("sk-one ")));
    api_keys_free(k);
}

TEST(weight_and_class_of_a_key_are_read_and_one_and_online_unless_said)
{
    struct api_keys *k = NULL;
    struct errmsg e = {0};
    REQUIRE(api_keys_parse(&k, STR("a shop\nb vip weight=2.5\nc jobs class=batch  weight=0.5\n"),
                           "keys", &e) == OK);
    const struct api_grant *shop = api_keys_find(k, STR("a")), *vip = api_keys_find(k, STR("b")),
                           *jobs = api_keys_find(k, STR("c"));
    CHECK(shop->weight == 1 && !shop->batch);
    CHECK(vip->weight == 2.5 && !vip->batch);
    CHECK(jobs->weight == 0.5 && jobs->batch);
    api_keys_free(k);
}

TEST(trust_of_a_key_is_read_and_a_tenant_is_as_trusted_as_its_least_trusted_key)
{
    struct api_keys *k = NULL;
    struct errmsg e = {0};
    int trust, min_trust;
    REQUIRE(api_keys_parse(&k, STR("a bank trust=5 min_trust=3\nb bank trust=0\nc shop\n"), "keys",
                           &e) == OK);
    CHECK_INT(api_keys_find(k, STR("a"))->trust, 5);
    CHECK_INT(api_keys_find(k, STR("a"))->min_trust, 3);
    CHECK_INT(api_keys_find(k, STR("b"))->trust, 0);
    CHECK_INT(api_keys_find(k, STR("c"))->trust, 1);
    CHECK_INT(api_keys_find(k, STR("c"))->min_trust, 0);
    api_keys_of_tenant(k, "bank", &trust, &min_trust);
    CHECK(trust == 0 && min_trust == 3);
    api_keys_of_tenant(k, "nobody", &trust, &min_trust);
    CHECK(trust == 1 && min_trust == 0);
    api_keys_free(k);
}

TEST(tenants_with_many_keys_and_many_tenants_are_found)
{
    struct api_keys *k = NULL;
    struct errmsg e = {0};
    struct buf text;
    int trust, min_trust;
    char name[32];
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 3000; i++)
        buf_printf(&text, "key%d tenant-%d trust=%d min_trust=%d\n", i, i % 700, i % 6, i % 10);
    REQUIRE(api_keys_parse(&k, buf_view(&text), "keys", &e) == OK);
    for (int t = 0; t < 700; t++) {
        int least = 9, most = 0;
        for (int i = t; i < 3000; i += 700) {
            least = i % 6 < least ? i % 6 : least;
            most = i % 10 > most ? i % 10 : most;
        }
        snprintf(name, sizeof name, "tenant-%d", t);
        api_keys_of_tenant(k, name, &trust, &min_trust);
        CHECK_AT(trust == least && min_trust == most, "%s: %d %d", name, trust, min_trust);
    }
    api_keys_free(k);
    buf_fini(&text);
}

TEST(mistakes_are_named_by_line_without_showing_the_key)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"sk-a t\nsk-secret\n", "keys:2:"},
                 {"sk-secret bad tenant x", "keys:1:"},
                 {"sk-secret te/nant", "keys:1:"},
                 {"sk-secret a weight=0", "weight=0.01..100"},
                 {"sk-secret a weight=2x", "weight=0.01..100"},
                 {"sk-secret a class=vip", "class=online|batch"},
                 {"sk-secret a speed=2", "keys:1:"},
                 {"sk-secret a trust=6", "trust=0..5"},
                 {"sk-secret a min_trust=x", "min_trust=0..9"},
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
