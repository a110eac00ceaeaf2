/* test_shard.c - goal: a model in several ranks says what it says in one, for every architecture, split unevenly and inside blocks too; its
 * KV blocks are those of one rank; what does not go is told with the numbers that would. Method: the tiny models on CPU ranks, in exact
 * arithmetic against one rank (tolerance: the order of float32 sums over at most 256 columns, 1e-4 of logits of size 1 to 10), and
 * rounded, where a row's rounding differs and only greedy text of likely tokens must agree. */
#include "engine/model/shard.h"

#include <math.h>

#include "base/mem.h"
#include "engine/backend/collective.h"
#include "engine/model/model_private.h"
#include "tests/check.h"

enum { BLOCK_TOKENS = 8, BLOCKS = 16, TABLE = 6, PROMPT = 21, SAID = 16 };

static struct model *open_ranks(const char *file, int n_ranks, bool exact, enum kv_type kv)
{
    struct model *m = NULL;
    struct errmsg e = {0};
    char path[300];
    struct model_options o = {.n_threads = 2,
                              .block_tokens = BLOCK_TOKENS,
                              .n_blocks = BLOCKS,
                              .max_batch_tokens = 32,
                              .max_seqs = 2,
                              .kv_type = kv,
                              .exact = exact,
                              .n_ranks = n_ranks};
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, file);
    enum err code = model_open(&m, path, &o, &e);
    CHECK_AT(code == OK, "%s: %s", file, e.text);
    ASSERT(m);
    return m;
}

static int32_t prompt_token(int i)
{
    return (i * 37 + i * i * 11 + 3) % 250;
}

/* Positions [from, from + n) of one sequence; logits of the last. */
static void run(struct model *m, const int32_t *token, int from, int n, int adapter, float *logits)
{
    static const int32_t table[TABLE] = {3, 1, 9, 0, 7, 12};
    const int32_t *tables[] = {table};
    int32_t pos[64], seq[64] = {0}, out = n - 1, adapters[] = {adapter};
    for (int i = 0; i < n; i++)
        pos[i] = from + i;
    struct model_batch b = {.n_rows = n,
                            .token = token,
                            .pos = pos,
                            .seq = seq,
                            .n_seqs = 1,
                            .block_table = tables,
                            .n_out = 1,
                            .out_row = &out,
                            .adapter = adapters};
    model_forward(m, &b, logits);
}

static int likeliest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The prompt in two chunks, then greedy tokens; every row's logits into all[SAID][n_vocab]. */
static void say(struct model *m, int adapter, int32_t said[SAID], float *all)
{
    int n_vocab = model_info(m)->n_vocab;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = prompt_token(i);
    run(m, prompt, 0, 13, adapter, all);
    run(m, prompt + 13, 13, PROMPT - 13, adapter, all);
    for (int i = 0; i < SAID; i++) {
        said[i] = likeliest(all + (size_t)i * (size_t)n_vocab, n_vocab);
        if (i + 1 < SAID)
            run(m, &said[i], PROMPT + i, 1, adapter, all + (size_t)(i + 1) * (size_t)n_vocab);
    }
}

