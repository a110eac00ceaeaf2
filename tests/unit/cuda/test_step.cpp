/* test_step.cpp - which passes can be recorded (engine/backend/cuda/step.cu), asked of the device's table itself: one that sends more than a
 * stage holds, or whose sequences are more than its rows, is made the ordinary way; one that cannot be recorded is made call by call. */
#include <string>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/device.h"
#include "engine/model/model.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { BLOCK_TOKENS = 8, N_BLOCKS = 4 };

struct opened {
    void *device = nullptr, *kv = nullptr;
    opened()
    {
        struct kv_options o = {};
        struct errmsg e = {};
        size_t bytes;
        o.n_layers = 1, o.n_kv_heads = 2, o.head_dim = 16;
        o.n_blocks = N_BLOCKS, o.block_tokens = BLOCK_TOKENS;
        CHECK_INT(cuda_device.open(&device, 0, "own", &e), OK);
        CHECK_INT(cuda_device.kv_new(device, &kv, &o, &bytes, &e), OK);
    }
    ~opened()
    {
        cuda_device.kv_free(device, kv);
        cuda_device.close(device);
    }
};

/* n rows, each the last of its own sequence of n_tokens; row i is of sequence first_seq + i. The pass is begun and ended; how many rows its
 * calls would have been for. */
static int rows_of_pass(int n, int n_tokens, int first_seq)
{
    opened o;
    std::vector<int32_t> pos((size_t)n, n_tokens - 1), seq, token((size_t)n, 1),
        blocks((size_t)(n_tokens / BLOCK_TOKENS + 1), 1);
    std::vector<const int32_t *> tables((size_t)(first_seq + n), blocks.data());
    for (int i = 0; i < n; i++)
        seq.push_back(first_seq + i);
    struct kv_rows rows = {n, pos.data(), seq.data(), tables.data(), nullptr};
    int window = 0, n_rows = 0;
    struct backend_step s = {};
    s.rows = &rows, s.token = token.data(), s.window = &window, s.n_windows = 1;
    s.group = 2, s.rows_max = 256;
    CHECK(!cuda_device.step_begin(o.device, o.kv, &s, &n_rows));
    CHECK(cuda_device.step_end(o.device));
    CHECK(!cuda_device.failure(o.device));
    return n_rows;
}

TEST(a_pass_that_sends_more_than_a_stage_holds_is_an_ordinary_one)
{
    CHECK_INT(rows_of_pass(70, 1000, 0), 96);    /* padded: it would be recorded */
    CHECK_INT(rows_of_pass(70, 1 << 18, 0), 70); /* tables of 12 MiB */
}

TEST(a_pass_whose_sequences_are_numbered_beyond_its_rows_is_an_ordinary_one)
{
    CHECK_INT(rows_of_pass(3, 100, 0), 4);
    CHECK_INT(rows_of_pass(3, 100, 2), 3);
}

static struct model *open_model(int n_ranks)
{
    struct model *m = nullptr;
    struct errmsg e = {};
    struct model_options o = {};
    o.n_threads = 1, o.block_tokens = BLOCK_TOKENS, o.n_blocks = N_BLOCKS, o.max_batch_tokens = 16;
    o.max_seqs = 3, o.device = "cuda", o.n_ranks = n_ranks;
    if (model_open(&m, SOURCE_DIR "/tests/data/tiny-llama-f32.gguf", &o, &e) != OK) {
        CHECK_AT(false, "%s", e.text);
        abort();
    }
    return m;
}

TEST(a_pass_that_cannot_be_recorded_is_made_call_by_call)
{
    NEEDS_EMULATION();
    backend_register(&cuda_device);
    int before = graphs_alive();
    struct model *m = open_model(1);
    emu::fail_capture_after(1);
    model_warm(m);
    emu::fail_capture_after(-1);
    CHECK_INT(graphs_alive() - before, 1);
    CHECK_AT(!model_failure(m), "%s", model_failure(m));
    model_close(m);
    setenv("DEJA_GPU_GRAPHS", "no", 1);
    m = open_model(1);
    model_warm(m);
    CHECK(graphs_alive() == before && !model_failure(m));
    model_close(m);
    unsetenv("DEJA_GPU_GRAPHS");
}

TEST(what_one_rank_cannot_record_ends_its_group_before_the_others_wait_for_it)
{
    NEEDS_EMULATION();
    setenv("CUDA_EMU_DEVICES", "2", 1);
    backend_register(&cuda_device);
    struct model *m = open_model(2);
    emu::fail_capture_after(1);
    model_warm(m);
    emu::fail_capture_after(-1);
    struct errmsg e = {};
    struct sampler_pick_out none = {};
    enum err code =
        model_submit(m, nullptr, 0, &e); /* at once where it was this rank's own recording */
    if (code == OK) code = model_wait(m, &none, &e);
    CHECK_INT(code, ERR_UNAVAILABLE);
    CHECK_AT(strstr(e.text, "recording a step"), "%s", e.text);
    model_close(m);
    unsetenv("CUDA_EMU_DEVICES");
    CHECK_INT(device_bytes_left(), 0);
}

TEST_MAIN()
