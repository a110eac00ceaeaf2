/* test_embedder_compare.c - goal: texts come with sketches, and pairs are judged exactly once, in time, with the logits the net gives,
 * among other work. Method: a tiny encoder with a tiny pair net; many threads; deadlines that cannot be met; closing in the middle. */
#include "embeddings/embedder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/model/pair_net.h"
#include "tests/check.h"
#include "tests/unit/model/pair_joint.h"

static const char *const TINY = TEST_DATA "/tiny-bert.gguf", *const NET =
                                                                 TEST_DATA "/tiny-pair.gguf";
enum { DIM = 64, BYTES = 4 + (DIM + 2 * 32) / 32 * 34, THREADS = 4, ROUNDS = 40 };
static const char *const questions[] = {"how do i reset my password", "reset password",
                                        "what is the price of a card", "where is my refund"};

static struct embedder *open_embedder(const char *net)
{
    struct embedder *em;
    struct embedder_options o = {.pair_net = net};
    struct errmsg e = {0};
    if (embedder_open(&em, TINY, &o, &e) == OK) return em;
    printf("    %s\n", e.text);
    return NULL;
}

struct outcome {
    atomic_int calls;
    enum err code;
    int n;
    struct embedder_opinion opinions[EMBEDDER_COMPARE_MAX];
};

static void note(void *arg, enum err code, const struct embedder_opinion *opinions, int n)
{
    struct outcome *o = arg;
    o->code = code;
    o->n = n;
    if (opinions) memcpy(o->opinions, opinions, (size_t)n * sizeof *opinions);
    atomic_fetch_add(&o->calls, 1);
}