static double apart(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static const struct {
    const char *file;
    int n_ranks;
} models[] = {
    {"tiny-llama-f32.gguf", 2},   {"tiny-llama-mixed.gguf", 2}, /* a feed-forward of 96 and 64 */
    {"tiny-qwen2-k.gguf", 2}, /* biases; one block of 256 columns for two */
    {"tiny-qwen3.gguf", 2},   /* heads that end inside a block */
    {"tiny-gemma2.gguf", 2},      {"tiny-gemma3.gguf", 2},
    {"tiny-gemma3.gguf", 4}, /* a KV head on several */
    {"tiny-llama-mixed.gguf", 4}, {"tiny-mixtral.gguf", 2},
    {"tiny-qwen2moe.gguf", 2},    {"tiny-qwen3moe.gguf", 2},
    {"tiny-qwen3moe.gguf", 4},
};

TEST(several_ranks_compute_what_one_does)
{
    static float one[SAID * 400], several[SAID * 400];
    int32_t said[SAID], said_several[SAID];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct model *a = open_ranks(models[i].file, 1, true, KV_F16),
                     *b = open_ranks(models[i].file, models[i].n_ranks, true, KV_F16);
        size_t n = (size_t)SAID * (size_t)model_info(a)->n_vocab;
        say(a, -1, said, one);
        say(b, -1, said_several, several);
        double d = apart(one, several, n);
        CHECK_AT(d < 1e-4 && !memcmp(said, said_several, sizeof said), "%s in %d ranks: %g apart",
                 models[i].file, models[i].n_ranks, d);
        CHECK(!model_failure(b));
        CHECK_INT(model_info(a)->n_kv_head, model_info(b)->n_kv_head);
        CHECK_INT((long)model_info(a)->kv_bytes_per_token, (long)model_info(b)->kv_bytes_per_token);
        model_close(a);
        model_close(b);
    }
}

TEST(rounded_arithmetic_of_several_ranks_is_as_close_to_exact_as_that_of_one)
{
    static float exact[SAID * 400], one[SAID * 400], several[SAID * 400];
    int32_t said[SAID];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        int n_vocab = 0;
        struct {
            int n_ranks;
            bool exact;
            float *logits;
        } ways[] = {{1, true, exact}, {1, false, one}, {models[i].n_ranks, false, several}};
        for (size_t w = 0; w < 3; w++) {
            struct model *m = open_ranks(models[i].file, ways[w].n_ranks, ways[w].exact, KV_F16);
            n_vocab = model_info(m)->n_vocab;
            say(m, -1, said, ways[w].logits);
            model_close(m);
        }
        double sum_one = 0,
               sum_several = 0; /* of the prompt's last row: later ones hear other tokens */
        for (int v = 0; v < n_vocab; v++) {
            sum_one += fabs((double)exact[v] - (double)one[v]);
            sum_several += fabs((double)exact[v] - (double)several[v]);
        }
        CHECK_AT(sum_several < sum_one * 1.5 + 1e-3 * n_vocab, "%s: %g, with one rank %g",
                 models[i].file, sum_several / n_vocab, sum_one / n_vocab);
    }
}

TEST(a_pass_of_several_ranks_gives_the_same_bits_each_time_and_alone_or_not)
{
    static float first[SAID * 400], again[SAID * 400];
    int32_t said[SAID];
    struct model *m = open_ranks("tiny-llama-mixed.gguf", 2, false, KV_F16);
    say(m, -1, said, first);
    say(m, -1, said, again);
    CHECK(!memcmp(first, again, (size_t)SAID * (size_t)model_info(m)->n_vocab * sizeof *first));
    model_close(m);
}

/* A block read from n_from ranks and written to n_to gives the next token the logits it has at home. */
static void carry(const char *file, int n_from, int n_to, enum kv_type kv)
{
    static float home[400], away[400], unused[400];
    int32_t token[BLOCK_TOKENS + 1], only[] = {3};
    struct model *from = open_ranks(file, n_from, kv == KV_F16, kv),
                 *to = open_ranks(file, n_to, kv == KV_F16, kv);
    for (int i = 0; i <= BLOCK_TOKENS; i++)
        token[i] = prompt_token(i);
    run(from, token, 0, BLOCK_TOKENS, -1, unused);
    size_t bytes = model_kv_block_bytes(from);
    CHECK_INT((long)model_kv_block_bytes(to), (long)bytes);
    CHECK(!strcmp(model_kv_format(from), model_kv_format(to)));
    void *block = xcalloc(1, bytes), *back = xcalloc(1, bytes);
    model_kv_read(from, only[0], block);
    model_kv_write(to, only[0], block);
    model_kv_read(to, only[0], back);
    CHECK(!memcmp(block, back, bytes));
    run(from, token + BLOCK_TOKENS, BLOCK_TOKENS, 1, -1, home);
    run(to, token + BLOCK_TOKENS, BLOCK_TOKENS, 1, -1, away);
    double d = apart(home, away, (size_t)model_info(from)->n_vocab);
    /* rounded activations of other widths: logits of a few tenths of a standard deviation at most */
    CHECK_AT(d < (kv == KV_F16 ? 1e-4 : 0.5), "%s, %d to %d ranks, %s: %g apart", file, n_from,
             n_to, kv_type_name(kv), d);
    mem_free(block);
    mem_free(back);
    model_close(from);
    model_close(to);
}

