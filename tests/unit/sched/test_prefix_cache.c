/* Goal: a block is found by exactly its own chain of tokens, salt and root, and never after it was
 * forgotten. Method: cases, then random enter/find/forget against a naive table of whole prefixes.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/prefix_cache.h"
#include "tests/check.h"

static const struct hash128 root = {1, 2};

static struct hash128 start_of(const struct prefix_cache *c, uint64_t salt)
{
    return prefix_cache_start(c, &(struct prefix_scope){.salt = {0, salt}});
}

TEST(the_same_value_as_adapter_and_as_salt_are_two_scopes)
{
    struct prefix_cache *c = prefix_cache_new(4, 2, 9, root);
    const struct hash128 x = {3, 4}, y = {5, 6}, none = {0, 0};
    const struct prefix_scope scopes[] = {{none, none}, {x, none}, {none, x},
                                          {x, x},       {x, y},    {y, x}};
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++)
        for (size_t k = 0; k < i; k++)
            CHECK_AT(!hash_eq(prefix_cache_start(c, &scopes[i]), prefix_cache_start(c, &scopes[k])),
                     "scopes %zu and %zu share", i, k);
    prefix_cache_free(c);
}

TEST(another_salt_root_parent_or_token_is_another_identity)
{
    struct prefix_cache *c = prefix_cache_new(4, 2, 9, root),
                        *d = prefix_cache_new(4, 2, 9, (struct hash128){1, 3});
    int32_t t[2] = {5, 6}, u[2] = {6, 5};
    struct hash128 s0 = start_of(c, 0), s1 = start_of(c, 1), r = start_of(d, 0);
    CHECK(!hash_eq(s0, s1));
    CHECK(!hash_eq(s0, r));
    CHECK(!hash_eq(prefix_cache_chain(c, s0, t), prefix_cache_chain(c, s1, t)));
    CHECK(!hash_eq(prefix_cache_chain(c, s0, t), prefix_cache_chain(c, s0, u)));
    CHECK(hash_eq(prefix_cache_chain(c, s0, t), prefix_cache_chain(c, s0, t)));
    prefix_cache_free(c);
    prefix_cache_free(d);
}

TEST(a_colliding_identity_is_refused_by_its_tokens)
{
    struct prefix_cache *c = prefix_cache_new(4, 2, 9, root);
    int32_t t[2] = {5, 6}, u[2] = {5, 7};
    struct hash128 s = start_of(c, 0), id = prefix_cache_chain(c, s, t);
    REQUIRE(prefix_cache_enter(c, 1, id, s, t, 1));
    CHECK_INT(prefix_cache_find(c, id, s, t), 1);
    CHECK_INT(prefix_cache_find(c, id, s, u), KV_NO_BLOCK); /* same identity, other tokens */
    CHECK_INT(prefix_cache_find(c, id, (struct hash128){7, 7}, t), KV_NO_BLOCK); /* other parent */
    CHECK(!prefix_cache_enter(c, 2, id, s, t, 1));
    prefix_cache_forget(c, 1);
    CHECK_INT(prefix_cache_find(c, id, s, t), KV_NO_BLOCK);
    prefix_cache_free(c);
}

TEST(a_partial_match_finds_the_longest_beginning_but_nothing_of_this_step)
{
    struct prefix_cache *c = prefix_cache_new(4, 4, 9, root);
    int32_t a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 9, 9}, want[3] = {1, 2, 3};
    struct hash128 s = start_of(c, 0);
    REQUIRE(prefix_cache_enter(c, 0, prefix_cache_chain(c, s, a), s, a, 7));
    REQUIRE(prefix_cache_enter(c, 1, prefix_cache_chain(c, s, b), s, b, 6));
    int n;
    CHECK_INT(prefix_cache_find_partial(c, s, want, 3, 8, &n), 0);
    CHECK_INT(n, 3);
    CHECK_INT(prefix_cache_find_partial(c, s, want, 3, 7, &n), 1); /* block 0 is being written */
    CHECK_INT(n, 2);
    CHECK_INT(prefix_cache_find_partial(c, start_of(c, 5), want, 3, 8, &n), KV_NO_BLOCK);
    prefix_cache_free(c);
}

enum { BLOCKS = 24, BT = 2, DEPTH = 4 };
struct naive {
    bool in;
    uint64_t salt;
    int n;
    int32_t t[DEPTH * BT];
};

TEST(random_chains_agree_with_a_naive_table_of_whole_prefixes)
{
    struct rng r;
    rng_seed(&r, 11);
    struct prefix_cache *c = prefix_cache_new(BLOCKS, BT, 3, root);
    struct kv_pool *pool = kv_pool_new(BLOCKS);
    struct naive o[BLOCKS] = {{0}};
    for (int op = 0; op < 300000 && !check_failures; op++) {
        struct naive q = {.salt = rng_below(&r, 2), .n = BT * (1 + (int)rng_below(&r, DEPTH))};
        for (int i = 0; i < q.n; i++)
            q.t[i] = (int32_t)rng_below(&r, 2);
        struct hash128 parent = start_of(c, q.salt), id = parent;
        for (int i = 0; i < q.n; i += BT) {
            parent = id;
            id = prefix_cache_chain(c, parent, q.t + i);
        }
        int want = KV_NO_BLOCK;
        for (int i = 0; i < BLOCKS; i++)
            if (o[i].in && o[i].salt == q.salt && o[i].n == q.n &&
                !memcmp(o[i].t, q.t, (size_t)q.n * sizeof *q.t))
                want = i;
        const int32_t *last = q.t + q.n - BT;
        CHECK_INT(prefix_cache_find(c, id, parent, last), want);
        kv_block b = (kv_block)rng_below(&r, BLOCKS);
        if (rng_below(&r, 2)) {
            prefix_cache_forget(c, b);
            o[b].in = false;
        } else {
            bool entered = prefix_cache_enter(c, b, id, parent, last, 1);
            CHECK_INT(entered, want == KV_NO_BLOCK && !o[b].in);
            if (entered) {
                o[b] = q;
                o[b].in = true;
            }
        }
    }
    CHECK_INT(prefix_cache_count(c), ({
                  int n = 0;
                  for (int i = 0; i < BLOCKS; i++)
                      n += o[i].in;
                  n;
              }));
    for (int i = 0; i < BLOCKS;
         i++) { /* give the pool the same state so that the walk can compare */
        kv_block b;
        bool evicted;
        REQUIRE(kv_pool_take(pool, &b, &evicted) == OK);
        kv_pool_set_cached(pool, b, o[b].in);
    }
    const char *why = prefix_cache_check(c, pool);
    CHECK_AT(!why, "%s", why);
    prefix_cache_free(c);
    kv_pool_free(pool);
}

TEST_MAIN()
