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

enum { DIM = 64, INNER = 32, HEADS = 4, HIDDEN = 16, Z = 4 * INNER + 2 * DIM, ROWS = 48 };
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

/* ---- both towers in double precision ---- */

struct naive {
    int n;
    double x[ROWS][INNER], pooled[2 * INNER], vector[DIM];
    int32_t ids[ROWS];
};

static double at(const struct gguf *g, const char *tower, const char *what, int i)
{
    float x;
    char name[64];
    snprintf(name, sizeof name, "%s.%s", tower, what);
    memcpy(&x, (const char *)gguf_tensor(g, name)->bytes + (size_t)i * sizeof x, sizeof x);
    return (double)x;
}

static void multiply(const struct gguf *g, const char *tower, const char *what, const double *x,
                     int n_in, double *y)
{
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", what);
    snprintf(bias, sizeof bias, "%s.bias", what);
    for (int r = 0; r < INNER; r++) {
        y[r] = at(g, tower, bias, r);
        for (int c = 0; c < n_in; c++)
            y[r] += at(g, tower, weight, r * n_in + c) * x[c];
    }
}

static void norm(const struct gguf *g, const char *tower, const char *what, double *x)
{
    char weight[32], bias[32];
    double mean = 0, square = 0;
    snprintf(weight, sizeof weight, "%s.weight", what);
    snprintf(bias, sizeof bias, "%s.bias", what);
    for (int i = 0; i < INNER; i++)
        mean += x[i] / INNER;
    for (int i = 0; i < INNER; i++)
        square += (x[i] - mean) * (x[i] - mean) / INNER;
    for (int i = 0; i < INNER; i++)
        x[i] =
            (x[i] - mean) / sqrt(square + 1e-6) * at(g, tower, weight, i) + at(g, tower, bias, i);
}

/* out[i] = what row i of a finds in b */
static void look(const struct gguf *g, const char *tower, double a[][INNER], int n_a,
                 double b[][INNER], int n_b, double out[][INNER])
{
    double q[INNER], k[ROWS][INNER], v[ROWS][INNER], score[ROWS];
    for (int j = 0; j < n_b; j++) {
        multiply(g, tower, "attn_k", b[j], INNER, k[j]);
        multiply(g, tower, "attn_v", b[j], INNER, v[j]);
    }
    for (int i = 0; i < n_a; i++) {
        multiply(g, tower, "attn_q", a[i], INNER, q);
        for (int h = 0, n = INNER / HEADS; h < HEADS; h++) {
            double sum = 0;
            for (int j = 0; j < n_b; j++) {
                score[j] = 0;
                for (int d = h * n; d < (h + 1) * n; d++)
                    score[j] += q[d] * k[j][d] / sqrt(n);
                sum += score[j] = exp(score[j]);
            }
            for (int d = h * n; d < (h + 1) * n; d++) {
                out[i][d] = 0;
                for (int j = 0; j < n_b; j++)
                    out[i][d] += score[j] / sum * v[j][d];
            }
        }
    }
}

