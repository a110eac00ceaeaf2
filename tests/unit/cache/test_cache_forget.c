/* test_cache_forget.c - goal: what is removed is gone on every replica within a second and for good, by entry, prompt, tag, namespace,
 * model, tenant or all, with nothing else lost and a dry run that only counts; what is judged (another wording, a veto, a wrong
 * answer) holds on every replica, after restarts and when the answer is stored anew. Method: a real redis-server, two caches. */
#include "cache/cache.h"

#include "cache/wording.h"
#include "tests/unit/cache/replica_rig.h"

#define KEY "{test}"

/* One question under a tenant, model, namespace and tags. */
struct asked {
    const char *tenant, *model, *ns, *tags, *question;
};
static const struct asked stored[] = {{"acme", "m1", "", "faq,returns", "How do I return a lamp?"},
                                      {"acme", "m2", "", "faq", "How do I return a lamp?"},
                                      {"zeta", "m1", "shop", "prices", "What does a lamp cost?"}};
enum { STORED = sizeof stored / sizeof *stored };

static bool key_of(struct cache *c, const struct asked *x, struct cache_key *out)
{
    struct buf body;
    struct openai_request r;
    buf_init(&body, 1 << 16);
    buf_z(&body, "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":");
    json_write_string(&body, str_of(x->question));
    buf_z(&body, "}]}");
    bool ok = rig_request(&r, body.p);
    struct cache_scope scope = {str_of(x->tenant), str_of(x->ns), str_of(x->model)};
    if (ok) {
        ok = cache_key_make(c, &r, &scope, out) == OK;
        openai_request_fini(&r);
    }
    buf_fini(&body);
    return ok;
}

static void keep(struct cache *c, const struct asked *x, const char *text, char id[36])
{
    struct cache_key k;
    struct openai_answer a = {0};
    const char *why = NULL;
    struct cache_keep_options o = {.tags = str_of(x->tags), .trust = 1};
    REQUIRE(key_of(c, x, &k) && rig_answer(&a, text, "stop"));
    CHECK_INT(cache_keep(c, &k, &a, &o, id, &why), OK);
    openai_answer_fini(&a);
    cache_key_fini(&k);
}

static enum cache_result look(struct rig *r, struct replica *at, const struct asked *x)
{
    struct cache_key k;
    struct cache_lookup_options o = {.max_age_s = -1};
    if (!key_of(at->cache, x, &k)) return CACHE_MISS;
    struct rig_found f = rig_find_with(r->f.loop, at->cache, &k, &o);
    cache_key_fini(&k);
    return f.result;
}

static bool becomes(struct rig *r, struct replica *at, const struct asked *x,
                    enum cache_result want)
{
    uint64_t until = clock_ms() + 20000;
    enum cache_result got = look(r, at, x);
    while (got != want && clock_ms() < until) {
        run(r, 20);
        got = look(r, at, x);
    }
    return got == want;
}

TEST(whatever_names_them_entries_are_removed_everywhere_and_nothing_else_is)
{
    static const struct {
        const char *by, *value;
        bool gone[STORED];
    } cases[] = {{"prompt", "How do I return a lamp?", {true, true, false}},
                 {"tag", "faq", {true, true, false}},
                 {"tag", "returns", {true, false, false}},
                 {"ns", "shop", {false, false, true}},
                 {"namespace", "", {true, true, false}},
                 {"model", "m1", {true, false, true}},
                 {"tenant", "zeta", {false, false, true}},
                 {"all", NULL, {true, true, true}}};
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, true));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char id[36];
        int gone = 0;
        for (int k = 0; k < STORED; k++) {
            keep(r.a.cache, &stored[k], "so", id);
            CHECK(becomes(&r, &r.b, &stored[k], CACHE_EXACT));
            gone += cases[i].gone[k];
        }
        bool all = !cases[i].value;
        struct reply_seen dry =
            all ? TELL(&r, "FCALL", "deja_forget", "1", KEY, "all", "dry")
                : TELL(&r, "FCALL", "deja_forget", "1", KEY, cases[i].by, cases[i].value, "dry");
        CHECK_AT(dry.numbers[0] == gone && dry.numbers[1] == 0, "dry %s: %lld %s", cases[i].by,
                 (long long)dry.numbers[0], dry.text);
        for (int k = 0; k < STORED; k++)
            CHECK_INT(look(&r, &r.b, &stored[k]), CACHE_EXACT);
        struct reply_seen seen =
            all ? TELL(&r, "FCALL", "deja_forget", "1", KEY, "all")
                : TELL(&r, "FCALL", "deja_forget", "1", KEY, cases[i].by, cases[i].value);
        CHECK_AT(seen.numbers[0] == gone && seen.numbers[1] == gone, "%s: %lld", cases[i].by,
                 (long long)seen.numbers[0]);
        for (int k = 0; k < STORED; k++)
            for (struct replica *x = &r.a; x; x = x == &r.a ? &r.b : NULL)
                CHECK_AT(becomes(&r, x, &stored[k], cases[i].gone[k] ? CACHE_MISS : CACHE_EXACT),
                         "%s %s, entry %d", cases[i].by, all ? "" : cases[i].value, k);
        (void)TELL(&r, "FCALL", "deja_forget", "1", KEY, "all");
        CHECK(becomes(&r, &r.a, &stored[1], CACHE_MISS) &&
              becomes(&r, &r.b, &stored[1], CACHE_MISS));
    }
    close_rig(&r);
}

