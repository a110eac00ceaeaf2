/* test_model_gemma3.c - goal: on a real model with windows, two rope bases, four norms and heads of 256 the engine says what float32
 * arithmetic says. Method: Gemma-3-270M Q4_K_M against tests/data/reference_gemma3.jsonl, computed by the numpy forward pass in
 * tests/reference with dequantised weights: four prompts (the five likeliest first tokens, 24 greedy tokens) and the
 * log-probability of tokens of a text longer than the window. */
#include "base/mem.h"
#include "engine/model/model.h"
#include "engine/model/sampler.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum {
    GREEDY = 24,
    PROMPTS = 4,
    PROMPT_MAX = 64,
    TEXT_MAX = 720,
    TEXT = 576,
    TEXT_STEP = 32,
    BLOCK = 16
};
static const char *const FILE_NAME = "gemma-3-270m-q4_k_m.gguf";
static const char *const ABSENT = "gemma-3-270m-q4_k_m.gguf is not in the model cache";

struct prompt {
    int n, n_top;
    int32_t ids[PROMPT_MAX], greedy[GREEDY], top_token[5];
    double top_logprob[5];
};
struct reference {
    struct prompt prompts[PROMPTS];
    int n_prompts, n_text;
    int32_t text[TEXT_MAX];
    double logprob[TEXT_MAX]; /* of text[i + 1] after text[0..i] */
};

static int ints(const json_t *list, int32_t *out, int max)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n && i < max; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n < max ? n : max;
}

static void read_prompt(const json_t *v, struct prompt *p)
{
    const json_t *top = json_object_get(v, "top5");
    p->n = ints(json_object_get(v, "prompt_ids"), p->ids, PROMPT_MAX);
    ints(json_object_get(v, "greedy_ids"), p->greedy, GREEDY);
    p->n_top = (int)json_array_size(top);
    for (int i = 0; i < p->n_top && i < 5; i++) {
        const json_t *pair = json_array_get(top, (size_t)i);
        p->top_token[i] = (int32_t)json_integer_value(json_array_get(pair, 0));
        p->top_logprob[i] = json_number_value(json_array_get(pair, 1));
    }
}

static bool read_reference(struct reference *r)
{
    struct buf file;
    memset(r, 0, sizeof *r);
    buf_init(&file, 1 << 20);
    if (!case_read_file(TEST_DATA "/reference_gemma3.jsonl", &file)) return false;
    struct str text = buf_view(&file);
    for (json_t *v; (v = case_next_json(&text)); json_decref(v)) {
        if (json_object_get(v, "prompt_ids")) {
            if (r->n_prompts < PROMPTS) read_prompt(v, &r->prompts[r->n_prompts++]);
            continue;
        }
        const json_t *list = json_object_get(v, "logprobs");
        r->n_text = ints(json_object_get(v, "ids"), r->text, TEXT_MAX);
        for (int i = 0; i + 1 < r->n_text; i++)
            r->logprob[i] = json_number_value(json_array_get(list, (size_t)i));
    }
    buf_fini(&file);
    return r->n_prompts == PROMPTS && r->n_text == TEXT_MAX;
}

static struct model *open_model(const char *isa, bool exact)
{
    char path[512];
    struct model *m;
    struct errmsg e = {0};
    struct model_options o = {.n_threads = 2,
                              .block_tokens = BLOCK,
                              .n_blocks = TEXT_MAX / BLOCK,
                              .max_batch_tokens = PROMPT_MAX,
                              .max_seqs = 1,
                              .isa = isa,
                              .exact = exact};
    if (!case_cached_model(FILE_NAME, path)) return NULL;
    if (model_open(&m, path, &o, &e) == OK) return m;
    printf("    %s\n", e.text);
    return NULL;
}

