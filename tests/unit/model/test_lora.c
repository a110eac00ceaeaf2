/* test_lora.c - goal: adapters of one batch do not see each other, and a bad adapter is refused with the reason. That an adapter
 * computes W + scale B A is test_reference.c's business. Method: one sequence with each adapter alone, then all in one batch, bit for
 * bit; damaged copies of the tiny adapters. */
#include "engine/model/lora.h"

#include <unistd.h>

#include "base/mem.h"
#include "engine/model/model.h"
#include "tests/check.h"
#include "tests/unit/model/case_files.h"

enum { N_IDS = 13, SEQS = 4 };
static const int32_t IDS[N_IDS] = {5, 17, 200, 41, 41, 3, 99, 250, 1, 77, 64, 33, 128};
static const int32_t TABLES[SEQS][2] = {{0, 1}, {6, 7}, {3, 2}, {5, 4}};
static const char *const BASE = TEST_DATA "/tiny-llama-f32.gguf";
static const char *const A = TEST_DATA "/tiny-lora-a.gguf", *const B =
                                                                TEST_DATA "/tiny-lora-b.gguf";

static struct model *open_file(const char *path, bool exact)
{
    struct model *m;
    struct errmsg e = {0};
    struct model_options o = {.n_threads = 2,
                              .block_tokens = 8,
                              .n_blocks = 2 * SEQS,
                              .max_batch_tokens = N_IDS * SEQS,
                              .max_seqs = SEQS,
                              .exact = exact};
    if (model_open(&m, path, &o, &e) == OK) return m;
    printf("    %s\n", e.text);
    abort();
}

static struct model *open_model(bool exact)
{
    return open_file(BASE, exact);
}

static int add(struct model *m, const char *path, float scale)
{
    struct errmsg e = {0};
    int number;
    if (model_adapter_add(m, path, scale, &number, &e) == OK) return number;
    printf("    %s\n", e.text);
    abort();
}

/* Logits of every position of n_seqs copies of the text, [n_seqs][N_IDS][n_vocab]; free with mem_free. */
static float *run(struct model *m, const int32_t *adapter, int n_seqs)
{
    int32_t token[N_IDS * SEQS], pos[N_IDS * SEQS], seq[N_IDS * SEQS], out[N_IDS * SEQS];
    const int32_t *tables[SEQS];
    int n = 0;
    for (int s = 0; s < n_seqs; s++) {
        tables[s] = TABLES[s];
        for (int i = 0; i < N_IDS; i++, n++) {
            token[n] = IDS[i];
            pos[n] = i;
            seq[n] = s;
            out[n] = n;
        }
    }
    struct model_batch b = {.n_rows = n,
                            .token = token,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = n_seqs,
                            .block_table = tables,
                            .n_out = n,
                            .out_row = out,
                            .adapter = adapter};
    float *logits = xcalloc((size_t)n * (size_t)model_info(m)->n_vocab, sizeof *logits);
    model_forward(m, &b, logits);
    return logits;
}

static void check_company(bool exact)
{
    struct model *plain = open_model(exact), *m = open_model(exact);
    size_t n = (size_t)N_IDS * (size_t)model_info(m)->n_vocab;
    int a = add(m, A, 1), b = add(m, B, 0.5f);
    const int32_t mixed[SEQS] = {b, -1, a, b};
    float *base = run(plain, NULL, 1), *together = run(m, mixed, SEQS);
    for (int s = 0; s < SEQS; s++) {
        float *alone = run(m, &mixed[s], 1);
        CHECK_AT(!memcmp(alone, together + (size_t)s * n, n * sizeof *alone),
                 "sequence %d: company changed its logits", s);
        CHECK_INT(!memcmp(alone, base, n * sizeof *alone), mixed[s] < 0);
        mem_free(alone);
    }
    CHECK(memcmp(together, together + 2 * n, n * sizeof *base) != 0);
    mem_free(base);
    mem_free(together);
    model_close(plain);
    model_close(m);
}

TEST(adapters_in_one_batch_do_not_see_each_other_and_rows_without_one_keep_every_bit)
{
    check_company(true);
    check_company(false);
}

TEST(identity_is_content_and_scale)
{
    struct model *m = open_model(false);
    int a = add(m, A, 1), again = add(m, A, 1), weaker = add(m, A, 0.5f), b = add(m, B, 1);
    CHECK(hash_eq(model_adapter_id(m, a), model_adapter_id(m, again)));
    CHECK(!hash_eq(model_adapter_id(m, a), model_adapter_id(m, weaker)));
    CHECK(!hash_eq(model_adapter_id(m, a), model_adapter_id(m, b)));
    model_close(m);
}

