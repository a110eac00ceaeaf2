/* test_model.cpp - whole models through the CUDA backend, in emulation, beside the CPU: the same greedy tokens, rows that do not depend on
 * their batch, blocks that survive the way to the host and back, and what happens without a device or without memory. */
#include <string>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/backend.h"
#include "engine/backend/device.h"
#include "engine/model/model.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { BLOCKS = 24, BLOCK_TOKENS = 8, TABLE = 6 };

static struct model *open_model(const char *file, const char *device, enum kv_type kv = KV_F16)
{
    struct model *m = nullptr;
    struct errmsg e = {};
    struct model_options o = {};
    o.n_threads = 1, o.block_tokens = BLOCK_TOKENS, o.n_blocks = BLOCKS, o.max_batch_tokens = 64;
    o.max_seqs = 3, o.device = device, o.kv_type = kv;
    std::string path = std::string(SOURCE_DIR "/tests/data/") + file;
    if (model_open(&m, path.c_str(), &o, &e) != OK) {
        CHECK_AT(false, "%s: %s", file, e.text);
        abort();
    }
    return m;
}

struct sequence {
    std::vector<int32_t> tokens, table;
    int n_done = 0;
    std::vector<float> logits; /* of the last row computed */
};

/* One step: what each sequence has not computed yet, together. */
static void step(struct model *m, std::vector<sequence *> seqs)
{
    std::vector<int32_t> token, pos, seq, out;
    std::vector<const int32_t *> tables;
    for (size_t s = 0; s < seqs.size(); s++) {
        for (int p = seqs[s]->n_done; p < (int)seqs[s]->tokens.size(); p++) {
            token.push_back(seqs[s]->tokens[(size_t)p]);
            pos.push_back(p), seq.push_back((int32_t)s);
        }
        seqs[s]->n_done = (int)seqs[s]->tokens.size();
        out.push_back((int32_t)token.size() - 1);
        tables.push_back(seqs[s]->table.data());
    }
    struct model_batch b = {};
    b.n_rows = (int)token.size(), b.token = token.data(), b.pos = pos.data(), b.seq = seq.data();
    b.n_seqs = (int)seqs.size(), b.block_table = tables.data();
    b.n_out = (int)out.size(), b.out_row = out.data();
    size_t n_vocab = (size_t)model_info(m)->n_vocab;
    std::vector<float> logits(out.size() * n_vocab);
    model_forward(m, &b, logits.data());
    for (size_t s = 0; s < seqs.size(); s++)
        seqs[s]->logits.assign(logits.begin() + (long)(s * n_vocab),
                               logits.begin() + (long)((s + 1) * n_vocab));
}

static sequence prompt(int i, int first_block)
{
    sequence s;
    for (int k = 0; k < 5 + 7 * i; k++)
        s.tokens.push_back((i * 37 + k * k * 11 + 3) % 250);
    for (int k = 0; k < TABLE; k++)
        s.table.push_back(first_block + (k * 5 + 2) % TABLE);
    return s;
}

static int32_t likeliest(const sequence &s)
{
    size_t best = 0;
    for (size_t i = 1; i < s.logits.size(); i++)
        if (s.logits[i] > s.logits[best]) best = i;
    return (int32_t)best;
}

/* Says n tokens greedily on the CPU and follows them on the device. Both round activations, in their own ways, so where the device would
 * have said another token the two must have been all but equal: their difference counts in standard deviations of the logits. */
static double disagreement(struct model *cpu, struct model *gpu, int i, int n)
{
    sequence a = prompt(i, 6 * i), b = a;
    double worst = 0;
    for (int k = 0; k < n; k++) {
        step(cpu, {&a});
        step(gpu, {&b});
        double mean = 0, square = 0, count = (double)a.logits.size();
        for (float v : a.logits)
            mean += v / count, square += v * v / count;
        size_t best = (size_t)likeliest(a), other = (size_t)likeliest(b);
        worst = fmax(worst, (a.logits[best] - a.logits[other]) / sqrt(square - mean * mean));
        a.tokens.push_back((int32_t)best);
        b.tokens.push_back((int32_t)best);
    }
    return worst;
}

