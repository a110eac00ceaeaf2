/* test_pair_net.c - goal: sketches and logits are what the weights say, whoever else is in the batch, and nothing damaged gives an
 * opinion. Method: a tiny random net whose two towers are equal, so that the joint one, its texts cut off from each other, must
 * agree with the other; a head in double precision written here; damaged files and sketches; and for the shipped weights 50 pairs with
 * the logits of the trainer in float32 (skipped where the encoder is not in the model cache). */
#include "engine/model/pair_net.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/model/gguf.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { DIM = 64, HIDDEN = 16, BYTES = 4 + 2 * DIM / 32 * 34 };
static const char *const TINY = TEST_DATA "/tiny-bert.gguf";

struct rig {
    struct encoder *enc;
    struct pair_net *net;
    struct gguf *g;
};

static bool rig_open(struct rig *r, const char *encoder, const char *weights)
{
    struct encoder_options o = {.n_threads = 1, .exact = !strcmp(encoder, TINY)};
    struct errmsg e = {0};
    *r = (struct rig){.net = NULL};
    if (encoder_open(&r->enc, encoder, &o, &e) == OK && gguf_open(&r->g, weights, &e) == OK &&
        pair_net_open(&r->net, r->enc, r->g, &e) == OK)
        return true;
    printf("    %s\n", e.text);
    return false;
}

static void rig_close(struct rig *r)
{
    pair_net_close(r->net);
    encoder_close(r->enc);
    gguf_close(r->g);
}

static const char *const questions[] = {"how do i reset my password",     "reset password",
                                        "what is the price of a card",    "where is my refund",
                                        "can you change my order number", "close account"};
enum { N = sizeof questions / sizeof *questions };

static void sketch_all(struct rig *r, uint8_t *sketches, float *vectors)
{
    struct str texts[N];
    enum err status[N];
    for (int i = 0; i < N; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(r->net, texts, N, vectors, status, sketches, NULL);
    for (int i = 0; i < N; i++)
        CHECK_INT(status[i], OK);
}

TEST(a_sketch_and_a_vector_are_the_same_alone_and_among_others)
{
    struct rig r;
    uint8_t all[N * BYTES], one[BYTES];
    float vectors[N * DIM], vector[DIM], plain[DIM];
    enum err status;
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    CHECK_INT(pair_net_sketch_bytes(r.net), BYTES);
    sketch_all(&r, all, vectors);
    for (int i = 0; i < N; i++) {
        struct str text = str_of(questions[i]);
        pair_net_embed(r.net, &text, 1, vector, &status, one, NULL);
        CHECK(!memcmp(one, all + i * BYTES, BYTES));
        CHECK(!memcmp(vector, vectors + i * DIM, sizeof vector));
        encoder_embed(r.enc, &text, 1, plain, &status);
        CHECK(!memcmp(vector, plain, sizeof vector));
    }
    rig_close(&r);
}

static double scalar_of(const struct gguf *g, const char *name, int i)
{
    float x;
    memcpy(&x, (const char *)gguf_tensor(g, name)->bytes + (size_t)i * sizeof x, sizeof x);
    return (double)x;
}

/* The head over two sketches as their bytes say, in double precision. */
static double naive_logit(const struct gguf *g, const uint8_t *a, const uint8_t *b, double cosine)
{
    float u[2 * DIM], v[2 * DIM];
    double z[4 * DIM], uv = 0, uu = 0, vv = 0;
    dequantise_row(TENSOR_Q8_0, a + 4, u, 2 * DIM);
    dequantise_row(TENSOR_Q8_0, b + 4, v, 2 * DIM);
    for (int i = 0; i < DIM; i++) {
        double x = (double)u[i], y = (double)v[i];
        z[i] = fabs(x - y), z[DIM + i] = x * y, z[2 * DIM + i] = x + y;
        z[3 * DIM + i] = fabs((double)u[DIM + i] - (double)v[DIM + i]);
        uv += x * y, uu += x * x, vv += y * y;
    }
    double logit = scalar_of(g, "alone.scalars", 0);
    for (int j = 0; j < HIDDEN; j++) {
        double s = scalar_of(g, "alone.head1.bias", j);
        for (int i = 0; i < 4 * DIM; i++)
            s += scalar_of(g, "alone.head1.weight", j * 4 * DIM + i) * z[i];
        if (s > 0) logit += s * scalar_of(g, "alone.head2.weight", j);
    }
    logit += scalar_of(g, "alone.scalars", 1) *
             (uv / sqrt(uu * vv + 1e-9) - scalar_of(g, "alone.scalars", 2));
    return logit + scalar_of(g, "alone.scalars", 3) * (cosine - 0.9);
}

TEST(the_logit_of_two_sketches_is_what_the_head_says_in_either_order)
{
    struct rig r;
    uint8_t all[N * BYTES];
    float vectors[N * DIM];
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    sketch_all(&r, all, vectors);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            float logit, back;
            const uint8_t *a = all + i * BYTES, *b = all + j * BYTES;
            REQUIRE(pair_net_score(r.net, a, b, 0.8, &logit) == OK);
            REQUIRE(pair_net_score(r.net, b, a, 0.8, &back) == OK);
            CHECK(logit == back);
            CHECK_NEAR((double)logit, naive_logit(r.g, a, b, 0.8), 1e-4);
        }
    rig_close(&r);
}

