/* test_opinion.c - goal: with a verifier a look-up waits for its opinion, which decides on what only soft guards refuse; hard guards stand;
 * cancelling and closing in the middle answer nothing twice and leak nothing. Method: the real cache and embedder with a tiny net whose
 * calibration takes every pair for the same question. */
#include "cache/opinion.h"

#include "tests/check.h"
#include "tests/unit/cache/cache_rig.h"

struct rig {
    struct loop *loop;
    struct embedder *embedder;
    struct workers *workers;
    struct metrics *metrics;
    struct cache *cache;
};

static const struct cache_options USUAL = {
    .ns = "test", .exact = true, .semantic = true, .embed_deadline_ms = 5000, .secret = 7};

static bool open_rig(struct rig *r, int memo_entries)
{
    struct errmsg e = {0};
    struct embedder_options eo = {.pair_net = TEST_DATA "/tiny-pair.gguf",
                                  .memo_entries = memo_entries};
    memset(r, 0, sizeof *r);
    r->metrics = metrics_new();
    r->workers = workers_new(1, 64);
    bool ok =
        loop_new(&r->loop, &e) == OK && embedder_open(&r->embedder, RIG_EMBEDDER, &eo, &e) == OK &&
        cache_open(&r->cache, r->loop, NULL, r->embedder, r->workers, r->metrics, &USUAL, &e) == OK;
    if (!ok) printf("    %s\n", e.text);
    return ok;
}

static void close_rig(struct rig *r)
{
    cache_close(r->cache);
    embedder_close(r->embedder);
    workers_free(r->workers);
    loop_free(r->loop);
    metrics_free(r->metrics);
}

static bool is_indexed(void *arg)
{
    struct rig *r = arg;
    struct embedder_stats s;
    embedder_stats_read(r->embedder, &s);
    return !s.queued && s.submitted == s.answered + s.timeouts + s.refused_text + s.cancelled;
}

static void keep(struct rig *r, const char *question, const char *answer)
{
    CHECK(!rig_keep(r->cache, question, answer));
    rig_until(r->loop, NULL, NULL, 20);
    CHECK(rig_until(r->loop, is_indexed, r, 10000));
    rig_until(r->loop, NULL, NULL, 40);
}

TEST(the_verifier_decides_where_only_soft_guards_refuse)
{
    for (int memo = -1; memo <= 0;
         memo++) { /* without and with remembered sketches for a first look */
        struct rig r;
        REQUIRE(open_rig(&r, memo));
        keep(&r, "How do I reset my password?", "Press Forgot.");
        struct rig_found f = rig_find(r.loop, r.cache, "How do I reset my router?");
        CHECK_INT(f.calls, 1);
        CHECK_Z(f.reason, "semantic:verifier");
        CHECK_Z(f.text, "Press Forgot.");
        f = rig_find(r.loop, r.cache, "How can I reset my password?");
        CHECK_Z(f.reason, "semantic:same");
        f = rig_find(r.loop, r.cache, "reset 2 lost cards after the password was refused");
        CHECK_Z(f.reason, "semantic:verifier"); /* one side names a number: weighed */
        f = rig_find(r.loop, r.cache, "where is my refund");
        CHECK_INT(f.calls, 1);
        close_rig(&r);
        REQUIRE(open_rig(&r, memo));
        keep(&r, "What is the price of 2 cards?", "Two pounds.");
        f = rig_find(r.loop, r.cache, "What is the price of 3 cards?");
        CHECK_INT(f.result, CACHE_MISS);
        CHECK_Z(f.reason, "guard:number");
        close_rig(&r);
    }
}

