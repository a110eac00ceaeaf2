/* test_quarantine.c - goal: an entry that many unlike questions hit is put out of semantic service on every replica, also after a restart,
 * while equal requests and approved wordings are answered; clearing it brings it back for good. Method: a real redis-server, two caches,
 * knobs that let anything hit and call everything unlike. */
#include "cache/cache.h"

#include "tests/unit/cache/replica_rig.h"

#define KEY "{test}"
static const char *const STORED = "How do I reset my password?";
static const char *const others[] = {
    "Where is the nearest parking lot?", "Can I pay in rates?",
    "Is there a dog in the shop?",       "Who wrote this book?",
    "What does shipping cost?",          "Are batteries included?",
    "May I bring my own cup?",           "Is the lamp waterproof?",
    "Do you sell gift cards?",           "How old is the company?"};
enum { OTHERS = sizeof others / sizeof *others };

static struct cache_knobs lax(void)
{
    struct cache_knobs k = knobs_default();
    k.threshold_en = k.floor = 0.01;
    k.verifier = false;
    k.guards_off = ~UINT64_C(0);
    k.quarantine_cosine = 1;
    return k;
}

static struct rig_found ask_as(struct rig *r, struct replica *x, const char *q, uint64_t asker,
                               const struct cache_knobs *k)
{
    struct cache_lookup_options o = {.max_age_s = -1, .knobs = k, .asker = asker};
    struct cache_key key;
    struct rig_found f = {0};
    if (!rig_key(x->cache, q, &key)) return f;
    f = rig_find_with(r->f.loop, x->cache, &key, &o);
    cache_key_fini(&key);
    return f;
}

/* Asks until the reason is the wanted one; quarantine_questions 0, so that asking counts nowhere. */
static bool becomes(struct rig *r, struct replica *x, const char *q, const char *reason)
{
    struct cache_knobs k = lax();
    k.quarantine_questions = 0;
    uint64_t until = clock_ms() + 20000;
    struct rig_found f;
    while (f = ask_as(r, x, q, 0, &k), strcmp(f.reason, reason) != 0 && clock_ms() < until)
        run(r, 20);
    if (strcmp(f.reason, reason) != 0) printf("    %s: %s\n", q, f.reason);
    return !strcmp(f.reason, reason);
}

/* How many of the questions were answered before none was any more. */
static int hit_it(struct rig *r, struct replica *x, uint64_t asker)
{
    struct cache_knobs k = lax();
    int hits = 0;
    for (int i = 0; i < OTHERS; i++)
        hits += ask_as(r, x, others[i], asker, &k).result == CACHE_SEMANTIC;
    return hits;
}

TEST(an_entry_many_unlike_questions_hit_is_set_aside_everywhere_until_it_is_cleared)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(rig_keep_ttl(r.a.cache, STORED, "Press Reset.", 0, id) == NULL);
    CHECK(becomes(&r, &r.a, others[0], "semantic:policy"));
    CHECK(becomes(&r, &r.b, others[0], "semantic:policy"));
    CHECK_INT(hit_it(&r, &r.a, 5), OTHERS); /* one asker alone does not do it */
    CHECK_INT(hit_it(&r, &r.a, 0), 7);
    CHECK(becomes(&r, &r.a, others[0], "quarantined"));
    CHECK(becomes(&r, &r.b, others[0], "quarantined")); /* what the other saw */
    CHECK_INT(find(&r, &r.b, STORED).result, CACHE_EXACT);
    CHECK_INT(TELL(&r, "FCALL", "deja_wording", "1", KEY, "approve", id, others[3], "ana").kind,
              REDIS_STRING);
    CHECK(becomes(&r, &r.b, others[3], "semantic:wording"));

    close_replica(&r.b);
    REQUIRE(open_replica(&r, &r.b));
    CHECK(becomes(&r, &r.b, others[0], "quarantined"));

    struct reply_seen seen = TELL(&r, "FCALL", "deja_review", "1", KEY, "clear", id, "BY", "ana");
    CHECK(strstr(seen.text, "cleared") != NULL);
    CHECK(becomes(&r, &r.a, others[0], "semantic:policy"));
    CHECK(becomes(&r, &r.b, others[0], "semantic:policy"));
    CHECK_INT(hit_it(&r, &r.a, 0), OTHERS); /* what a person said stands */
    CHECK_INT(hit_it(&r, &r.b, 0), OTHERS);
    close_rig(&r);
}

