/* test_ranks.cpp - a model on two GPUs, in emulation: sums and gathers over the ranks, ordinary and recorded passes, the whole engine beside one
 * CPU, and what happens when a rank, its device or the library is not there: a sentence, soon, for everybody. Float32 weights, so that
 * only the order of sums differs. On a device: a group of one, and of two where there are two. */
#include <atomic>
#include <cstdlib>
#include <string>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "base/clock.h"
#include "engine/backend/device.h"
#include "engine/engine.h"
#include "engine/model/model.h"
}
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/nccl.h"
#include "tests/unit/cuda/rig.hpp"

enum { PROMPTS = 3, SAID = 16, RANKS = 2 };

static bool has_two()
{
    int n = 0;
    setenv("CUDA_EMU_DEVICES", "2", 1);
    backend_register(&cuda_device);
    backend_expect_ranks(RANKS);
    return cudaGetDeviceCount(&n) == cudaSuccess && n >= RANKS;
}
#define NEEDS_TWO()                                                                                \
    if (!has_two()) SKIP("needs two GPUs")

TEST(a_group_of_one_sums_and_gathers_what_it_has)
{
    struct nccl *c;
    struct errmsg e = {};
    int zero = 0;
    enum err code = nccl_open(&c, &zero, 1, &e);
    if (code == ERR_UNSUPPORTED) SKIP("needs NCCL");
    CHECK_INT(code, OK);
    auto v = random_values(3, 1000, 1);
    on_device<float> x(v), all(1000);
    cudaStream_t s;
    cudaStreamCreate(&s);
    CHECK(!nccl_all_reduce(c, x.p, 1000, s) && !nccl_all_gather(c, x.p, 1000, all.p, s));
    CHECK_INT(cudaStreamSynchronize(s), cudaSuccess);
    CHECK(x.get() == v && all.get() == v && !nccl_failure(c));
    nccl_close(c);
    cudaStreamDestroy(s);
}

/* ---- the engine ---- */
struct heard {
    std::vector<int32_t> text;
    enum engine_finish finish = ENGINE_STOP;
    std::string error;
    std::atomic<bool> done{false};
};
static bool on_token(void *arg, const struct engine_token *t)
{
    ((struct heard *)arg)->text.push_back(t->id);
    return true;
}
static void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = (struct heard *)arg;
    h->finish = end->finish;
    if (end->error) h->error = end->error;
    h->done = true;
}

static struct engine_options options(const char *device)
{
    struct engine_options o = {};
    o.model_path = SOURCE_DIR "/tests/data/tiny-llama-f32.gguf";
    o.n_threads = 1, o.max_model_len = 128, o.max_num_seqs = 3, o.max_num_batched_tokens = 32;
    o.block_size = 8, o.kv_bytes = 1 << 20, o.prefix_caching = true, o.device = device;
    o.hash_seed = 7, o.tensor_parallel = strcmp(device, "cpu") ? RANKS : 1;
    return o;
}

static void ask_all(struct engine *g, struct heard h[PROMPTS])
{
    for (int w = 0; w < PROMPTS; w++) {
        std::vector<int32_t> prompt;
        for (int i = 0; i < 20 + 3 * w; i++)
            prompt.push_back(i < 12 ? i * 7 % 300 : (i * 13 + w * 29) % 300);
        struct engine_submit_options o = {};
        struct errmsg e = {};
        uint64_t id;
        o.prompt = prompt.data(), o.n_prompt = (int)prompt.size(), o.n = 1;
        o.max_tokens = SAID, o.sampling = sampler_params_default(), o.ignore_end = true;
        o.on_token = on_token, o.on_end = on_end, o.arg = &h[w];
        CHECK_INT(engine_submit(g, &o, &id, &e), OK);
    }
    for (int w = 0; w < PROMPTS; w++) {
        for (uint64_t until = clock_ms() + 600000; !h[w].done && clock_ms() < until;)
            usleep(1000);
        CHECK(h[w].done);
    }
}

static struct engine *open_engine(const struct engine_options &o)
{
    struct engine *g = nullptr;
    struct errmsg e = {};
    if (engine_open(&g, &o, &e) != OK) {
        CHECK_AT(false, "%s", e.text);
        abort();
    }
    return g;
}

