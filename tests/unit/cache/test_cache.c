/* test_cache.c - goal: without Redis the cache gives back what was kept, to the same question and to a rewording of it, and to no
 * other; what may not be stored is not; every look-up is answered once. Method: the real cache, index and a tiny encoder. */
#include "cache/cache.h"

#include "tests/check.h"
#include "tests/unit/cache/cache_rig.h"

struct rig {
    struct loop *loop;
    struct embedder *embedder;
    struct workers *workers;
    struct metrics *metrics;
    struct cache *cache;
};

static bool open_rig_with(struct rig *r, const struct cache_options *o, int queue_max)
{
    struct errmsg e = {0};
    struct embedder_options eo = {.queue_max = queue_max};
    memset(r, 0, sizeof *r);
    r->metrics = metrics_new();
    r->workers = workers_new(1, 64);
    bool ok =
        loop_new(&r->loop, &e) == OK && embedder_open(&r->embedder, RIG_EMBEDDER, &eo, &e) == OK &&
        cache_open(&r->cache, r->loop, NULL, r->embedder, r->workers, r->metrics, o, &e) == OK;
    if (!ok) printf("    %s\n", e.text);
    return ok;
}

static bool open_rig(struct rig *r, const struct cache_options *o)
{
    return open_rig_with(r, o, 0);
}

static void close_rig(struct rig *r)
{
    cache_close(r->cache);
    embedder_close(r->embedder);
    workers_free(r->workers);
    loop_free(r->loop);
    metrics_free(r->metrics);
}

static const struct cache_options USUAL = {
    .ns = "test", .exact = true, .semantic = true, .embed_deadline_ms = 5000, .secret = 7};

static bool embedder_is_idle(void *arg)
{
    struct embedder_stats s;
    embedder_stats_read(((struct rig *)arg)->embedder, &s);
    return !s.queued && s.submitted == s.answered + s.timeouts + s.refused_text + s.cancelled;
}

/* The vector of what was kept is on its way: until it has been made, however busy the machine, and has come back to the loop. */
static void settle(struct rig *r)
{
    rig_until(r->loop, NULL, NULL, 20);
    CHECK(rig_until(r->loop, embedder_is_idle, r, 60000));
    rig_until(r->loop, NULL, NULL, 40);
}

TEST(what_was_kept_is_found_again_with_its_age)
{
    struct rig r;
    REQUIRE(open_rig(&r, &USUAL));
    struct rig_found f = rig_find(r.loop, r.cache, "How do I reset my password?");
    CHECK_INT(f.calls, 1);
    CHECK_INT(f.result, CACHE_MISS);
    CHECK_Z(f.reason, "empty");
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    f = rig_find(r.loop, r.cache, "How do I reset my password?");
    CHECK_INT(f.result, CACHE_EXACT);
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_Z(f.reason, "exact");
    CHECK(f.age_s >= 0 && f.age_s < 5);
    CHECK_INT(strlen(f.entry), 32);
    close_rig(&r);
}

TEST(a_rewording_hits_and_a_swapped_word_does_not)
{
    struct rig r;
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    CHECK(!rig_keep(r.cache,
                    "\xe4\xbf\xa1\xe7\x94\xa8\xe5\x8d\xa1\xe4\xb8\xa2\xe4\xba\x86\xe6\x80\x8e\xe4"
                    "\xb9\x88\xe5\x8a\x9e\xef\xbc\x9f",
                    "hotline"));
    settle(&r);
    struct rig_found f = rig_find(r.loop, r.cache, "How can I reset my password?");
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_Z(f.reason, "semantic:same");
    CHECK(f.similarity > 0);
    f = rig_find(r.loop, r.cache, "How do I reset my router?");
    CHECK_INT(f.result, CACHE_MISS);
    CHECK_Z(f.reason, "guard:replaced_word");
    CHECK_INT(strlen(f.entry), 32);
    f = rig_find(r.loop, r.cache, "How do I not reset my password?");
    CHECK_Z(f.reason, "guard:negation");
    close_rig(&r);
}

