/* test_engine_lora.c - goal: what an adapter says does not depend on who else is served, and no KV crosses from one adapter to another or
 * to the base model. Method: the tiny llama with two adapters; the same prompts alone without a prefix cache, then all at once with one,
 * twice; cached tokens counted per adapter. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "tests/check.h"

enum { MODELS = 4, PROMPTS = 3, GENERATED = 40, N_PROMPT = 70, COMMON = 60 };

static const struct engine_adapter ADAPTERS[] = {
    {STR("a"), STR(TEST_DATA "/tiny-lora-a.gguf"), 4},
    {STR("b"), STR(TEST_DATA "/tiny-lora-b.gguf"), -6},
    {STR("a-against"), STR(TEST_DATA "/tiny-lora-a.gguf"), -5},
};

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

static bool ask(struct engine *g, int adapter, int which, struct heard *h)
{
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = i < COMMON ? (i * 7) % 300 : (i * 13 + which * 29) % 300;
    memset(h, 0, sizeof *h);
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = N_PROMPT,
                                      .n = 1,
                                      .max_tokens = GENERATED,
                                      .sampling = sampler_params_default(),
                                      .adapter = adapter,
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

static struct engine *open_engine(int max_num_seqs, bool prefix_caching)
{
    struct engine *g;
    struct errmsg e = {0};
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-f32.gguf",
                               .adapters = ADAPTERS,
                               .n_adapters = MODELS - 1,
                               .n_threads = 2,
                               .max_num_seqs = max_num_seqs,
                               .max_num_batched_tokens = 64,
                               .prefix_caching = prefix_caching};
    if (engine_open(&g, &o, &e) == OK) return g;
    printf("    %s\n", e.text);
    abort();
}

TEST(every_adapter_says_the_same_in_any_company)
{
    static struct heard alone[MODELS][PROMPTS], now[MODELS][PROMPTS];
    struct engine *g = open_engine(1, false);
    for (int m = 0; m < MODELS; m++)
        for (int p = 0; p < PROMPTS; p++)
            REQUIRE(ask(g, m, p, &alone[m][p]) && wait_for(&alone[m][p]));
    engine_close(g);
    for (int a = 0; a < MODELS; a++)
        for (int b = 0; b < a; b++)
            CHECK(memcmp(alone[a][0].text, alone[b][0].text, sizeof alone[a][0].text) != 0);
    g = open_engine(MODELS * PROMPTS, true);
    for (int round = 0; round < 2; round++) {
        for (int p = 0; p < PROMPTS; p++)
            for (int m = 0; m < MODELS; m++)
                REQUIRE(ask(g, m, p, &now[m][p]));
        for (int i = 0; i < MODELS * PROMPTS; i++) {
            int m = i % MODELS, p = i / MODELS;
            REQUIRE(wait_for(&now[m][p]));
            CHECK_AT(!memcmp(now[m][p].text, alone[m][p].text, sizeof now[m][p].text),
                     "model %d, prompt %d: another text than alone", m, p);
        }
    }
    engine_close(g);
}

TEST(a_computed_prompt_serves_its_own_adapter_and_strength_only)
{
    struct engine *g = open_engine(2, true);
    struct heard h;
    for (int m = 0; m < MODELS; m++) {
        REQUIRE(ask(g, m, 0, &h) && wait_for(&h));
        CHECK_AT(h.cached == 0, "model %d used %d tokens of others", m, h.cached);
    }
    for (int m = 0; m < MODELS; m++) {
        REQUIRE(ask(g, m, 1, &h) && wait_for(&h));
        CHECK_AT(h.cached >= 48, "model %d found only %d tokens of its own", m, h.cached);
    }
    engine_close(g);
}

TEST(an_adapter_that_cannot_be_read_is_named)
{
    static const struct engine_adapter missing = {STR("gone"), STR("/no/such.gguf"), 1};
    struct engine *g;
    struct errmsg e = {0};
    struct engine_options o = {.model_path = TEST_DATA "/tiny-llama-f32.gguf",
                               .adapters = &missing,
                               .n_adapters = 1,
                               .n_threads = 1};
    CHECK(engine_open(&g, &o, &e) != OK && g == NULL);
    CHECK_AT(strstr(e.text, "adapter gone: /no/such.gguf"), "%s", e.text);
}

TEST_MAIN()