TEST(greedy_text_of_two_gpus_is_that_of_one_cpu)
{
    NEEDS_TWO();
    struct heard cpu[PROMPTS], gpu[PROMPTS];
    struct engine *g = open_engine(options("cpu"));
    ask_all(g, cpu);
    engine_close(g);
    int before = graphs_launched();
    unsetenv("CUDA_MODULE_LOADING");
    g = open_engine(options("cuda"));
    CHECK(getenv("CUDA_MODULE_LOADING") && !strcmp(getenv("CUDA_MODULE_LOADING"), "EAGER"));
    CHECK(!strcmp(engine_device(g), "cuda:0 x2"));
    ask_all(g, gpu);
    for (int w = 0; w < PROMPTS; w++)
        CHECK_AT(cpu[w].text.size() == SAID && cpu[w].text == gpu[w].text, "prompt %d", w);
    if (graphs_launched()) CHECK(graphs_launched() - before >= RANKS * (SAID - 2));
    engine_close(g);
    CHECK_INT(device_bytes_left(), 0);
}

/* The library waits for graphs that hold sums of a group that is given up. */
TEST(recorded_steps_do_not_outlive_their_group)
{
    NEEDS_EMULATION();
    NEEDS_TWO();
    struct heard well[PROMPTS], lost[PROMPTS];
    int before = graphs_launched();
    struct engine *g = open_engine(options("cuda"));
    ask_all(g, well);
    CHECK(graphs_launched() > before && well[0].finish == ENGINE_LENGTH);
    emu::lose_device_after(40, 1);
    ask_all(g, lost);
    for (auto &h : lost)
        CHECK_AT(h.finish == ENGINE_FAILED && h.error.size() > 10, "%s", h.error.c_str());
    engine_close(g);
    emu::lose_device_after(-1);
    CHECK_INT(device_bytes_left(), 0);
}

/* ---- a model alone ---- */
static enum err open_model(struct model **m, struct errmsg *e, const char *device, int n_ranks,
                           const char *file = "tiny-llama-f32.gguf")
{
    struct model_options o = {};
    std::string path = std::string(SOURCE_DIR "/tests/data/") + file;
    o.n_threads = 1, o.block_tokens = 8, o.n_blocks = 4, o.max_batch_tokens = 16, o.max_seqs = 2;
    o.device = device, o.n_ranks = n_ranks;
    return model_open(m, path.c_str(), &o, e);
}
static struct model *opened(const char *device, int n_ranks,
                            const char *file = "tiny-llama-f32.gguf")
{
    struct model *m = nullptr;
    struct errmsg e = {};
    CHECK_AT(open_model(&m, &e, device, n_ranks, file) == OK, "%s", e.text);
    if (!m) abort();
    return m;
}

