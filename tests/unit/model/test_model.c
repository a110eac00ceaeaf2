/* test_model.c - goal: the forward pass computes what the architectures define, and a row's logits do not depend on what else
 * is in the batch. Method: tiny random models of every tensor type against a naive double-precision forward pass written
 * here from the papers' formulas (llama and qwen2; the others: test_reference.c); bit equality between different cuts of the same work. */
#include "engine/model/model.h"

#include "base/mem.h"
#include "engine/model/gguf.h"
#include "tests/check.h"

static const char *const FILES[] = {
    TEST_DATA "/tiny-llama-f32.gguf", TEST_DATA "/tiny-llama-mixed.gguf",
    TEST_DATA "/tiny-qwen2-k.gguf",   TEST_DATA "/tiny-qwen3.gguf",
    TEST_DATA "/tiny-gemma2.gguf",    TEST_DATA "/tiny-gemma3.gguf",
    TEST_DATA "/tiny-mixtral.gguf",   TEST_DATA "/tiny-qwen2moe.gguf",
    TEST_DATA "/tiny-qwen3moe.gguf",  TEST_DATA "/tiny-olmoe.gguf"};
enum { N_FORMULAS = 3, N_FILES = 10, N_IDS = 21, BLOCKS = 32 };
static const int32_t IDS[N_IDS] = {5,  17,  200, 41, 41,  3,   99, 250, 1,  77, 64,
                                   33, 128, 9,   12, 180, 270, 31, 2,   66, 140};
static const int32_t FORWARD_TABLE[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t OTHER_TABLE[] = {30, 11, 25, 9, 19, 13, 28, 8};

static struct model *open_model(const char *path, bool exact, int n_threads)
{
    struct model *m;
    struct errmsg e = {0};
    struct model_options o = {.n_threads = n_threads,
                              .block_tokens = 8,
                              .n_blocks = BLOCKS,
                              .max_batch_tokens = 64,
                              .max_seqs = 4,
                              .exact = exact};
    if (model_open(&m, path, &o, &e)) {
        printf("    %s\n", e.text);
        abort();
    }
    return m;
}

/* Logits of every row of ids[from,to) of one sequence, [to-from][n_vocab]; free with mem_free. */
static float *run(struct model *m, const int32_t *ids, int from, int to, const int32_t *table)
{
    int n = to - from;
    int32_t pos[64], seq[64] = {0}, out[64];
    for (int i = 0; i < n; i++) {
        pos[i] = from + i;
        out[i] = i;
    }
    const int32_t *tables[] = {table};
    struct model_batch b = {.n_rows = n,
                            .token = ids + from,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = n,
                            .out_row = out};
    float *logits = xcalloc((size_t)n * (size_t)model_info(m)->n_vocab, sizeof *logits);
    model_forward(m, &b, logits);
    return logits;
}

/* ---- the naive reference ---- */

static double *matrix(const struct gguf *g, const char *name, int64_t *n_in, int64_t *n_out)
{
    const struct gguf_tensor *t = gguf_tensor(g, name);
    if (!t) return NULL;
    double *out = xcalloc((size_t)(t->dims[0] * t->dims[1]), sizeof *out);
    float *row = xcalloc((size_t)t->dims[0], sizeof *row);
    for (int64_t r = 0; r < t->dims[1]; r++) {
        dequantise_row(t->type,
                       (const char *)t->bytes + (size_t)r * tensor_row_bytes(t->type, t->dims[0]),
                       row, t->dims[0]);
        for (int64_t c = 0; c < t->dims[0]; c++)
            out[r * t->dims[0] + c] = (double)row[c];
    }
    mem_free(row);
    *n_in = t->dims[0];
    *n_out = t->dims[1];
    return out;
}

/* y[n_out] = W x + b; returns n_out. */
static int multiply(const struct gguf *g, const char *name, const double *x, double *y)
{
    char full[64];
    int64_t n_in, n_out, n_bias = 0, one;
    snprintf(full, sizeof full, "%s.weight", name);
    double *w = matrix(g, full, &n_in, &n_out);
    snprintf(full, sizeof full, "%s.bias", name);
    double *b = matrix(g, full, &n_bias, &one);
    for (int64_t r = 0; r < n_out; r++) {
        y[r] = b ? b[r] : 0;
        for (int64_t c = 0; c < n_in; c++)
            y[r] += w[r * n_in + c] * x[c];
    }
    mem_free(w);
    mem_free(b);
    return (int)n_out;
}

static void norm(const struct gguf *g, const char *name, const double *x, int n, double *y)
{
    char full[64];
    int64_t n_in, one;
    double square = 0;
    snprintf(full, sizeof full, "%s.weight", name);
    double *w = matrix(g, full, &n_in, &one);
    for (int i = 0; i < n; i++)
        square += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square / n + 1e-5) * w[i];
    mem_free(w);
}