TEST(texts_cut_off_from_each_other_give_what_each_gives_alone)
{
    struct rig r;
    struct str texts[N];
    struct pair_tokens *tokens[N];
    enum err status[N];
    uint8_t all[N * BYTES];
    float vectors[N * DIM], logits[N - 1];
    double cosines[N - 1] = {0.9, 0.8, 0.7, 0.6, 0.5};
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    REQUIRE(pair_net_is_joint(r.net));
    for (int i = 0; i < N; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(r.net, texts, N, vectors, status, all, tokens);
    pair_net_joint(r.net, tokens[0], (const struct pair_tokens *const *)tokens + 1, N - 1, cosines,
                   logits);
    for (int i = 1; i < N; i++) {
        float alone, one;
        REQUIRE(pair_net_score(r.net, all, all + i * BYTES, cosines[i - 1], &alone) == OK);
        CHECK_NEAR((double)logits[i - 1], (double)alone,
                   0.05); /* sketches and states have 8 bits */
        const struct pair_tokens *other = tokens[i];
        pair_net_joint(r.net, tokens[0], &other, 1, cosines + i - 1, &one);
        CHECK(one == logits[i - 1]);
    }
    for (int i = 0; i < N; i++)
        pair_tokens_free(tokens[i]);
    rig_close(&r);
}

TEST(what_is_no_sketch_of_this_net_gives_no_opinion)
{
    struct rig r;
    uint8_t all[N * BYTES], bad[BYTES];
    float vectors[N * DIM], logit;
    struct rng rng;
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    sketch_all(&r, all, vectors);
    memset(bad, 0, sizeof bad);
    CHECK_INT(pair_net_score(r.net, all, bad, 0.9, &logit), ERR_CORRUPT);
    CHECK_INT(pair_net_score(r.net, all, all, (double)NAN, &logit), ERR_CORRUPT);
    memcpy(bad, all, sizeof bad);
    bad[0] ^= 1; /* other weights */
    CHECK_INT(pair_net_score(r.net, bad, all, 0.9, &logit), ERR_CORRUPT);
    memcpy(bad, all, sizeof bad);
    bad[4] = 0, bad[5] = 0x7e; /* a scale that is not a number */
    CHECK_INT(pair_net_score(r.net, bad, all, 0.9, &logit), ERR_CORRUPT);
    rng_seed(&rng, 3);
    for (int n = 0; n < 2000; n++) { /* any bytes behind the tag: a finite logit or none */
        memcpy(bad, all, 4);
        for (int i = 4; i < BYTES; i++)
            bad[i] = (uint8_t)rng_below(&rng, 256);
        if (pair_net_score(r.net, bad, all, 0.9, &logit) == OK) CHECK(isfinite(logit));
    }
    rig_close(&r);
}

TEST(a_text_too_long_for_the_net_has_a_vector_but_no_sketch)
{
    /* 48 tokens with both marks: 46 own rows; so the limit is reached with an encoder of longer texts only. The tiny one refuses. */
    struct rig r;
    struct buf long_text;
    uint8_t sketch[BYTES], zeros[BYTES] = {0};
    float vector[DIM];
    enum err status;
    struct pair_tokens *tokens;
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    buf_init(&long_text, 4096);
    for (int i = 0; i < 60; i++)
        buf_printf(&long_text, "order ");
    struct str text = buf_view(&long_text);
    pair_net_embed(r.net, &text, 1, vector, &status, sketch, &tokens);
    CHECK_INT(status, ERR_TOO_LARGE);
    CHECK(!tokens && !memcmp(sketch, zeros, sizeof sketch));
    buf_fini(&long_text);
    rig_close(&r);
}

/* OK when bytes are a whole net for enc. */
static enum err open_bytes(struct encoder *enc, const char *bytes, size_t n, struct errmsg *e)
{
    struct gguf *g;
    struct pair_net *net;
    enum err code = gguf_from_bytes(&g, bytes, n, e);
    if (code) return code;
    code = pair_net_open(&net, enc, g, e);
    CHECK(!code == (net != NULL));
    pair_net_close(net);
    gguf_close(g);
    return code;
}

TEST(damaged_weights_are_refused_with_a_reason)
{
    struct encoder *enc;
    struct encoder_options o = {.n_threads = 1};
    struct errmsg e = {0};
    struct buf good;
    struct rng rng;
    buf_init(&good, 1 << 20);
    REQUIRE(case_read_file(TEST_DATA "/tiny-pair.gguf", &good));
    REQUIRE(encoder_open(&enc, TINY, &o, &e) == OK);
    struct str bytes = buf_view(&good);
    char *copy = xmalloc(bytes.n);
    REQUIRE(open_bytes(enc, bytes.p, bytes.n, &e) == OK);
    rng_seed(&rng, 9);
    for (int n = 0; n < 300; n++) {
        memcpy(copy, bytes.p, bytes.n);
        size_t cut = n % 2 ? bytes.n : rng_below(&rng, (uint32_t)bytes.n);
        copy[rng_below(&rng, 1800)] ^= (char)(1 << rng_below(&rng, 8)); /* keys, tensor table */
        e.text[0] = 0;
        if (open_bytes(enc, copy, cut, &e) != OK)
            CHECK(e.text[0]); /* else a bit of no consequence */
    }
    buf_fini(&good);
    buf_init(&good, 1 << 20);
    REQUIRE(case_read_file(TINY, &good));
    CHECK_INT(open_bytes(enc, buf_view(&good).p, buf_view(&good).n, &e), ERR_UNSUPPORTED);
    buf_fini(&good);
    mem_free(copy);
    encoder_close(enc);
}

/* ---- the shipped weights ---- */

struct golden {
    struct rig r;
    int n;
    double worst_alone, worst_joint;
};

static void compare(void *arg, const json_t *line)
{
    struct golden *g = arg;
    struct str texts[2] = {json_member_str(line, "a"), json_member_str(line, "b")};
    double cosine = json_number_value(json_object_get(line, "cosine"));
    double want_alone = json_number_value(json_object_get(line, "alone"));
    double want_joint = json_number_value(json_object_get(line, "joint"));
    enum { BIG = 384 };
    uint8_t sketches[2 * PAIR_SKETCH_MAX];
    float vectors[2 * BIG], alone, joint;
    enum err status[2];
    struct pair_tokens *tokens[2];
    size_t bytes = pair_net_sketch_bytes(g->r.net);
    pair_net_embed(g->r.net, texts, 2, vectors, status, sketches, tokens);
    REQUIRE(!status[0] && !status[1] && tokens[0] && tokens[1]);
    REQUIRE(pair_net_score(g->r.net, sketches, sketches + bytes, cosine, &alone) == OK);
    pair_net_joint(g->r.net, tokens[0], (const struct pair_tokens *const *)tokens + 1, 1, &cosine,
                   &joint);
    CHECK_AT(fabs((double)alone - want_alone) < 0.2 && fabs((double)joint - want_joint) < 0.2,
             STR_FMT " / " STR_FMT ": %.3f %.3f, trainer %.3f %.3f", STR_ARG(texts[0]),
             STR_ARG(texts[1]), (double)alone, (double)joint, want_alone, want_joint);
    g->worst_alone = fmax(g->worst_alone, fabs((double)alone - want_alone));
    g->worst_joint = fmax(g->worst_joint, fabs((double)joint - want_joint));
    g->n++;
    pair_tokens_free(tokens[0]);
    pair_tokens_free(tokens[1]);
}

TEST(the_shipped_weights_give_the_trainers_logits)
{
    char path[512];
    struct golden g = {.n = 0};
    if (!case_cached_model("multilingual-e5-small-q4.gguf", path))
        SKIP("multilingual-e5-small-q4.gguf is not in the model cache");
    FILE *f = fopen(TEST_DATA "/pair_logits.jsonl", "r");
    char line[4096];
    if (!f) SKIP("no logits of the trainer");
    REQUIRE(rig_open(&g.r, path, SOURCE_DIR "/embeddings/pair_weights.gguf"));
    while (fgets(line, sizeof line, f)) {
        json_t *v = NULL;
        struct errmsg e = {0};
        REQUIRE(json_parse(str_trim(str_of(line)), 0, &v, &e) == OK);
        compare(&g, v);
        json_decref(v);
    }
    fclose(f);
    CHECK_INT(g.n, 50);
    printf("    largest difference of a logit: alone %.3f, joint %.3f\n", g.worst_alone,
           g.worst_joint);
    rig_close(&g.r);
}

TEST_MAIN()
