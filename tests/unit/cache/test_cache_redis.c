/* test_cache_redis.c - goal: replicas on one Redis see each other's answers and removals within a second, restarts find what was
 * stored, and Redis stalled, killed, flushed or begun anew is never an error and never loses what this process knows.
 * Method: a real redis-server on a unix socket, two caches on one loop, a tiny encoder. */
#include "cache/cache.h"

#include "tests/unit/cache/replica_rig.h"

TEST(a_replica_sees_what_another_kept_exactly_and_similarly)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    /* b asks first, so that its partition is loaded and must follow the log */
    CHECK_INT(find(&r, &r.b, "How can I reset my password?").result, CACHE_MISS);
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    struct rig_found f = find_soon(&r, &r.b, "How can I reset my password?", CACHE_SEMANTIC);
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_EXACT);
    close_rig(&r);
}

TEST(a_removal_reaches_every_replica_within_a_second)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, "How do I reset my password?", "Press Forgot.", 0, id));
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_EXACT).result, CACHE_EXACT);
    CHECK_INT(find_soon(&r, &r.b, "How can I reset my password?", CACHE_SEMANTIC).result,
              CACHE_SEMANTIC);
    (void)TELL(&r, "FCALL", "deja_forget", "1", "{test}", "entry", id);
    CHECK_INT(find_soon(&r, &r.a, "How do I reset my password?", CACHE_MISS).result, CACHE_MISS);
    CHECK_INT(find_soon(&r, &r.a, "How can I reset my password?", CACHE_MISS).result, CACHE_MISS);
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_MISS).result, CACHE_MISS);
    close_rig(&r);
}

TEST(a_newer_answer_replaces_the_older_one_everywhere)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "old"));
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_EXACT).result, CACHE_EXACT);
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "new"));
    uint64_t until = clock_ms() + 20000;
    struct rig_found f = find(&r, &r.b, "How do I reset my password?");
    while (strcmp(f.text, "new") && clock_ms() < until)
        run(&r, 20), f = find(&r, &r.b, "How do I reset my password?");
    CHECK_Z(f.text, "new");
    CHECK_Z(find(&r, &r.b, "how can i reset my password").text, "new");
    close_rig(&r);
}

TEST(a_restarted_process_finds_what_was_stored)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    for (int i = 0; i < 450; i++) { /* more than two batches of loading */
        char q[64];
        snprintf(q, sizeof q, "What does part number %d cost?", i);
        CHECK(!rig_keep(r.a.cache, q, "5"));
        if (i % 100 == 99) run(&r, 50);
    }
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    struct embedder_stats es = {.queued = 1};
    uint64_t until = clock_ms() + 20000;
    do
        run(&r, 500), embedder_stats_read(r.embedder, &es);
    while ((es.queued || es.answered < 451) && clock_ms() < until);
    run(&r, 500);
    close_replica(&r.a);
    REQUIRE(open_replica(&r, &r.a));
    struct rig_found f = find_soon(&r, &r.a, "How can I reset my password?", CACHE_SEMANTIC);
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_INT(find(&r, &r.a, "What does part number 17 cost?").result, CACHE_EXACT);
    CHECK_Z(find(&r, &r.a, "What does part number 17000 cost?").reason, "guard:number");
    struct cache_stats s;
    cache_stats(r.a.cache, &s);
    CHECK_INT(s.entries, 451);
    close_rig(&r);
}

TEST(flushing_redis_empties_every_replica)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    CHECK_INT(find_soon(&r, &r.b, "How can I reset my password?", CACHE_SEMANTIC).result,
              CACHE_SEMANTIC);
    redis_commandf(r.a.link, 0, NULL, NULL, "FLUSHALL");
    run(&r, 1500);
    for (struct replica *x = &r.a; x; x = x == &r.a ? &r.b : NULL) {
        CHECK_INT(find(&r, x, "How do I reset my password?").result, CACHE_MISS);
        CHECK_INT(find(&r, x, "How can I reset my password?").result, CACHE_MISS);
    }
    CHECK(!rig_keep(r.b.cache, "How do I reset my password?", "again"));
    CHECK_Z(find_soon(&r, &r.a, "How can I reset my password?", CACHE_SEMANTIC).text, "again");
    close_rig(&r);
}

