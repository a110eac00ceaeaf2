/* test_coming.c - goal: a look-up is told to wait for a similar question that is being asked only where its stored answer would have been
 * given, and never once that has ended. Method: a cache in memory with the tiny encoder and a low threshold. */
#include "tests/check.h"
#include "tests/unit/cache/cache_rig.h"

static struct {
    struct loop *loop;
    struct workers *workers;
    struct metrics *metrics;
    struct embedder *embedder;
    struct cache *cache;
} rig;

static bool begin(void)
{
    struct errmsg e = {0};
    struct embedder_options eo = {.deadline_ms = 5000};
    struct cache_options o = {.ns = "test",
                              .exact = true,
                              .semantic = true,
                              .embed_deadline_ms = 5000,
                              .secret = 7,
                              .threshold = 0.1};
    rig.workers = workers_new(1, 64);
    rig.metrics = metrics_new();
    return loop_new(&rig.loop, &e) == OK &&
           embedder_open(&rig.embedder, RIG_EMBEDDER, &eo, &e) == OK &&
           cache_open(&rig.cache, rig.loop, NULL, rig.embedder, rig.workers, rig.metrics, &o, &e) ==
               OK;
}

static void end(void)
{
    cache_close(rig.cache);
    embedder_close(rig.embedder);
    workers_free(rig.workers);
    loop_free(rig.loop);
    metrics_free(rig.metrics);
}

static bool over(void *arg)
{
    return ((struct rig_found *)arg)->calls > 0;
}

static struct rig_found find(const char *tenant, const char *question, enum cache_coming coming)
{
    struct cache_lookup_options o = {
        .max_age_s = -1, .coming = coming, .skip_exact = coming == COMING_ONLY};
    struct cache_key k;
    struct rig_found f = {0};
    if (!rig_key_system(rig.cache, tenant, "s", question, &k)) return f;
    cache_find(rig.cache, &k, &o, rig_note, &f);
    CHECK(rig_until(rig.loop, over, &f, 20000));
    cache_key_fini(&k);
    return f;
}

static struct cache_key ask(const char *tenant, const char *question, int trust)
{
    struct cache_key k = {0};
    (void)find(tenant, question, COMING_TOO); /* as every miss: so its vector is remembered */
    CHECK(rig_key_system(rig.cache, tenant, "s", question, &k));
    CHECK(cache_coming_begin(rig.cache, &k, trust, STR("")));
    return k;
}

TEST(a_similar_question_waits_until_the_one_asked_has_ended)
{
    CHECK(begin());
    CHECK(find("t", "how do i open the door", COMING_TOO).result == CACHE_MISS);
    uint64_t seen = cache_coming_seen(rig.cache);
    struct cache_key k = ask("t", "how do i open the door", 1);
    CHECK(cache_coming_seen(rig.cache) > seen);
    CHECK(cache_coming_any(rig.cache, &k));
    char hex[33];
    hash_hex(k.exact, hex);
    struct rig_found f = find("t", "how do i open the door please", COMING_TOO);
    CHECK(f.result == CACHE_COMING);
    CHECK(!strcmp(f.entry, hex));
    CHECK(!strncmp(f.reason, "in_flight:", 10));
    CHECK(f.similarity > 0.1);
    CHECK(find("t", "how do i open the door please", COMING_ONLY).result == CACHE_COMING);
    CHECK(find("t", "how do i open the door please", COMING_NO).result == CACHE_MISS);
    /* equal ones are joined, not followed */
    CHECK(find("t", "how do i open the door", COMING_TOO).result == CACHE_MISS);
    cache_coming_end(rig.cache, &k);
    CHECK(!cache_coming_any(rig.cache, &k));
    CHECK(find("t", "how do i open the door please", COMING_TOO).result == CACHE_MISS);
    cache_coming_end(rig.cache, &k); /* once more is fine */
    cache_key_fini(&k);
    end();
}

TEST(tenants_guards_trust_and_thresholds_keep_questions_apart)
{
    CHECK(begin());
    struct cache_key k = ask("t", "how do i open 2 doors", 0);
    CHECK(find("u", "how do i open 2 doors please", COMING_TOO).result == CACHE_MISS);
    CHECK(find("t", "how do i open 3 doors", COMING_TOO).result == CACHE_MISS);
    CHECK(find("t", "how do i open 2 doors please", COMING_TOO).result == CACHE_COMING);
    struct cache_knobs knobs = *cache_knobs_now(rig.cache), was = knobs;
    knobs.trust_min = 1;
    cache_knobs_use(rig.cache, &knobs);
    CHECK(find("t", "how do i open 2 doors please", COMING_TOO).result == CACHE_MISS);
    knobs = was;
    knobs.same_words = false;
    knobs.threshold_en = 1;
    cache_knobs_use(rig.cache, &knobs);
    CHECK(find("t", "how do i open 2 doors please", COMING_TOO).result == CACHE_MISS);
    cache_knobs_use(rig.cache, &was);
    cache_coming_end(rig.cache, &k);
    cache_key_fini(&k);
    end();
}

TEST(what_is_stored_comes_first)
{
    CHECK(begin());
    struct cache_key stored, k = ask("t", "how do i open the door", 1);
    struct openai_answer a;
    char id[36];
    const char *why = NULL;
    CHECK(rig_key(rig.cache, "how do i open the door now", &stored));
    CHECK(rig_answer(&a, "push", "stop"));
    CHECK(cache_fits_similar(&a));
    struct cache_keep_options o = {.trust = 1};
    CHECK(cache_keep(rig.cache, &stored, &a, &o, id, &why) == OK);
    openai_answer_fini(&a);
    (void)rig_until(rig.loop, NULL, NULL, 200); /* its vector */
    struct rig_found f = find("t", "how do i open the door now please", COMING_TOO);
    CHECK(f.result == CACHE_SEMANTIC);
    CHECK(find("t", "how do i open the door now please", COMING_ONLY).result != CACHE_SEMANTIC);
    CHECK(rig_answer(&a, "push", "length"));
    CHECK(!cache_fits_similar(&a));
    openai_answer_fini(&a);
    cache_coming_end(rig.cache, &k);
    cache_key_fini(&k);
    cache_key_fini(&stored);
    end();
}

TEST_MAIN()
