/* test_cache_bound.c - goal: evidence reaches every replica in one order, survives restarts and a trimmed log, and in mode "bound" decides
 * there alike; answers of the model to questions that were not served are evidence by themselves. Method: a real redis-server, two
 * caches, a tiny encoder; evidence given through the cache and through redis-cli. */
#include "cache/cache.h"

#include "tests/unit/cache/replica_rig.h"

static const char *const question = "How do I reset my password?", *const near = "reset account";

static struct cache_bound_report report(struct replica *x)
{
    struct cache_bound_report out;
    cache_bound_report(x->cache, STR(""), 0.05, &out);
    return out;
}

static void learn(struct rig *r, int n, const char *cosine, const char *right)
{
    for (int i = 0; i < n; i++) {
        const char *words[] = {"FCALL",    "deja_evidence",
                               "1",        "{test}",
                               "me",       "person",
                               "entry",    "00000000000000000000000000000001",
                               "ns",       "",
                               "right",    right,
                               "weight",   "1",
                               "cosine",   cosine,
                               "floor",    "0",
                               "rival",    "-1",
                               "agree",    "1",
                               "verifier", "-1",
                               "zh",       "0"};
        struct str argv[sizeof words / sizeof *words];
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            argv[k] = str_of(words[k]);
        redis_command(r->a.link, sizeof words / sizeof *words, argv, 1000, NULL, NULL);
    }
    run(r, 400);
}

TEST(evidence_counts_alike_on_every_replica_and_after_a_restart)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    learn(&r, 300, "0.97", "1");
    learn(&r, 300, "0.50", "0");
    struct cache_bound_report a = report(&r.a), b = report(&r.b);
    CHECK_INT(a.n, 600);
    CHECK(a.limit > 0 && a.limit == b.limit && a.right == 300 && b.wrong == 300);
    CHECK(a.served_share > 0.3 && a.served_share < 0.6 && a.error_high < 0.05);
    close_replica(&r.b);
    (void)TELL(&r, "XTRIM", "deja:{test}:log", "MAXLEN", "0");
    REQUIRE(open_replica(&r, &r.b));
    run(&r, 600);
    b = report(&r.b);
    CHECK_INT(b.n, 600);
    CHECK_NEAR(b.limit, a.limit, 1e-9);
    learn(&r, 10, "0.97", "1");
    CHECK_INT(report(&r.a).n, 610);
    CHECK_INT(report(&r.b).n, 610); /* none twice, none missed */
    CHECK_INT(report(&r.b).right, 310);
    close_rig(&r);
}

TEST(in_mode_bound_a_similar_question_is_served_only_once_enough_is_known)
{
    NEEDS_SERVER();
    struct rig r;
    struct cache_knobs k = knobs_default();
    REQUIRE(open_rig(&r, true));
    k.mode = KNOB_MODE_BOUND;
    k.max_error = 0.05;
    cache_knobs_use(r.a.cache, &k);
    cache_knobs_use(r.b.cache, &k);
    CHECK(!rig_keep(r.a.cache, question, "Press Forgot."));
    run(&r, 300);
    struct rig_found f = find(&r, &r.b, near);
    CHECK_INT(f.result, CACHE_MISS);
    CHECK_AT(!strcmp(f.reason, "bound:learning") || !strncmp(f.reason, "guard:", 6), "%s",
             f.reason);
    f = find(&r, &r.b, "how can I reset my password"); /* the same words: measured all the same */
    CHECK_Z(f.reason, "bound:learning");
    k.mode = KNOB_MODE_THRESHOLD;
    cache_knobs_use(r.b.cache, &k);
    CHECK_Z(find(&r, &r.b, "how can I reset my password").reason, "semantic:same");
    close_rig(&r);
}