static void rotate(double *head, int dims, int pos, bool half_split)
{
    for (int i = 0; i < dims / 2; i++) {
        int a = half_split ? i : 2 * i, b = half_split ? i + dims / 2 : 2 * i + 1;
        double angle = pos * pow(10000, -2.0 * i / dims), x = head[a], y = head[b];
        head[a] = x * cos(angle) - y * sin(angle);
        head[b] = x * sin(angle) + y * cos(angle);
    }
}

struct naive {
    const struct gguf *g;
    const struct model_info *info;
    bool half_split;
    double x[N_IDS][256], q[N_IDS][256], k[N_IDS][256], v[N_IDS][256];
};

static void naive_attend(const struct naive *s, int pos, double *out)
{
    int hd = s->info->head_dim, group = s->info->n_head / s->info->n_kv_head;
    for (int h = 0; h < s->info->n_head; h++) {
        double p[N_IDS], total = 0;
        for (int j = 0; j <= pos; j++) {
            double dot = 0;
            for (int i = 0; i < hd; i++)
                dot += s->q[pos][h * hd + i] * s->k[j][h / group * hd + i];
            total += p[j] = exp(dot / sqrt(hd));
        }
        for (int i = 0; i < hd; i++) {
            out[h * hd + i] = 0;
            for (int j = 0; j <= pos; j++)
                out[h * hd + i] += p[j] / total * s->v[j][h / group * hd + i];
        }
    }
}

