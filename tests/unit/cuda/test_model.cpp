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

static struct model *open_model(const char *file, const char *device, enum kv_type kv = KV_F16,
                                int n_blocks = BLOCKS, int max_seqs = 3)
{
    struct model *m = nullptr;
    struct errmsg e = {};
    struct model_options o = {};
    o.n_threads = 1, o.block_tokens = BLOCK_TOKENS, o.n_blocks = n_blocks, o.max_batch_tokens = 64;
    o.max_seqs = max_seqs, o.device = device, o.kv_type = kv;
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
static double disagreement(struct model *cpu, struct model *gpu, int i, int n,
                           double *off = nullptr)
{
    sequence a = prompt(i, 6 * i), b = a;
    double worst = 0;
    for (int k = 0; k < n; k++) {
        step(cpu, {&a});
        step(gpu, {&b});
        double mean = 0, square = 0, count = (double)a.logits.size();
        for (float v : a.logits)
            mean += v / count, square += v * v / count;
        for (size_t v = 0; off && v < a.logits.size(); v++)
            *off += fabs(a.logits[v] - b.logits[v]) / sqrt(square - mean * mean) / count / n;
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
    } models[] = {{"tiny-llama-f32.gguf", 0},  {"tiny-llama-mixed.gguf", 0.1},
                  {"tiny-qwen2-k.gguf", 0.1},  {"tiny-qwen3.gguf", 0.1},
                  {"tiny-gemma2.gguf", 0.1},   {"tiny-gemma3.gguf", 0.1},
                  {"tiny-olmoe.gguf", 0},      {"tiny-mixtral.gguf", 0.1},
                  {"tiny-qwen2moe.gguf", 0.1}, {"tiny-qwen3moe.gguf", 0.1}};
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

/* Accuracy of a rounded KV: logits beside those of the CPU with float16 KV, mean difference in their standard deviations. Keys are
 * evened out by spread as on the CPU, so the two agree about as well rounded on either. */
TEST(rounded_kv_says_what_the_same_rounding_says_on_the_cpu)
{
    backend_register(&cuda_device);
    for (const char *file : {"tiny-llama-f32.gguf", "tiny-qwen2-k.gguf"}) {
        struct model *plain = open_model(file, nullptr);
        for (enum kv_type kv : {KV_INT8, KV_K8V4}) {
            struct model *cpu = open_model(file, nullptr, kv), *gpu = open_model(file, "cuda", kv);
            double on_cpu = 0, on_gpu = 0;
            (void)disagreement(plain, cpu, 2, 2, &on_cpu);
            (void)disagreement(plain, gpu, 2, 2, &on_gpu);
            CHECK_AT(on_gpu < on_cpu * 1.5 + 0.01, "%s, %s: %g on the CPU, %g on the device", file,
                     kv_type_name(kv), on_cpu, on_gpu);
            model_close(cpu);
            model_close(gpu);
        }
        model_close(plain);
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

TEST(a_batch_of_which_nobody_wants_logits_is_no_error)
{
    backend_register(&cuda_device);
    struct model *m = open_model("tiny-llama-f32.gguf", "cuda");
    sequence whole = prompt(2, 0), parts = prompt(2, 6);
    std::vector<int32_t> all = parts.tokens, pos, seq;
    const int32_t *table = parts.table.data();
    for (int p = 0; p < 10; p++)
        pos.push_back(p), seq.push_back(0);
    struct model_batch b = {};
    b.n_rows = 10, b.token = all.data(), b.pos = pos.data(), b.seq = seq.data();
    b.n_seqs = 1, b.block_table = &table;
    model_forward(m, &b, nullptr);
    parts.n_done = 10;
    step(m, {&whole}), step(m, {&parts});
    CHECK(!model_failure(m));
    CHECK(!memcmp(whole.logits.data(), parts.logits.data(), whole.logits.size() * 4));
    model_close(m);
}

/* What a pass leaves on the device is looked at through the sampler: the likeliest ids, and how likely, to the last bit. */
static std::vector<struct sampler_pick_out> step_recorded(struct model *m,
                                                          std::vector<sequence *> seqs)
{
    std::vector<int32_t> token, pos, seq, out;
    std::vector<const int32_t *> tables;
    std::vector<struct sample_row> rows(seqs.size());
    for (size_t s = 0; s < seqs.size(); s++) {
        token.push_back(seqs[s]->tokens.back());
        pos.push_back((int32_t)seqs[s]->tokens.size() - 1);
        seq.push_back((int32_t)s), out.push_back((int32_t)s);
        tables.push_back(seqs[s]->table.data());
        rows[s].top_p = 1, rows[s].repetition_penalty = 1, rows[s].n_top_logprobs = 20;
        rows[s].logits = (int)s;
    }
    struct model_batch b = {};
    b.n_rows = b.n_seqs = b.n_out = (int)seqs.size();
    b.token = token.data(), b.pos = pos.data(), b.seq = seq.data();
    b.block_table = tables.data(), b.out_row = out.data();
    model_forward(m, &b, nullptr);
    std::vector<struct sampler_pick_out> picks(seqs.size());
    struct errmsg e = {};
    CHECK_INT(model_submit(m, rows.data(), (int)rows.size(), &e), OK);
    CHECK_INT(model_wait(m, picks.data(), &e), OK);
    return picks;
}

TEST(recorded_passes_leave_what_ordinary_ones_do_bit_for_bit)
{
    backend_register(&cuda_device);
    for (const char *file : {"tiny-llama-mixed.gguf", "tiny-gemma3.gguf",
                             "tiny-qwen2moe.gguf"}) { /* gemma3: two windows */
        struct model *m = open_model(file, "cuda");
        sequence all[3] = {prompt(0, 0), prompt(1, 6), prompt(2, 12)};
        for (auto &s : all)
            step(m, {&s});
        int before = graphs_launched();
        for (
            int k = 0; k < 9;
            k++) { /* one, two and three together (of which one is padding), each time three times */
            std::vector<sequence *> some;
            for (int i = 0; i <= k / 3; i++)
                some.push_back(&all[i]);
            for (sequence *s : some)
                s->tokens.push_back((k * 31 + 7) % 250);
            auto got = step_recorded(m, some);
            step(m, some);
            for (size_t i = 0; i < some.size(); i++) {
                const auto &l = some[i]->logits;
                CHECK_INT(got[i].token, likeliest(*some[i]));
                for (int t = 1; t < got[i].n_top; t++) {
                    float apart = l[(size_t)got[i].top[0].token] - l[(size_t)got[i].top[t].token],
                          told = got[i].top[0].logprob - got[i].top[t].logprob;
                    CHECK_AT(fabsf(apart - told) < 4e-6f * (1 + fabsf(apart)), "%s: %g and %g",
                             file, apart, told);
                }
            }
        }
        if (graphs_launched()) /* the first of each number is not recorded yet */
            CHECK_INT(graphs_launched() - before, 6);
        model_close(m);
    }
}

/* Three sequences behind the same 256 tokens, which lie in the same blocks. */
TEST(a_shared_prefix_changes_no_bit_of_a_model_recorded_or_not)
{
    backend_register(&cuda_device);
    enum { SHARED = 256 / BLOCK_TOKENS };
    struct model *m = open_model("tiny-llama-f32.gguf", "cuda", KV_F16, SHARED + 12);
    sequence first;
    for (int k = 0; k < 256; k++)
        first.tokens.push_back((k * k * 11 + 3) % 250);
    for (int k = 0; k < SHARED; k++)
        first.table.push_back((k * 5 + 2) % SHARED); /* 5 and SHARED have no factor in common */
    for (int p = 64; p <= 256; p += 64) {            /* as many rows as a pass takes */
        sequence part = first;
        part.tokens.resize((size_t)p), part.n_done = p - 64;
        step(m, {&part});
    }
    sequence all[3] = {first, first, first};
    std::vector<sequence *> some;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++)
            all[i].table.push_back(SHARED + 4 * i + k);
        for (int k = 0; k < 2 + i; k++)
            all[i].tokens.push_back(i * 17 + k);
        all[i].n_done = 256;
        some.push_back(&all[i]);
    }
    step(m, some);
    for (int k = 0; k < 4; k++) {
        for (sequence *s : some)
            s->tokens.push_back((k * 31 + 7) % 250);
        auto together = step_recorded(m, some);
        step(m, some);
        for (sequence *s : some) {
            sequence alone = *s;
            alone.n_done--;
            step(m, {&alone});
            CHECK(!memcmp(alone.logits.data(), s->logits.data(), alone.logits.size() * 4));
            CHECK_INT(together[(size_t)(s - all)].token, likeliest(alone));
        }
    }
    CHECK(!model_failure(m));
    model_close(m);
}

TEST(a_longer_prompt_moves_areas_and_recorded_passes_are_made_anew)
{
    backend_register(&cuda_device);
    struct model *m = open_model("tiny-llama-f32.gguf", "cuda");
    sequence s = prompt(0, 0), longer = prompt(2, 6);
    step(m, {&s});
    for (int k = 0; k < 6; k++) {
        if (k == 3) step(m, {&longer});
        s.tokens.push_back((k * 31 + 7) % 250);
        auto got = step_recorded(m, {&s});
        step(m, {&s});
        CHECK_INT(got[0].token, likeliest(s));
    }
    CHECK(!model_failure(m));
    model_close(m);
}

TEST(warming_up_leaves_the_kv_as_it_was)
{
    backend_register(&cuda_device);
    struct model *m = open_model("tiny-llama-mixed.gguf", "cuda");
    std::vector<char> before(model_kv_block_bytes(m)), after(before);
    sequence s = prompt(1, 0);
    step(m, {&s});
    for (int block = 0; block < BLOCKS; block += 3) {
        model_kv_read(m, block, before.data());
        if (block == 0) model_warm(m);
        model_kv_read(m, block, after.data());
        CHECK(before == after);
    }
    CHECK(!model_failure(m));
    model_close(m);
}

/* Few rows multiply by other kernels than many, with other areas: none of them grows after a pass was recorded. */
TEST(warming_up_loses_none_of_its_own_recordings)
{
    NEEDS_EMULATION();
    backend_register(&cuda_device);
    for (const char *file : {"tiny-llama-f32.gguf", "tiny-llama-mixed.gguf"}) {
        int before = graphs_alive();
        struct model *m = open_model(file, "cuda", KV_F16, BLOCKS, 24);
        model_warm(m);
        CHECK_INT(graphs_alive() - before, 6); /* 24, 16, 8, 4, 2, 1 */
        CHECK(!model_failure(m));
        model_close(m);
        CHECK_INT(graphs_alive(), before);
    }
}

TEST(blocks_survive_the_way_to_the_host_and_back)
{
    backend_register(&cuda_device);
    for (enum kv_type kv : {KV_F16, KV_INT8, KV_K8V4}) {
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
    NEEDS_EMULATION();
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
    CHECK_INT(device_bytes_left(), 0);
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
