/* test_sample.cpp - sampling on the GPU, in emulation, against the host's sampler (engine/model/sampler.c, sums in double): the same tokens from
 * the same seed, the same log-probabilities; and distributions against what the weights say. A token may differ only where the draw
 * falls within rounding of the boundary between two, which is checked. */
#include <string>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/backend.h"
#include "engine/backend/device.h"
#include "engine/model/sampler.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { VOCAB = 700, ROUNDS = 12 };

struct rig {
    struct backend *be = nullptr;
    float *logits;
    int n_vocab;
    explicit rig(const std::vector<float> &values, int vocab) : n_vocab(vocab)
    {
        struct backend_options o = {};
        struct errmsg e = {};
        backend_register(&cuda_device);
        o.n_threads = 1, o.device = "cuda";
        CHECK_INT(backend_open(&be, &o, &e), OK);
        logits = backend_floats(be, values.size());
        backend_write(be, logits, values.data(), values.size());
    }
    ~rig()
    {
        backend_floats_free(be, logits);
        backend_close(be);
    }
    std::vector<struct sampler_pick_out> pick(const std::vector<struct sample_row> &rows,
                                              float softcap = 0)
    {
        std::vector<struct sampler_pick_out> out(rows.size());
        struct errmsg e = {};
        struct sample s = {logits, n_vocab, softcap, rows.data(), (int)rows.size()};
        CHECK_INT(backend_submit(be, &s, &e), OK);
        CHECK_INT(backend_wait(be, out.data(), &e), OK);
        return out;
    }
};

struct way {
    const char *title;
    struct sampler_params p;
    bool masked;
};

static std::vector<way> ways()
{
    static const struct sampler_bias bias[] = {{3, 2.5f}, {40, -100.0f}, {699, 1.0f}};
    struct sampler_params d = sampler_params_default();
    std::vector<way> all = {{"greedy", d, false}, {"greedy, masked", d, true}};
    auto add = [&](const char *title, bool masked) -> struct sampler_params &
    {
        all.push_back({title, d, masked});
        all.back().p.temperature = 0.9f;
        return all.back().p;
    };
    add("temperature", false);
    add("hot, masked", true).temperature = 2;
    add("top-k", false).top_k = 7;
    add("top-k of one", false).top_k = 1;
    add("top-k beyond the vocabulary", false).top_k = 100000;
    add("top-p", false).top_p = 0.8f;
    add("a tiny top-p", true).top_p = 1e-6f;
    add("min-p", false).min_p = 0.05f;
    auto &every = add("all together", true);
    every.top_k = 50, every.top_p = 0.9f, every.min_p = 0.01f;
    every.repetition_penalty = 1.3f, every.presence_penalty = 0.5f, every.frequency_penalty = 0.2f;
    every.bias = bias, every.n_bias = 3, every.n_top_logprobs = 5;
    auto &penal = add("penalties, greedy", false);
    penal.temperature = 0, penal.repetition_penalty = 1.8f, penal.frequency_penalty = -0.7f;
    penal.n_top_logprobs = 20;
    auto &told = add("log-probabilities alone", true);
    told.n_top_logprobs = 0, told.bias = bias, told.n_bias = 3;
    return all;
}

static std::vector<float> logits_of(int rows)
{
    auto v = random_values(11, (size_t)rows * VOCAB, 4.0f);
    for (size_t i = 0; i < v.size(); i++) /* equals, damage, and what underflows */
        v[i] = i % 97 == 5   ? NAN
               : i % 89 == 3 ? INFINITY
               : i % 31 == 0 ? 3.0f
               : i % 53 == 1 ? -1000.0f
                             : v[i];
    return v;
}