static void naive_layer(struct naive *s, int layer)
{
    char name[64];
    double n[256], a[256], y[256], gate[256], up[256];
    int width = s->info->n_embd, hd = s->info->head_dim;
#define NAME(what) (snprintf(name, sizeof name, "blk.%d." what, layer), name)
    for (int pos = 0; pos < N_IDS; pos++) {
        norm(s->g, NAME("attn_norm"), s->x[pos], width, n);
        multiply(s->g, NAME("attn_q"), n, s->q[pos]);
        multiply(s->g, NAME("attn_k"), n, s->k[pos]);
        multiply(s->g, NAME("attn_v"), n, s->v[pos]);
        for (int h = 0; h < s->info->n_head; h++)
            rotate(s->q[pos] + h * hd, hd, pos, s->half_split);
        for (int h = 0; h < s->info->n_kv_head; h++)
            rotate(s->k[pos] + h * hd, hd, pos, s->half_split);
    }
    for (int pos = 0; pos < N_IDS; pos++) {
        naive_attend(s, pos, a);
        multiply(s->g, NAME("attn_output"), a, y);
        for (int i = 0; i < width; i++)
            s->x[pos][i] += y[i];
        norm(s->g, NAME("ffn_norm"), s->x[pos], width, n);
        int ff = multiply(s->g, NAME("ffn_gate"), n, gate);
        multiply(s->g, NAME("ffn_up"), n, up);
        for (int i = 0; i < ff; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        multiply(s->g, NAME("ffn_down"), gate, y);
        for (int i = 0; i < width; i++)
            s->x[pos][i] += y[i];
    }
#undef NAME
}

/* Largest difference over all rows of logits to the naive pass, relative to the largest logit. */
static double naive_error(const struct model *m, const float *logits)
{
    struct naive *s = xcalloc(1, sizeof *s);
    int64_t width, vocab;
    s->g = model_gguf(m);
    s->info = model_info(m);
    s->half_split = !strcmp(s->info->arch, "qwen2");
    double *embd = matrix(s->g, "token_embd.weight", &width, &vocab),
           *y = xcalloc((size_t)vocab, sizeof *y), n[256];
    for (int pos = 0; pos < N_IDS; pos++)
        for (int i = 0; i < width; i++)
            s->x[pos][i] = embd[IDS[pos] * width + i];
    for (int i = 0; i < s->info->n_layer; i++)
        naive_layer(s, i);
    double worst = 0, scale = 0;
    for (int pos = 0; pos < N_IDS; pos++) {
        norm(s->g, "output_norm", s->x[pos], (int)width, n);
        multiply(s->g, gguf_tensor(s->g, "output.weight") ? "output" : "token_embd", n, y);
        for (int64_t t = 0; t < vocab; t++) {
            worst = fmax(worst, fabs(y[t] - (double)logits[pos * vocab + t]));
            scale = fmax(scale, fabs(y[t]));
        }
    }
    mem_free(embd);
    mem_free(y);
    mem_free(s);
    return worst / scale;
}

TEST(exact_logits_match_the_formulas)
{
    for (int f = 0; f < N_FORMULAS; f++) {
        struct model *m = open_model(FILES[f], true, 1);
        float *logits = run(m, IDS, 0, N_IDS, FORWARD_TABLE);
        double error = naive_error(m, logits);
        printf("    %s: largest difference %.2g of the largest logit\n", model_info(m)->name,
               error);
        CHECK(error < 1e-4); /* float32 sums of at most 256 terms through 3 layers */
        mem_free(logits);
        model_close(m);
    }
}

TEST(rounded_activations_stay_near_the_formulas)
{
    for (int f = 0; f < N_FORMULAS; f++) {
        struct model *m = open_model(FILES[f], false, 1);
        float *logits = run(m, IDS, 0, N_IDS, FORWARD_TABLE);
        double error = naive_error(m, logits);
        printf("    %s: largest difference %.2g of the largest logit\n", model_info(m)->name,
               error);
        CHECK(error < 0.05); /* 8-bit activations: 1/254 a value and layer, random signs */
        mem_free(logits);
        model_close(m);
    }
}

TEST(cutting_a_prompt_changes_no_bit)
{
    static const int cuts[][4] = {{1, 2, 3, 21}, {7, 8, 9, 21}, {16, 17, 20, 21}};
    for (int f = 0; f < N_FILES; f++) {
        struct model *m = open_model(FILES[f], false, 2);
        size_t vocab = (size_t)model_info(m)->n_vocab;
        float *whole = run(m, IDS, 0, N_IDS, FORWARD_TABLE);
        for (int c = 0; c < 3; c++)
            for (int i = 0, from = 0; i < 4; from = cuts[c][i++]) {
                float *part = run(m, IDS, from, cuts[c][i], OTHER_TABLE);
                CHECK(!memcmp(part, whole + (size_t)from * vocab,
                              (size_t)(cuts[c][i] - from) * vocab * sizeof *part));
                mem_free(part);
            }
        mem_free(whole);
        model_close(m);
    }
}

TEST(company_in_the_batch_changes_no_bit)
{
    for (int f = 0; f < N_FILES; f++) {
        struct model *m = open_model(FILES[f], false, 2);
        size_t vocab = (size_t)model_info(m)->n_vocab;
        float *alone = run(m, IDS, 0, N_IDS, FORWARD_TABLE);
        mem_free(run(m, IDS, 0, 12, OTHER_TABLE));
        /* rows: sequence 1 decodes at 12, sequence 0 starts anew with 21 tokens, sequence 2 with 3 */
        static const int32_t third[] = {29, 27};
        int32_t token[25], pos[25], seq[25], out[] = {0, 5, 21, 24};
        const int32_t *tables[] = {FORWARD_TABLE, OTHER_TABLE, third};
        for (int i = 0; i < 25; i++) {
            seq[i] = i == 0 ? 1 : i < 22 ? 0 : 2;
            pos[i] = i == 0 ? 12 : i < 22 ? i - 1 : i - 22;
            token[i] = IDS[pos[i]];
        }
        struct model_batch b = {.n_rows = 25,
                                .token = token,
                                .pos = pos,
                                .seq = seq,
                                .n_seqs = 3,
                                .block_table = tables,
                                .n_out = 4,
                                .out_row = out};
        float *logits = xcalloc(4 * vocab, sizeof *logits);
        model_forward(m, &b, logits);
        for (int i = 0; i < 4; i++)
            CHECK(!memcmp(logits + (size_t)i * vocab, alone + (size_t)pos[out[i]] * vocab,
                          vocab * sizeof *logits));
        mem_free(logits);
        mem_free(alone);
        model_close(m);
    }
}

TEST(number_of_threads_changes_no_bit)
{
    for (int f = 0; f < N_FILES; f++) {
        struct model *one = open_model(FILES[f], false, 1), *three = open_model(FILES[f], false, 3);
        float *a = run(one, IDS, 0, N_IDS, FORWARD_TABLE),
              *b = run(three, IDS, 0, N_IDS, FORWARD_TABLE);
        CHECK(!memcmp(a, b, (size_t)N_IDS * (size_t)model_info(one)->n_vocab * sizeof *a));
        mem_free(a);
        mem_free(b);
        model_close(one);
        model_close(three);
    }
}

TEST(a_pass_without_wanted_rows_still_stores_its_tokens)
{
    struct model *m = open_model(FILES[1], false, 1);
    size_t vocab = (size_t)model_info(m)->n_vocab;
    float *whole = run(m, IDS, 0, N_IDS, FORWARD_TABLE);
    int32_t pos[20], seq[20] = {0};
    for (int i = 0; i < 20; i++)
        pos[i] = i;
    const int32_t *tables[] = {OTHER_TABLE};
    struct model_batch b = {
        .n_rows = 20, .token = IDS, .pos = pos, .seq = seq, .n_seqs = 1, .block_table = tables};
    model_forward(m, &b, NULL);
    float *last = run(m, IDS, 20, 21, OTHER_TABLE);
    CHECK(!memcmp(last, whole + 20 * vocab, vocab * sizeof *last));
    mem_free(last);
    mem_free(whole);
    model_close(m);
}

TEST(a_copied_tail_block_continues_the_same_and_leaves_the_original_alone)
{
    struct model *m = open_model(FILES[0], false, 1);
    size_t bytes = (size_t)model_info(m)->n_vocab * sizeof(float);
    static const int32_t copied[] = {0, 20};
    int32_t other_ids[N_IDS];
    mem_free(run(m, IDS, 0, 12, FORWARD_TABLE));
    model_kv_copy(m, 20, 1, 4); /* positions 8..11 */
    float *a = run(m, IDS, 12, 13, copied);
    memcpy(other_ids, IDS, sizeof IDS);
    other_ids[12] = 222;
    mem_free(run(m, other_ids, 12, 16, copied)); /* the copy goes another way */
    float *b = run(m, IDS, 12, 13, FORWARD_TABLE);
    CHECK(!memcmp(a, b, bytes));
    float *c = run(m, IDS, 13, 14, FORWARD_TABLE);
    mem_free(run(m, IDS, 0, 14, OTHER_TABLE));
    float *d = run(m, IDS, 13, 14, OTHER_TABLE);
    CHECK(!memcmp(c, d, bytes));
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    model_close(m);
}

TEST(options_out_of_range_are_named)
{
    static const struct {
        struct model_options o;
        const char *want;
    } cases[] = {
        {{.block_tokens = 7, .n_blocks = 1, .max_batch_tokens = 1, .max_seqs = 1},
         "block_tokens: 7 must be"},
        {{.block_tokens = 8, .n_blocks = 0, .max_batch_tokens = 1, .max_seqs = 1},
         "n_blocks: 0 must be"},
        {{.block_tokens = 8, .n_blocks = 1, .max_batch_tokens = 0, .max_seqs = 1},
         "max_batch_tokens: 0 must be"},
        {{.block_tokens = 8, .n_blocks = 1, .max_batch_tokens = 1, .max_seqs = 0},
         "max_seqs: 0 must be"},
        {{.block_tokens = 8, .n_blocks = 1, .max_batch_tokens = 1, .max_seqs = 1, .n_threads = 65},
         "n_threads: 65 must be"},
        {{.block_tokens = 8, .n_blocks = 1, .max_batch_tokens = 1, .max_seqs = 1, .isa = "mmx"},
         "mmx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *m;
        struct errmsg e = {0};
        CHECK(model_open(&m, FILES[0], &cases[i].o, &e) != OK && m == NULL);
        CHECK_AT(strstr(e.text, cases[i].want), "\"%s\" does not say \"%s\"", e.text,
                 cases[i].want);
    }
}

TEST(what_the_file_says_of_itself)
{
    struct model *m = open_model(FILES[2], false, 1), *other = open_model(FILES[1], false, 1);
    const struct model_info *info = model_info(m);
    CHECK_Z(info->arch, "qwen2");
    CHECK_Z(info->name, "tiny random qwen2");
    CHECK_INT(info->n_layer, 1);
    CHECK_INT(info->n_embd, 256);
    CHECK_INT(info->head_dim, 16);
    CHECK_INT(info->context_length, 512);
    CHECK_INT(info->kv_bytes_per_token, 2 * 2 * 16 * 2);
    CHECK(strlen(info->file_hash) == 32 && strcmp(info->file_hash, model_info(other)->file_hash));
    model_close(m);
    model_close(other);
}

TEST_MAIN()
