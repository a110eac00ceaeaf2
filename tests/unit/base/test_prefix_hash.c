/* Goal: a block's identity depends on everything before it and on nothing else. Method: small cases, each field changed alone. */
#include "base/prefix_hash.h"
#include "tests/check.h"

static const int32_t tokens[12] = {5, 6, 7, 8, 1, 2, 3, 4, 9, 9, 9, 9};

TEST(a_chain_names_full_blocks_only_and_no_more_than_asked)
{
    struct prefix_origin o = {.seed = 7, .root = {1, 2}};
    struct hash128 out[4], step = prefix_hash_start(&o);
    CHECK_INT(prefix_hash_chain(&o, 4, tokens, 11, out, 4), 2);
    step = prefix_hash_next(7, step, tokens, 4);
    CHECK(hash_eq(step, out[0]));
    step = prefix_hash_next(7, step, tokens + 4, 4);
    CHECK(hash_eq(step, out[1]));
    CHECK_INT(prefix_hash_chain(&o, 4, tokens, 12, out, 1), 1);
    CHECK_INT(prefix_hash_chain(&o, 4, tokens, 3, out, 4), 0);
}

TEST(every_field_of_the_origin_and_the_order_of_blocks_count)
{
    struct prefix_origin o[] = {{.seed = 7},
                                {.seed = 8},
                                {.seed = 7, .root = {1, 0}},
                                {.seed = 7, .adapter = {1, 0}},
                                {.seed = 7, .salt = {1, 0}},
                                {.seed = 7, .salt = {0, 1}}};
    struct hash128 all[6], out[3], turned[2];
    int32_t other[8];
    for (int i = 0; i < 6; i++) {
        prefix_hash_chain(&o[i], 4, tokens, 12, out, 3);
        all[i] = out[2];
        for (int j = 0; j < i; j++)
            CHECK_AT(!hash_eq(all[i], all[j]), "origins %d and %d agree", i, j);
    }
    memcpy(other, tokens + 4, 16);
    memcpy(other + 4, tokens, 16);
    prefix_hash_chain(&o[0], 4, tokens, 8, out, 2);
    prefix_hash_chain(&o[0], 4, other, 8, turned, 2);
    CHECK(!hash_eq(out[1], turned[1])); /* [A,B] is not [B,A] */
    CHECK(!hash_eq(out[0], turned[1])); /* and B after A is not B alone */
}

TEST(block_lengths_do_not_meet)
{
    struct hash128 parent = {3, 4};
    CHECK(!hash_eq(prefix_hash_next(1, parent, tokens, 2), prefix_hash_next(1, parent, tokens, 3)));
}

TEST(one_secret_gives_one_seed)
{
    CHECK(prefix_hash_seed(STR("a")) == prefix_hash_seed(STR("a")));
    CHECK(prefix_hash_seed(STR("a")) != prefix_hash_seed(STR("b")));
}

TEST_MAIN()