TEST(another_system_prompt_or_tenant_never_matches)
{
    struct rig r;
    struct cache_key k;
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    settle(&r);
    const struct {
        const char *tenant, *system;
        enum cache_result want;
    } cases[] = {{"t", "s", CACHE_SEMANTIC},
                 {"t", "another", CACHE_MISS},
                 {"u", "s", CACHE_MISS},
                 {"", "s", CACHE_MISS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE(rig_key_system(r.cache, cases[i].tenant, cases[i].system,
                               "how can i reset my password", &k));
        struct rig_found f = rig_find_with(r.loop, r.cache, &k, &o);
        CHECK_INT(f.result, cases[i].want);
        cache_key_fini(&k);
    }
    close_rig(&r);
}

TEST(what_is_incomplete_empty_or_too_big_is_not_stored_and_says_why)
{
    struct rig r;
    struct cache_options small = USUAL;
    small.entry_bytes_max = 1000;
    REQUIRE(open_rig(&r, &small));
    static char big[4000];
    memset(big, 'x', sizeof big - 1);
    const struct {
        const char *text, *finish, *why;
    } cases[] = {{"cut", "length", "length"}, {"", "stop", "empty"},
                 {"  ", "stop", "empty"},     {"no", "content_filter", "content_filter"},
                 {big, "stop", "too_large"},  {"odd", "banana", "finish_reason"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cache_key k;
        struct openai_answer a = {0};
        const char *why = NULL;
        char id[36] = "unset";
        struct cache_keep_options o = {0};
        REQUIRE(rig_key(r.cache, "q?", &k) && rig_answer(&a, cases[i].text, cases[i].finish));
        CHECK(cache_keep(r.cache, &k, &a, &o, id, &why) != OK);
        CHECK_Z(why, cases[i].why);
        CHECK_Z(id, "");
        openai_answer_fini(&a);
        cache_key_fini(&k);
    }
    struct cache_stats s;
    cache_stats(r.cache, &s);
    CHECK_INT(s.refused, 6);
    CHECK_INT(s.entries, 0);
    close_rig(&r);
}

TEST(controls_of_a_look_up_only_tighten)
{
    struct rig r;
    struct cache_key k;
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    settle(&r);
    REQUIRE(rig_key(r.cache, "How can I reset my password?", &k));
    struct cache_lookup_options o = {.max_age_s = -1, .threshold_min = 1.01};
    CHECK_Z(rig_find_with(r.loop, r.cache, &k, &o).reason, "below_threshold");
    o = (struct cache_lookup_options){.max_age_s = -1, .skip_semantic = true};
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &o).result, CACHE_MISS);
    o = (struct cache_lookup_options){.max_age_s = 60};
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &o).result, CACHE_SEMANTIC);
    cache_key_fini(&k);
    REQUIRE(rig_key(r.cache, "How do I reset my password?", &k));
    o = (struct cache_lookup_options){.max_age_s = -1, .skip_exact = true};
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &o).result, CACHE_SEMANTIC);
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(an_entry_is_gone_after_its_time)
{
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep_ttl(r.cache, "Where is my parcel?", "There.", 1, id));
    CHECK_INT(rig_find(r.loop, r.cache, "Where is my parcel?").result, CACHE_EXACT);
    rig_until(r.loop, NULL, NULL, 2100);
    CHECK_INT(rig_find(r.loop, r.cache, "Where is my parcel?").result, CACHE_MISS);
    CHECK_INT(rig_find(r.loop, r.cache, "where is my package").result, CACHE_MISS);
    CHECK(!rig_keep_ttl(r.cache, "Where is my parcel?", "Here.", 100, id));
    settle(&r);
    CHECK_INT(rig_find(r.loop, r.cache, "where is my package").result, CACHE_SEMANTIC);
    close_rig(&r);
}