TEST(evidence_is_about_what_a_look_up_decided_on)
{
    NEEDS_SERVER();
    struct rig r;
    struct cache_key k;
    char id[36];
    REQUIRE(open_rig(&r, false));
    CHECK(!rig_keep_ttl(r.a.cache, question, "Press Forgot.", 0, id));
    run(&r, 200);
    const char *said = "Where can I see what I ordered";
    REQUIRE(rig_key(r.a.cache, said, &k));
    CHECK_INT(cache_evidence_add(r.a.cache, &k, str_of(id), true, "person"), ERR_NOT_FOUND);
    CHECK_INT(cache_evidence_add(r.a.cache, &k, STR("what"), true, "person"), ERR_INVALID);
    struct rig_found f = find(&r, &r.a, said);
    if (!strncmp(f.reason, "guard:", 6) || !strcmp(f.reason, "below_floor")) {
        CHECK_INT(cache_evidence_add(r.a.cache, &k, str_of(id), true, "person"), ERR_NOT_FOUND);
    } else {
        CHECK_INT(cache_evidence_add(r.a.cache, &k, str_of(id), false, "person"), OK);
        run(&r, 400);
        CHECK_INT(report(&r.a).wrong, 1);
    }
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(feedback_is_evidence_once_however_many_replicas_know_the_question)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    struct cache_knobs k = knobs_default();
    REQUIRE(open_rig(&r, true));
    k.mode = KNOB_MODE_BOUND;
    k.guards_off = ~UINT64_C(0);
    cache_knobs_use(r.a.cache, &k);
    cache_knobs_use(r.b.cache, &k);
    CHECK(!rig_keep_ttl(r.a.cache, question, "Press Forgot.", 0, id));
    run(&r, 300);
    CHECK_Z(find(&r, &r.a, near).reason, "bound:learning");
    CHECK_Z(find(&r, &r.b, near).reason, "bound:learning");
    (void)TELL(&r, "FCALL", "deja_feedback", "1", "{test}", id, "right", near);
    uint64_t until = clock_ms() + 20000;
    while (clock_ms() < until && (report(&r.a).n < 1 || report(&r.b).n < 1))
        run(&r, 20);
    (void)TELL(&r, "FCALL", "deja_feedback", "1", "{test}", id, "right", "a question nobody asked");
    (void)TELL(&r, "FCALL", "deja_feedback", "1", "{test}", id, "right"); /* nothing was served */
    (void)TELL(&r, "FCALL", "deja_feedback", "1", "{test}", id, "wrong", near);
    while (clock_ms() < until && (report(&r.a).n < 2 || report(&r.b).n < 2))
        run(&r, 20);
    run(&r, 400); /* a second piece of either would come now */
    CHECK(report(&r.a).right == 1 && report(&r.a).wrong == 1);
    CHECK(report(&r.b).right == 1 && report(&r.b).wrong == 1);
    close_rig(&r);
}

TEST(what_the_model_answers_to_a_question_that_was_not_served_is_evidence)
{
    static const struct {
        const char *text;
        double right, wrong;
    } cases[] = {
        {"Press Forgot.", 1, 0}, {"Wait 3 days.", 0, 1}, {"Ask the people at the desk.", 0, 0}};
    NEEDS_SERVER();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        struct cache_knobs k = knobs_default();
        struct errmsg e = {0};
        REQUIRE(open_rig(&r, false));
        k.mode = KNOB_MODE_BOUND;
        for (size_t g = 0; g < knobs_count();
             g++) /* whatever the guards think: it is about what follows them */
            if (knob_at(g).bit >= 0)
                REQUIRE(knobs_set(&k, str_of(knob_at(g).name), STR("no"), &e) == OK);
        cache_knobs_use(r.a.cache, &k);
        CHECK(!rig_keep(r.a.cache, question, "Press Forgot."));
        run(&r, 200);
        CHECK_Z(find(&r, &r.a, near).reason, "bound:learning");
        CHECK(!rig_keep(r.a.cache, near, cases[i].text));
        run(&r, 400);
        struct cache_bound_report b = report(&r.a);
        CHECK_AT(b.right == cases[i].right && b.wrong == cases[i].wrong,
                 "%s: %.0f right %.0f wrong", cases[i].text, b.right, b.wrong);
        close_rig(&r);
    }
}

TEST(the_function_says_what_would_be_right)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    struct reply_seen s = TELL(&r, "FCALL", "deja_evidence", "1", "{test}", "me");
    CHECK_AT(strstr(s.text, "needs: source by"), "%s", s.text);
    s = TELL(&r, "FCALL", "deja_evidence", "1", "{test}", "me", "you", "entry", "x");
    CHECK_AT(strstr(s.text, "x-deja-entry"), "%s", s.text);
    s = TELL(&r, "FCALL", "deja_evidence", "1", "{test}", "me", "you", "entry",
             "00000000000000000000000000000001", "right", "maybe");
    CHECK_AT(strstr(s.text, "1 or 0"), "%s", s.text);
    s = TELL(&r, "FCALL", "deja_evidence", "1", "{test}", "me", "you", "entry",
             "00000000000000000000000000000001", "right", "1", "weight", "7");
    CHECK_AT(strstr(s.text, "0 to 1"), "%s", s.text);
    close_rig(&r);
}

TEST_MAIN()