/* Logits of the last n_out of n tokens from position pos on; blocks are used from the last to the first. */
static void step(struct model *m, const int32_t *ids, int n, int pos, int n_out, float *logits)
{
    int32_t positions[PROMPT_MAX], seq[PROMPT_MAX] = {0}, out[2], table[TEXT_MAX / BLOCK];
    const int32_t *tables[] = {table};
    for (int i = 0; i < TEXT_MAX / BLOCK; i++)
        table[i] = TEXT_MAX / BLOCK - 1 - i;
    for (int i = 0; i < n; i++)
        positions[i] = pos + i;
    for (int i = 0; i < n_out; i++)
        out[i] = n - n_out + i;
    struct model_batch b = {.n_rows = n,
                            .token = ids,
                            .pos = positions,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = n_out,
                            .out_row = out};
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
    int greedy_equal;     /* tokens before the first that differs, all prompts */
    int n_text;
    double text_mean, text_rms; /* differences of the text's log-probabilities */
};

static void compare_prompts(struct model *m, const struct reference *ref, bool go_on,
                            struct outcome *o)
{
    int n_vocab = model_info(m)->n_vocab;
    float *logits = xcalloc((size_t)n_vocab, sizeof *logits);
    for (int r = 0; r < ref->n_prompts; r++) {
        const struct prompt *p = &ref->prompts[r];
        step(m, p->ids, p->n, 0, 1, logits);
        for (int i = 0; i < p->n_top; i++) {
            double said = case_logprob(logits, n_vocab, p->top_token[i]);
            o->logprob_error = fmax(o->logprob_error, fabs(said - p->top_logprob[i]));
        }
        int same = 0;
        for (int32_t t; go_on && same < GREEDY && (t = greedy(logits, n_vocab)) == p->greedy[same];
             same++)
            step(m, &t, 1, p->n + same, 1, logits);
        o->greedy_equal += same;
    }
    mem_free(logits);
}

/* The whole text goes through the layers; of every TEXT_STEP tokens two are asked for. */
static void compare_text(struct model *m, const struct reference *ref, struct outcome *o)
{
    int n_vocab = model_info(m)->n_vocab;
    float *logits = xcalloc(2 * (size_t)n_vocab, sizeof *logits);
    double sum = 0, square = 0;
    for (int at = 0; at < TEXT; at += TEXT_STEP) {
        step(m, ref->text + at, TEXT_STEP, at, 2, logits);
        for (int i = 0; i < 2; i++, o->n_text++) {
            int pos = at + TEXT_STEP - 2 + i;
            const float *row = logits + (size_t)i * (size_t)n_vocab;
            double said = case_logprob(row, n_vocab, ref->text[pos + 1]),
                   difference = said - ref->logprob[pos];
            sum += difference;
            square += difference * difference;
        }
    }
    o->text_mean = sum / o->n_text;
    o->text_rms = sqrt(square / o->n_text);
    mem_free(logits);
}

static struct outcome compare(struct model *m, const char *name, bool go_on, bool text)
{
    static struct reference ref;
    struct outcome o = {0};
    if (!read_reference(&ref)) abort();
    compare_prompts(m, &ref, go_on, &o);
    printf("    %s: log-probabilities differ by %.4f at most", name, o.logprob_error);
    if (go_on) printf("; greedy tokens equal %d of %d", o.greedy_equal, PROMPTS * GREEDY);
    if (text) {
        compare_text(m, &ref, &o);
        printf("; %d tokens of the text by %.5f root mean square, %.5f on average", o.n_text,
               o.text_rms, o.text_mean);
    }
    printf("\n");
    return o;
}

TEST(float_path_equals_the_float32_reference)
{
    struct model *m = open_model(NULL, true);
    if (!m) SKIP(ABSENT);
    struct outcome o = compare(m, "float path", true, false);
    CHECK(o.logprob_error <= 0.02);
    CHECK_INT(o.greedy_equal, PROMPTS * GREEDY);
    model_close(m);
}

TEST(eight_bit_activations_stay_within_the_bound)
{
    static const char *const isas[] = {"avx512", "avx2"}; /* the text once, by the better one */
    int ran = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        struct model *m = open_model(isas[i], false);
        if (!m) continue;
        struct outcome o = compare(m, isas[i], false, ran == 0);
        CHECK(o.logprob_error <= 0.35);
        CHECK(o.text_rms <= 0.1);
        model_close(m);
        ran++;
    }
    if (!ran) SKIP("no model in the cache, or a CPU without AVX2");
}

TEST_MAIN()