TEST(an_answer_asked_for_before_a_removal_is_not_stored_after_it)
{
    NEEDS_SERVER();
    struct rig r;
    struct cache_key k;
    struct openai_answer a = {0};
    const char *why = NULL;
    char id[36];
    struct cache_keep_options o = {.tags = STR("faq")};
    REQUIRE(open_rig(&r, true));
    REQUIRE(key_of(r.a.cache, &stored[0], &k) && rig_answer(&a, "old", "stop"));
    (void)TELL(&r, "FCALL", "deja_forget", "1", KEY, "tag", "faq"); /* while the model was at it */
    CHECK_INT(cache_keep(r.a.cache, &k, &a, &o, id, &why), OK);
    run(&r, 300);
    CHECK(becomes(&r, &r.a, &stored[0], CACHE_MISS) && becomes(&r, &r.b, &stored[0], CACHE_MISS));
    openai_answer_fini(&a);
    cache_key_fini(&k);
    keep(r.a.cache, &stored[0], "new", id);
    CHECK(becomes(&r, &r.b, &stored[0], CACHE_EXACT));
    close_rig(&r);
}

TEST(a_removal_holds_for_a_process_that_was_away)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    keep(r.a.cache, &stored[0], "so", id);
    CHECK(becomes(&r, &r.b, &stored[0], CACHE_EXACT));
    close_replica(&r.b);
    (void)TELL(&r, "FCALL", "deja_forget", "1", KEY, "tenant", "acme");
    (void)TELL(&r, "XTRIM", "deja:{test}:log", "MAXLEN", "0");
    REQUIRE(open_replica(&r, &r.b));
    CHECK(becomes(&r, &r.b, &stored[0], CACHE_MISS) && becomes(&r, &r.a, &stored[0], CACHE_MISS));
    keep(r.b.cache, &stored[0], "again", id);
    CHECK(becomes(&r, &r.a, &stored[0], CACHE_EXACT));
    close_rig(&r);
}

struct puts {
    int sent, done;
};
static void put_done(void *arg, enum err code, const struct redis_reply *reply)
{
    ((struct puts *)arg)->done += code == OK && reply->kind != REDIS_ERROR;
}
static bool all_done(void *arg)
{
    return ((struct puts *)arg)->done == ((struct puts *)arg)->sent;
}

