/* Goal: what an engine says is read strictly, and nothing malformed reaches the index. Method: tables of good and bad texts; the
 * stream itself is tested with real engines (tests/integration/test_routing.py). */
#include "gateway/kv_feed.h"
#include "tests/check.h"

#define HEX "000000000000000100000000000000a0"
static const struct hash128 block = {1, 0xa0};

TEST(an_engines_names_are_read)
{
    struct kv_naming n;
    struct errmsg e;
    static const char good[] =
        "{\"incarnation\":\"00000000000000ff\",\"root\":\"" HEX
        "\",\"seed\":\"0000000000000007\",\"block_tokens\":16,"
        "\"tools_in_words\":true,\"salted\":true,\"models\":[{\"id\":\"m\",\"adapter\":\"" HEX
        "\"}]}";
    REQUIRE(kv_naming_read(&n, str_of(good), &e) == OK);
    CHECK(n.incarnation == 255 && n.seed == 7 && hash_eq(n.root, block));
    CHECK(n.block_tokens == 16 && n.tools_in_words && n.salted);
    CHECK_INT(n.n_models, 1);
    CHECK(!strcmp(n.models[0].id, "m") && hash_eq(n.models[0].adapter, block));
}

TEST(an_engines_role_is_read_and_none_is_both)
{
    static const struct {
        const char *says;
        enum kv_role role;
    } cases[] = {{"\"role\":\"prefill\",\"kv_format\":\"lanes f16\",", KV_ROLE_PREFILL},
                 {"\"role\":\"decode\",\"kv_format\":\"lanes f16\",", KV_ROLE_DECODE},
                 {"\"role\":\"both\",\"kv_format\":\"lanes f16\",", KV_ROLE_BOTH},
                 {"", KV_ROLE_BOTH},
                 {"\"role\":7,", KV_ROLE_BOTH}};
    char text[600];
    struct kv_naming n;
    struct errmsg e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text,
                 "{\"incarnation\":\"00000000000000ff\",\"root\":\"" HEX
                 "\",\"seed\":\"0000000000000007\",\"block_tokens\":16,%s"
                 "\"models\":[{\"id\":\"m\",\"adapter\":\"" HEX "\"}]}",
                 cases[i].says);
        REQUIRE(kv_naming_read(&n, str_of(text), &e) == OK);
        CHECK_INT(n.role, cases[i].role);
        CHECK_Z(n.kv_format, i < 3 ? "lanes f16" : "");
    }
}

TEST(names_that_are_incomplete_or_out_of_range_are_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"incarnation\":\"ff\"}",
        "{\"incarnation\":\"00000000000000ff\",\"root\":\"" HEX
        "\",\"seed\":\"0000000000000007\",\"block_tokens\":0,\"models\":[{\"id\":\"m\","
        "\"adapter\":\"" HEX "\"}]}",
        "{\"incarnation\":\"00000000000000ff\",\"root\":\"" HEX
        "\",\"seed\":\"0000000000000007\",\"block_tokens\":16,\"models\":[]}",
        "{\"incarnation\":\"00000000000000ff\",\"root\":\"x\",\"seed\":\"0000000000000007\","
        "\"block_tokens\":16,\"models\":[{\"id\":\"m\","
        "\"adapter\":\"" HEX "\"}]}"};
    struct kv_naming n;
    struct errmsg e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_AT(kv_naming_read(&n, str_of(bad[i]), &e) == ERR_INVALID, "%s", bad[i]);
}

static int held(struct prefix_index *x)
{
    struct prefix_match m;
    prefix_index_match(x, &block, 1, 0, &m);
    return m.blocks[2];
}

TEST(a_frame_changes_the_index_and_moves_the_number)
{
    struct prefix_index *x = prefix_index_new(1 << 16, 10);
    uint64_t number = 3;
    size_t n;
    prefix_index_join(x, 2, 77, true);
    CHECK(kv_frame_apply(x, 2, 77,
                         STR("{\"number\":9,\"reset\":false,\"changes\":[\"+0" HEX "\",\"+1" HEX
                             "\",\"-0" HEX "\"]}"),
                         &number, &n) == OK);
    CHECK_INT(number, 9);
    CHECK_INT(n, 3);
    CHECK_INT(held(x), 1);
    CHECK(kv_frame_apply(x, 2, 77, STR("{\"number\":0,\"reset\":true,\"changes\":[]}"), &number,
                         &n) == OK);
    CHECK_INT(number, 9); /* a snapshot under way is no place to go on from */
    CHECK_INT(held(x), 0);
    prefix_index_free(x);
}

TEST(malformed_changes_and_those_of_another_run_are_refused)
{
    static const char *const bad[] = {"",
                                      "{}",
                                      "{\"number\":-1,\"changes\":[]}",
                                      "{\"number\":1,\"changes\":{}}",
                                      "{\"number\":1,\"changes\":[7]}",
                                      "{\"number\":1,\"changes\":[\"+3" HEX "\"]}",
                                      "{\"number\":1,\"changes\":[\"*0" HEX "\"]}",
                                      "{\"number\":1,\"changes\":[\"+0" HEX "0\"]}",
                                      "{\"number\":1,\"changes\":[\"+0\"]}"};
    struct prefix_index *x = prefix_index_new(1 << 16, 10);
    uint64_t number = 0;
    size_t n;
    prefix_index_join(x, 2, 77, true);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_AT(kv_frame_apply(x, 2, 77, str_of(bad[i]), &number, &n) == ERR_INVALID, "%s",
                 bad[i]);
    CHECK(kv_frame_apply(x, 2, 78, STR("{\"number\":1,\"changes\":[\"+0" HEX "\"]}"), &number,
                         &n) == ERR_INVALID);
    CHECK_INT(held(x), 0);
    CHECK_INT(number, 0);
    prefix_index_free(x);
}

TEST_MAIN()
