/* Goal: targets that name blocks alike share a chain, a longer conversation begins with the shorter one's blocks, and whatever
 * keeps KV apart keeps chains apart. Method: small cases. */
#include "gateway/route_chain.h"
#include "tests/check.h"

static const int32_t ids[40] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(targets_that_name_blocks_alike_share_a_chain)
{
    struct route_naming a = {.by_tokens = true, .origin = {.seed = 1}, .block_tokens = 8}, b = a,
                        c = a, none = {0};
    b.block_tokens = 16;
    c.origin.salt = (struct hash128){1, 1};
    struct route_naming all[6] = {a, b, a, none, c, b};
    struct route_chains chains;
    route_chains_make(&chains, all, 6, ids, 40, (struct str){0});
    CHECK_INT(chains.n, 3);
    CHECK_INT(chains.of[0], chains.of[2]);
    CHECK_INT(chains.of[1], chains.of[5]);
    CHECK(chains.of[0] != chains.of[1] && chains.of[0] != chains.of[4]);
    CHECK_INT(chains.of[3], -1);
    CHECK_INT(chains.of[6], -1);
    CHECK_INT(chains.chain[chains.of[0]].n_blocks, 5);
    CHECK_INT(chains.chain[chains.of[1]].n_blocks, 2);
    struct hash128 want = prefix_hash_next(1, prefix_hash_start(&a.origin), ids, 8);
    CHECK(hash_eq(chains.chain[chains.of[0]].blocks[0], want));
    route_chains_fini(&chains);
}

static struct route_chains text_chain(const char *messages, uint64_t seed)
{
    struct route_naming n = {.origin = {.seed = seed}, .block_tokens = 64};
    struct route_chains c;
    struct buf text;
    json_t *doc = NULL;
    CHECK(json_parse(str_of(messages), 0, &doc, NULL) == OK);
    buf_init(&text, 1 << 20);
    route_text(&text, NULL, doc, NULL);
    route_chains_make(&c, &n, 1, NULL, 0, buf_view(&text));
    buf_fini(&text);
    json_decref(doc);
    return c;
}

static size_t common(const struct route_chains *a, const struct route_chains *b)
{
    size_t n = 0;
    while (n < a->chain[0].n_blocks && n < b->chain[0].n_blocks &&
           hash_eq(a->chain[0].blocks[n], b->chain[0].blocks[n]))
        n++;
    return n;
}

TEST(a_longer_conversation_begins_with_the_shorter_ones_pieces)
{
    char longer[2200], shorter[2200], other[2200], filler[1001];
    memset(filler, 'x', 1000);
    filler[1000] = 0;
    snprintf(shorter, sizeof shorter,
             "[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"one\"}]",
             filler);
    snprintf(longer, sizeof longer,
             "[{\"role\":\"system\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"one\"},{"
             "\"role\":\"user\",\"content\":"
             "\"%s\"}]",
             filler, filler);
    snprintf(other, sizeof other, "[{\"role\":\"user\",\"content\":\"%s\"}]", filler);
    struct route_chains a = text_chain(shorter, 1), b = text_chain(longer, 1),
                        c = text_chain(other, 1), d = text_chain(longer, 2);
    CHECK_INT(a.chain[0].n_blocks, 4);
    CHECK_INT(common(&a, &b), 4);
    CHECK_INT(common(&b, &c), 0);
    CHECK_INT(common(&b, &d), 0);
    route_chains_fini(&a);
    route_chains_fini(&b);
    route_chains_fini(&c);
    route_chains_fini(&d);
}

TEST(a_short_prompt_has_no_blocks)
{
    struct route_chains c = text_chain("[{\"role\":\"user\",\"content\":\"hi\"}]", 1);
    CHECK_INT(c.chain[0].n_blocks, 0);
    route_chains_fini(&c);
}

TEST_MAIN()
