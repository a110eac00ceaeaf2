/* test_embed_watch.c - goal: an embedder that hangs costs one look-up its deadline and the next ones nothing, is tried once a second,
 * and is used again when it moves. Method: the pure rule by table; then the real cache over an embedder of this file that hangs on
 * purpose (a real one cannot be made to), whose functions take the place of embeddings/embedder.c at link time. */
#include "cache/embed_watch.h"

#include <pthread.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/unit/cache/cache_rig.h"

TEST(only_an_embedder_that_makes_no_pass_is_stuck)
{
    struct embed_watch w = {0};
    CHECK(embed_watch_allows(&w, 5, 100));
    embed_watch_timed_out(&w, 5, 1000);
    CHECK(!embed_watch_allows(&w, 5, 1001));
    CHECK(!embed_watch_allows(&w, 5, 1999));
    CHECK(embed_watch_allows(&w, 5, 2000)); /* one tries */
    CHECK(!embed_watch_allows(&w, 5, 2001));
    CHECK(embed_watch_allows(&w, 6, 2002)); /* a pass has ended: it was slow, not stuck */
    CHECK(embed_watch_allows(&w, 6, 2003));
}

/* --- an embedder that answers until `hangs` */
struct embedder {
    _Atomic bool hangs;
    _Atomic uint64_t passes;
    _Atomic int asked;
};
struct late {
    int deadline_ms;
    embedder_done *done;
    void *arg;
};

static void *run_out_of_time(void *arg)
{
    struct late *l = arg;
    usleep((useconds_t)l->deadline_ms * 1000);
    l->done(l->arg, ERR_TIMEOUT, NULL, 0, false);
    mem_free(l);
    return NULL;
}

enum err embedder_submit(struct embedder *em, struct str text, int deadline_ms, embedder_done *done,
                         void *arg)
{
    em->asked++;
    if (!em->hangs) {
        float v[4] = {text.n % 2 ? 1 : 0, text.n % 2 ? 0 : 1, 0, 0};
        em->passes++;
        done(arg, OK, v, 4, false);
        return OK;
    }
    struct late *l = xmalloc(sizeof *l);
    *l = (struct late){deadline_ms, done, arg};
    pthread_t t;
    ASSERT(!pthread_create(&t, NULL, run_out_of_time, l));
    pthread_detach(t);
    return OK;
}

bool embedder_recall(struct embedder *em, struct str text, float *out)
{
    (void)em, (void)text, (void)out;
    return false;
}
int embedder_dim(const struct embedder *em)
{
    return (void)em, 4;
}
const char *embedder_id(const struct embedder *em)
{
    return (void)em, "hanging";
}
/* no verifier here */
bool embedder_can_compare(const struct embedder *em)
{
    return (void)em, false;
}
const char *embedder_why_no_sketch(const struct embedder *em)
{
    return (void)em, "a stand-in";
}
struct str embedder_calibration(const struct embedder *em)
{
    return (void)em, (struct str){"", 0};
}
bool embedder_recall_sketch(struct embedder *em, struct str text, float *out, void *sketch)
{
    return (void)em, (void)text, (void)out, (void)sketch, false;
}
enum err embedder_score(const struct embedder *em, const void *sketch_a, const void *sketch_b,
                        double cosine, float *logit)
{
    return (void)em, (void)sketch_a, (void)sketch_b, (void)cosine, (void)logit, ERR_UNSUPPORTED;
}
enum err embedder_compare(struct embedder *em, struct str a, const struct str *b,
                          const double *cosines, const struct str *tokens, int n, int deadline_ms,
                          embedder_compared *done, void *arg)
{
    (void)em, (void)a, (void)b, (void)cosines, (void)tokens, (void)n, (void)deadline_ms;
    return (void)done, (void)arg, ERR_UNSUPPORTED;
}
size_t embedder_recall_tokens(struct embedder *em, struct str text,
                              uint8_t out[EMBEDDER_TOKENS_BYTES])
{
    return (void)em, (void)text, (void)out, 0;
}
bool embedder_tokens_fit(const struct embedder *em, struct str bytes)
{
    return (void)em, (void)bytes, false;
}
void embedder_stats_read(struct embedder *em, struct embedder_stats *out)
{
    *out = (struct embedder_stats){.passes = em->passes};
}

TEST(a_hanging_embedder_costs_one_deadline_and_is_used_again_when_it_moves)
{
    struct embedder em = {0};
    struct errmsg e = {0};
    struct loop *loop;
    struct cache *cache;
    struct cache_options o = {
        .ns = "test", .exact = true, .semantic = true, .embed_deadline_ms = 50, .secret = 7};
    struct metrics *metrics = metrics_new();
    struct workers *workers = workers_new(1, 64);
    REQUIRE(loop_new(&loop, &e) == OK);
    REQUIRE(cache_open(&cache, loop, NULL, &em, workers, metrics, &o, &e) == OK);
    CHECK(!rig_keep(cache, "How do I open an account?", "In the app."));
    rig_until(loop, NULL, NULL, 60);
    em.hangs = true;
    uint64_t t0 = clock_ms();
    struct rig_found f = rig_find(loop, cache, "Where can I open an account?");
    CHECK_Z(f.reason, "embedder_timeout");
    CHECK_AT(clock_ms() - t0 >= 45, "%d ms", (int)(clock_ms() - t0));
    int asked = em.asked;
    for (int i = 0; i < 20; i++) {
        char text[64];
        snprintf(text, sizeof text, "Where can I open account number %d?", i);
        f = rig_find(loop, cache, text);
        CHECK_Z(f.reason, "embedder_unavailable");
    }
    CHECK_INT(em.asked, asked); /* nobody waited for it */
    struct cache_stats stats;
    cache_stats(cache, &stats);
    CHECK(!stats.embedder_usable);
    em.hangs = false;
    em.passes++;
    cache_stats(cache, &stats);
    CHECK(stats.embedder_usable);
    f = rig_find(loop, cache, "Where can I close an account?");
    CHECK_INT(em.asked, asked + 1);
    cache_close(cache);
    workers_free(workers);
    loop_free(loop);
    metrics_free(metrics);
}

TEST_MAIN()
