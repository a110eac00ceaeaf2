/* Goal: an engine's own block names lead to ours, with the last holder's removal, unknown parents and names that change. Method:
 * small stories against a real index. */
#include "cache/kv_names.h"
#include "tests/check.h"

static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const struct prefix_origin origin = {.seed = 3};

struct world {
    struct prefix_index *index;
    struct kv_names *names;
    struct hash128 chain[4];
};

static struct world open_world(size_t blocks)
{
    struct world w = {.index = prefix_index_new(1 << 20, 10)};
    prefix_index_join(w.index, 4, 1, true);
    w.names = kv_names_new(w.index, 4, blocks, &origin);
    kv_names_begin(w.names, 1);
    prefix_hash_chain(&origin, 2, tokens, 8, w.chain, 4);
    return w;
}

static void close_world(struct world *w)
{
    kv_names_free(w->names);
    prefix_index_free(w->index);
}

static int held(struct world *w)
{
    struct prefix_match m;
    prefix_index_match(w->index, w->chain, 4, 0, &m);
    return m.blocks[4];
}

/* Blocks first.. of the prompt, named 100 + number. */
static struct kv_event stored(const uint64_t *names, size_t first, size_t n)
{
    return (struct kv_event){.kind = KV_EVENT_STORED,
                             .hashes = names + first,
                             .n_hashes = n,
                             .has_parent = first > 0,
                             .plain = true,
                             .parent = first ? names[first - 1] : 0,
                             .tokens = tokens + 2 * first,
                             .n_tokens = 2 * n,
                             .block_tokens = 2};
}
static const uint64_t names[4] = {100, 101, 102, 103};

TEST(a_chain_told_in_two_events_is_found_and_its_end_removed)
{
    struct world w = open_world(100);
    struct kv_event ev = stored(names, 0, 2), rest = stored(names, 2, 2),
                    gone = {.kind = KV_EVENT_REMOVED, .hashes = names + 3, .n_hashes = 1};
    kv_names_event(w.names, &ev);
    CHECK_INT(held(&w), 2);
    kv_names_event(w.names, &rest);
    CHECK_INT(held(&w), 4);
    CHECK_INT(kv_names_block_tokens(w.names), 2);
    kv_names_event(w.names, &gone);
    CHECK_INT(held(&w), 3);
    CHECK_INT(kv_names_count(w.names), 3);
    kv_names_event(w.names, &(struct kv_event){.kind = KV_EVENT_CLEARED});
    CHECK_INT(held(&w), 0);
    CHECK_INT(kv_names_count(w.names), 0);
    close_world(&w);
}

TEST(a_block_of_two_ranks_is_gone_with_the_last_and_twice_stored_with_one_removal)
{
    struct world w = open_world(100);
    struct kv_event one = stored(names, 0, 1), two = one,
                    gone = {.kind = KV_EVENT_REMOVED, .hashes = names, .n_hashes = 1};
    two.rank = 1;
    kv_names_event(w.names, &one);
    kv_names_event(w.names, &one);
    kv_names_event(w.names, &two);
    kv_names_event(w.names, &gone);
    CHECK_INT(held(&w), 1);
    gone.rank = 1;
    kv_names_event(w.names, &gone);
    CHECK_INT(held(&w), 0);
    close_world(&w);
}

TEST(an_offload_tier_needs_no_tokens_once_the_block_is_known)
{
    struct world w = open_world(100);
    struct kv_event dev = stored(names, 0, 2),
                    cpu = {.kind = KV_EVENT_STORED,
                           .hashes = names,
                           .n_hashes = 2,
                           .plain = true,
                           .tier = PREFIX_HOST},
                    gone = {.kind = KV_EVENT_REMOVED, .hashes = names, .n_hashes = 2};
    kv_names_event(w.names, &cpu); /* nobody knows what it is */
    CHECK_INT(kv_names_orphans(w.names), 2);
    kv_names_event(w.names, &dev);
    kv_names_event(w.names, &cpu);
    kv_names_event(w.names, &gone);
    CHECK_INT(held(&w), 2);
    close_world(&w);
}

TEST(children_of_unknown_parents_and_blocks_with_lora_are_left_out)
{
    struct world w = open_world(100);
    struct kv_event child = stored(names, 1, 2), lora = stored(names, 0, 2);
    lora.plain = false;
    kv_names_event(w.names, &child);
    kv_names_event(w.names, &lora);
    CHECK_INT(held(&w), 0);
    CHECK_INT(kv_names_orphans(w.names), 4);
    CHECK_INT(kv_names_count(w.names), 0);
    close_world(&w);
}

TEST(when_there_are_too_many_all_is_learnt_anew)
{
    struct world w = open_world(1);
    uint64_t many[64];
    size_t most = 0;
    for (uint64_t i = 0; i < 64; i++) {
        many[0] = 1000 + i;
        int32_t other[2] = {(int32_t)i + 50, 1};
        struct kv_event ev = {.kind = KV_EVENT_STORED,
                              .hashes = many,
                              .n_hashes = 1,
                              .plain = true,
                              .tokens = other,
                              .n_tokens = 2,
                              .block_tokens = 2};
        kv_names_event(w.names, &ev);
        if (kv_names_count(w.names) > most) most = kv_names_count(w.names);
        CHECK_INT(prefix_index_held(w.index, 4), kv_names_count(w.names));
    }
    CHECK_INT(most, 32);
    close_world(&w);
}

TEST_MAIN()