TEST(blocks_of_kv_are_the_same_whatever_the_number_of_ranks)
{
    static const enum kv_type types[] = {KV_F16, KV_INT8, KV_K8V4};
    for (size_t t = 0; t < 3; t++) {
        carry("tiny-llama-mixed.gguf", 2, 1, types[t]);
        carry("tiny-llama-mixed.gguf", 1, 2, types[t]);
        carry("tiny-llama-mixed.gguf", 4, 2, types[t]); /* two ranks a head */
        carry("tiny-qwen2-k.gguf", 1, 2, types[t]);     /* K evened out by sizes from its biases */
    }
}

TEST(copied_blocks_are_copied_on_every_rank)
{
    static float a[400], b[400];
    int32_t token[BLOCK_TOKENS + 1];
    struct model *m = open_ranks("tiny-llama-f32.gguf", 2, true, KV_F16);
    for (int i = 0; i <= BLOCK_TOKENS; i++)
        token[i] = prompt_token(i);
    run(m, token, 0, BLOCK_TOKENS, -1, a);
    run(m, token + BLOCK_TOKENS, BLOCK_TOKENS, 1, -1, a);
    model_kv_copy(m, 5, 3, BLOCK_TOKENS);
    run(m, token + 1, 0, 1, -1, b); /* spoils block 3 */
    model_kv_copy(m, 3, 5, BLOCK_TOKENS);
    run(m, token + BLOCK_TOKENS, BLOCK_TOKENS, 1, -1, b);
    CHECK(!memcmp(a, b, (size_t)model_info(m)->n_vocab * sizeof *a));
    model_close(m);
}

TEST(adapters_are_cut_as_their_matrices_are)
{
    static const struct {
        const char *model, *adapter;
    } all[] = {{"tiny-llama-f32.gguf", "tiny-lora-a.gguf"}, /* q, v, output, gate, down */
               {"tiny-llama-f32.gguf", "tiny-lora-b.gguf"}, /* k, up */
               {"tiny-llama-mixed.gguf", "tiny-lora-output.gguf"},
               {"tiny-gemma3.gguf", "tiny-lora-gemma3.gguf"},
               {"tiny-mixtral.gguf", "tiny-lora-mixtral.gguf"}};
    static float plain[SAID * 400], one[SAID * 400], several[SAID * 400];
    int32_t said[SAID];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char path[300];
        struct errmsg e = {0};
        int number = -1;
        struct model *a = open_ranks(all[i].model, 1, true, KV_F16),
                     *b = open_ranks(all[i].model, 2, true, KV_F16);
        snprintf(path, sizeof path, "%s/%s", TEST_DATA, all[i].adapter);
        REQUIRE(model_adapter_add(a, path, 1, &number, &e) == OK);
        CHECK_AT(model_adapter_add(b, path, 1, &number, &e) == OK, "%s", e.text);
        CHECK_INT(model_adapter_add(b, "/nowhere.gguf", 1, &number, &e), ERR_IO);
        size_t n = (size_t)model_info(a)->n_vocab;
        say(a, -1, said, plain);
        say(a, 0, said, one);
        say(b, 0, said, several);
        CHECK_AT(apart(one, several, n * SAID) < 1e-4, "%s: %g apart", all[i].adapter,
                 apart(one, several, n * SAID));
        CHECK(apart(plain, one, n) > 1e-3);
        model_close(a);
        model_close(b);
    }
}

