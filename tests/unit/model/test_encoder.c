/* test_encoder.c - goal: the encoder computes what independent references computed for all-MiniLM-L6-v2, alone or in a batch, and
 * refuses what it cannot place. Method: committed reference vectors and pairwise cosines against the converted model
 * (skipped when it is not in the model cache); a tiny random encoder against a naive double-precision pass written here. */
#include "engine/model/encoder.h"

#include "base/mem.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

static const char *const TINY = TEST_DATA "/tiny-bert.gguf";
static const char *const MINILM = "all-minilm-l6-v2.gguf";

static struct encoder *open_encoder(const char *path, const struct encoder_options *o)
{
    struct encoder *enc;
    struct errmsg e = {0};
    if (encoder_open(&enc, path, o, &e)) {
        printf("    %s\n", e.text);
        return NULL;
    }
    return enc;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- the naive reference ---- */

enum { DIM = 64, ROWS_MAX = 48, HEADS = 4 };

static double *tensor(const struct gguf *g, const char *layer, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", layer, what);
    const struct gguf_tensor *t = gguf_tensor(g, name);
    if (!t) abort();
    size_t n = (size_t)(t->dims[0] * t->dims[1]);
    double *out = xcalloc(n, sizeof *out);
    float *row = xcalloc(n, sizeof *row);
    dequantise_row(t->type, t->bytes, row,
                   (int64_t)n); /* float types only: rows lie back to back */
    for (size_t i = 0; i < n; i++)
        out[i] = (double)row[i];
    mem_free(row);
    return out;
}

static void multiply(const struct gguf *g, const char *layer, const char *what, const double *x,
                     double *y)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", what);
    double *w = tensor(g, layer, name);
    snprintf(name, sizeof name, "%s.bias", what);
    double *b = tensor(g, layer, name);
    for (int r = 0; r < DIM; r++) {
        y[r] = b[r];
        for (int c = 0; c < DIM; c++)
            y[r] += w[r * DIM + c] * x[c];
    }
    mem_free(w);
    mem_free(b);
}

static void norm(const struct gguf *g, const char *layer, const char *what, double *x)
{
    char name[64];
    double mean = 0, square = 0;
    snprintf(name, sizeof name, "%s.weight", what);
    double *w = tensor(g, layer, name);
    snprintf(name, sizeof name, "%s.bias", what);
    double *b = tensor(g, layer, name);
    for (int i = 0; i < DIM; i++)
        mean += x[i] / DIM;
    for (int i = 0; i < DIM; i++)
        square += (x[i] - mean) * (x[i] - mean) / DIM;
    for (int i = 0; i < DIM; i++)
        x[i] = (x[i] - mean) / sqrt(square + 1e-12) * w[i] + b[i];
    mem_free(w);
    mem_free(b);
}

static void naive_layer(const struct gguf *g, const char *layer, double x[][DIM], int n)
{
    double q[ROWS_MAX][DIM], k[ROWS_MAX][DIM], v[ROWS_MAX][DIM], a[DIM], y[DIM], p[ROWS_MAX];
    int hd = DIM / HEADS;
    for (int r = 0; r < n; r++) {
        multiply(g, layer, "attn_q", x[r], q[r]);
        multiply(g, layer, "attn_k", x[r], k[r]);
        multiply(g, layer, "attn_v", x[r], v[r]);
    }
    for (int r = 0; r < n; r++) {
        for (int h = 0; h < HEADS; h++) {
            double total = 0;
            for (int j = 0; j < n; j++) {
                double s = 0;
                for (int i = h * hd; i < (h + 1) * hd; i++)
                    s += q[r][i] * k[j][i];
                total += p[j] = exp(s / sqrt(hd));
            }
            for (int i = h * hd; i < (h + 1) * hd; i++) {
                a[i] = 0;
                for (int j = 0; j < n; j++)
                    a[i] += p[j] / total * v[j][i];
            }
        }
        multiply(g, layer, "attn_output", a, y);
        for (int i = 0; i < DIM; i++)
            x[r][i] += y[i];
        norm(g, layer, "attn_output_norm", x[r]);
    }
    for (int r = 0; r < n; r++) {
        multiply(g, layer, "ffn_up", x[r], a);
        for (int i = 0; i < DIM; i++)
            a[i] = 0.5 * a[i] * (1 + erf(a[i] / sqrt(2)));
        multiply(g, layer, "ffn_down", a, y);
        for (int i = 0; i < DIM; i++)
            x[r][i] += y[i];
        norm(g, layer, "layer_output_norm", x[r]);
    }
}