TEST(the_same_greedy_tokens_as_the_cpu_backend)
{
    backend_register(&cuda_device);
    static const struct {
        const char *file;
        double most; /* float32 weights: no other token at all */
    } models[] = {{"tiny-llama-f32.gguf", 0}, {"tiny-llama-mixed.gguf", 0.1},
                  {"tiny-qwen2-k.gguf", 0.1}, {"tiny-qwen3.gguf", 0.1},
                  {"tiny-gemma2.gguf", 0.1},  {"tiny-gemma3.gguf", 0.1}};
    for (auto &t : models) {
        struct model *cpu = open_model(t.file, nullptr), *gpu = open_model(t.file, "cuda");
        for (int i = 0; i < 3; i++) {
            double worst = disagreement(cpu, gpu, i, t.most > 0 ? 5 : 16);
            CHECK_AT(worst <= t.most, "%s, prompt %d: %.3f standard deviations between the tokens",
                     t.file, i, worst);
        }
        model_close(cpu);
        model_close(gpu);
    }
}

TEST(sequences_computed_together_decode_as_they_do_alone)
{
    backend_register(&cuda_device);
    struct model *m = open_model("tiny-llama-mixed.gguf", "cuda");
    sequence a = prompt(0, 0), b = prompt(1, 6), c = prompt(2, 12);
    step(m, {&a}), step(m, {&b}),
        step(m, {&c}); /* prompts alone: their length decides between two products */
    std::vector<sequence *> all = {&a, &b, &c};
    for (int k = 0; k < 4; k++) {
        for (sequence *s : all)
            s->tokens.push_back(likeliest(*s));
        sequence alone[3] = {a, b, c};
        step(m, all);
        for (int i = 0; i < 3; i++) {
            step(m, {&alone[i]});
            CHECK(!memcmp(alone[i].logits.data(), all[(size_t)i]->logits.data(),
                          a.logits.size() * 4));
        }
    }
    model_close(m);
}

TEST(blocks_survive_the_way_to_the_host_and_back)
{
    backend_register(&cuda_device);
    for (enum kv_type kv : {KV_F16, KV_INT8}) {
        struct model *m = open_model("tiny-llama-mixed.gguf", "cuda", kv);
        sequence s = prompt(2, 0);
        step(m, {&s});
        sequence moved = s;
        std::vector<char> bytes(model_kv_block_bytes(m));
        for (int k = 0; k < TABLE; k++) {
            moved.table[(size_t)k] = 12 + k;
            if (k * BLOCK_TOKENS >= s.n_done) continue;
            if (k == 0) {
                model_kv_copy(m, 12, s.table[0], BLOCK_TOKENS);
                continue;
            }
            model_kv_read(m, s.table[(size_t)k], bytes.data());
            model_kv_write(m, 12 + k, bytes.data());
        }
        s.tokens.push_back(7), moved.tokens.push_back(7);
        step(m, {&s});
        step(m, {&moved});
        CHECK(!memcmp(s.logits.data(), moved.logits.data(), s.logits.size() * 4));
        model_close(m);
    }
}

TEST(too_little_memory_is_a_clean_error_wherever_it_shows)
{
    backend_register(&cuda_device);
    int refused = 0;
    for (int n = 0; n < 60; n++) {
        struct model *m = nullptr;
        struct errmsg e = {};
        struct model_options o = {};
        o.n_threads = 1, o.block_tokens = BLOCK_TOKENS, o.n_blocks = BLOCKS,
        o.max_batch_tokens = 64, o.max_seqs = 3, o.device = "cuda";
        emu::fail_allocation_after(n);
        enum err code = model_open(&m, SOURCE_DIR "/tests/data/tiny-llama-f32.gguf", &o, &e);
        emu::fail_allocation_after(-1);
        refused += code != OK;
        CHECK(code == OK || (code == ERR_FULL && e.text[0] && !m));
        model_close(m);
    }
    CHECK(refused > 20);
    CHECK_INT(emu::device_bytes(), 0);
}

TEST(a_device_that_is_not_there_is_one_sentence)
{
    struct backend *be = nullptr;
    struct errmsg e = {};
    struct backend_options o = {};
    o.device = "tpu";
    CHECK_INT(backend_open(&be, &o, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "tpu") && !be);
}

TEST_MAIN()