static void kill_server(struct rig *r)
{
    fixture_kill(&r->f);
}

TEST(with_redis_killed_the_cache_goes_on_in_process_and_writes_when_it_is_back)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep(r.a.cache, "Where is my parcel?", "There."));
    run(&r, 300);
    kill_server(&r);
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    run(&r, 100);
    CHECK_INT(find(&r, &r.a, "How do I reset my password?").result, CACHE_EXACT);
    CHECK_INT(find(&r, &r.a, "How can I reset my password?").result, CACHE_SEMANTIC);
    struct rig_found f = find(&r, &r.b, "How do I reset my password?");
    CHECK_INT(f.calls, 1);
    CHECK_INT(f.result, CACHE_MISS);
    uint64_t t = clock_ms();
    for (int i = 0; i < 50; i++)
        (void)find(&r, &r.b, "What else is there?");
    CHECK(clock_ms() - t < 2000); /* a dead Redis costs a look-up nothing */
    REQUIRE(fixture_start(&r.f)); /* empty: it kept nothing on disk */
    t = clock_ms();
    do
        run(&r, 50), f = find(&r, &r.b, "How do I reset my password?");
    while (f.result != CACHE_EXACT && clock_ms() - t < 5000);
    CHECK_INT(f.result, CACHE_EXACT);
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_INT(find_soon(&r, &r.b, "how can i reset my password", CACHE_SEMANTIC).result,
              CACHE_SEMANTIC);
    close_rig(&r);
}

TEST(a_stalled_redis_costs_its_deadline_once)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    kill(r.f.pid, SIGSTOP);
    uint64_t t = clock_ms();
    struct rig_found f = find(&r, &r.a, "How do I reset my password?");
    uint64_t first = clock_ms() - t;
    CHECK_INT(f.calls, 1);
    CHECK_INT(f.result, CACHE_MISS);
    CHECK(first < 1500);
    t = clock_ms();
    for (int i = 0; i < 20; i++)
        CHECK_INT(find(&r, &r.a, "Another question entirely").calls, 1);
    CHECK(clock_ms() - t < 1000);
    kill(r.f.pid, SIGCONT);
    close_rig(&r);
}

TEST(an_entry_in_redis_that_does_not_fit_or_cannot_be_read_is_never_served)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36], other[36], key[64], key2[64];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, "How do I reset my password?", "Press Forgot.", 0, id));
    CHECK(!rig_keep_ttl(r.a.cache, "Where is my parcel?", "There.", 0, other));
    run(&r, 300);
    snprintf(key, sizeof key, "deja:{test}:e:%s", id);
    snprintf(key2, sizeof key2, "deja:{test}:e:%s", other);
    redis_commandf(r.a.link, 0, NULL, NULL, "COPY %s %s REPLACE", key2,
                   key); /* as if two keys had collided */
    run(&r, 100);
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_MISS);
    redis_commandf(r.a.link, 0, NULL, NULL, "DEL %s", key);
    redis_commandf(r.a.link, 0, NULL, NULL, "HSET %s a %s", key2, "{broken");
    run(&r, 100);
    CHECK_INT(find(&r, &r.b, "Where is my parcel?").result, CACHE_MISS);
    redis_commandf(r.a.link, 0, NULL, NULL, "HSET %s v %s", key2, "99");
    redis_commandf(r.a.link, 0, NULL, NULL, "SET %s %s", key, "not a hash");
    run(&r, 100);
    CHECK_INT(find(&r, &r.b, "Where is my parcel?").result, CACHE_MISS);
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_MISS);
    close_rig(&r);
}

