/* test_pair_net.c - goal: sketches and logits are what the weights say, whoever else is in the batch, and nothing damaged gives an
 * opinion. Method: a tiny random net against both towers written here in double precision, over the encoder's own token states; damaged
 * files and sketches; and for the shipped weights 50 pairs with the logits of the trainer in float32 (skipped where the encoder is not in
 * the model cache). */
#include "engine/model/pair_net.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/model/gguf.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"
#include "tests/unit/model/pair_joint.h"

enum { DIM = 64, INNER = 32, HIDDEN = 16, Z_MAX = 5 * INNER + 2 * DIM + 7, ROWS = 48 };
enum { BYTES = 4 + (DIM + 2 * INNER) / 32 * 34 };
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

/* ---- both logits in double precision ---- */

struct naive {
    int n;
    double x[ROWS][INNER], pooled[2 * INNER], vector[DIM];
    double mean[INNER], max[INNER], worst[INNER], numbers[3];
};

static double at(const struct gguf *g, const char *head, const char *what, int i)
{
    float x;
    char name[64];
    snprintf(name, sizeof name, "%s.%s", head, what);
    memcpy(&x, (const char *)gguf_tensor(g, name)->bytes + (size_t)i * sizeof x, sizeof x);
    return (double)x;
}

static void pool(struct naive *t)
{
    for (int i = 0; i < INNER; i++) {
        t->pooled[i] = 0;
        t->pooled[INNER + i] = t->x[0][i];
        for (int r = 0; r < t->n; r++) {
            t->pooled[i] += t->x[r][i] / t->n;
            t->pooled[INNER + i] = fmax(t->pooled[INNER + i], t->x[r][i]);
        }
    }
}

static double cosine_of(const double *x, const double *y)
{
    double xy = 0, xx = 1e-6, yy = 1e-6;
    for (int i = 0; i < INNER; i++)
        xy += x[i] * y[i], xx += x[i] * x[i], yy += y[i] * y[i];
    return xy / sqrt(xx * yy);
}

static void explain(struct naive *t, const struct naive *by)
{
    double weights = 0;
    memset(t->mean, 0, sizeof t->mean);
    memset(t->max, 0, sizeof t->max);
    memset(t->worst, 0, sizeof t->worst);
    memset(t->numbers, 0, sizeof t->numbers);
    for (int r = 0; r < t->n; r++) {
        double share[ROWS], sum = 0, best = -1;
        for (int j = 0; j < by->n; j++) {
            double c = cosine_of(t->x[r], by->x[j]);
            best = fmax(best, c);
            sum += share[j] = exp(12 * c);
        }
        double weight = exp(10 * (1 - best));
        weights += weight;
        for (int i = 0; i < INNER; i++) {
            double left = t->x[r][i];
            for (int j = 0; j < by->n; j++)
                left -= share[j] / sum * by->x[j][i];
            t->mean[i] += fabs(left) / t->n;
            t->max[i] = fmax(t->max[i], fabs(left));
            t->worst[i] += weight * t->x[r][i];
        }
        t->numbers[0] = fmax(t->numbers[0], 1 - best);
        t->numbers[1] += (1 - best) / t->n;
        t->numbers[2] += 1 - best;
    }
    for (int i = 0; i < INNER; i++)
        t->worst[i] /= weights;
}

static double logit(const struct gguf *g, const char *head, struct naive *a, struct naive *b,
                    double cosine)
{
    double z[Z_MAX];
    int n = 0;
    if (!strcmp(head, "alone")) {
        for (int i = 0; i < 2 * INNER; i++)
            z[n++] = fabs(a->pooled[i] - b->pooled[i]);
        for (int i = 0; i < 2 * INNER; i++)
            z[n++] = a->pooled[i] * b->pooled[i];
    } else {
        explain(a, b);
        explain(b, a);
        for (int i = 0; i < INNER; i++) {
            z[i] = a->mean[i] + b->mean[i];
            z[INNER + i] = fmax(a->max[i], b->max[i]);
            z[2 * INNER + i] = a->worst[i] + b->worst[i];
            z[3 * INNER + i] = fabs(a->worst[i] - b->worst[i]);
            z[4 * INNER + i] = a->worst[i] * b->worst[i];
        }
        n = 5 * INNER;
    }
    for (int i = 0; i < DIM; i++)
        z[n++] = fabs(a->vector[i] - b->vector[i]);
    for (int i = 0; i < DIM; i++)
        z[n++] = a->vector[i] * b->vector[i];
    for (int i = 0; i < 6 && strcmp(head, "alone"); i++)
        z[n++] =
            i < 3 ? a->numbers[i] + b->numbers[i] : fabs(a->numbers[i - 3] - b->numbers[i - 3]);
    z[n++] = cosine;
    double sum = at(g, head, "b2", 0);
    for (int i = 0; i < n; i++)
        sum += at(g, head, "w3", i) * z[i];
    for (int j = 0; j < HIDDEN; j++) {
        double s = at(g, head, "b1", j);
        for (int i = 0; i < n; i++)
            s += at(g, head, "w1", j * n + i) * z[i];
        if (s > 0) sum += s * at(g, head, "w2", j);
    }
    return sum;
}

struct states {
    int n;
    float rows[ROWS][DIM];
};

