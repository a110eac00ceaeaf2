/* Goal: whichever allocation is refused, opening an engine and submitting to it end with a sentence, nothing leaks, and who is being
 * served does
 * not notice. Method: the linker puts the functions below in front of try_malloc and friends; each refuses the n-th call of this
 * thread, for every n until none is left. The leak check of the sanitizer build sees the rest. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "tests/check.h"

void *__real_try_malloc(size_t n);
void *__real_try_calloc(size_t count, size_t size);
void *__real_try_realloc(void *p, size_t n);
void *__real_mem_alloc_huge(size_t n);
void *__wrap_try_malloc(size_t n);
void *__wrap_try_calloc(size_t count, size_t size);
void *__wrap_try_realloc(void *p, size_t n);
void *__wrap_mem_alloc_huge(size_t n);

#define TINY TEST_DATA "/tiny-llama-mixed.gguf"

static _Thread_local int until_refused = -1; /* calls that are granted; -1 = all */
static _Thread_local bool refused;

static bool refuse(void)
{
    if (until_refused < 0) return false;
    if (until_refused--) return false;
    return refused = true;
}

void *__wrap_try_malloc(size_t n)
{
    return refuse() ? NULL : __real_try_malloc(n);
}
void *__wrap_try_calloc(size_t count, size_t size)
{
    return refuse() ? NULL : __real_try_calloc(count, size);
}
void *__wrap_try_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_try_realloc(p, n);
}
void *__wrap_mem_alloc_huge(size_t n)
{
    return refuse() ? NULL : __real_mem_alloc_huge(n);
}

static enum err open_tiny(struct engine **g, const char *model, struct errmsg *e)
{
    struct engine_options o = {.model_path = model,
                               .n_threads = 1,
                               .block_size = 8,
                               .max_model_len = 128,
                               .swap_bytes = 1 << 16,
                               .prefix_caching = true,
                               .speculation = {.n_max = 4, .lookup = true}};
    return engine_open(g, &o, e);
}

struct heard {
    int32_t text[40];
    _Atomic int n, ended;
};

static bool on_token(void *arg, const struct engine_token *t)
{
    struct heard *h = arg;
    if (!t->choice && h->n < 40) h->text[h->n++] = t->id;
    usleep(200);
    return true;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = arg;
    (void)end;
    h->ended++;
}

static enum err ask(struct engine *g, struct heard *h, int n, struct errmsg *e)
{
    static const int32_t prompt[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const struct sampler_bias bias[2] = {{5, 1}, {7, -1}};
    uint64_t id;
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = 20,
                                      .n = n,
                                      .max_tokens = 40,
                                      .sampling = sampler_params_default(),
                                      .ignore_end = true,
                                      .on_token = on_token,
                                      .on_end = on_end,
                                      .arg = h};
    o.sampling.bias = bias;
    o.sampling.n_bias = 2;
    o.sampling.repetition_penalty = 1.1f;
    memset((void *)h, 0, sizeof *h);
    return engine_submit(g, &o, &id, e);
}

static bool wait_for(struct heard *h, int n)
{
    for (uint64_t by = clock_ms() + 30000; h->ended < n; usleep(100))
        if (clock_ms() > by) return false;
    return true;
}

static void refuse_every_call(const char *model)
{
    int n_refused = 0;
    for (int n = 0; n < 1000; n++) {
        struct engine *g;
        struct errmsg e = {0};
        until_refused = n;
        refused = false;
        enum err code = open_tiny(&g, model, &e);
        until_refused = -1;
        if (!code) engine_close(g);
        if (!refused) break;
        n_refused++;
        /* some allocations can be done without: a table that only speeds something up */
        if (code) CHECK_AT(e.text[0], "call %d: %s without a sentence", n, err_name(code));
    }
    CHECK_AT(n_refused > 20, "%d", n_refused);
}

TEST(an_engine_that_gets_no_memory_says_so_whatever_was_refused)
{
    refuse_every_call(TINY);
    refuse_every_call(TEST_DATA "/tiny-qwen2moe.gguf");
}

TEST(a_request_that_gets_no_memory_is_refused_and_a_running_one_does_not_notice)
{
    struct engine *g;
    struct errmsg e = {0};
    static struct heard alone, running, other;
    REQUIRE(open_tiny(&g, TINY, &e) == OK);
    REQUIRE(ask(g, &alone, 1, &e) == OK && wait_for(&alone, 1));
    int n_refused = 0;
    for (int n = 0; n < 100; n++) {
        if (!n || running.ended) REQUIRE(ask(g, &running, 1, &e) == OK);
        until_refused = n;
        refused = false;
        enum err code = ask(g, &other, 3, &e);
        until_refused = -1;
        if (!code) {
            CHECK(wait_for(&other, 3));
            CHECK(!memcmp(other.text, alone.text, sizeof alone.text));
        } else {
            CHECK_INT(code, ERR_FULL);
            CHECK(e.text[0]);
        }
        if (!refused) break;
        n_refused++;
    }
    CHECK(wait_for(&running, 1));
    CHECK(!memcmp(running.text, alone.text, sizeof alone.text));
    CHECK_AT(n_refused >= 5, "%d", n_refused);
    engine_close(g);
}

TEST_MAIN()