TEST(redis_forgets_entries_after_their_time)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, "How do I reset my password?", "Press Forgot.", 4, id));
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_EXACT).result, CACHE_EXACT);
    run(&r, 5200);
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_MISS);
    CHECK_INT(find(&r, &r.b, "How can I reset my password?").result, CACHE_MISS);
    close_rig(&r);
}

TEST(the_functions_refuse_wrong_arguments_with_what_would_be_right)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"FCALL deja_put 1 k x", "needs 4 keys"},
        {"FCALL deja_put 4 {k}a {k}b {k}c {k}d short 1 1 1000 src p f v", "32 hex digits"},
        {"FCALL deja_put 4 {k}a {k}b {k}c {k}d 0123456789abcdef0123456789abcdef 99 0 1000 src p f "
         "v",
         "ttl_s"},
        {"FCALL deja_put 4 {k}a {k}b {k}c {k}d 0123456789abcdef0123456789abcdef 99 1 5 src p f v",
         "log_items_max"},
        {"FCALL deja_put 4 {k}a {k}b {k}c {k}d 0123456789abcdef0123456789abcdef 99 1 1000 src p f",
         "pairs"},
        {"FCALL deja_epoch 1 {k}b x", "log_items_max"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str argv[24], rest = str_of(cases[i].args);
        struct reply_seen seen = {0};
        int n = 0;
        while (n < 24 && str_next(&rest, ' ', &argv[n]))
            n++;
        redis_command(r.a.link, n, argv, 1000, note_reply, &seen);
        run(&r, 50);
        CHECK(seen.came && seen.kind == REDIS_ERROR);
        CHECK_AT(strstr(seen.text, cases[i].says) != NULL, "%s: says \"%s\"", cases[i].args,
                 seen.text);
    }
    struct reply_seen keys = {0};
    redis_commandf(r.a.link, 1000, note_reply, &keys, "GET %s", "{k}a");
    run(&r, 50);
    CHECK_INT(keys.kind, REDIS_NIL); /* nothing has changed */
    close_rig(&r);
}

TEST(an_epoch_makes_every_replica_forget_what_redis_has_not_got)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_EXACT).result, CACHE_EXACT);
    run(&r, 300); /* the log's word of the entry drops b's copy: let it come, then fetch it again */
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_EXACT);
    struct cache_key k;
    char id[33], key[64];
    REQUIRE(rig_key(r.a.cache, "How do I reset my password?", &k));
    hash_hex(k.exact, id);
    cache_key_fini(&k);
    snprintf(key, sizeof key, "deja:{test}:e:%s", id);
    redis_commandf(r.a.link, 0, NULL, NULL, "DEL %s", key); /* behind the functions' back */
    run(&r, 100);
    CHECK_INT(find(&r, &r.b, "How do I reset my password?").result, CACHE_EXACT);
    redis_commandf(r.a.link, 0, NULL, NULL, "FCALL deja_epoch 1 deja:{test}:log me 1000");
    CHECK_INT(find_soon(&r, &r.b, "How do I reset my password?", CACHE_MISS).result, CACHE_MISS);
    CHECK_INT(find_soon(&r, &r.a, "How do I reset my password?", CACHE_MISS).result, CACHE_MISS);
    close_rig(&r);
}

TEST(closing_while_redis_is_stalled_leaks_nothing)
{
    NEEDS_SERVER();
    struct rig r;
    struct cache_key k;
    struct rig_found f = {0};
    struct cache_lookup_options o = {.max_age_s = -1};
    REQUIRE(open_rig(&r, true));
    kill(r.f.pid, SIGSTOP);
    CHECK(!rig_keep(r.a.cache, "How do I reset my password?", "Press Forgot."));
    REQUIRE(rig_key(r.a.cache, "Where is my parcel?", &k));
    (void)cache_find(r.a.cache, &k, &o, rig_note, &f);
    run(&r, 5);
    close_rig(&r);
    cache_key_fini(&k);
    CHECK_INT(f.calls, 0);
}

TEST_MAIN()