TEST(an_entry_past_its_time_is_found_only_by_who_puts_up_with_that)
{
    struct rig r;
    struct cache_key k;
    char id[36];
    struct cache_options o = USUAL;
    o.stale_if_error_s = 100;
    REQUIRE(open_rig(&r, &o));
    CHECK(!rig_keep_ttl(r.cache, "Where is my parcel?", "There.", 1, id));
    rig_until(r.loop, NULL, NULL, 2100);
    REQUIRE(rig_key(r.cache, "Where is my parcel?", &k));
    struct cache_lookup_options fresh = {.max_age_s = -1}, stale = {.max_age_s = -1, .stale_s = 60},
                                young = {.max_age_s = 0, .stale_s = 60};
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &fresh).result, CACHE_MISS);
    struct rig_found f = rig_find_with(r.loop, r.cache, &k, &stale);
    CHECK_INT(f.result, CACHE_EXACT);
    CHECK_INT(f.stale_s, f.age_s); /* a lifetime of one second, and from its end on */
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &young).result, CACHE_MISS);
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &fresh).result, CACHE_MISS);
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(a_rewording_gets_an_answer_past_its_time_only_when_that_will_do_and_the_guards_agree)
{
    struct rig r;
    struct cache_key k;
    char id[36];
    struct cache_options o = USUAL;
    o.stale_if_error_s = 100;
    REQUIRE(open_rig(&r, &o));
    CHECK(!rig_keep_ttl(r.cache, "How do I reset my password?", "Press Forgot.", 1, id));
    settle(&r);
    rig_until(r.loop, NULL, NULL, 2100);
    struct cache_lookup_options fresh = {.max_age_s = -1}, stale = {.max_age_s = -1, .stale_s = 60};
    REQUIRE(rig_key(r.cache, "How can I reset my password?", &k));
    for (int i = 0; i < 3; i++) /* looking does not make it go away */
        CHECK_INT(rig_find_with(r.loop, r.cache, &k, &fresh).result, CACHE_MISS);
    struct rig_found f = rig_find_with(r.loop, r.cache, &k, &stale);
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK(f.stale_s > 0);
    cache_key_fini(&k);
    REQUIRE(rig_key(r.cache, "How do I reset my username?", &k));
    CHECK_INT(rig_find_with(r.loop, r.cache, &k, &stale).result, CACHE_MISS);
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(what_has_expired_does_not_hide_what_has_not)
{
    struct rig r;
    char id[36], question[80];
    struct cache_options o = USUAL;
    o.stale_if_error_s = 1000;
    REQUIRE(open_rig(&r, &o));
    for (int i = 0; i < 40; i++) {
        snprintf(question, sizeof question, "How do I reset my password on device %d?", i);
        CHECK(!rig_keep_ttl(r.cache, question, "So.", 1, id));
        settle(&r);
    }
    CHECK(!rig_keep_ttl(r.cache, "How do I reset my password?", "Press Forgot.", 100, id));
    settle(&r);
    rig_until(r.loop, NULL, NULL, 2100);
    struct rig_found f = rig_find(r.loop, r.cache, "How can I reset my password?");
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK_INT(f.stale_s, 0);
    close_rig(&r);
}

TEST(memory_stays_under_its_budget_and_pushed_out_answers_leave_the_index)
{
    struct rig r;
    struct cache_options o = USUAL;
    struct cache_stats s;
    o.memory_bytes_max = 256 * 1024;
    REQUIRE(open_rig(&r, &o));
    for (int i = 0; i < 400; i++) {
        char q[64];
        snprintf(q, sizeof q, "What does part number %d cost?", i);
        CHECK(!rig_keep(r.cache, q,
                        "An answer of some length, so that entries have a size worth counting."));
        if (i % 50 == 0) settle(&r);
    }
    settle(&r);
    rig_until(r.loop, NULL, NULL, 500);
    cache_stats(r.cache, &s);
    CHECK_AT(s.entries > 20 && s.entries < 300, "%llu entries, %llu bytes",
             (unsigned long long)s.entries, (unsigned long long)s.bytes);
    CHECK_INT(rig_find(r.loop, r.cache, "What does part number 0 cost?").result, CACHE_MISS);
    CHECK_INT(rig_find(r.loop, r.cache, "What does part number 399 cost?").result, CACHE_EXACT);
    close_rig(&r);
}

static bool all_indexed(void *arg)
{
    struct rig *r = arg;
    struct embedder_stats es;
    embedder_stats_read(r->embedder, &es);
    return es.answered >= 60;
}

TEST(a_busy_embedder_delays_the_index_and_loses_nothing)
{
    struct rig r;
    char q[64];
    REQUIRE(open_rig_with(&r, &USUAL, 2));
    for (int i = 0; i < 60; i++) {
        snprintf(q, sizeof q, "What does part number %d cost?", i);
        CHECK(!rig_keep(r.cache, q, "5"));
    }
    CHECK(rig_until(r.loop, all_indexed, &r, 30000));
    settle(&r);
    for (int i = 0; i < 60; i += 7) {
        snprintf(q, sizeof q, "what does part number %d cost", i);
        CHECK_INT(rig_find(r.loop, r.cache, q).result, CACHE_SEMANTIC);
    }
    close_rig(&r);
}

TEST(closing_with_look_ups_under_way_answers_none_and_leaks_nothing)
{
    struct rig r;
    struct cache_key k[8];
    struct rig_found f[8] = {{0}};
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    settle(&r);
    for (int i = 0; i < 8; i++) {
        char q[64];
        snprintf(q, sizeof q, "How do I reset my password in city %c?", 'a' + i);
        REQUIRE(rig_key(r.cache, q, &k[i]));
        struct cache_lookup *l = cache_find(r.cache, &k[i], &o, rig_note, &f[i]);
        if (i % 3 == 0) cache_find_cancel(l);
    }
    rig_until(r.loop, NULL, NULL, 1);
    close_rig(&r);
    int calls = 0;
    for (int i = 0; i < 8; i++)
        calls += f[i].calls, cache_key_fini(&k[i]);
    CHECK(calls <= 5);
}

TEST(a_look_up_ends_also_when_its_vector_comes_while_the_loop_is_full)
{
    struct rig r;
    struct cache_key k;
    struct rig_found f = {0};
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, &USUAL));
    CHECK(!rig_keep(r.cache, "How do I reset my password?", "Press Forgot."));
    settle(&r);
    REQUIRE(rig_key(r.cache, "Where is the nearest shop?", &k));
    struct rig_crowd crowd = {.loop = r.loop, .embedder = r.embedder};
    rig_hold(&crowd);
    (void)cache_find(r.cache, &k, &o, rig_note, &f);
    REQUIRE(loop_post(r.loop, rig_crowd, &crowd) == OK); /* behind the start of the look-up */
    CHECK(rig_until(r.loop, rig_noted, &f, 20000));
    CHECK_INT(f.result, CACHE_MISS);
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(everything_held_stays_within_the_budget_of_memory)
{
    struct rig r;
    struct cache_options o = USUAL;
    struct cache_stats s;
    char question[64], text[1200], id[36];
    o.memory_bytes_max = 2 << 20;
    REQUIRE(open_rig(&r, &o));
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int i = 0; i < 2000; i++) {
        snprintf(question, sizeof question, "what is the number of shelf %d in aisle %d", i, i * 7);
        CHECK(!rig_keep_ttl(r.cache, question, text, 0, id));
        if (i % 50 == 49) rig_until(r.loop, NULL, NULL, 1);
        if (i % 200 != 199) continue;
        settle(&r);
        rig_until(r.loop, NULL, NULL, 250); /* the budget is looked at five times a second */
        cache_stats(r.cache, &s);
        CHECK_AT(s.bytes <= o.memory_bytes_max * 11 / 10, "%d kept: %llu bytes", i + 1,
                 (unsigned long long)s.bytes);
    }
    CHECK_AT(s.bytes >= o.memory_bytes_max / 2, "%llu bytes", (unsigned long long)s.bytes);
    close_rig(&r);
}

TEST(a_bad_namespace_is_refused)
{
    struct loop *l;
    struct cache *c;
    struct metrics *m = metrics_new();
    struct errmsg e = {0};
    REQUIRE(loop_new(&l, &e) == OK);
    struct cache_options o = {.ns = "a{b", .exact = true};
    CHECK_INT(cache_open(&c, l, NULL, NULL, NULL, m, &o, &e), ERR_INVALID);
    o.ns = "";
    CHECK_INT(cache_open(&c, l, NULL, NULL, NULL, m, &o, &e), ERR_RANGE);
    loop_free(l);
    metrics_free(m);
}

TEST_MAIN()
