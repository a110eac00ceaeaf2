/* test_model_smollm2.c - goal: on a real model the engine says what float32 arithmetic says. Method: SmolLM2-135M-Instruct Q4_1
 * against references computed by an independent float32 forward pass with dequantised weights: five chat prompts, the five
 * likeliest first tokens with log-probabilities, and 24 greedy tokens. The float path must agree to 0.02 and in every
 * greedy token; with 8-bit activations 0.25 is the bound for each value, and the differences seen are printed. */
#include "engine/model/model.h"

#include "base/mem.h"
#include "engine/model/sampler.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { GREEDY = 24, PROMPT_MAX = 128, BLOCK = 16 };
static const char *const FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf";
static const char *const ABSENT = "SmolLM2-135M-Instruct.Q4_1.gguf is not in the model cache";

struct reference {
    int n_prompt, n_top;
    int32_t prompt[PROMPT_MAX], greedy[GREEDY], top_token[5];
    double top_logprob[5];
};

static int ids_of(const json_t *list, int32_t *out, int max)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n && i < max; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n < max ? n : max;
}

static int read_references(struct reference *out, int max)
{
    struct buf file;
    int n = 0;
    buf_init(&file, 1 << 20);
    if (!case_read_file(TEST_DATA "/reference_smollm2.jsonl", &file)) return 0;
    struct str text = buf_view(&file);
    for (json_t *v; n < max && (v = case_next_json(&text)); json_decref(v)) {
        struct reference *r = &out[n++];
        r->n_prompt = ids_of(json_object_get(v, "prompt_ids"), r->prompt, PROMPT_MAX);
        ids_of(json_object_get(v, "greedy_ids"), r->greedy, GREEDY);
        const json_t *top = json_object_get(v, "top5");
        r->n_top = (int)json_array_size(top);
        for (int i = 0; i < r->n_top && i < 5; i++) {
            const json_t *pair = json_array_get(top, (size_t)i);
            r->top_token[i] = (int32_t)json_integer_value(json_array_get(pair, 0));
            r->top_logprob[i] = json_number_value(json_array_get(pair, 1));
        }
    }
    buf_fini(&file);
    return n;
}

static struct model *open_ranks(const char *isa, bool exact, int n_ranks)
{
    char path[512];
    struct model *m;
    struct errmsg e = {0};
    struct model_options o = {.n_threads = 2,
                              .block_tokens = BLOCK,
                              .n_blocks = 32,
                              .max_batch_tokens = PROMPT_MAX,
                              .max_seqs = 8,
                              .isa = isa,
                              .exact = exact,
                              .n_ranks = n_ranks};
    if (!case_cached_model(FILE_NAME, path)) return NULL;
    if (model_open(&m, path, &o, &e) == OK) return m;
    printf("    %s\n", e.text);
    return NULL;
}

static struct model *open_model(const char *isa, bool exact)
{
    return open_ranks(isa, exact, 1);
}

static const int32_t TABLE[] = {3, 1, 4, 15, 9, 2, 6, 5, 30, 8, 7, 11};

/* Logits of the last of n tokens from position pos on. */
static void step(struct model *m, const int32_t *ids, int n, int pos, float *logits)
{
    int32_t positions[PROMPT_MAX], seq[PROMPT_MAX] = {0}, out = n - 1;
    const int32_t *tables[] = {TABLE};
    for (int i = 0; i < n; i++)
        positions[i] = pos + i;
    struct model_batch b = {.n_rows = n,
                            .token = ids,
                            .pos = positions,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = 1,
                            .out_row = &out};
    model_forward(m, &b, logits);
}

static int32_t greedy(const float *logits, int n_vocab)
{
    int32_t best = 0;
    for (int t = 1; t < n_vocab; t++)
        if (logits[t] > logits[best]) best = t;
    return best;
}

struct outcome {
    double logprob_error; /* largest over the five tokens of every prompt */
    double logprob_rms;
    int greedy_equal; /* tokens before the first that differs, all prompts */
};

static struct outcome compare(struct model *m, const struct reference *refs, int n_refs)
{
    int n_vocab = model_info(m)->n_vocab;
    float *logits = xcalloc((size_t)n_vocab, sizeof *logits);
    struct outcome o = {0};
    int n_values = 0;
    for (int r = 0; r < n_refs; r++) {
        const struct reference *ref = &refs[r];
        step(m, ref->prompt, ref->n_prompt, 0, logits);
        for (int i = 0; i < ref->n_top; i++) {
            double p = case_logprob(logits, n_vocab, ref->top_token[i]);
            double difference = p - ref->top_logprob[i];
            o.logprob_error = fmax(o.logprob_error, fabs(difference));
            o.logprob_rms += difference * difference;
            n_values++;
        }
        int same = 0;
        for (int32_t t; same < GREEDY && (t = greedy(logits, n_vocab)) == ref->greedy[same]; same++)
            step(m, &t, 1, ref->n_prompt + same, logits);
        o.greedy_equal += same;
    }
    o.logprob_rms = sqrt(o.logprob_rms / n_values);
    mem_free(logits);
    return o;
}