static void naive_embed(const struct gguf *g, const int32_t *ids, int n, double out[DIM])
{
    double x[ROWS_MAX][DIM], square = 0;
    double *word = tensor(g, "", "token_embd.weight"), *pos = tensor(g, "", "position_embd.weight");
    double *type = tensor(g, "", "token_types.weight");
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < DIM; i++)
            x[r][i] = word[ids[r] * DIM + i] + pos[r * DIM + i] + type[i];
        norm(g, "", "token_embd_norm", x[r]);
    }
    naive_layer(g, "blk.0.", x, n);
    naive_layer(g, "blk.1.", x, n);
    for (int i = 0; i < DIM; i++) {
        out[i] = 0;
        for (int r = 0; r < n; r++)
            out[i] += x[r][i];
        square += out[i] * out[i];
    }
    for (int i = 0; i < DIM; i++)
        out[i] /= sqrt(square);
    mem_free(word);
    mem_free(pos);
    mem_free(type);
}

TEST(a_tiny_encoder_matches_the_formulas)
{
    struct encoder_options o = {.n_threads = 1, .exact = true};
    struct encoder *enc = open_encoder(TINY, &o);
    struct gguf *g;
    struct tokenizer *t;
    struct errmsg e;
    REQUIRE(enc && gguf_open(&g, TINY, &e) == OK && tokenizer_from_gguf(&t, g, &e) == OK);
    CHECK_INT(encoder_dim(enc), DIM);
    CHECK_INT(encoder_max_tokens(enc), 48);
    CHECK(!strncmp(encoder_id(enc), "tiny-bert-", 10) && strlen(encoder_id(enc)) == 26);
    struct str text = STR("how do I reset my password?");
    struct token_list ids;
    token_list_init(&ids, 48);
    tokenizer_encode(t, text, TOKENIZE_ADD_SPECIAL, &ids);
    CHECK_INT(ids.n, 9);
    float vector[DIM];
    double naive[DIM];
    enum err status;
    encoder_embed(enc, &text, 1, vector, &status);
    CHECK_INT(status, OK);
    naive_embed(g, ids.ids, (int)ids.n, naive);
    for (int i = 0; i < DIM; i++)
        CHECK_NEAR(vector[i], naive[i], 2e-6);
    token_list_fini(&ids);
    tokenizer_free(t);
    gguf_close(g);
    encoder_close(enc);
}

TEST(company_changes_no_bit)
{
    static const struct str texts[] = {{"how do i close an account", 25},
                                       {"what is the price of a card?", 28},
                                       {"", 0},
                                       {"can you change my order number 48213", 36},
                                       {"refund", 6}};
    enum { N = sizeof texts / sizeof *texts };
    struct encoder_options o = {.n_threads = 2, .batch_tokens_max = 48};
    struct encoder *enc = open_encoder(TINY, &o);
    REQUIRE(enc);
    float together[N * DIM], alone[DIM];
    enum err status[N], one;
    encoder_embed(enc, texts, N, together, status);
    for (int i = 0; i < N; i++) {
        encoder_embed(enc, &texts[i], 1, alone, &one);
        CHECK(status[i] == OK && one == OK);
        CHECK(!memcmp(alone, together + i * DIM, sizeof alone));
        CHECK_NEAR(dot(alone, alone, DIM), 1, 1e-5);
    }
    encoder_close(enc);
}