static void feed(const struct gguf *g, const char *tower, const double *wide, int n_in, double *x)
{
    double up[INNER], down[INNER];
    multiply(g, tower, "ffn_up", wide, n_in, up);
    for (int i = 0; i < INNER; i++)
        up[i] *= 0.5 * (1 + erf(up[i] / sqrt(2)));
    multiply(g, tower, "ffn_down", up, INNER, down);
    for (int i = 0; i < INNER; i++)
        x[i] += down[i];
    norm(g, tower, "out_norm", x);
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

static void alone(const struct gguf *g, struct naive *t)
{
    double found[ROWS][INNER], out[INNER];
    look(g, "alone", t->x, t->n, t->x, t->n, found);
    for (int r = 0; r < t->n; r++) {
        multiply(g, "alone", "attn_output", found[r], INNER, out);
        for (int i = 0; i < INNER; i++)
            t->x[r][i] += out[i];
        norm(g, "alone", "attn_norm", t->x[r]);
        double copy[INNER];
        memcpy(copy, t->x[r], sizeof copy);
        feed(g, "alone", copy, INNER, t->x[r]);
    }
    pool(t);
}

static void joint(const struct gguf *g, struct naive *a, struct naive *b)
{
    struct naive *t[2] = {a, b};
    double found[2][ROWS][INNER];
    for (int s = 0; s < 2; s++)
        for (int r = 0; r < t[s]->n; r++) {
            int there = 0;
            for (int j = 0; j < t[1 - s]->n; j++)
                there |= t[1 - s]->ids[j] == t[s]->ids[r];
            for (int i = 0; i < INNER; i++)
                t[s]->x[r][i] += at(g, "joint", "marks", there * INNER + i);
        }
    for (int s = 0; s < 2; s++)
        look(g, "joint", t[s]->x, t[s]->n, t[1 - s]->x, t[1 - s]->n, found[s]);
    for (int s = 0; s < 2; s++) {
        for (int r = 0; r < t[s]->n; r++) {
            double wide[4 * INNER], *x = t[s]->x[r], *c = found[s][r];
            for (int i = 0; i < INNER; i++)
                wide[i] = x[i], wide[INNER + i] = c[i], wide[2 * INNER + i] = fabs(x[i] - c[i]),
                wide[3 * INNER + i] = x[i] * c[i];
            feed(g, "joint", wide, 4 * INNER, x);
        }
        pool(t[s]);
    }
}

static double logit(const struct gguf *g, const char *tower, const struct naive *a,
                    const struct naive *b, double cosine)
{
    double z[Z], sum = at(g, tower, "scalars", 0) + at(g, tower, "scalars", 1) * (cosine - 0.9);
    for (int i = 0; i < 2 * INNER; i++) {
        double x = a->pooled[i], y = b->pooled[i];
        z[i] = strcmp(tower, "joint") ? fabs(x - y) : x + y;
        z[2 * INNER + i] = strcmp(tower, "joint") ? x * y : fabs(x - y);
    }
    for (int i = 0; i < DIM; i++) {
        z[4 * INNER + i] = fabs(a->vector[i] - b->vector[i]);
        z[4 * INNER + DIM + i] = a->vector[i] * b->vector[i];
    }
    for (int j = 0; j < HIDDEN; j++) {
        double s = at(g, tower, "head1.bias", j);
        for (int i = 0; i < Z; i++)
            s += at(g, tower, "head1.weight", j * Z + i) * z[i];
        if (s > 0) sum += s * at(g, tower, "head2.weight", j);
    }
    return sum;
}

struct states {
    int n;
    int32_t ids[ROWS];
    float rows[ROWS][DIM];
};

static void keep(void *arg, const struct encoder_pass *p)
{
    struct states *s = arg;
    s->n = p->length[0] - 1; /* no prefix: only the end mark is dropped */
    memcpy(s->ids, p->ids, (size_t)s->n * sizeof *s->ids);
    memcpy(s->rows, p->rows, (size_t)s->n * sizeof s->rows[0]);
}

static void read_text(struct rig *r, const char *tower, const char *text, struct naive *out)
{
    struct states s;
    float vector[DIM];
    enum err status;
    struct str one = str_of(text);
    encoder_tap_set(r->enc, 1, keep, &s);
    encoder_embed(r->enc, &one, 1, vector, &status);
    encoder_tap_set(r->enc, 1, NULL, NULL);
    out->n = s.n;
    for (int i = 0; i < s.n; i++) {
        double row[DIM];
        for (int d = 0; d < DIM; d++)
            row[d] = (double)s.rows[i][d];
        out->ids[i] = s.ids[i];
        multiply(r->g, tower, "in", row, DIM, out->x[i]);
        norm(r->g, tower, "in_norm", out->x[i]);
    }
    for (int d = 0; d < DIM; d++)
        out->vector[d] = (double)vector[d] * sqrt(DIM);
}

TEST(both_logits_are_what_double_precision_gives)
{
    struct rig r;
    static struct naive a, b;
    uint8_t all[N * BYTES];
    float vectors[N * DIM], got[N];
    enum err status[N];
    struct str texts[N];
    struct pair_tokens *tokens[N];
    double cosines[N] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4};
    REQUIRE(rig_open(&r, TINY, TEST_DATA "/tiny-pair.gguf"));
    REQUIRE(pair_net_is_joint(r.net));
    for (int i = 0; i < N; i++)
        texts[i] = str_of(questions[i]);
    pair_net_embed(r.net, texts, N, vectors, status, all, tokens);
    pair_net_joint(r.net, tokens[0], (const struct pair_tokens *const *)tokens, N, cosines, got);
    for (int i = 0; i < N; i++) {
        float first, back, one;
        REQUIRE(pair_net_score(r.net, all, all + i * BYTES, cosines[i], &first) == OK);
        REQUIRE(pair_net_score(r.net, all + i * BYTES, all, cosines[i], &back) == OK);
        CHECK(first == back);
        CHECK(!memcmp(pair_tokens_sketch(tokens[i]), all + i * BYTES, BYTES));
        read_text(&r, "alone", questions[0], &a);
        read_text(&r, "alone", questions[i], &b);
        alone(r.g, &a);
        alone(r.g, &b);
        CHECK_NEAR((double)first, logit(r.g, "alone", &a, &b, cosines[i]), 0.05); /* 8 bit */
        read_text(&r, "joint", questions[0], &a);
        read_text(&r, "joint", questions[i], &b);
        joint(r.g, &a, &b);
        CHECK_NEAR((double)got[i], logit(r.g, "joint", &a, &b, cosines[i]), 0.05);
        const struct pair_tokens *other = tokens[i], *me = tokens[0];
        pair_net_joint(r.net, tokens[0], &other, 1, cosines + i, &one);
        CHECK(one == got[i]); /* alone or beside others */
        pair_net_joint(r.net, tokens[i], &me, 1, cosines + i, &one);
        CHECK_NEAR((double)one, (double)got[i], 1e-4); /* in either order */
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