TEST(float_path_equals_the_float32_reference)
{
    struct reference refs[5];
    int n = read_references(refs, 5);
    struct model *m = open_model(NULL, true);
    CHECK_INT(n, 5);
    if (!m) SKIP(ABSENT);
    struct outcome o = compare(m, refs, n);
    printf(
        "    float path: largest log-probability difference %.4f, greedy tokens equal %d of %d\n",
        o.logprob_error, o.greedy_equal, n * GREEDY);
    CHECK(o.logprob_error <= 0.02);
    CHECK_INT(o.greedy_equal, n * GREEDY);
    model_close(m);
}

TEST(three_ranks_of_three_heads_equal_the_float32_reference_too)
{
    struct reference refs[3];
    int n = read_references(refs, 3);
    struct model *m = open_ranks(NULL, true, 3);
    if (!m) SKIP(ABSENT);
    struct outcome o = compare(m, refs, n);
    CHECK(o.logprob_error <= 0.02);
    CHECK_INT(o.greedy_equal, n * GREEDY);
    model_close(m);
    m = open_ranks(NULL, false, 3);
    o = compare(m, refs, n);
    printf("    three ranks, 8-bit activations: log-probability difference %.4f at most; greedy "
           "tokens equal %d of %d\n",
           o.logprob_error, o.greedy_equal, n * GREEDY);
    CHECK(o.logprob_error <= 0.25);
    model_close(m);
}

TEST(eight_bit_activations_stay_within_the_bound)
{
    static const char *const isas[] = {"avx2", "avx512"};
    struct reference refs[5];
    int n = read_references(refs, 5), ran = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        struct model *m = open_model(isas[i], false);
        if (!m) continue;
        struct outcome o = compare(m, refs, n);
        printf("    %s: log-probability difference %.4f root mean square, %.4f at most; greedy "
               "tokens equal %d of %d\n",
               isas[i], o.logprob_rms, o.logprob_error, o.greedy_equal, n * GREEDY);
        CHECK(o.logprob_error <= 0.25);
        model_close(m);
        ran++;
    }
    if (!ran) SKIP("no model in the cache, or a CPU without AVX2");
}

TEST(prompts_together_and_in_pieces_change_no_bit)
{
    struct reference refs[5];
    int n = read_references(refs, 5);
    struct model *m = open_model(NULL, false);
    if (!m) SKIP(ABSENT);
    size_t n_vocab = (size_t)model_info(m)->n_vocab;
    float *alone = xcalloc(2 * n_vocab, sizeof *alone),
          *logits = xcalloc(2 * n_vocab, sizeof *logits);
    REQUIRE(n == 5);
    step(m, refs[0].prompt, refs[0].n_prompt, 0, alone);
    step(m, refs[2].prompt, refs[2].n_prompt, 0, alone + n_vocab);
    step(m, refs[2].prompt, 17, 0, logits);
    step(m, refs[2].prompt + 17, refs[2].n_prompt - 17, 17, logits);
    CHECK(!memcmp(logits, alone + n_vocab, n_vocab * sizeof *logits));
    int32_t token[PROMPT_MAX], pos[PROMPT_MAX], seq[PROMPT_MAX], out[2];
    static const int32_t second[] = {20, 21, 22, 23};
    const int32_t *tables[] = {TABLE, second};
    int rows = 0;
    for (int s = 0; s < 2; s++) {
        const struct reference *r = &refs[s ? 2 : 0];
        for (int i = 0; i < r->n_prompt; i++, rows++) {
            token[rows] = r->prompt[i];
            pos[rows] = i;
            seq[rows] = s;
        }
        out[s] = rows - 1;
    }
    struct model_batch b = {.n_rows = rows,
                            .token = token,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 2,
                            .block_table = tables,
                            .n_out = 2,
                            .out_row = out};
    model_forward(m, &b, logits);
    CHECK(!memcmp(logits, alone, 2 * n_vocab * sizeof *logits));
    mem_free(alone);
    mem_free(logits);
    model_close(m);
}

TEST_MAIN()
