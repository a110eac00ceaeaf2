/* test_engine_cuda.cpp - the whole engine (scheduler, paged KV, prefix cache, preemption, swap, forks, speculation, sampling) on the CUDA
 * backend, in emulation: the tokens of each way of running are those of the CPU. What it runs on f32 weights, so that only the order of
 * sums differs between the two. */
#include <atomic>
#include <string>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "base/clock.h"
#include "engine/backend/backend.h"
#include "engine/backend/device.h"
#include "engine/engine.h"
#include "engine/kv_wire.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { PROMPTS = 3, SAID = 10, MUCH = 80, CHOICES_MAX = 3 };
static int n_said = SAID;

struct heard {
    std::vector<int32_t> text[CHOICES_MAX];
    std::vector<float> logprobs;
    int n_ended = 0, cached = 0, preemptions = 0, accepted = 0;
    enum engine_finish finish = ENGINE_STOP;
    std::string error;
    std::atomic<bool> done{false};
    int n_choices = 1;
};

static bool on_token(void *arg, const struct engine_token *t)
{
    struct heard *h = (struct heard *)arg;
    h->text[t->choice].push_back(t->id);
    if (t->n_top) h->logprobs.push_back(t->top[0].logprob);
    return true;
}
static void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = (struct heard *)arg;
    h->cached = end->cached_tokens, h->preemptions += end->preemptions;
    h->accepted += end->accepted_tokens, h->finish = end->finish;
    if (end->error) h->error = end->error;
    if (++h->n_ended == h->n_choices) h->done = true;
}

static struct engine_options options(const char *device)
{
    struct engine_options o = {};
    o.model_path = SOURCE_DIR "/tests/data/tiny-llama-f32.gguf";
    o.n_threads = 1, o.max_model_len = 128, o.max_num_seqs = 3, o.max_num_batched_tokens = 32;
    o.block_size = 8, o.kv_bytes = 1 << 20, o.prefix_caching = true, o.device = device;
    o.hash_seed = 7;
    return o;
}

static struct engine *open_engine(const struct engine_options &o)
{
    struct engine *g = nullptr;
    struct errmsg e = {};
    backend_register(&cuda_device);
    if (engine_open(&g, &o, &e) != OK) {
        CHECK_AT(false, "%s", e.text);
        abort();
    }
    return g;
}

static void ask(struct engine *g, int which, struct heard *h,
                const struct sampler_params &sampling = sampler_params_default())
{
    std::vector<int32_t> prompt;
    for (int i = 0; i < 20 + 3 * which;
         i++) /* a common beginning; then repeats, which guessing likes */
        prompt.push_back(i < 12 ? i * 7 % 300 : (i % 5 * 13 + which * 29) % 300);
    struct engine_submit_options o = {};
    struct errmsg e = {};
    uint64_t id;
    o.prompt = prompt.data(), o.n_prompt = (int)prompt.size(), o.n = h->n_choices;
    o.max_tokens = n_said, o.sampling = sampling, o.ignore_end = true;
    o.on_token = on_token, o.on_end = on_end, o.arg = h;
    CHECK_INT(engine_submit(g, &o, &id, &e), OK);
}
static void wait_for(struct heard *h)
{
    for (uint64_t until = clock_ms() + 120000; !h->done && clock_ms() < until;)
        usleep(1000);
    CHECK(h->done);
}
static void ask_all(struct engine *g, struct heard h[PROMPTS],
                    const struct sampler_params &sampling = sampler_params_default())
{
    for (int i = 0; i < PROMPTS; i++)
        ask(g, i, &h[i], sampling);
    for (int i = 0; i < PROMPTS; i++)
        wait_for(&h[i]);
}
static bool same(const struct heard a[PROMPTS], const struct heard b[PROMPTS])
{
    bool equal = true;
    for (int i = 0; i < PROMPTS; i++)
        equal &= a[i].text[0] == b[i].text[0] && a[i].text[0].size() == (size_t)n_said;
    return equal;
}

static void said_by_cpu(struct heard h[PROMPTS], struct engine_options o,
                        const struct sampler_params &sampling = sampler_params_default())
{
    o.device = "cpu";
    struct engine *g = open_engine(o);
    CHECK(!strcmp(engine_device(g), "cpu"));
    ask_all(g, h, sampling);
    engine_close(g);
}

TEST(greedy_text_is_that_of_the_cpu_and_prefixes_are_found_again)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS], again[PROMPTS];
    said_by_cpu(cpu, options(NULL));
    struct engine *g = open_engine(options("cuda"));
    CHECK(!strcmp(engine_device(g), "cuda:0"));
    ask_all(g, gpu);
    ask_all(g, again);
    CHECK(same(cpu, gpu) && same(cpu, again));
    for (int i = 0; i < PROMPTS; i++)
        CHECK(again[i].cached >= 16);
    engine_close(g);
    CHECK_INT(device_bytes_left(), 0);
}