TEST(what_cannot_be_placed_is_refused)
{
    static const struct str texts[] = {
        {"how do i pay", 12},
        {"\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c hello", 18},
        {NULL, 0}};
    char many[400];
    struct str list[3] = {texts[0], texts[1], {many, sizeof many}};
    struct encoder_options o = {.n_threads = 1};
    struct encoder *enc = open_encoder(TINY, &o);
    REQUIRE(enc);
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? ' ' : 'a';
    float out[3 * DIM];
    enum err status[3];
    int n_unknown;
    encoder_embed(enc, list, 3, out, status);
    CHECK_INT(status[0], OK);
    CHECK_INT(status[1], ERR_UNSUPPORTED);
    CHECK_INT(status[2], ERR_TOO_LARGE);
    CHECK_NEAR(dot(out + DIM, out + DIM, DIM), 0, 0);
    CHECK_NEAR(dot(out + 2 * DIM, out + 2 * DIM, DIM), 0, 0);
    CHECK_INT(encoder_count_tokens(enc, list[2], &n_unknown), 49);
    CHECK(encoder_count_tokens(enc, list[1], &n_unknown) > 4 && n_unknown == 4);
    encoder_close(enc);
    o.unknown_share_max = 1;
    REQUIRE((enc = open_encoder(TINY, &o)));
    encoder_embed(enc, &list[1], 1, out, status);
    CHECK_INT(status[0], OK);
    encoder_close(enc);
}

TEST(a_decoder_file_is_no_encoder)
{
    struct encoder *enc;
    struct encoder_options o = {.n_threads = 1};
    struct errmsg e = {0};
    CHECK_INT(encoder_open(&enc, TEST_DATA "/tiny-llama-f32.gguf", &o, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "\"llama\" is no encoder we read"));
}

/* ---- real references ---- */

struct bounds {
    double cosine, per_dim, pair;
};

static void check_vector(struct encoder *enc, const json_t *v, const struct bounds *b,
                         struct bounds *seen)
{
    struct buf raw;
    struct str text = {json_string_value(json_object_get(v, "text")),
                       json_string_length(json_object_get(v, "text"))};
    float vector[384];
    enum err status;
    buf_init(&raw, 1 << 16);
    case_base64(case_text(v, "vec_f32_b64"), &raw);
    REQUIRE(raw.n == sizeof vector);
    encoder_embed(enc, &text, 1, vector, &status);
    CHECK_INT(status, OK);
    const float *want = (const float *)(const void *)raw.p;
    double cosine = dot(vector, want, 384) / sqrt(dot(want, want, 384));
    seen->cosine = fmin(seen->cosine, cosine);
    for (int i = 0; i < 384; i++)
        seen->per_dim = fmax(seen->per_dim, fabs((double)vector[i] - (double)want[i]));
    CHECK_AT(cosine >= b->cosine, "%s: cosine %.6f to the reference", text.p, cosine);
    buf_fini(&raw);
}

static void check_pairs(struct encoder *enc, const json_t *v, const struct bounds *b,
                        struct bounds *seen)
{
    const json_t *texts = json_object_get(v, "texts"), *pairs = json_object_get(v, "pairs");
    size_t n = json_array_size(texts);
    float *vectors = xcalloc(n * 384, sizeof *vectors);
    for (size_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(texts, i);
        struct str text = {json_string_value(t), json_string_length(t)};
        enum err status;
        encoder_embed(enc, &text, 1, vectors + i * 384, &status);
        CHECK_INT(status, OK);
    }
    CHECK_INT(json_array_size(pairs), n * (n - 1) / 2);
    for (size_t k = 0; k < json_array_size(pairs); k++) {
        const json_t *pair = json_array_get(pairs, k);
        json_int_t i = json_integer_value(json_object_get(pair, "i")),
                   j = json_integer_value(json_object_get(pair, "j"));
        double want = json_number_value(json_object_get(pair, "cos"));
        double off = fabs(dot(vectors + i * 384, vectors + j * 384, 384) - want);
        seen->pair = fmax(seen->pair, off);
        CHECK_AT(off <= b->pair, "pair %d, %d: cosine is off by %.4f", (int)i, (int)j, off);
    }
    mem_free(vectors);
}

static void check_references(const char *path, const char *cases, const struct encoder_options *o,
                             const struct bounds *b)
{
    struct buf file;
    int vectors = 0;
    struct bounds seen = {1, 0, 0};
    struct encoder *enc = open_encoder(path, o);
    buf_init(&file, 1 << 20);
    REQUIRE(enc && case_read_file(cases, &file));
    struct str text = buf_view(&file);
    for (json_t *v; (v = case_next_json(&text)); json_decref(v)) {
        if (!strcmp(case_text(v, "kind"), "vector")) {
            check_vector(enc, v, b, &seen);
            vectors++;
        } else if (!strcmp(case_text(v, "kind"), "pairwise_cosine")) {
            check_pairs(enc, v, b, &seen);
        }
    }
    CHECK(seen.per_dim <= b->per_dim);
    CHECK(vectors >= 8);
    printf("    lowest cosine %.6f, largest difference of one dimension %.2g, of a pair's cosine "
           "%.2g\n",
           seen.cosine, seen.per_dim, seen.pair);
    buf_fini(&file);
    encoder_close(enc);
}