TEST(many_entries_are_void_at_once_and_deleted_bit_by_bit)
{
    enum { MANY = 1700 };
    NEEDS_SERVER();
    struct rig r;
    struct puts puts = {0};
    REQUIRE(open_rig(&r, false));
    for (int i = 0; i < MANY; i++) {
        char id[33], key[80], part[33];
        snprintf(id, sizeof id, "%032x", i + 1);
        snprintf(part, sizeof part, "%032x", 7);
        snprintf(key, sizeof key, "deja:{test}:e:%s", id);
        redis_commandf(
            r.a.link, 20000, put_done, &puts,
            "FCALL deja_put 4 %s {test}l {test}p {test}q %s 9999999999 9999 1000 me %s v 1 "
            "tenant acme model m tags faq q same part %s ep 0",
            key, id, part, part);
        puts.sent++;
        if (i % 100 < 99) continue;
        REQUIRE(rig_until(r.f.loop, all_done, &puts, 30000));
        REQUIRE(rig_until(r.f.loop, link_usable, &r, 30000));
    }
    struct reply_seen n = TELL(&r, "DBSIZE");
    CHECK(n.numbers[0] > MANY);
    struct reply_seen seen = TELL(&r, "FCALL", "deja_forget", "1", KEY, "tag", "faq");
    CHECK_INT(seen.numbers[0], MANY);
    CHECK_INT(seen.numbers[1] + seen.numbers[2], MANY);
    CHECK(seen.numbers[2] > 0);
    uint64_t until = clock_ms() + 60000;
    do
        run(&r, 100), n = TELL(&r, "DBSIZE");
    while (n.numbers[0] > 20 && clock_ms() < until);
    CHECK_AT(n.numbers[0] < 20, "%lld keys are left", (long long)n.numbers[0]);
    close_rig(&r);
}

static const char *question_of_rig = "How do I reset my password?";

TEST(an_approved_wording_hits_on_every_replica_without_a_vector_and_survives_its_entry)
{
    const char *said = "locked out of the account, what now";
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, question_of_rig, "Press Forgot.", 0, id));
    run(&r, 300);
    CHECK_INT(find(&r, &r.b, said).result, CACHE_MISS);
    struct reply_seen wid =
        TELL(&r, "FCALL", "deja_wording", "1", KEY, "approve", id, said, "person");
    CHECK_INT(wid.kind, REDIS_STRING);
    struct rig_found f = find_soon(&r, &r.b, said, CACHE_SEMANTIC);
    CHECK_INT(f.result, CACHE_SEMANTIC);
    CHECK_Z(f.reason, "semantic:wording");
    CHECK_Z(f.text, "Press Forgot.");
    CHECK_INT(find_soon(&r, &r.a, said, CACHE_SEMANTIC).result, CACHE_SEMANTIC);
    struct embedder_stats before, after;
    embedder_stats_read(r.embedder, &before);
    CHECK_INT(find(&r, &r.a, "Locked out of the account - what now?").result, CACHE_SEMANTIC);
    embedder_stats_read(r.embedder, &after);
    CHECK_INT(before.submitted, after.submitted); /* no vector was asked for */
    close_replica(&r.b);
    REQUIRE(open_replica(&r, &r.b));
    CHECK_INT(find_soon(&r, &r.b, said, CACHE_SEMANTIC).result, CACHE_SEMANTIC);
    (void)TELL(&r, "FCALL", "deja_forget", "1", KEY, "entry", id);
    CHECK_INT(find_soon(&r, &r.b, said, CACHE_MISS).result, CACHE_MISS);
    CHECK(!rig_keep(r.a.cache, question_of_rig, "Press Forgot again."));
    f = find_soon(&r, &r.b, said, CACHE_SEMANTIC);
    CHECK_Z(f.text, "Press Forgot again.");
    (void)TELL(&r, "FCALL", "deja_wording", "1", KEY, "revoke", id, said, "person");
    CHECK_INT(find_soon(&r, &r.a, said, CACHE_MISS).result, CACHE_MISS);
    CHECK_INT(find_soon(&r, &r.b, said, CACHE_MISS).result, CACHE_MISS);
    close_rig(&r);
}