static bool over(struct outcome *o)
{
    for (int i = 0; i < 10000 && !atomic_load(&o->calls); i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return atomic_load(&o->calls) == 1;
}

/* Of question 0 against the others, computed without the embedder. */
static void expected(struct embedder_opinion *out, const double *cosines)
{
    struct encoder *enc;
    struct encoder_options eo = {.n_threads = 1};
    struct gguf *g;
    struct pair_net *net;
    struct errmsg e = {0};
    struct str texts[4];
    enum err status[4];
    float vectors[4 * DIM];
    uint8_t sketches[4 * BYTES];
    struct pair_tokens *t[4];
    REQUIRE(encoder_open(&enc, TINY, &eo, &e) == OK && gguf_open(&g, NET, &e) == OK &&
            pair_net_open(&net, enc, g, &e) == OK);
    for (int i = 0; i < 4; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(net, texts, 4, vectors, status, sketches, t);
    for (int i = 0; i < 3; i++) {
        out[i].joint = pair_joint(net, t[0], t[i + 1], cosines[i]);
        CHECK_INT(
            pair_net_score(net, sketches, sketches + (i + 1) * BYTES, cosines[i], &out[i].alone),
            OK);
    }
    for (int i = 0; i < 4; i++)
        pair_tokens_free(t[i]);
    pair_net_close(net);
    gguf_close(g);
    encoder_close(enc);
}

TEST(a_vector_comes_with_its_sketch_also_from_memory)
{
    struct embedder *em = open_embedder(NET);
    float vector[DIM], again[DIM], logit;
    uint8_t sketch[BYTES], recalled[BYTES], other[BYTES];
    REQUIRE(em && embedder_sketch_bytes(em) == BYTES && !*embedder_why_no_sketch(em));
    REQUIRE(!embedder_embed_sketch_sync(em, STR("reset password"), vector, sketch));
    REQUIRE(embedder_recall_sketch(em, STR("reset password"), again, recalled));
    CHECK(!memcmp(vector, again, sizeof vector) && !memcmp(sketch, recalled, sizeof sketch));
    REQUIRE(!embedder_embed_sketch_sync(em, STR("where is my refund"), vector, other));
    CHECK_INT(embedder_score(em, sketch, other, 0.8, &logit), OK);
    CHECK(isfinite(logit));
    memset(other, 0, sizeof other);
    CHECK_INT(embedder_score(em, sketch, other, 0.8, &logit), ERR_CORRUPT);
    embedder_close(em);
}

TEST(an_encoder_without_a_net_says_so_and_still_embeds)
{
    struct embedder *em = open_embedder(NULL);
    float vector[DIM], logit;
    struct str b = STR("reset password");
    double cosine = 0.9;
    struct outcome o = {0};
    REQUIRE(em);
    CHECK(embedder_sketch_bytes(em) == 0 && *embedder_why_no_sketch(em));
    CHECK(!embedder_calibration(em).n && !embedder_can_compare(em));
    CHECK_INT(embedder_embed_sketch_sync(em, b, vector, NULL), OK);
    CHECK_INT(embedder_score(em, "", "", 0.9, &logit), ERR_UNSUPPORTED);
    CHECK_INT(embedder_compare(em, b, &b, &cosine, NULL, 1, 0, note, &o), ERR_UNSUPPORTED);
    CHECK_INT(atomic_load(&o.calls), 0);
    embedder_close(em);
}

TEST(weights_that_do_not_fit_are_refused_when_asked_for)
{
    struct embedder *em;
    struct embedder_options o = {.pair_net = TINY};
    struct errmsg e = {0};
    CHECK_INT(embedder_open(&em, TINY, &o, &e), ERR_UNSUPPORTED);
    CHECK(!em && strstr(e.text, "tiny-bert.gguf: no weights of a pair net"));
    o.pair_net = "/nowhere.gguf";
    CHECK_INT(embedder_open(&em, TINY, &o, &e), ERR_IO);
}

struct worker {
    pthread_t thread;
    struct embedder *em;
    const struct embedder_opinion *want;
    const double *cosines;
    int wrong;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct str b[3] = {str_of(questions[1]), str_of(questions[2]), str_of(questions[3])};
    float vector[DIM];
    for (int i = 0; i < ROUNDS; i++) {
        struct outcome o = {0};
        char text[64];
        snprintf(text, sizeof text, "order number %d", i);
        if (embedder_compare(w->em, str_of(questions[0]), b, w->cosines, NULL, 3, 20000, note,
                             &o)) {
            w->wrong++;
            continue;
        }
        w->wrong += embedder_embed_sketch_sync(w->em, str_of(text), vector, NULL) != OK;
        bool fine = over(&o) && o.code == OK && o.n == 3 &&
                    !memcmp(o.opinions, w->want, sizeof o.opinions[0] * 3);
        w->wrong += !fine;
    }
    return NULL;
}

/* A callback that keeps the compute thread busy until told otherwise. */
struct gate {
    atomic_int entered, open;
};

static void hold(void *arg, enum err code, const float *vector, size_t dim, bool more)
{
    struct gate *g = arg;
    (void)code, (void)vector, (void)dim, (void)more;
    atomic_store(&g->entered, 1);
    while (!atomic_load(&g->open))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void count(void *arg, enum err code, const float *vector, size_t dim, bool more)
{
    (void)vector, (void)dim, (void)more;
    if (code == OK) atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(texts_on_both_sides_of_a_comparison_are_computed_in_one_pass)
{
    struct embedder *em = open_embedder(NET);
    struct gate g = {0};
    struct outcome o[2] = {0};
    struct str b = str_of(questions[1]);
    double cosine = 0.9;
    atomic_int embedded = 0;
    struct embedder_stats s;
    REQUIRE(em && embedder_submit(em, STR("open the gate"), 60000, hold, &g) == OK);
    while (!atomic_load(&g.entered))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(embedder_submit(em, str_of(questions[2 * i]), 60000, count, &embedded), OK);
        CHECK_INT(embedder_compare(em, b, &b, &cosine, NULL, 1, 60000, note, &o[i]), OK);
    }
    CHECK_INT(embedder_submit(em, str_of(questions[3]), 60000, count, &embedded), OK);
    atomic_store(&g.open, 1);
    CHECK(over(&o[0]) && over(&o[1]) && o[0].code == OK && o[1].code == OK);
    for (int i = 0; i < 10000 && atomic_load(&embedded) < 3; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    embedder_stats_read(em, &s);
    CHECK_INT(atomic_load(&embedded), 3);
    CHECK_INT(s.passes, 2); /* the gate's text, then three together */
    CHECK_INT(s.pass_texts, 4);
    CHECK_INT(s.compared, 2);
    embedder_close(em);
}

TEST(pairs_are_judged_once_and_alike_among_other_work)
{
    struct embedder *em = open_embedder(NET);
    const double cosines[3] = {0.9, 0.8, 0.7};
    struct embedder_opinion want[3];
    struct worker w[THREADS];
    REQUIRE(em);
    expected(want, cosines);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.em = em, .want = want, .cosines = cosines};
        REQUIRE(!pthread_create(&w[i].thread, NULL, work, &w[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        CHECK_INT(w[i].wrong, 0);
    }
    struct embedder_stats stats;
    embedder_stats_read(em, &stats);
    CHECK_INT(stats.compared, 3 * THREADS * ROUNDS);
    embedder_close(em);
}

TEST(a_deadline_and_closing_end_a_comparison_once)
{
    struct embedder *em = open_embedder(NET);
    enum { MANY = 60 };
    struct outcome o[MANY] = {0};
    struct str b[EMBEDDER_COMPARE_MAX];
    double cosines[EMBEDDER_COMPARE_MAX] = {0};
    int n = 0, counts[3] = {0};
    REQUIRE(em);
    for (int i = 0; i < EMBEDDER_COMPARE_MAX; i++)
        b[i] = str_of(questions[i % 4]);
    for (; n < MANY; n++)
        if (embedder_compare(em, str_of(questions[n % 4]), b, cosines, NULL, EMBEDDER_COMPARE_MAX,
                             n % 2 ? 1 : 20000, note, &o[n]) != OK)
            break;
    CHECK_INT(n, MANY);
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    embedder_close(em);
    for (int i = 0; i < n; i++) {
        CHECK_INT(atomic_load(&o[i].calls), 1);
        counts[o[i].code == OK ? 0 : o[i].code == ERR_TIMEOUT ? 1 : 2]++;
        CHECK(o[i].code == OK || o[i].code == ERR_TIMEOUT || o[i].code == ERR_CANCELLED);
    }
    printf("    %d judged, %d past their deadline, %d cancelled\n", counts[0], counts[1],
           counts[2]);
}

TEST_MAIN()
