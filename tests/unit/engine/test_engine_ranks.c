/* test_engine_ranks.c - goal: the whole engine on several ranks says greedily what it says on one, with prefixes, preemption and swap; a
 * group that fails ends every request with its sentence. Method: float32 weights in exact arithmetic, so that only the order of
 * sums differs; three prompts with a common beginning. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine_private.h"
#include "engine/model/model_private.h"
#include "tests/check.h"

enum { PROMPTS = 3, SAID = 16, MUCH = 80 };

struct heard {
    int32_t text[MUCH];
    int n, cached;
    enum engine_finish finish;
    char error[200];
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
    h->finish = end->finish;
    snprintf(h->error, sizeof h->error, "%s", end->error ? end->error : "");
    h->ended = 1;
}

static void ask_all(struct engine *g, struct heard h[PROMPTS], int n_said)
{
    struct errmsg e = {0};
    uint64_t id;
    memset(h, 0, PROMPTS * sizeof *h);
    for (int w = 0; w < PROMPTS; w++) {
        int32_t prompt[64];
        int n = 20 + 3 * w;
        for (int i = 0; i < n; i++)
            prompt[i] = i < 12 ? i * 7 % 300 : (i * 13 + w * 29) % 300;
        struct engine_submit_options o = {.prompt = prompt,
                                          .n_prompt = n,
                                          .n = 1,
                                          .max_tokens = n_said,
                                          .sampling = sampler_params_default(),
                                          .ignore_end = true,
                                          .on_token = on_token,
                                          .on_end = on_end,
                                          .arg = &h[w]};
        REQUIRE(engine_submit(g, &o, &id, &e) == OK);
    }
    for (int w = 0; w < PROMPTS; w++) {
        for (uint64_t until = clock_ms() + 120000; !h[w].ended && clock_ms() < until;)
            usleep(500);
        REQUIRE(h[w].ended);
    }
}

static struct engine *open_engine(struct engine_options o, const char *file, int n_ranks)
{
    static char path[300];
    struct engine *g = NULL;
    struct errmsg e = {0};
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, file);
    o.model_path = path;
    o.n_threads = 2;
    o.max_num_seqs = PROMPTS;
    o.max_num_batched_tokens = 32;
    o.max_model_len = 128;
    o.block_size = 8;
    o.exact = true;
    o.hash_seed = 7;
    o.tensor_parallel = n_ranks;
    enum err code = engine_open(&g, &o, &e);
    CHECK_AT(code == OK, "%s", e.text);
    ASSERT(g);
    return g;
}

static void compare(struct engine_options o, const char *file, int n_ranks, int n_said)
{
    static struct heard one[PROMPTS], several[PROMPTS], again[PROMPTS];
    struct engine *g = open_engine((struct engine_options){0}, file, 1);
    ask_all(g, one, n_said);
    engine_close(g);
    g = open_engine(o, file, n_ranks);
    ask_all(g, several, n_said);
    ask_all(g, again, n_said);
    for (int w = 0; w < PROMPTS; w++) {
        CHECK_AT(one[w].n == n_said && !memcmp(one[w].text, several[w].text, sizeof one[w].text),
                 "%s in %d ranks, prompt %d", file, n_ranks, w);
        CHECK(!memcmp(one[w].text, again[w].text, sizeof one[w].text));
        if (o.prefix_caching && !o.kv_bytes) CHECK(again[w].cached >= 16);
    }
    struct engine_stats st;
    engine_stats(g, &st);
    if (o.kv_bytes) CHECK(st.preemptions > 0 && st.spilled_blocks > 0);
    engine_close(g);
}

TEST(greedy_text_is_that_of_one_rank_and_prefixes_are_found_again)
{
    struct engine_options o = {.prefix_caching = true};
    compare(o, "tiny-llama-f32.gguf", 2, SAID);
    compare(o, "tiny-llama-f32.gguf", 4, SAID); /* two ranks a KV head */
    compare(o, "tiny-gemma3.gguf", 2, SAID);
    compare(o, "tiny-qwen2moe.gguf", 2, SAID);
}

#ifndef DEJA_RARE /* which has pools of its own */
TEST(a_pool_too_small_for_all_preempts_and_swaps_and_changes_no_text)
{
    struct engine *g = open_engine((struct engine_options){0}, "tiny-llama-f32.gguf", 2);
    size_t block = g->model.block_bytes;
    engine_close(g);
    struct engine_options o = {
        .prefix_caching = true, .kv_bytes = 23 * block, .swap_bytes = 60 * block};
    compare(o, "tiny-llama-f32.gguf", 2, MUCH);
}
#endif

TEST(a_group_that_fails_ends_every_request_with_its_sentence)
{
    static struct heard h[PROMPTS];
    struct engine *g = open_engine((struct engine_options){0}, "tiny-llama-f32.gguf", 2);
    ask_all(g, h, SAID);
    CHECK(!engine_lost(g) && h[0].finish == ENGINE_LENGTH);
    CHECK(!strcmp(engine_device(g), "cpu x2"));
    struct model *m = g->model.arg;
    collective_abort(m->group, "rank 1 fell down");
    ask_all(g, h, SAID);
    for (int w = 0; w < PROMPTS; w++)
        CHECK(h[w].finish == ENGINE_FAILED && strstr(h[w].error, "rank 1 fell down"));
    CHECK(engine_lost(g) && strstr(engine_lost(g), "rank 1 fell down"));
    engine_close(g);
}

TEST(what_does_not_go_into_the_ranks_is_said_before_anything_is_loaded)
{
    struct engine *g;
    struct errmsg e = {0};
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-f32.gguf",
                               .tensor_parallel = 3};
    CHECK_INT(engine_open(&g, &o, &e), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "do not go into 3 ranks; into 1, 2, 4 they do"), "%s", e.text);
}

TEST_MAIN()