TEST(a_step_ahead_or_not_sixteen_tokens_are_those_of_the_cpu_greedy_and_seeded)
{
    n_said = 16;
    for (int hot = 0; hot < 2; hot++) {
        struct heard cpu[PROMPTS];
        struct sampler_params p = sampler_params_default();
        p.temperature = (float)hot, p.seed = 11, p.top_p = 0.95f, p.n_top_logprobs = 1;
        said_by_cpu(cpu, options(NULL), p);
        for (int waits = 0; waits < 2; waits++) {
            struct heard gpu[PROMPTS];
            struct engine_options o = options("cuda");
            o.wait_each_step = waits;
            struct engine *g = open_engine(o);
            int graphs = graphs_launched();
            ask_all(g, gpu, p);
            struct engine_stats st;
            engine_stats(g, &st);
            CHECK(same(cpu, gpu));
            CHECK(graphs_launched() > graphs);
            CHECK_AT(waits ? !st.ahead_steps : st.ahead_steps >= 15, "%d of %d steps were ahead",
                     (int)st.ahead_steps, (int)st.steps);
            for (int i = 0; i < PROMPTS; i++)
                for (size_t k = 0; k < cpu[i].logprobs.size(); k++)
                    CHECK(fabsf(cpu[i].logprobs[k] - gpu[i].logprobs[k]) < 1e-3f);
            engine_close(g);
            CHECK_INT(device_bytes_left(), 0);
        }
    }
    n_said = SAID;
}

TEST(a_mixture_of_experts_says_what_it_says_on_the_cpu)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct engine_options o = options("cuda");
    o.model_path = SOURCE_DIR "/tests/data/tiny-olmoe.gguf";
    said_by_cpu(cpu, o);
    struct engine *g = open_engine(o);
    ask_all(g, gpu);
    CHECK(same(cpu, gpu));
    engine_close(g);
    CHECK_INT(device_bytes_left(), 0);
}

TEST(eight_bit_kv_says_what_it_says_on_the_cpu)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct engine_options o = options("cuda");
    o.kv_type = KV_INT8;
    said_by_cpu(cpu, o);
    struct engine *g = open_engine(o);
    ask_all(g, gpu);
    CHECK(same(cpu, gpu));
    engine_close(g);
}

TEST(a_pool_too_small_for_all_preempts_and_swaps_and_changes_no_text)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct engine_options o = options("cuda");
    n_said = MUCH; /* far beyond what admission keeps back for it */
    said_by_cpu(cpu, o);
    struct errmsg e = {};
    struct model *m;
    struct model_options mo = {};
    mo.n_threads = 1, mo.block_tokens = 8, mo.n_blocks = 1, mo.max_batch_tokens = 1;
    mo.max_seqs = 1, mo.device = "cuda";
    CHECK_INT(model_open(&m, o.model_path, &mo, &e), OK);
    size_t block = model_kv_block_bytes(m);
    model_close(m);
    o.kv_bytes = 23 * block, o.swap_bytes = 60 * block;
    struct engine *g = open_engine(o);
    ask_all(g, gpu);
    struct engine_stats st;
    engine_stats(g, &st);
    CHECK_AT(st.preemptions > 0 && st.spilled_blocks > 0, "%d preemptions, %d blocks swapped",
             (int)st.preemptions, (int)st.spilled_blocks);
    CHECK(same(cpu, gpu));
    n_said = SAID;
    engine_close(g);
}

TEST(choices_of_one_request_share_blocks_and_part_ways_by_their_seed)
{
    struct heard cpu, gpu;
    struct sampler_params p = sampler_params_default();
    p.temperature = 2, p.seed = 5;
    cpu.n_choices = gpu.n_choices = 3;
    n_said = 2 * SAID; /* a small model is of one mind for a while */
    for (const char *device : {"cpu", "cuda"}) {
        struct engine *g = open_engine(options(device));
        struct heard *h = device[1] == 'p' ? &cpu : &gpu;
        ask(g, 1, h, p);
        wait_for(h);
        engine_close(g);
    }
    for (int i = 0; i < 3; i++)
        CHECK(cpu.text[i] == gpu.text[i] && gpu.text[i].size() == (size_t)n_said);
    CHECK(gpu.text[0] != gpu.text[1] || gpu.text[0] != gpu.text[2]);
    n_said = SAID;
}

TEST(every_sampler_setting_at_once_gives_the_cpus_tokens_and_log_probabilities)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct sampler_params p = sampler_params_default();
    p.temperature = 0.8f, p.seed = 42, p.top_k = 40, p.top_p = 0.95f, p.min_p = 0.02f;
    p.repetition_penalty = 1.2f, p.presence_penalty = 0.3f, p.frequency_penalty = 0.1f;
    p.n_top_logprobs = 2;
    said_by_cpu(cpu, options(NULL), p);
    struct engine *g = open_engine(options("cuda"));
    ask_all(g, gpu, p);
    CHECK(same(cpu, gpu));
    for (int i = 0; i < PROMPTS; i++)
        for (size_t k = 0; k < cpu[i].logprobs.size(); k++)
            CHECK(fabsf(cpu[i].logprobs[k] - gpu[i].logprobs[k]) < 1e-3f);
    CHECK_INT((int)gpu[0].logprobs.size(), SAID);
    engine_close(g);
}

