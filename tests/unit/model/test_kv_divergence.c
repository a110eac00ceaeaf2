/* test_kv_divergence.c - goal: a KV cache in 8 bits costs next to nothing in what the model says, K8V4 little. Method: SmolLM2-135M
 * Instruct Q4_1 on the beginning of the GPL text that Debian carries; mean Kullback-Leibler divergence of the next token's
 * distribution from that with float16 KV. Perplexity over the whole text is what bench_model measures. */
#include <math.h>

#include "engine/model/model.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/tokenizer.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { WINDOW = 256, SCORED = 64, BLOCK = 16 };
static const char *const TEXT = "/usr/share/common-licenses/GPL-3";

/* WINDOW ids, or false when text or model are not here. */
static bool read_ids(const struct model *m, int32_t *ids)
{
    struct buf text;
    struct tokenizer *t;
    struct errmsg e = {0};
    buf_init(&text, 1 << 20);
    bool ok = case_read_file(TEXT, &text) && tokenizer_from_gguf(&t, model_gguf(m), &e) == OK;
    if (ok) {
        struct token_list list;
        token_list_init(&list, 1 << 20);
        tokenizer_encode(t, buf_view(&text), 0, &list);
        ok = list.n >= WINDOW;
        if (ok) memcpy(ids, list.ids, WINDOW * sizeof *ids);
        token_list_fini(&list);
        tokenizer_free(t);
    }
    buf_fini(&text);
    return ok;
}

/* Log-probabilities of the last SCORED positions, [SCORED][n_vocab]. */
static float *predict(struct model *m, const int32_t *ids)
{
    int n_vocab = model_info(m)->n_vocab;
    float *l = xcalloc((size_t)SCORED * (size_t)n_vocab, sizeof *l);
    int32_t pos[WINDOW], seq[WINDOW] = {0}, out[SCORED], table[WINDOW / BLOCK];
    const int32_t *tables[] = {table};
    for (int i = 0; i < WINDOW; i++)
        pos[i] = i;
    for (int i = 0; i < WINDOW / BLOCK; i++)
        table[i] = i ^ 5;
    for (int i = 0; i < SCORED; i++)
        out[i] = WINDOW - SCORED + i;
    struct model_batch b = {.n_rows = WINDOW,
                            .token = ids,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = SCORED,
                            .out_row = out};
    model_forward(m, &b, l);
    for (int i = 0; i < SCORED; i++) {
        float *row = l + (size_t)i * (size_t)n_vocab, top = row[0];
        double sum = 0;
        for (int t = 1; t < n_vocab; t++)
            top = fmaxf(top, row[t]);
        for (int t = 0; t < n_vocab; t++)
            sum += expf(row[t] - top);
        for (int t = 0; t < n_vocab; t++)
            row[t] -= top + (float)log(sum);
    }
    return l;
}

static double divergence(const float *from, const float *l, int n_vocab)
{
    double sum = 0;
    for (size_t i = 0; i < (size_t)SCORED * (size_t)n_vocab; i++)
        sum += expf(from[i]) * (double)(from[i] - l[i]);
    return sum / SCORED;
}

TEST(rounded_kv_hardly_changes_what_is_predicted)
{
    /* any change of K or V, however small, rounds activations elsewhere: that alone is some 0.002 */
    static const double bound[KV_TYPES] = {1e-9, 0.006, 0.02};
    int32_t ids[WINDOW];
    float *plain = NULL;
    char path[512];
    if (!case_cached_model("SmolLM2-135M-Instruct.Q4_1.gguf", path))
        SKIP("SmolLM2-135M-Instruct.Q4_1.gguf is not in the model cache");
    for (int type = 0; type < KV_TYPES; type++) {
        struct model *m;
        struct errmsg e = {0};
        struct model_options o = {.n_threads = 2,
                                  .block_tokens = BLOCK,
                                  .n_blocks = WINDOW / BLOCK,
                                  .max_batch_tokens = WINDOW,
                                  .max_seqs = 1,
                                  .kv_type = (enum kv_type)type};
        REQUIRE(model_open(&m, path, &o, &e) == OK);
        if (!type && !read_ids(m, ids)) SKIP("no GPL-3 text on this system");
        float *l = predict(m, ids);
        if (!type) plain = l;
        double d = divergence(plain, l, model_info(m)->n_vocab);
        printf("    %s: mean divergence %.5f\n", kv_type_name((enum kv_type)type), d);
        CHECK(fabs(d) <= bound[type]);
        if (type) mem_free(l);
        model_close(m);
    }
    mem_free(plain);
}

TEST_MAIN()