TEST(a_vetoed_question_never_gets_the_answer_on_any_replica)
{
    const char *said = "How can I reset my password?";
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, question_of_rig, "Press Forgot.", 0, id));
    run(&r, 300);
    CHECK_INT(find_soon(&r, &r.b, said, CACHE_SEMANTIC).result, CACHE_SEMANTIC);
    (void)TELL(&r, "FCALL", "deja_wording", "1", KEY, "veto", id, said, "person");
    struct rig_found f = find_soon(&r, &r.b, said, CACHE_MISS);
    CHECK_INT(f.result, CACHE_MISS);
    CHECK_Z(f.reason, "veto");
    CHECK_INT(find_soon(&r, &r.a, "how can i reset my password", CACHE_MISS).result, CACHE_MISS);
    close_replica(&r.b);
    REQUIRE(open_replica(&r, &r.b));
    CHECK_INT(find(&r, &r.b, said).result, CACHE_MISS);
    (void)TELL(&r, "FCALL", "deja_forget", "1", KEY, "entry", id);
    CHECK(!rig_keep(r.a.cache, question_of_rig, "Press Forgot."));
    run(&r, 300);
    CHECK_INT(find(&r, &r.a, said).result, CACHE_MISS);
    CHECK_INT(find(&r, &r.a, question_of_rig).result, CACHE_EXACT);
    close_rig(&r);
}

TEST(an_answer_called_wrong_is_gone_and_does_not_come_back)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, question_of_rig, "Call the moon.", 0, id));
    CHECK_INT(find_soon(&r, &r.b, question_of_rig, CACHE_EXACT).result, CACHE_EXACT);
    struct reply_seen seen = TELL(&r, "FCALL", "deja_feedback", "1", KEY, "wrong", id);
    CHECK(seen.numbers[0] == 1 && seen.numbers[1] == 1);
    for (struct replica *x = &r.a; x; x = x == &r.a ? &r.b : NULL) {
        CHECK_INT(find_soon(&r, x, question_of_rig, CACHE_MISS).result, CACHE_MISS);
        CHECK_Z(rig_keep(x->cache, question_of_rig, "Call the moon."), "called_wrong");
    }
    close_replica(&r.b);
    REQUIRE(open_replica(&r, &r.b)); /* a fresh process knows too */
    run(&r, 300);
    CHECK_Z(rig_keep(r.b.cache, question_of_rig, "Call the moon."), "called_wrong");
    CHECK(!rig_keep(r.b.cache, question_of_rig, "Press Forgot."));
    CHECK_Z(find_soon(&r, &r.a, question_of_rig, CACHE_EXACT).text, "Press Forgot.");
    close_rig(&r);
}

TEST(a_wrong_similar_hit_leaves_a_veto_for_the_pair)
{
    const char *said = "How can I reset my password?";
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, question_of_rig, "Press Forgot.", 0, id));
    run(&r, 300);
    CHECK_INT(find_soon(&r, &r.b, said, CACHE_SEMANTIC).result, CACHE_SEMANTIC);
    struct reply_seen seen = TELL(&r, "FCALL", "deja_feedback", "1", KEY, "wrong", id, said);
    CHECK(seen.numbers[0] == 1 && seen.numbers[1] == 1);
    CHECK_INT(find_soon(&r, &r.b, question_of_rig, CACHE_MISS).result, CACHE_MISS);
    CHECK(!rig_keep(r.b.cache, question_of_rig, "Press Forgot.")); /* right for its own question */
    run(&r, 300);
    CHECK_INT(find_soon(&r, &r.a, question_of_rig, CACHE_EXACT).result, CACHE_EXACT);
    CHECK_INT(find(&r, &r.a, said).result, CACHE_MISS);
    CHECK_INT(find(&r, &r.b, said).result, CACHE_MISS);
    close_rig(&r);
}

