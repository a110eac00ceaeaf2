/* test_embedder.c - goal: every accepted text is answered exactly once, in time, with the vector the encoder gives it; never
 * more are held than allowed. Method: a tiny encoder, many threads, deadlines that cannot be met, closing in the middle. */
#include "embeddings/embedder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/model/encoder.h"
#include "tests/check.h"

static const char *const TINY = TEST_DATA "/tiny-bert.gguf";
enum { DIM = 64 };

static struct embedder *open_embedder(const struct embedder_options *o)
{
    struct embedder *em;
    struct errmsg e = {0};
    if (embedder_open(&em, TINY, o, &e) == OK) return em;
    printf("    %s\n", e.text);
    return NULL;
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

struct answer {
    atomic_int calls;
    bool more;
    enum err code;
    float vector[DIM];
};

static void note(void *arg, enum err code, const float *vector, size_t dim, bool more)
{
    struct answer *a = arg;
    a->more = more;
    a->code = code;
    if (vector && dim == DIM) memcpy(a->vector, vector, sizeof a->vector);
    atomic_fetch_add(&a->calls, 1);
}

/* False when no answer came within 10 s. */
static bool answered(struct answer *a)
{
    for (int i = 0; i < 10000 && !atomic_load(&a->calls); i++)
        sleep_ms(1);
    return atomic_load(&a->calls) == 1;
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
        sleep_ms(1);
}
static void close_gate(struct embedder *em, struct gate *g)
{
    if (embedder_submit(em, STR("how do i open the gate"), 60000, hold, g) != OK) abort();
    while (!atomic_load(&g->entered))
        sleep_ms(1);
}

TEST(a_text_gets_the_encoders_vector)
{
    struct embedder_options o = {0};
    struct encoder_options eo = {.n_threads = 1};
    struct embedder *em = open_embedder(&o);
    struct encoder *enc;
    struct errmsg e;
    REQUIRE(em && encoder_open(&enc, TINY, &eo, &e) == OK);
    struct str text = STR("what is the price of my order?");
    struct answer a = {0};
    float want[DIM], again[DIM];
    enum err status;
    encoder_embed(enc, &text, 1, want, &status);
    CHECK_INT(embedder_submit(em, text, 0, note, &a), OK);
    CHECK(answered(&a));
    CHECK(a.code == OK && !memcmp(a.vector, want, sizeof want));
    CHECK(embedder_recall(em, text, again) && !memcmp(again, want, sizeof want));
    CHECK(!embedder_recall(em, STR("something else"), again));
    CHECK(embedder_embed_sketch_sync(em, text, again, NULL) == OK &&
          !memcmp(again, want, sizeof want));
    CHECK_INT(embedder_dim(em), DIM);
    CHECK_Z(embedder_id(em), encoder_id(enc));
    encoder_close(enc);
    embedder_close(em);
}

TEST(what_the_encoder_refuses_comes_back_as_such)
{
    struct embedder_options o = {.text_bytes_max = 500};
    struct embedder *em = open_embedder(&o);
    REQUIRE(em);
    float out[DIM];
    char many[600];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? ' ' : 'a';
    CHECK_INT(embedder_embed_sketch_sync(
                  em, STR("\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c"), out, NULL),
              ERR_UNSUPPORTED);
    CHECK_INT(embedder_embed_sketch_sync(em, (struct str){many, 400}, out, NULL), ERR_TOO_LARGE);
    CHECK_INT(embedder_embed_sketch_sync(em, (struct str){many, 501}, out, NULL), ERR_TOO_LARGE);
    struct embedder_stats s;
    embedder_stats_read(em, &s);
    CHECK_INT(s.submitted, 2);
    CHECK_INT(s.refused_text, 2);
    embedder_close(em);
}

TEST(a_full_queue_turns_away)
{
    struct embedder_options o = {.queue_max = 3};
    struct embedder *em = open_embedder(&o);
    struct gate g = {0};
    struct answer a[4] = {0};
    REQUIRE(em);
    close_gate(em, &g);
    for (int i = 0; i < 3; i++)
        CHECK_INT(embedder_submit(em, STR("refund"), 60000, note, &a[i]), OK);
    CHECK_INT(embedder_submit(em, STR("refund"), 60000, note, &a[3]), ERR_FULL);
    atomic_store(&g.open, 1);
    for (int i = 0; i < 3; i++)
        CHECK(answered(&a[i]) && a[i].code == OK);
    CHECK_INT(atomic_load(&a[3].calls), 0);
    struct embedder_stats s;
    embedder_stats_read(em, &s);
    CHECK_INT(s.refused_full, 1);
    CHECK_INT(s.passes, 2); /* the gate's text, then "refund" once for three */
    CHECK_INT(s.pass_texts, 2);
    embedder_close(em);
}

TEST(the_texts_of_one_pass_are_answered_together_and_the_last_one_says_so)
{
    struct embedder_options o = {0};
    struct embedder *em = open_embedder(&o);
    struct gate g = {0};
    struct answer a[4] = {0};
    static const char *const texts[] = {"refund", "order", "refund", "card"};
    REQUIRE(em);
    close_gate(em, &g);
    for (int i = 0; i < 4; i++)
        CHECK_INT(embedder_submit(em, str_of(texts[i]), 60000, note, &a[i]), OK);
    atomic_store(&g.open, 1);
    for (int i = 0; i < 4; i++)
        CHECK(answered(&a[i]) && a[i].code == OK && a[i].more == (i < 3));
    embedder_close(em);
}

TEST(a_deadline_is_kept_while_the_encoder_is_busy)
{
    struct embedder_options o = {0};
    struct embedder *em = open_embedder(&o);
    struct gate g = {0};
    struct answer late = {0}, later = {0};
    REQUIRE(em);
    close_gate(em, &g);
    uint64_t start = clock_ms();
    CHECK_INT(embedder_submit(em, STR("order"), 60000, note, &later), OK);
    CHECK_INT(embedder_submit(em, STR("account"), 20, note, &late), OK);
    CHECK(answered(&late));
    CHECK_INT(late.code, ERR_TIMEOUT);
    CHECK(clock_ms() - start >= 19);
    CHECK_INT(atomic_load(&later.calls), 0);
    atomic_store(&g.open, 1);
    CHECK(answered(&later) && later.code == OK);
    embedder_close(em);
    CHECK_INT(atomic_load(&late.calls), 1);
}

static void *open_soon(void *arg)
{
    struct gate *g = arg;
    sleep_ms(50);
    atomic_store(&g->open, 1);
    return NULL;
}

TEST(closing_cancels_what_waits)
{
    struct embedder_options o = {0};
    struct embedder *em = open_embedder(&o);
    struct gate g = {0};
    struct answer a[5] = {0};
    REQUIRE(em);
    close_gate(em, &g);
    for (int i = 0; i < 5; i++)
        CHECK_INT(embedder_submit(em, STR("card"), 60000, note, &a[i]), OK);
    pthread_t opener;
    pthread_create(&opener, NULL, open_soon, &g);
    embedder_close(em); /* begins while the gate is still closed */
    pthread_join(opener, NULL);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(atomic_load(&a[i].calls), 1);
        CHECK_INT(a[i].code, ERR_CANCELLED);
    }
}