/* A token that the host did not choose must be its neighbour at the draw: that is rare enough to be refused here, for these seeds. */
TEST(every_setting_gives_the_host_samplers_tokens_and_log_probabilities)
{
    auto values = logits_of(ROUNDS);
    rig r(values, VOCAB);
    std::vector<uint32_t> mask((VOCAB + 31) / 32);
    for (size_t t = 0; t < VOCAB; t++)
        if (t * t % 5 == 1) mask[t / 32] |= 1u << t % 32;
    struct sampler_scratch *scratch = sampler_scratch_new(VOCAB);
    for (bool late : {false, true})
        for (auto &w : ways()) {
            struct sampler *host = nullptr, *gpu = nullptr;
            struct errmsg e = {};
            int32_t unheard = -1;
            w.p.seed = 99;
            CHECK_INT(sampler_new(&host, &w.p, VOCAB, &e), OK);
            CHECK_INT(sampler_new(&gpu, &w.p, VOCAB, &e), OK);
            static const int32_t prompt[] = {1, 2, 3, 3, 600};
            sampler_prompt(host, prompt, 5), sampler_prompt(gpu, prompt, 5);
            for (int i = 0; i < ROUNDS; i++) {
                struct sampler_pick_out want;
                std::vector<float> row(values.begin() + i * VOCAB,
                                       values.begin() + (i + 1) * VOCAB);
                const uint32_t *allowed = w.masked ? mask.data() : nullptr;
                struct sample_row ask;
                CHECK_INT(sampler_pick(host, scratch, row.data(), allowed, &want), OK);
                sampler_hand_over(gpu, &ask);
                ask.logits = i, ask.allowed = allowed;
                ask.unheard = late && i; /* the pick of the round before is told after this one */
                auto got = r.pick({ask})[0];
                CHECK_AT(got.token == want.token, "%s, round %d: %d instead of %d", w.title, i,
                         got.token, want.token);
                CHECK_INT(got.n_top, want.n_top);
                CHECK(fabsf(got.logprob - want.logprob) < 1e-4f);
                for (int k = 0; k < want.n_top; k++)
                    CHECK(got.top[k].token == want.top[k].token &&
                          fabsf(got.top[k].logprob - want.top[k].logprob) < 1e-4f);
                sampler_accept(host, want.token);
                if (!late || unheard >= 0) sampler_accept(gpu, late ? unheard : want.token);
                unheard = want.token;
            }
            sampler_free(host), sampler_free(gpu);
        }
    sampler_scratch_free(scratch);
}

static struct sample_row plain_row(double draw)
{
    struct sample_row r = {};
    r.temperature = 1, r.top_p = 1, r.repetition_penalty = 1, r.n_top_logprobs = -1, r.draw = draw;
    return r;
}

TEST(rows_of_one_step_do_not_know_of_each_other)
{
    auto values = logits_of(4);
    rig r(values, VOCAB);
    std::vector<struct sample_row> rows;
    std::vector<int32_t> alone;
    for (int i = 0; i < 8; i++) { /* a fork reads its parent's row */
        rows.push_back(plain_row(0.11 * i));
        rows.back().logits = i % 4;
        rows.back().top_p = i % 2 ? 0.9f : 1.0f;
        rows.back().n_top_logprobs = i == 3 ? 2 : -1;
        alone.push_back(r.pick({rows.back()})[0].token);
    }
    auto together = r.pick(rows);
    for (size_t i = 0; i < rows.size(); i++)
        CHECK_INT(together[i].token, alone[i]);
    CHECK_INT(together[3].n_top, 2);
    CHECK_INT(together[4].n_top, 0);
}

TEST(evenly_spread_draws_give_each_token_its_share)
{
    enum { N = 60, DRAWS = 600 };
    auto values = random_values(5, N, 2.0f);
    rig r(values, N);
    for (float top_p : {1.0f, 0.7f}) {
        std::vector<double> share(N), count(N);
        std::vector<size_t> order(N);
        double total = 0, kept = 0, mass = 0;
        for (size_t t = 0; t < N; t++)
            total += share[t] = exp((double)values[t]), order[t] = t;
        for (size_t i = 0; i < N; i++) /* best first */
            for (size_t k = i + 1; k < N; k++)
                if (share[order[k]] > share[order[i]]) std::swap(order[i], order[k]);
        for (size_t i = 0; i < N; i++) {
            if (mass >= top_p * total && i)
                share[order[i]] = 0;
            else
                kept += share[order[i]];
            mass += share[order[i]];
        }
        std::vector<struct sample_row> rows;
        for (int d = 0; d < DRAWS; d++) {
            rows.push_back(plain_row((d + 0.5) / DRAWS));
            rows.back().top_p = top_p;
        }
        for (auto &o : r.pick(rows))
            count[(size_t)o.token]++;
        for (size_t t = 0; t < N;
             t++) /* an interval of length s holds s * DRAWS of them, give or take one */
            CHECK_AT(fabs(count[t] - share[t] / kept * DRAWS) <= 1.01, "token %zu: %g of %g", t,
                     count[t], share[t] / kept * DRAWS);
    }
}

TEST(a_softcap_bends_logits_and_no_finite_one_is_no_token)
{
    std::vector<float> values = {1, 50, 49, -3}, none(4, NAN);
    rig r(values, 4), empty(none, 4);
    struct sample_row ask = plain_row(0.0);
    ask.temperature = 0, ask.n_top_logprobs = 2;
    auto got = r.pick({ask}, 30.0f)[0];
    double a = 30 * tanh(50 / 30.0), b = 30 * tanh(49 / 30.0), c = 30 * tanh(1 / 30.0),
           sum = log(1 + exp(b - a) + exp(c - a));
    CHECK_INT(got.token, 1);
    CHECK(fabs(got.logprob + sum) < 1e-4 && got.top[1].token == 2 &&
          fabs(got.top[1].logprob - (b - a - sum)) < 1e-4);
    CHECK_INT(empty.pick({ask})[0].token, -1);
    ask.temperature = 1;
    CHECK_INT(empty.pick({ask})[0].token, -1);
}

TEST_MAIN()