static void keep(void *arg, const struct encoder_pass *p)
{
    struct states *s = arg;
    s->n = p->length[0] - 1; /* no prefix: only the end mark is dropped */
    memcpy(s->rows, p->rows, (size_t)s->n * sizeof s->rows[0]);
}

static void read_text(struct rig *r, const char *text, struct naive *out)
{
    struct states s;
    float vector[DIM];
    enum err status;
    struct str one = str_of(text);
    encoder_tap_set(r->enc, 1, keep, &s);
    encoder_embed(r->enc, &one, 1, vector, &status);
    encoder_tap_set(r->enc, 1, NULL, NULL);
    out->n = s.n;
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < INNER; k++) {
            out->x[i][k] = at(r->g, "in", "bias", k);
            for (int d = 0; d < DIM; d++)
                out->x[i][k] += at(r->g, "in", "weight", k * DIM + d) * (double)s.rows[i][d];
        }
    for (int d = 0; d < DIM; d++)
        out->vector[d] = (double)vector[d] * sqrt(DIM);
    pool(out);
}

TEST(both_logits_are_what_double_precision_gives)
{
    struct rig r;
    static struct naive a, b;
    uint8_t all[N * BYTES];
    float vectors[N * DIM];
    enum err status[N];
    struct str texts[N];
    struct pair_tokens *tokens[N];
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    REQUIRE(pair_net_is_joint(r.net));
    for (int i = 0; i < N; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(r.net, texts, N, vectors, status, all, tokens);
    for (int i = 0; i < N; i++) {
        float first, back;
        double cosine = 0.9 - 0.1 * i;
        REQUIRE(pair_net_score(r.net, all, all + i * BYTES, cosine, &first) == OK);
        REQUIRE(pair_net_score(r.net, all + i * BYTES, all, cosine, &back) == OK);
        CHECK(first == back);
        CHECK(!memcmp(pair_tokens_sketch(tokens[i]), all + i * BYTES, BYTES));
        read_text(&r, questions[0], &a);
        read_text(&r, questions[i], &b);
        CHECK_NEAR((double)first, logit(r.g, "alone", &a, &b, cosine), 0.1); /* 8 bit */
        float joint = pair_joint(r.net, tokens[0], tokens[i], cosine);
        CHECK_NEAR((double)joint, logit(r.g, "joint", &a, &b, cosine), 0.1);
        CHECK_NEAR((double)pair_joint(r.net, tokens[i], tokens[0], cosine), (double)joint, 1e-4);
    }
    for (int i = 0; i < N; i++)
        pair_tokens_free(tokens[i]);
    rig_close(&r);
}

TEST(packed_tokens_give_the_same_logit_and_others_bytes_are_no_tokens)
{
    struct rig r;
    static uint8_t all[N * BYTES], packed[PAIR_PACKED_MAX];
    float vectors[N * DIM];
    enum err status[N];
    struct str texts[N];
    struct pair_tokens *tokens[N];
    struct rng rng;
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    for (int i = 0; i < N; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(r.net, texts, N, vectors, status, all, tokens);
    for (int i = 0; i < N; i++) {
        struct str bytes = {(char *)packed, pair_tokens_pack(tokens[i], packed)};
        struct pair_tokens *again = pair_tokens_unpack(r.net, bytes);
        REQUIRE(again != NULL);
        CHECK_INT(pair_tokens_bytes(again), pair_tokens_bytes(tokens[i]));
        CHECK(pair_joint(r.net, tokens[0], again, 0.9) ==
              pair_joint(r.net, tokens[0], tokens[i], 0.9));
        pair_tokens_free(again);
    }
    size_t n = pair_tokens_pack(tokens[0], packed);
    for (size_t cut = 0; cut < n; cut++)
        CHECK(!pair_tokens_unpack(r.net, (struct str){(char *)packed, cut}));
    CHECK(!pair_tokens_unpack(r.net, (struct str){(char *)packed, n + 1}));
    rng_seed(&rng, 4);
    for (int i = 0; i < 2000; i++) { /* one byte is another one: refused, or well formed */
        size_t at = (size_t)rng_below(&rng, i % 2 ? n : 12);
        uint8_t was = packed[at];
        packed[at] ^= (uint8_t)(1 + rng_below(&rng, 255));
        struct pair_tokens *t = pair_tokens_unpack(r.net, (struct str){(char *)packed, n});
        if (t) (void)pair_joint(r.net, tokens[0], t, 0.9);
        pair_tokens_free(t);
        packed[at] = was;
    }
    packed[n - BYTES] ^= 1; /* of other weights */
    CHECK(!pair_tokens_unpack(r.net, (struct str){(char *)packed, n}));
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
    float vectors[2 * BIG], alone;
    enum err status[2];
    struct pair_tokens *tokens[2];
    size_t bytes = pair_net_sketch_bytes(g->r.net);
    pair_net_embed(g->r.net, texts, 2, vectors, status, sketches, tokens);
    REQUIRE(!status[0] && !status[1] && tokens[0] && tokens[1]);
    REQUIRE(pair_net_score(g->r.net, sketches, sketches + bytes, cosine, &alone) == OK);
    float joint = pair_joint(g->r.net, tokens[0], tokens[1], cosine);
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
