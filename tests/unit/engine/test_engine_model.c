/* Goal: with the real arithmetic too, greedy text does not depend on batch, chunks, cache or pool.
 * Method: the tiny generated models, 12 prompts with a common beginning, each way compared with
 * lone runs bit for bit. (The block size is part of the arithmetic: attention sums block by block,
 * so it is the same on both sides.) */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "tests/check.h"

enum { PROMPTS = 12, GENERATED = 90 };

struct heard {
    int32_t text[GENERATED];
    int n, cached;
    _Atomic int ended;
};

static bool on_token(void *arg, const struct engine_token *t)
{
    struct heard *h = arg;
    h->text[h->n++] = t->id;
    return true;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = arg;
    h->cached = end->cached_tokens;
    h->ended = 1;
}

static bool ask(struct engine *g, int which, struct heard *h)
{
    int32_t prompt[120];
    int n = 50 + 5 * which;
    for (int i = 0; i < n; i++)
        prompt[i] = i < 40 ? (i * 7) % 300 : (i * 13 + which * 29) % 300;
    memset(h, 0, sizeof *h);
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = n,
                                      .n = 1,
                                      .max_tokens = GENERATED,
                                      .sampling = sampler_params_default(),
                                      .ignore_end = true,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = h};
    struct errmsg e = {0};
    uint64_t id;
    return engine_submit(g, &o, &id, &e) == OK;
}

static bool wait_for(struct heard *h)
{
    for (uint64_t until = clock_ms() + 60000; !h->ended;)
        if (clock_ms() > until) return false;
    return true;
}

static void run_alone(const char *path, int block_size, struct heard *alone, uint64_t *per_token)
{
    struct engine *g;
    struct errmsg e = {0};
    struct engine_options o = {
        .model_path = path, .n_threads = 1, .max_num_seqs = 1, .block_size = block_size};
    REQUIRE(engine_open(&g, &o, &e) == OK);
    *per_token = engine_model(g)->kv_bytes_per_token;
    for (int i = 0; i < PROMPTS; i++)
        REQUIRE(ask(g, i, &alone[i]) && wait_for(&alone[i]));
    engine_close(g);
}

static void check_model(const char *path)
{
    static const struct {
        const char *how;
        struct engine_options o;
    } ways[] = {
        {"together", {.max_num_seqs = 12, .max_num_batched_tokens = 512}},
        {"together, cached, small chunks",
         {.max_num_seqs = 12, .max_num_batched_tokens = 24, .prefix_caching = true}},
        {"together, cached, blocks of 8",
         {.max_num_seqs = 8,
          .max_num_batched_tokens = 64,
          .block_size = 8,
          .prefix_caching = true}},
        {"together, cached, tiny pool",
         {.max_num_seqs = 12,
          .max_num_batched_tokens = 64,
          .max_model_len = 256,
          .kv_bytes = 1,
          .prefix_caching = true}},
    };
    static struct heard alone[PROMPTS], now[PROMPTS];
    struct engine *g;
    struct errmsg e = {0};
    uint64_t per_token = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct engine_options o = ways[w].o;
        if (!w || o.block_size != ways[w - 1].o.block_size)
            run_alone(path, o.block_size, alone, &per_token);
        o.model_path = path;
        o.n_threads = 2;
        if (o.kv_bytes)
            o.kv_bytes = 18 * 16 * per_token; /* 18 blocks: one full sequence and two blocks */
        REQUIRE(engine_open(&g, &o, &e) == OK);
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < PROMPTS; i++)
                REQUIRE(ask(g, i, &now[i]));
            for (int i = 0; i < PROMPTS; i++) {
                REQUIRE(wait_for(&now[i]));
                CHECK_AT(now[i].n == GENERATED &&
                             !memcmp(now[i].text, alone[i].text, sizeof now[i].text),
                         "%s, prompt %d: another text than alone", ways[w].how, i);
            }
        }
        struct engine_stats st;
        engine_stats(g, &st);
        if (w == 1) CHECK(now[3].cached > 32);
        if (w == 3) CHECK(st.preemptions > 0);
        engine_close(g);
    }
}

TEST(greedy_text_of_the_tiny_llama_is_the_same_in_every_company)
{
    check_model(TEST_DATA "/tiny-llama-mixed.gguf");
}
TEST(greedy_text_of_the_tiny_qwen2_is_the_same_in_every_company)
{
    check_model(TEST_DATA "/tiny-qwen2-k.gguf");
}

TEST(greedy_text_of_the_tiny_gemma3_is_the_same_in_every_company)
{
    check_model(TEST_DATA "/tiny-gemma3.gguf");
}

TEST(greedy_text_of_the_tiny_mixtral_is_the_same_in_every_company)
{
    check_model(TEST_DATA "/tiny-mixtral.gguf");
}

TEST(greedy_text_of_the_tiny_qwen2moe_is_the_same_in_every_company)
{
    check_model(TEST_DATA "/tiny-qwen2moe.gguf");
}

TEST(sizes_that_cannot_work_are_refused_before_weights_are_read)
{
    struct engine *g;
    struct errmsg e = {0};
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-mixed.gguf", .kv_bytes = 1000};
    CHECK_INT(engine_open(&g, &o, &e), ERR_RANGE);
    CHECK(strstr(e.text, "kv_bytes 1000 holds 0 tokens") != NULL);
    o.kv_bytes = 0;
    o.max_model_len = 100000;
    CHECK_INT(engine_open(&g, &o, &e), ERR_RANGE);
    CHECK(strstr(e.text, "over the model's context of 512") != NULL);
    o.model_path = TEST_DATA "/tiny-bert.gguf";
    CHECK(engine_open(&g, &o, &e) != OK && g == NULL);
}

TEST_MAIN()
