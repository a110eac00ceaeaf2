/* test_tokens.c - goal: what the verifier's net needs of a stored question is put into Redis and taken from there; what is spoilt, of
 * another text or not there is computed, and put there. Method: a real redis-server, the tiny net that calls every pair the same, a new
 * embedder for each question. */
#include "cache/cache.h"

#include "tests/unit/cache/replica_rig.h"

static const char *const STORED = "How do I reset my password?", *const ASKED =
                                                                     "How do I reset my router?";

/* A process of its own: an embedder that remembers nothing yet. */
static bool start(struct rig *r)
{
    struct errmsg e = {0};
    struct embedder_options eo = {.pair_net = TEST_DATA "/tiny-pair.gguf"};
    if (embedder_open(&r->embedder, RIG_EMBEDDER, &eo, &e) != OK) return false;
    return open_replica(r, &r->a);
}

static void stop(struct rig *r)
{
    close_replica(&r->a);
    embedder_close(r->embedder);
}

static bool open_all(struct rig *r)
{
    memset(r, 0, sizeof *r);
    if (!fixture_open(&r->f)) return false;
    r->metrics = metrics_new();
    r->workers = workers_new(1, 64);
    return start(r);
}

static void close_all(struct rig *r)
{
    stop(r);
    workers_free(r->workers);
    fixture_close(&r->f);
    metrics_free(r->metrics);
}

static struct rig_found ask_in_a_new_process(struct rig *r, const char *question)
{
    stop(r);
    if (!start(r)) return (struct rig_found){0};
    return find_soon(r, &r->a, question, CACHE_SEMANTIC);
}

/* Bytes of the field. */
static int64_t field(struct rig *r, const char *id)
{
    char key[80];
    snprintf(key, sizeof key, "deja:{test}:e:%s", id);
    struct reply_seen s = TELL(r, "HSTRLEN", key, "net");
    return s.n_numbers ? s.numbers[0] : -1;
}

/* Asks until the field is there: on a busy machine a command may be lost. */
static bool is_made(struct rig *r, const char *id)
{
    uint64_t until = clock_ms() + 60000;
    while (clock_ms() < until) {
        CHECK_Z(ask_in_a_new_process(r, ASKED).reason, "semantic:verifier");
        run(r, 50);
        if (field(r, id) > 60) return true;
    }
    return false;
}

TEST(a_question_is_stored_with_what_the_verifier_needs_and_spoilt_ones_are_made_anew)
{
    NEEDS_SERVER();
    struct rig r;
    char id[36], key[80];
    REQUIRE(open_all(&r));
    uint64_t until = clock_ms() + 60000;
    do { /* an answer whose first way to Redis was lost comes without */
        CHECK(!rig_keep_ttl(r.a.cache, STORED, "Press Forgot.", 0, id));
        run(&r, 200);
    } while (field(&r, id) <= 60 && clock_ms() < until);
    CHECK(field(&r, id) > 60);
    CHECK(is_made(&r, id));

    snprintf(key, sizeof key, "deja:{test}:e:%s", id);
    static const char *const spoilt[] = {"", "x", "12345678 is not a hash of the text"};
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        TELL(&r, "HSET", key, "net", spoilt[i]);
        CHECK_AT(is_made(&r, id), "\"%s\" was not replaced", spoilt[i]);
    }
    TELL(&r, "HDEL", key, "net");
    CHECK(is_made(&r, id));
    close_all(&r);
}

TEST(an_entry_that_is_gone_is_not_brought_back_by_its_tokens)
{
    NEEDS_SERVER();
    struct rig r;
    REQUIRE(open_all(&r));
    CHECK_INT(TELL(&r, "FCALL", "deja_tokens", "1",
                   "deja:{test}:e:00000000000000000000000000000001", "bytes")
                  .numbers[0],
              0);
    CHECK_INT(TELL(&r, "EXISTS", "deja:{test}:e:00000000000000000000000000000001").numbers[0], 0);
    CHECK_INT(TELL(&r, "FCALL", "deja_tokens", "1", "deja:{test}:e:1").kind, REDIS_ERROR);
    close_all(&r);
}

TEST_MAIN()