TEST(guessed_tokens_are_checked_on_the_device_and_change_no_text)
{
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct engine_options o = options("cuda");
    said_by_cpu(cpu, o);
    o.speculation.n_max = 4, o.speculation.lookup = true, o.speculation.always = true;
    struct engine *g = open_engine(o);
    ask_all(g, gpu);
    struct engine_stats st;
    engine_stats(g, &st);
    CHECK(st.draft_tokens > 0);
    CHECK(same(cpu, gpu));
    engine_close(g);
}

/* From the text and from a draft model that is the model itself; recorded passes among them. */
TEST(trees_of_drafts_change_no_token_of_the_cpu_without_them)
{
    struct sampler_params seeded = sampler_params_default();
    seeded.temperature = 0.7f, seeded.seed = 3, seeded.presence_penalty = 0.4f;
    for (const auto &sampling : {sampler_params_default(), seeded}) {
        struct heard cpu[PROMPTS], trees[PROMPTS], gpu[PROMPTS];
        struct engine_options o = options("cuda");
        said_by_cpu(cpu, o, sampling);
        o.max_num_batched_tokens = 48;
        o.speculation.n_max = 2, o.speculation.branches = 2;
        o.speculation.lookup = o.speculation.always = true;
        o.speculation.draft_path = SOURCE_DIR "/tests/data/tiny-llama-f32.gguf";
        said_by_cpu(trees, o, sampling);
        struct engine *g = open_engine(o);
        ask_all(g, gpu, sampling);
        struct engine_stats st;
        engine_stats(g, &st);
        CHECK(st.draft_tokens > st.accepted_tokens && st.model_accepted_tokens > 0);
        CHECK(same(cpu, trees));
        CHECK(same(cpu, gpu));
        engine_close(g);
    }
}

struct carried {
    struct heard heard;
    std::vector<struct hash128> id, parent;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<void *> bytes;
    std::atomic<bool> over{false};
};

static void on_block(void *arg, int index, const struct block_name *name, void *bytes)
{
    struct carried *c = (struct carried *)arg;
    CHECK_INT(index, (int)c->id.size());
    c->id.push_back(name->id), c->parent.push_back(name->parent), c->bytes.push_back(bytes);
    c->tokens.emplace_back(name->tokens, name->tokens + 8);
}

TEST(blocks_computed_on_one_device_are_used_on_another_and_not_on_a_cpu)
{
    struct heard alone[PROMPTS], there;
    struct carried c;
    struct kv_head gpu, cpu;
    struct errmsg e = {};
    said_by_cpu(alone, options(NULL));
    struct engine *from = open_engine(options("cuda"));
    std::vector<int32_t> prompt; /* the second one of ask() */
    for (int i = 0; i < 23; i++)
        prompt.push_back(i < 12 ? i * 7 % 300 : (i % 5 * 13 + 29) % 300);
    struct engine_submit_options o = {};
    uint64_t id;
    o.prompt = prompt.data(), o.n_prompt = 16, o.n = 1, o.max_tokens = 1;
    o.sampling = sampler_params_default();
    o.on_end = [](void *arg, const struct engine_end *end) {
        on_end(&((carried *)arg)->heard, end);
    };
    o.on_block = on_block, o.on_exported = [](void *arg) { ((carried *)arg)->over = true; };
    o.arg = &c;
    CHECK_INT(engine_submit(from, &o, &id, &e), OK);
    wait_for(&c.heard);
    for (uint64_t until = clock_ms() + 120000; !c.over && clock_ms() < until;)
        usleep(1000);
    CHECK_INT((int)c.id.size(), 2);
    engine_kv_head(from, &gpu);
    engine_close(from);

    struct engine_options to_options = options("cuda");
    to_options.imports = true;
    struct engine *to = open_engine(to_options);
    for (size_t i = 0; i < c.id.size(); i++) {
        struct block_name name = {c.id[i], c.parent[i], c.tokens[i].data()};
        CHECK(engine_import(to, &name, c.bytes[i]));
    }
    ask(to, 1, &there);
    wait_for(&there);
    CHECK(there.text[0] == alone[1].text[0]);
    CHECK_AT(there.cached >= 16, "%d tokens came from elsewhere", there.cached);
    engine_close(to);
    CHECK_INT(device_bytes_left(), 0);

    struct engine *host = open_engine(options("cpu"));
    engine_kv_head(host, &cpu);
    CHECK_INT(kv_head_fits(&cpu, &gpu, &e), ERR_UNSUPPORTED);
    engine_close(host);
}

TEST(a_lost_device_ends_every_request_with_one_sentence)
{
    NEEDS_EMULATION();
    struct heard h[PROMPTS];
    struct engine *g = open_engine(options("cuda"));
    emu::lose_device_after(200);
    ask_all(g, h);
    for (int i = 0; i < PROMPTS; i++)
        CHECK(h[i].finish == ENGINE_FAILED &&
              h[i].error.find("the GPU failed at") != std::string::npos);
    CHECK(engine_lost(g) && strstr(engine_lost(g), "unspecified launch failure"));
    engine_close(g);
    emu::lose_device_after(-1);
}

TEST_MAIN()