/* ---- many threads ---- */

enum { THREADS = 4, EACH = 200, WORDS = 12 };
static const char *const words[WORDS] = {"order",  "card", "how",   "do",    "i", "pay",
                                         "refund", "my",   "price", "48213", "?", "change"};
struct client {
    struct embedder *em;
    int seed, n_accepted, n_full;
    struct answer answers[EACH];
    int text_of[EACH];
};

static void text_number(int n, char out[128])
{
    snprintf(out, 128, "%s %s %s %d", words[n % WORDS], words[n / 3 % WORDS], words[n / 7 % WORDS],
             n);
}

static void *client_run(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < EACH; i++) {
        char text[128];
        c->text_of[i] = (c->seed * 37 + i * 11) % 97;
        text_number(c->text_of[i], text);
        int deadline = i % 5 == 4 ? 1 : 60000;
        enum err code = embedder_submit(c->em, str_of(text), deadline, note, &c->answers[i]);
        if (code == OK)
            c->n_accepted++;
        else if (code == ERR_FULL)
            c->n_full++;
        if (code) c->text_of[i] = -1;
        if (i % 16 == 0) sleep_ms(1);
    }
    return NULL;
}

TEST(each_text_is_answered_once_under_load)
{
    struct embedder_options o = {.queue_max = 64, .batch_max = 8, .memo_entries = 20};
    struct embedder *em = open_embedder(&o);
    struct encoder_options eo = {.n_threads = 1};
    struct encoder *enc;
    struct errmsg e;
    struct client *clients = xcalloc(THREADS, sizeof *clients);
    pthread_t threads[THREADS];
    REQUIRE(em && encoder_open(&enc, TINY, &eo, &e) == OK);
    for (int t = 0; t < THREADS; t++) {
        clients[t].em = em;
        clients[t].seed = t;
        pthread_create(&threads[t], NULL, client_run, &clients[t]);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    int timeouts = 0, accepted = 0;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++) {
            struct answer *a = &clients[t].answers[i];
            if (clients[t].text_of[i] < 0) {
                CHECK_INT(atomic_load(&a->calls), 0);
                continue;
            }
            accepted++;
            CHECK(answered(a));
            CHECK(a->code == OK || (a->code == ERR_TIMEOUT && i % 5 == 4));
            timeouts += a->code == ERR_TIMEOUT;
            if (a->code || i % 20) continue;
            char text[128];
            float want[DIM];
            enum err status;
            text_number(clients[t].text_of[i], text);
            struct str s = str_of(text);
            encoder_embed(enc, &s, 1, want, &status);
            CHECK(!memcmp(want, a->vector, sizeof want));
        }
    struct embedder_stats s;
    embedder_stats_read(em, &s);
    CHECK_INT(s.submitted, accepted);
    CHECK_INT(s.answered + s.timeouts, accepted);
    CHECK_INT(s.timeouts, timeouts);
    CHECK(s.memo_entries <= 20);
    embedder_close(em);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < EACH; i++)
            CHECK(atomic_load(&clients[t].answers[i].calls) <= 1);
    encoder_close(enc);
    mem_free(clients);
}

TEST(options_out_of_range_are_named)
{
    static const struct {
        struct embedder_options o;
        const char *want;
    } cases[] = {{{.n_threads = 65}, "n_threads"},     {{.batch_max = 5000}, "batch_max"},
                 {{.queue_max = -1}, "queue_max"},     {{.memo_entries = -2}, "memo_entries"},
                 {{.deadline_ms = -5}, "deadline_ms"}, {{.isa = "mmx"}, "mmx"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct embedder *em;
        struct errmsg e = {0};
        CHECK(embedder_open(&em, TINY, &cases[i].o, &e) != OK && em == NULL);
        CHECK_AT(strstr(e.text, cases[i].want), "\"%s\" does not name %s", e.text, cases[i].want);
    }
}

TEST_MAIN()