TEST(without_redis_the_process_keeps_it_aside)
{
    struct errmsg e = {0};
    struct embedder *em;
    struct embedder_options eo = {0};
    struct loop *loop;
    struct rig r = {0};
    REQUIRE(embedder_open(&em, RIG_EMBEDDER, &eo, &e) == OK && loop_new(&loop, &e) == OK);
    r.f.loop = loop;
    r.metrics = metrics_new();
    struct cache_options o = {
        .exact = true, .semantic = true, .embed_deadline_ms = 5000, .secret = 7};
    REQUIRE(cache_open(&r.a.cache, loop, NULL, em, NULL, r.metrics, &o, &e) == OK);
    CHECK(rig_keep(r.a.cache, STORED, "Press Reset.") == NULL);
    CHECK(becomes(&r, &r.a, others[0], "semantic:policy"));
    CHECK_INT(hit_it(&r, &r.a, 0), 7);
    CHECK(becomes(&r, &r.a, others[0], "quarantined"));
    CHECK_INT(rig_find(loop, r.a.cache, STORED).result, CACHE_EXACT);
    cache_close(r.a.cache);
    embedder_close(em);
    loop_free(loop);
    metrics_free(r.metrics);
}

TEST(the_functions_say_what_is_wrong_and_keep_within_their_bound)
{
    NEEDS_SERVER();
    struct rig r;
    char id[40];
    REQUIRE(open_rig(&r, false));
    static const char *const bad[][4] = {{"a", "zz", "9", "9"}, {"a", "0", "x", "9"}};
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(TELL(&r, "FCALL", "deja_quarantine", "1", KEY, bad[i][0], bad[i][1], bad[i][2],
                       bad[i][3])
                      .kind,
                  REDIS_ERROR);
    CHECK(strstr(TELL(&r, "FCALL", "deja_review", "1", KEY, "clear", "1").text, "32 hex") != NULL);
    const char *none = "00000000000000000000000000000abc";
    CHECK(strstr(TELL(&r, "FCALL", "deja_review", "1", KEY, "clear", none).text,
                 "not in quarantine") != NULL);
    CHECK(strstr(TELL(&r, "FCALL", "deja_review", "1", KEY, "quarantine", none).text,
                 "there is no entry") != NULL);
    /* past the bound the oldest one goes, and its entry with it */
    TELL(&r, "HSET", "deja:{test}:e:00000000000000000000000000000abc", "v", "1", "q", "old");
    TELL(&r, "HSET", "deja:{test}:aside", none,
         "{\"s\":\"quarantined\",\"at\":1,\"till\":99999999999,\"n\":9,\"k\":8,\"by\":\"x\",\"ns\":"
         "\"\"}");
    TELL(&r, "EVAL",
         "for i = 1, 4095 do redis.call('HSET', KEYS[1], string.format('%032x', i + 65536), "
         "'{\"s\":\"cleared\",\"at\":2,\"till\":99999999999,\"n\":0,\"k\":0,\"by\":\"x\",\"ns\":"
         "\"\"}') "
         "end return 1",
         "1", "deja:{test}:aside");
    snprintf(id, sizeof id, "%032d", 7);
    CHECK_Z(TELL(&r, "FCALL", "deja_quarantine", "1", KEY, "src", id, "9", "8").text, "SET");
    CHECK_INT(TELL(&r, "HLEN", "deja:{test}:aside").numbers[0], 4096);
    CHECK_INT(TELL(&r, "EXISTS", "deja:{test}:e:00000000000000000000000000000abc").numbers[0], 0);
    CHECK_Z(TELL(&r, "FCALL", "deja_quarantine", "1", KEY, "src",
                 "00000000000000000000000000010001", "9", "8")
                .text,
            "CLEARED");
    close_rig(&r);
}

TEST(a_damaged_item_is_none_and_stops_nobody_who_reads_them_all)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    static const char *const damaged[] = {
        "x",
        "null",
        "[]",
        "{\"s\":\"quarantined\",\"at\":1,\"till\":{}}",
        "{\"s\":\"quarantined\",\"till\":99999999999}",
        "{\"s\":\"quarantined\",\"at\":nan,\"till\":99999999999,\"n\":1,\"k\":1,\"by\":\"x\","
        "\"ns\":\"\"}",
        "{\"s\":7,\"at\":1,\"till\":99999999999,\"n\":1,\"k\":1,\"by\":\"x\",\"ns\":\"\"}",
        "{\"s\":\"quarantined\",\"at\":1,\"till\":99999999999,\"n\":[],\"k\":1,\"by\":\"x\",\"ns\":"
        "\"\"}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        TELL(&r, "HSET", "deja:{test}:aside", "0000000000000000000000000000000a",
             "{\"s\":\"quarantined\",\"at\":1,\"till\":99999999999,\"n\":9,\"k\":8,\"by\":\"x\","
             "\"ns\":\"\"}");
        TELL(&r, "HSET", "deja:{test}:aside", "0000000000000000000000000000000b", damaged[i]);
        const char *list =
            TELL(&r, "FCALL", "deja_review", "1", KEY, "list", "WHAT", "quarantined", "JSON").text;
        CHECK_AT(strstr(list, "0000000a\"") && !strstr(list, "0000000b\""), "%s: %s", damaged[i],
                 list);
        CHECK_INT(TELL(&r, "HLEN", "deja:{test}:aside").numbers[0], 1);
    }
    close_rig(&r);
}

TEST_MAIN()