static void check_minilm(const struct encoder_options *o, const struct bounds *b)
{
    char path[512];
    if (!case_cached_model(MINILM, path))
        SKIP("all-minilm-l6-v2.gguf is not in the model cache (scripts/convert_minilm.py)");
    check_references(path, TEST_DATA "/embeddings.jsonl", o, b);
}

TEST(minilm_float_path_equals_the_references)
{
    check_minilm(&(struct encoder_options){.n_threads = 2, .exact = true},
                 &(struct bounds){0.99999, 2e-4, 0.002});
}

TEST(minilm_float_weights_equal_the_references)
{
    check_minilm(&(struct encoder_options){.n_threads = 2, .keep_f32 = true},
                 &(struct bounds){0.99999, 2e-4, 0.002});
}

TEST(minilm_rounded_to_8_bit_stays_near_the_references)
{
    check_minilm(&(struct encoder_options){.n_threads = 2}, &(struct bounds){0.995, 0.02, 0.02});
}

TEST(multilingual_e5_agrees_with_its_own_engine)
{
    char path[512]; /* both round activations to 8 bit, each in its own way */
    if (!case_cached_model("multilingual-e5-small-q4.gguf", path))
        SKIP("multilingual-e5-small-q4.gguf is not in the model cache (scripts/convert_e5.py)");
    check_references(path, TEST_DATA "/embeddings_e5.jsonl",
                     &(struct encoder_options){.n_threads = 2}, &(struct bounds){0.9995, 0.01, 1});
}

/* The ids of one case; a list cut to 256 ends with [SEP] where the whole one goes on. */
static void check_pieces(const struct tokenizer *t, const json_t *v)
{
    struct str text = {json_string_value(json_object_get(v, "text")),
                       json_string_length(json_object_get(v, "text"))};
    const json_t *cut = json_object_get(v, "ids_truncated_256"),
                 *want = json_object_get(v, "ids_plain");
    struct token_list got;
    if (!want) want = cut ? cut : json_object_get(v, "ids");
    token_list_init(&got, 100000);
    tokenizer_encode(t, text, TOKENIZE_ADD_SPECIAL, &got);
    size_t n = json_array_size(want);
    if (cut)
        CHECK_INT(got.n, json_integer_value(json_object_get(v, "n_full")));
    else
        CHECK_AT(got.n == n, "%s: %zu ids, not %zu", case_text(v, "id"), got.n, n);
    for (size_t i = 0; i < n - (cut ? 1 : 0) && i < got.n; i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(want, i));
        CHECK_AT(got.ids[i] == id, "%s[%zu]: id %d, not %d", case_text(v, "id"), i, got.ids[i], id);
    }
    token_list_fini(&got);
}

TEST(minilm_pieces_equal_the_references)
{
    char path[512];
    struct buf file;
    struct gguf *g;
    struct tokenizer *t;
    struct errmsg e;
    int n = 0;
    if (!case_cached_model(MINILM, path))
        SKIP("all-minilm-l6-v2.gguf is not in the model cache (scripts/convert_minilm.py)");
    buf_init(&file, 1 << 20);
    REQUIRE(gguf_open(&g, path, &e) == OK && tokenizer_from_gguf(&t, g, &e) == OK);
    REQUIRE(case_read_file(TEST_DATA "/embeddings.jsonl", &file));
    struct str text = buf_view(&file);
    for (json_t *v; (v = case_next_json(&text)); json_decref(v)) {
        if (strcmp(case_text(v, "kind"), "wordpiece") && strcmp(case_text(v, "kind"), "vector"))
            continue;
        check_pieces(t, v);
        n++;
    }
    CHECK_INT(n, 28);
    buf_fini(&file);
    tokenizer_free(t);
    gguf_close(g);
}

TEST_MAIN()