static enum err refused(const char *file, int n_ranks, struct errmsg *e)
{
    struct model *m;
    char path[300];
    struct model_options o = {.n_threads = 1,
                              .block_tokens = BLOCK_TOKENS,
                              .n_blocks = BLOCKS,
                              .max_batch_tokens = 32,
                              .max_seqs = 2,
                              .n_ranks = n_ranks};
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, file);
    enum err code = model_open(&m, path, &o, e);
    CHECK(code && !m);
    return code;
}

TEST(what_does_not_go_into_the_ranks_is_refused_with_the_numbers_that_do)
{
    struct errmsg e = {0};
    CHECK_INT(refused("tiny-llama-f32.gguf", 3, &e), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "4 heads and 2 KV heads do not go into 3 ranks; into 1, 2, 4 they do"),
             "%s", e.text);
    CHECK_INT(refused("tiny-olmoe.gguf", 2, &e), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "olmoe norms queries over all heads at once"), "%s", e.text);
    CHECK_INT(refused("tiny-llama-f32.gguf", 17, &e), ERR_RANGE);
    CHECK_INT(refused("none.gguf", 2, &e), ERR_IO);
    struct model *m;
    struct model_options o = {.block_tokens = BLOCK_TOKENS,
                              .n_blocks = BLOCKS,
                              .max_batch_tokens = 32,
                              .max_seqs = 2,
                              .calibration = "none",
                              .n_ranks = 2};
    CHECK_INT(model_open(&m, TEST_DATA "/tiny-llama-f32.gguf", &o, &e), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "gpu_calibration"), "%s", e.text);
}

TEST(a_group_that_is_given_up_computes_nothing_and_says_why)
{
    static float logits[SAID * 400];
    int32_t token[] = {1, 2, 3};
    struct model *m = open_ranks("tiny-llama-f32.gguf", 2, false, KV_F16);
    run(m, token, 0, 3, -1, logits);
    CHECK(!model_failure(m) && isfinite(logits[0]));
    collective_abort(m->group, "rank 1 fell down");
    run(m, token, 0, 3, -1, logits);
    CHECK(isnan(logits[0]));
    CHECK(!strcmp(model_failure(m), "rank 1 fell down"));
    CHECK(!strcmp(model_device(m), "cpu x2"));
    model_close(m);
}

TEST(the_parts_of_a_plan_make_up_the_whole)
{
    struct gguf *g;
    struct errmsg e = {0};
    REQUIRE(gguf_open(&g, TEST_DATA "/tiny-llama-mixed.gguf", &e) == OK);
    int ff = 0, vocab = 0;
    for (int rank = 0; rank < 2; rank++) {
        struct model_plan p;
        REQUIRE(model_plan_read(&p, g, &e) == OK && model_plan_shard(&p, rank, 2, &e) == OK);
        CHECK_INT(p.n_head, 2);
        CHECK_INT(p.n_kv_head, 1);
        CHECK_INT(p.shard.head_first, 2 * rank);
        CHECK_INT(p.shard.ff_first, ff);
        CHECK_INT(p.n_ff % 32, 0); /* of Q5_0 */
        CHECK_INT(p.shard.vocab_first, vocab);
        CHECK_INT((int)p.token_embd->dims[1], p.shard.n_vocab);
        CHECK_INT((int)p.layers[0].down.weight->dims[0], p.n_ff);
        CHECK_INT(p.shard.n_widened, 0);
        ff += p.n_ff;
        vocab += p.shard.n_vocab;
        void *temp;
        const struct gguf_tensor *down = p.layers[1].down.weight, *whole = down->cut->whole;
        const char *rows = tensor_rows(down, &temp);
        size_t row = tensor_row_bytes(down->type, p.n_ff), all = tensor_row_bytes(down->type, 160);
        CHECK_INT((long)down->n_bytes, (long)(row * 64));
        for (size_t i = 0; i < 64; i++)
            CHECK(!memcmp(rows + i * row, (const char *)whole->bytes + i * all + rank * (all - row),
                          row));
        mem_free(temp);
        model_plan_fini(&p);
    }
    CHECK_INT(ff, 160);
    CHECK_INT(vocab, 317);
    gguf_close(g);
}

TEST_MAIN()