TEST(an_answer_of_more_trust_is_not_replaced)
{
    NEEDS_SERVER();
    struct rig r;
    struct cache_key k;
    struct openai_answer a = {0};
    const char *why = NULL;
    char id[36];
    struct cache_keep_options o = {.trust = 9};
    REQUIRE(open_rig(&r, true));
    REQUIRE(rig_key(r.a.cache, question_of_rig, &k) && rig_answer(&a, "Pinned.", "stop"));
    CHECK_INT(cache_keep(r.a.cache, &k, &a, &o, id, &why), OK);
    run(&r, 300);
    CHECK(!rig_keep(r.b.cache, question_of_rig, "Improvised."));
    run(&r, 300);
    CHECK_Z(find(&r, &r.b, question_of_rig).text, "Pinned.");
    CHECK_Z(find(&r, &r.a, question_of_rig).text, "Pinned.");
    openai_answer_fini(&a);
    cache_key_fini(&k);
    close_rig(&r);
}

TEST(the_functions_say_what_would_be_right)
{
    static const struct {
        const char *words[8], *says;
    } cases[] = {
        {{"FCALL", "deja_forget", "1", KEY}, "say what"},
        {{"FCALL", "deja_forget", "1", "nothing", "all"}, "{deja}"},
        {{"FCALL", "deja_forget", "1", KEY, "tags", "x"}, "it may be entry, prompt, tag"},
        {{"FCALL", "deja_forget", "1", KEY, "tag", "x", "wet"}, "only be dry"},
        {{"FCALL", "deja_forget", "1", KEY, "entry", "x"}, "x-deja-entry"},
        {{"FCALL", "deja_sweep", "1", KEY, "0"}, "1 to 100000"},
        {{"FCALL", "deja_wording", "1", KEY, "approve", "x"}, "needs: verb entry text by"},
        {{"FCALL", "deja_wording", "1", KEY, "like", "x", "y", "me"}, "approve, veto or revoke"},
        {{"FCALL", "deja_wording", "1", KEY, "veto", "x", "y", "me"}, "32 hex digits"},
        {{"FCALL", "deja_wording", "1", KEY, "veto", "00000000000000000000000000000001", "y", "me"},
         "there is no entry"},
        {{"FCALL", "deja_feedback", "1", KEY, "bad", "x"}, "32 hex digits"},
        {{"FCALL", "deja_feedback", "1", KEY, "wrong", "00000000000000000000000000000001"},
         "there is no entry"}};
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_rig(&r, false));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        while (n < 8 && cases[i].words[n])
            n++;
        struct reply_seen seen = tell_redis(&r, n, cases[i].words);
        CHECK_INT(seen.kind, REDIS_ERROR);
        CHECK_AT(strstr(seen.text, cases[i].says), "case %zu says \"%s\"", i, seen.text);
    }
    close_rig(&r);
}

TEST(a_judged_text_that_cannot_be_read_is_counted_and_changes_nothing)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36];
    REQUIRE(open_rig(&r, true));
    CHECK(!rig_keep_ttl(r.a.cache, question_of_rig, "Press Forgot.", 0, id));
    run(&r, 300);
    CHECK_INT(find_soon(&r, &r.b, "how can i reset my password", CACHE_SEMANTIC).result,
              CACHE_SEMANTIC);
    struct reply_seen part = TELL(&r, "HGET", "x", "y");
    char entry_key[80];
    snprintf(entry_key, sizeof entry_key, "deja:{test}:e:%s", id);
    part = TELL(&r, "HGET", entry_key, "part");
    (void)TELL(&r, "HSET", "deja:{test}:e:000000000000000000000000000000aa", "v", "2", "role", "w",
               "part", part.text, "q", "spoilt", "of", "zz", "created", "1", "ttl", "9999999999");
    (void)TELL(&r, "XADD", "deja:{test}:log", "*", "op", "put", "id",
               "000000000000000000000000000000aa", "part", part.text, "src", "", "judged", "1");
    run(&r, 300);
    struct metric *m = metrics_get(r.metrics, METRIC_COUNTER, "deja_cache_corrupt_total", "",
                                   "entries in Redis that could not be read", 0, 0);
    CHECK(metric_value(m) > 0);
    CHECK_INT(find(&r, &r.b, "spoilt").result, CACHE_MISS);
    CHECK_INT(find(&r, &r.b, "how can i reset my password").result, CACHE_SEMANTIC);
    close_rig(&r);
}

TEST_MAIN()