TEST(a_look_up_goes_by_the_weights_its_namespace_gives_the_verifier)
{
    for (int memo = -1; memo <= 0; memo++) {
        struct rig r;
        struct cache_knobs k = knobs_default();
        REQUIRE(open_rig(&r, memo));
        keep(&r, "How do I reset my password?", "Press Forgot.");
        k.verifier_bias_en = -50;
        cache_knobs_use(r.cache, &k);
        struct rig_found f = rig_find(r.loop, r.cache, "How do I reset my router?");
        CHECK_INT(f.result, CACHE_MISS);
        CHECK_Z(f.reason, "verifier");
        k.verifier_bias_en = 50;
        cache_knobs_use(r.cache, &k);
        f = rig_find(r.loop, r.cache, "How do I reset my router?");
        CHECK_Z(f.reason, "semantic:verifier");
        k.same_words = false; /* then the same words are measured too */
        cache_knobs_use(r.cache, &k);
        f = rig_find(r.loop, r.cache, "How can I reset my password?");
        CHECK_Z(f.reason, "semantic:verifier");
        close_rig(&r);
    }
}

TEST(what_is_hard_by_likeness_alone_is_weighed_where_a_namespace_says_so)
{
    struct rig r;
    struct cache_knobs k = knobs_default();
    REQUIRE(open_rig(&r, 0));
    keep(&r, "How do I reset my home router's password?", "Press Forgot.");
    struct rig_found f = rig_find(r.loop, r.cache, "How do I reset my router's password?");
    CHECK_Z(f.reason, "guard:added_word");
    k.likeness_refuses = false;
    cache_knobs_use(r.cache, &k);
    f = rig_find(r.loop, r.cache, "How do I reset my router's password?");
    CHECK_Z(f.reason, "semantic:verifier");
    f = rig_find(r.loop, r.cache, "How do I break my home router's password?");
    CHECK_Z(f.reason, "semantic:verifier");
    f = rig_find(r.loop, r.cache, "Can the router's password reset my home?");
    CHECK_INT(f.result, CACHE_MISS); /* the order is hard by itself */
    close_rig(&r);
}

/* Posted behind the start of the look-up: what crowds the loop comes behind its vector, and so behind what is asked of the verifier. */
static void ask_then_crowd(void *arg)
{
    struct rig_crowd *crowd = arg;
    REQUIRE(loop_post(crowd->loop, rig_crowd, crowd) == OK);
}

TEST(a_look_up_ends_also_when_the_opinion_comes_while_the_loop_is_full)
{
    struct rig r;
    struct cache_key k;
    struct rig_found f = {0};
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, 0));
    keep(&r, "How do I reset my password?", "Press Forgot.");
    f = rig_find(r.loop, r.cache, "How do I reset my router?"); /* its vector is remembered now */
    CHECK_Z(f.reason, "semantic:verifier");
    f = (struct rig_found){0};
    REQUIRE(rig_key(r.cache, "How do I reset my router?", &k));
    struct rig_crowd crowd = {.loop = r.loop, .embedder = r.embedder};
    rig_hold(&crowd);
    (void)cache_find(r.cache, &k, &o, rig_note, &f);
    REQUIRE(loop_post(r.loop, ask_then_crowd, &crowd) == OK);
    CHECK(rig_until(r.loop, rig_noted, &f, 20000));
    CHECK_Z(f.reason, "semantic:verifier");
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(cancelling_and_closing_while_the_verifier_is_asked_leaks_nothing)
{
    struct rig r;
    enum { MANY = 40 };
    struct rig_found f[MANY] = {0};
    struct cache_key k[MANY];
    struct cache_lookup *lookups[MANY];
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, -1));
    keep(&r, "How do I reset my password?", "Press Forgot.");
    for (int i = 0; i < MANY; i++) {
        char question[64];
        snprintf(question, sizeof question, "How do I reset my order number %c?", 'a' + i % 26);
        REQUIRE(rig_key(r.cache, question, &k[i]));
        lookups[i] = cache_find(r.cache, &k[i], &o, rig_note, &f[i]);
    }
    rig_until(r.loop, NULL, NULL, 5);
    for (int i = 0; i < MANY; i += 2)
        if (!f[i].calls) cache_find_cancel(lookups[i]);
    rig_until(r.loop, NULL, NULL, 5);
    close_rig(&r);
    for (int i = 0; i < MANY; i++) {
        CHECK(f[i].calls <= 1);
        cache_key_fini(&k[i]);
    }
}

TEST_MAIN()
