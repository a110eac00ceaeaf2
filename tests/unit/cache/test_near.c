/* test_near.c - goal: a miss tells which stored questions were near and what refused each; an explaining look-up tells of every one and
 * counts nowhere. Method: a cache in memory with the tiny encoder. */
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

struct seen {
    int calls, told;
    enum cache_result result;
    size_t n_near;
    char question[2][128], step[2][16], reason[2][64];
};

static void note(struct seen *s, int i, const struct cache_verdict *v)
{
    if (i >= 2) return;
    snprintf(s->question[i], sizeof s->question[i], STR_FMT, STR_ARG(v->question));
    snprintf(s->step[i], sizeof s->step[i], "%s", v->step);
    snprintf(s->reason[i], sizeof s->reason[i], "%s", v->reason);
}
static void on_verdict(void *arg, const struct cache_verdict *v)
{
    struct seen *s = arg;
    note(s, s->told++, v);
}
static void on_found(void *arg, const struct cache_found *f)
{
    struct seen *s = arg;
    s->calls++;
    s->result = f->result;
    s->n_near = f->n_near;
    for (size_t i = 0; i < f->n_near && !s->told; i++)
        note(s, (int)i, &f->near[i]);
}
static bool over(void *arg)
{
    return ((struct seen *)arg)->calls > 0;
}

static struct seen find(const char *question, bool explain)
{
    struct cache_lookup_options o = {
        .max_age_s = -1, .skip_exact = explain, .explain = explain ? on_verdict : NULL};
    struct cache_key k;
    struct seen s = {0};
    if (!rig_key(rig.cache, question, &k)) return s;
    struct cache_lookup *l = cache_find(rig.cache, &k, &o, on_found, &s);
    if (!rig_until(rig.loop, over, &s, 5000)) cache_find_cancel(l);
    cache_key_fini(&k);
    return s;
}

static bool kept(void *arg) /* as many */
{
    struct cache_stats s;
    uint64_t n = *(const uint64_t *)arg;
    cache_stats(rig.cache, &s);
    struct embedder_stats e;
    embedder_stats_read(rig.embedder, &e);
    return s.entries >= n && e.answered >= n;
}

TEST(a_miss_tells_what_was_near_and_an_explanation_of_everything_counts_nowhere)
{
    uint64_t two = 2;
    REQUIRE(begin());
    CHECK(!rig_keep(rig.cache, "How do I pay 20 euros by card?", "Like this."));
    CHECK(!rig_keep(rig.cache, "How do I pay 40 euros by card?", "Like that."));
    REQUIRE(rig_until(rig.loop, kept, &two, 5000));
    rig_until(rig.loop, NULL, NULL, 40); /* the vectors come back to the loop */
    struct seen s = find("How do I pay 30 euros by card?", false);
    CHECK(s.result == CACHE_MISS && s.n_near == 2);
    CHECK_Z(s.step[0], "guards");
    CHECK_Z(s.reason[0], "guard:number");
    CHECK(str_starts(str_of(s.question[0]), STR("How do I pay ")));
    struct cache_stats before, after;
    cache_stats(rig.cache, &before);
    s = find("How do I pay 30 euros by card?", true);
    CHECK(s.result == CACHE_MISS && s.told == 2);
    CHECK_Z(s.reason[1], "guard:number");
    s = find("How do I pay 20 euros by card?", true);
    CHECK(s.result == CACHE_SEMANTIC && s.told >= 1 && s.n_near == 0);
    CHECK_Z(s.step[0], "hit");
    cache_stats(rig.cache, &after);
    CHECK(before.misses == after.misses && before.semantic_hits == after.semantic_hits &&
          before.near_misses == after.near_misses);
    end();
}

TEST(a_miss_tells_of_all_that_were_considered)
{
    char question[64];
    uint64_t six = 6;
    REQUIRE(begin());
    for (int i = 1; i <= 6; i++) {
        snprintf(question, sizeof question, "How do I pay %d0 euros by card?", i);
        CHECK(!rig_keep(rig.cache, question, "Like this."));
    }
    REQUIRE(rig_until(rig.loop, kept, &six, 5000));
    rig_until(rig.loop, NULL, NULL, 200);
    struct seen s = find("How do I pay 99 euros by card?", false);
    CHECK(s.result == CACHE_MISS && s.n_near == 6);
    end();
}

TEST(a_request_too_hot_is_not_compared)
{
    REQUIRE(begin());
    CHECK(!rig_keep(rig.cache, "What does it cost?", "Nothing."));
    struct cache_knobs k = *cache_knobs_now(rig.cache);
    k.temperature_max = 0.5; /* the rig's requests have 1 */
    cache_knobs_use(rig.cache, &k);
    struct rig_found f = rig_find(rig.loop, rig.cache, "What is the price of it?");
    CHECK_Z(f.reason, "skipped:temperature");
    end();
}

TEST_MAIN()
