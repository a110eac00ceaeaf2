/* test_reference.c - goal: every architecture and every kind of rope scaling computes what its papers say. Method: tiny random models
 * against logits of an independent forward pass in numpy (tests/reference, float64), kept in tests/data/reference_tiny.jsonl; and
 * damaged copies of the models, which must be refused with the name of what is wrong. */
#include "base/mem.h"
#include "engine/model/model.h"
#include "engine/model/model_plan.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { N_MAX = 32, ROWS_MAX = 8, BLOCKS = 8 };
static const int32_t TABLE[] = {5, 0, 7, 2, 4, 1, 3, 6};

static struct model *open_model(const char *file, int context, bool exact)
{
    char path[512];
    struct model *m;
    struct errmsg e = {0};
    struct model_options o = {.n_threads = 1,
                              .block_tokens = 64,
                              .n_blocks = BLOCKS,
                              .max_batch_tokens = N_MAX,
                              .max_seqs = 1,
                              .context_max = context,
                              .exact = exact};
    snprintf(path, sizeof path, TEST_DATA "/%s", file);
    if (model_open(&m, path, &o, &e) == OK) return m;
    printf("    %s\n", e.text);
    abort();
}

static int ints(const json_t *list, int32_t *out, int max)
{
    int n = (int)json_array_size(list);
    for (int i = 0; i < n && i < max; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n < max ? n : max;
}

static double number(const json_t *list, int i)
{
    return json_number_value(json_array_get(list, (size_t)i));
}

static double log_sum(const float *logits, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

struct seen {
    double logit;   /* largest difference, relative to the largest logit */
    double logprob; /* largest difference of the five likeliest */
    bool likeliest; /* the first one is the same everywhere */
};

static void compare_row(const float *logits, int n_vocab, const json_t *c, int row, struct seen *s)
{
    const json_t *want = json_array_get(json_object_get(c, "logits"), (size_t)row),
                 *top = json_array_get(json_object_get(c, "top5"), (size_t)row);
    int stride = (int)json_integer_value(json_object_get(c, "stride")), best = 0;
    double scale = 0, worst = 0, total = log_sum(logits, n_vocab);
    for (int t = 0; t < n_vocab; t++) {
        scale = fmax(scale, fabs((double)logits[t]));
        if (logits[t] > logits[best]) best = t;
    }
    CHECK_INT(json_array_size(want), (n_vocab + stride - 1) / stride);
    for (int i = 0; i * stride < n_vocab; i++)
        worst = fmax(worst, fabs((double)logits[i * stride] - number(want, i)));
    s->logit = fmax(s->logit, worst / scale);
    for (int i = 0; i < 5; i++) {
        const json_t *pair = json_array_get(top, (size_t)i);
        int token = (int)number(pair, 0);
        s->logprob = fmax(s->logprob, fabs((double)logits[token] - total - number(pair, 1)));
        if (i == 0 && token != best) s->likeliest = false;
    }
}

/* The case's LoRA adapter, -1 when it has none. */
static int32_t add_adapter(struct model *m, const json_t *c)
{
    char path[512];
    struct errmsg e = {0};
    int number = -1;
    if (!*case_text(c, "lora")) return -1;
    snprintf(path, sizeof path, TEST_DATA "/%s", case_text(c, "lora"));
    if (model_adapter_add(m, path, (float)json_number_value(json_object_get(c, "scale")), &number,
                          &e)) {
        printf("    %s\n", e.text);
        abort();
    }
    return number;
}

static struct seen compare(const json_t *c, bool exact)
{
    int32_t ids[N_MAX], rows[ROWS_MAX], pos[N_MAX], seq[N_MAX] = {0};
    int n = ints(json_object_get(c, "ids"), ids, N_MAX),
        n_rows = ints(json_object_get(c, "rows"), rows, ROWS_MAX);
    struct model *m = open_model(case_text(c, "file"),
                                 (int)json_integer_value(json_object_get(c, "context")), exact);
    size_t n_vocab = (size_t)model_info(m)->n_vocab;
    float *logits = xcalloc((size_t)n_rows * n_vocab, sizeof *logits);
    int32_t adapter = add_adapter(m, c);
    for (int i = 0; i < n; i++)
        pos[i] = i;
    const int32_t *tables[] = {TABLE};
    struct model_batch b = {.n_rows = n,
                            .token = ids,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = n_rows,
                            .out_row = rows,
                            .adapter = &adapter};
    struct seen s = {.likeliest = true};
    model_forward(m, &b, logits);
    for (int i = 0; i < n_rows; i++)
        compare_row(logits + (size_t)i * n_vocab, (int)n_vocab, c, i, &s);
    mem_free(logits);
    model_close(m);
    return s;
}

static int each_case(bool exact, double logit_max, double logprob_max)
{
    struct buf file;
    int n = 0;
    buf_init(&file, 1 << 20);
    if (!case_read_file(TEST_DATA "/reference_tiny.jsonl", &file)) return 0;
    struct str text = buf_view(&file);
    for (json_t *c; (c = case_next_json(&text)); json_decref(c), n++) {
        struct seen s = compare(c, exact);
        printf("    %s %s: logits differ by %.2g of the largest, log-probabilities by %.2g\n",
               case_text(c, "file"), case_text(c, "lora"), s.logit, s.logprob);
        CHECK_AT(s.logit <= logit_max && s.logprob <= logprob_max && (!exact || s.likeliest),
                 "%s is not what the reference says", case_text(c, "file"));
    }
    buf_fini(&file);
    return n;
}

TEST(the_float_path_equals_the_reference_in_every_architecture)
{
    CHECK_INT(each_case(true, 2e-5, 2e-4), 19);
}

TEST(eight_bit_activations_stay_near_the_reference)
{
    CHECK_INT(each_case(false, 0.05, 0.35), 19);
}

/* ---- damaged files ---- */

/* The file with the first `from` overwritten by `to` (of the same length), as a plan. */
static enum err plan_patched(const char *file, const char *from, const char *to, size_t n,
                             struct model_plan *plan, struct errmsg *e)
{
    char path[512];
    struct buf bytes;
    struct gguf *g;
    snprintf(path, sizeof path, TEST_DATA "/%s", file);
    buf_init(&bytes, 1 << 20);
    if (!case_read_file(path, &bytes)) abort();
    if (from) {
        ptrdiff_t at = str_find(buf_view(&bytes), (struct str){from, n});
        if (at < 0) abort();
        memcpy(bytes.p + at, to, n);
    }
    void *aligned = xmalloc(bytes.n);
    memcpy(aligned, bytes.p, bytes.n);
    enum err code = gguf_from_bytes(&g, aligned, bytes.n, e);
    if (!code) {
        code = model_plan_read(plan, g, e);
        gguf_close(g);
    }
    mem_free(aligned);
    buf_fini(&bytes);
    return code;
}

TEST(what_is_missing_or_odd_is_named_with_what_would_be_right)
{
    static const struct {
        const char *file, *from, *to, *want;
    } cases[] = {
        {"tiny-qwen3.gguf", "blk.1.attn_k_norm", "blk.1.attn_k_nose",
         "tensor blk.1.attn_k_norm.weight is missing"},
        {"tiny-gemma3.gguf", "blk.4.post_ffw_norm", "blk.4.past_ffw_norm",
         "tensor blk.4.post_ffw_norm.weight is missing"},
        {"tiny-gemma2.gguf", "blk.0.post_attention_norm", "blk.0.post_attention_form",
         "tensor blk.0.post_attention_norm.weight is missing"},
        {"tiny-rope-long.gguf", "rope_factors_long", "rope_factors_lang",
         "tensor rope_factors_long.weight is missing"},
        {"tiny-rope-yarn.gguf", "yarn", "cord",
         "qwen2.rope.scaling.type: \"cord\" is not supported; none, linear, yarn and longrope are"},
        {"tiny-qwen3.gguf", "qwen3", "qwen9",
         "\"qwen9\" is not supported; llama, qwen2, qwen2moe, qwen3, qwen3moe, olmoe, gemma2 and "
         "gemma3 are"},
        {"tiny-gemma3.gguf", "feed_forward_length\4\0\0\0\x60", "feed_forward_length\4\0\0\0\x40",
         "tensor blk.0.ffn_gate.weight has shape [64, 96, 1, 1], must be [64, 64, 1, 1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_plan plan;
        struct errmsg e = {0};
        size_t n = strlen(cases[i].from);
        if (cases[i].from[n - 1] == 4) n += 4; /* a type, and a little-endian u32 after it */
        CHECK(plan_patched(cases[i].file, cases[i].from, cases[i].to, n, &plan, &e) != OK);
        CHECK_AT(strstr(e.text, cases[i].want), "\"%s\" does not say \"%s\"", e.text,
                 cases[i].want);
    }
}

TEST(every_sixth_layer_of_gemma3_and_every_second_of_gemma2_sees_everything)
{
    struct model_plan plan;
    struct errmsg e = {0};
    REQUIRE(plan_patched("tiny-gemma3.gguf", NULL, NULL, 0, &plan, &e) == OK);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(plan.layers[i].window, i == 5 ? 0 : 7);
        CHECK_INT(plan.layers[i].local_rope, i != 5);
    }
    CHECK_NEAR(plan.rope.local_base, 1e4, 0);
    CHECK_NEAR(plan.rope.base, 1e6, 0);
    model_plan_fini(&plan);
    REQUIRE(plan_patched("tiny-gemma2.gguf", NULL, NULL, 0, &plan, &e) == OK);
    CHECK_INT(plan.layers[0].window, 6);
    CHECK_INT(plan.layers[1].window, 0);
    CHECK(!plan.layers[0].local_rope);
    CHECK_NEAR(plan.attn_softcap, 50, 0);
    CHECK_NEAR(plan.final_softcap, 30, 0);
    model_plan_fini(&plan);
}

TEST_MAIN()