/* Positions [from, from + n) of a sequence in blocks 2 and 1; logits of the last. */
static std::vector<float> run(struct model *m, int from, int n)
{
    std::vector<int32_t> token, pos, seq((size_t)n, 0);
    for (int i = from; i < from + n; i++)
        token.push_back((i * 37 + 11) % 300), pos.push_back(i);
    const int32_t table[] = {2, 1}, *tables[] = {table}, out = n - 1;
    std::vector<float> logits((size_t)model_info(m)->n_vocab);
    struct model_batch b = {};
    b.n_rows = n, b.token = token.data(), b.pos = pos.data(), b.seq = seq.data();
    b.n_seqs = 1, b.block_table = tables, b.n_out = 1, b.out_row = &out;
    model_forward(m, &b, logits.data());
    return logits;
}
static double apart(const std::vector<float> &a, const std::vector<float> &b)
{
    double most = 0;
    for (size_t i = 0; i < a.size(); i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* Both sides compute on the emulated device with the same kernels: rounding of a few ten-thousandths where activations are rounded in parts. */
TEST(logits_of_two_gpus_are_those_of_one_and_blocks_go_from_two_to_one)
{
    NEEDS_TWO();
    for (const char *file : {"tiny-llama-f32.gguf", "tiny-mixtral.gguf"}) {
        bool exact = strstr(file, "f32");
        struct model *one = opened("cuda", 1, file), *two = opened("cuda", RANKS, file);
        auto a = run(one, 0, 8), b = run(two, 0, 8);
        CHECK_AT(apart(a, b) < (exact ? 1e-4 : 0.3), "%s: %g apart", file, apart(a, b));
        CHECK_INT((long)model_kv_block_bytes(one), (long)model_kv_block_bytes(two));
        std::vector<uint8_t> block(model_kv_block_bytes(two)), back(block);
        model_kv_read(two, 2, block.data());
        model_kv_copy(two, 3, 2, 8);
        model_kv_read(two, 3, back.data());
        CHECK(block == back);
        model_kv_write(one, 2, block.data());
        a = run(one, 8, 1), b = run(two, 8, 1);
        CHECK_AT(apart(a, b) < (exact ? 1e-4 : 0.3), "%s: %g apart", file, apart(a, b));
        model_close(one);
        model_close(two);
    }
    CHECK_INT(device_bytes_left(), 0);
}

TEST(blocks_whose_layers_lie_farther_apart_than_a_copy_of_rows_reaches_come_down_all_the_same)
{
    NEEDS_EMULATION();
    backend_register(&cuda_device);
    std::vector<uint8_t> near, far;
    for (const char *pitch : {"", "512"}) {
        setenv("CUDA_EMU_PITCH", pitch, 1);
        struct model *m = opened("cuda", 1);
        auto &block = *pitch ? far : near;
        block.resize(model_kv_block_bytes(m));
        run(m, 0, 8);
        model_kv_read(m, 2, block.data());
        CHECK_AT(!model_failure(m), "%s", model_failure(m));
        model_close(m);
    }
    unsetenv("CUDA_EMU_PITCH");
    CHECK(near == far);
}

TEST(a_lost_device_of_either_rank_gives_the_model_up_soon_and_says_why)
{
    NEEDS_EMULATION();
    NEEDS_TWO();
    for (int lost = 0; lost < RANKS; lost++) {
        struct model *m = opened("cuda", RANKS);
        CHECK(isfinite(run(m, 0, 4)[0]) && !model_failure(m));
        emu::lose_device_after(3, lost);
        uint64_t from = clock_ms();
        CHECK(isnan(run(m, 4, 2)[0]));
        CHECK(clock_ms() - from < 50000); /* under the minute that ranks wait for one another */
        CHECK_AT(model_failure(m) && strstr(model_failure(m), "unspecified launch failure"),
                 "rank %d lost: %s", lost, model_failure(m) ? model_failure(m) : "nothing");
        CHECK(isnan(run(m, 4, 2)[0]));
        model_close(m);
        emu::lose_device_after(-1);
        CHECK_INT(device_bytes_left(), 0);
    }
}

TEST(a_block_of_a_lost_device_is_not_taken_for_one)
{
    NEEDS_EMULATION();
    backend_register(&cuda_device);
    struct model *m = opened("cuda", 1);
    std::vector<uint8_t> block(model_kv_block_bytes(m)), none(block.size(), 0xff);
    run(m, 0, 8);
    model_kv_read(m, 2, block.data());
    CHECK(block != none && !model_failure(m));
    emu::lose_device_after(0);
    model_kv_read(m, 2, block.data());
    CHECK(block == none && model_failure(m));
    model_close(m);
    emu::lose_device_after(-1);
}

TEST(a_device_that_is_lost_while_a_model_opens_is_a_clean_error)
{
    NEEDS_EMULATION();
    backend_register(&cuda_device);
    struct model *m = nullptr;
    struct errmsg e = {};
    emu::lose_device_after(0);
    CHECK_INT(open_model(&m, &e, "cuda", 1), ERR_UNAVAILABLE);
    CHECK_AT(strstr(e.text, "clearing its KV blocks: unspecified launch failure"), "%s", e.text);
    emu::lose_device_after(-1);
    CHECK_INT(device_bytes_left(), 0);
}

TEST(what_two_gpus_need_is_said_in_one_sentence)
{
    NEEDS_EMULATION();
    NEEDS_TWO();
    struct model *m;
    struct errmsg e = {};
    setenv("CUDA_EMU_NO_NCCL", "1", 1);
    CHECK_INT(open_model(&m, &e, "cuda", RANKS), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "2 GPUs compute together by NCCL, and libnccl.so.2 is not to be found"),
             "%s", e.text);
    unsetenv("CUDA_EMU_NO_NCCL");
    setenv("CUDA_EMU_DEVICES", "1", 1);
    CHECK_INT(open_model(&m, &e, "cuda", RANKS), ERR_UNSUPPORTED);
    CHECK_AT(strstr(e.text, "no CUDA device 1: there is 1, counted from 0"), "%s", e.text);
    setenv("CUDA_EMU_DEVICES", "2", 1);
    CHECK_INT(device_bytes_left(), 0);
}

TEST(memory_that_one_rank_lacks_is_a_clean_error)
{
    NEEDS_EMULATION();
    NEEDS_TWO();
    for (int n : {0, 9, 30}) { /* wherever it happens, on whichever rank */
        struct model *m = nullptr;
        struct errmsg e = {};
        emu::fail_allocation_after(n);
        enum err code = open_model(&m, &e, "cuda", RANKS);
        emu::fail_allocation_after(-1);
        CHECK_AT(code != OK && strlen(e.text) > 10, "allocation %d: %d %s", n, (int)code, e.text);
        CHECK_INT(device_bytes_left(), 0);
    }
}

TEST_MAIN()