TEST(more_adapters_than_a_model_takes_are_refused)
{
    struct model *m = open_model(false);
    struct errmsg e = {0};
    int number;
    for (int i = 0; i < MODEL_ADAPTERS_MAX; i++)
        add(m, B, 1);
    CHECK_INT(model_adapter_add(m, B, 1, &number, &e), ERR_FULL);
    model_close(m);
}

/* The file with the first `from` overwritten by `to`, n bytes; from NULL: its last four bytes. */
static void write_patched(const char *path, const char *file, const char *from, const char *to,
                          size_t n)
{
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    if (!case_read_file(file, &bytes)) abort();
    ptrdiff_t at =
        from ? str_find(buf_view(&bytes), (struct str){from, n}) : (ptrdiff_t)bytes.n - 4;
    if (at < 0) abort();
    memcpy(bytes.p + at, to, n);
    if (!case_write_file(path, bytes.p, bytes.n)) abort();
    buf_fini(&bytes);
}

TEST(a_bad_adapter_is_refused_with_the_reason)
{
    static const struct {
        const char *from, *to, *want;
        size_t n;
    } cases[] = {
        {"adapter\x14", "adaptor\x14", "general.type: \"adaptor\" must be \"adapter\"", 0},
        {"lora\x12", "dora\x12", "adapter.type: \"dora\" must be \"lora\"", 0},
        {"llama", "qwen2", "the adapter is for \"qwen2\", the model is llama", 0},
        {"blk.0.attn_q.weight.lora_a", "blk.7.attn_q.weight.lora_a",
         "tensor blk.0.attn_q.weight.lora_a is missing", 0},
        {"blk.0.attn_q.weight.lora_b", "blk.9.attn_q.weight.lora_b",
         "tensor blk.0.attn_q.weight.lora_b is missing", 0},
        {"blk.0.attn_v.weight.lora_a", "blk.0.attn_k.weight.lora_b",
         "tensor blk.0.attn_k.weight.lora_a is missing", 0},
        {"blk.0.attn_output.weight.lora_a", "aaa.0.attn_output.weight.magnit",
         "only pairs NAME.lora_a, NAME.lora_b are understood", 0},
        /* n_dims, then the row length 64 becomes 32 and the rows 8 */
        {"attn_q.weight.lora_a\2\0\0\0\x40\0\0\0\0\0\0\0\4",
         "attn_q.weight.lora_a\2\0\0\0\x20\0\0\0\0\0\0\0\x8",
         "has shape [32, 8, 1, 1], must be [64, 8, 1, 1]", 33},
        {NULL, "\0\0\xc0\x7f", "tensor blk.1.ffn_down.weight.lora_b[3, 63]: not a finite number",
         4},
    };
    char path[] = "/tmp/deja-lora-XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    struct model *m = open_model(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct errmsg e = {0};
        int number;
        write_patched(path, A, cases[i].from, cases[i].to,
                      cases[i].n ? cases[i].n : strlen(cases[i].from));
        CHECK(model_adapter_add(m, path, 1, &number, &e) != OK);
        CHECK_AT(strstr(e.text, cases[i].want), "\"%s\" does not say \"%s\"", e.text,
                 cases[i].want);
    }
    unlink(path);
    struct errmsg e = {0};
    int number;
    CHECK(model_adapter_add(m, BASE, 1, &number, &e) != OK);
    CHECK(strstr(e.text, "this is no LoRA adapter") != NULL);
    CHECK(model_adapter_add(m, TEST_DATA "/tiny-lora-output.gguf", 1, &number, &e) != OK);
    CHECK_AT(strstr(e.text, "output.weight.lora_a: the model has no matrix"), "%s", e.text);
    CHECK(model_adapter_add(m, A, INFINITY, &number, &e) == ERR_RANGE);
    CHECK_INT(add(m, A, 1), 0); /* none of them was counted */
    model_close(m);
}

TEST(experts_are_not_adapted_and_an_adapter_that_wants_them_is_refused)
{
    struct model *m = open_file(TEST_DATA "/tiny-mixtral.gguf", false);
    struct errmsg e = {0};
    int number;
    CHECK_INT(model_adapter_add(m, A, 1, &number, &e), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "tensor blk.1.ffn_"), "%s", e.text);
    CHECK_INT(add(m, TEST_DATA "/tiny-lora-mixtral.gguf", 1), 0);
    model_close(m);
}

TEST_MAIN()
