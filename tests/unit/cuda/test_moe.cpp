/* test_moe.cpp - the mixture of experts of engine/backend/cuda, in emulation, piece by piece and whole: choices and weights against sums in
 * double precision, the order of sorted pairs, products of every type by expert, and that a row's bits depend on nothing but the row
 * (as far as the number of rows lets the same kernels multiply). */
#include <algorithm>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/device.h"
}
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/moe_launch.h"
#include "tests/unit/cuda/rig.hpp"

/* The choices of one row in order, by sorting: the largest logits, of equal ones the lower number. */
static std::vector<int> choices(const float *logit, int n_experts, int n_used)
{
    std::vector<int> e((size_t)n_experts);
    for (int i = 0; i < n_experts; i++)
        e[(size_t)i] = i;
    std::stable_sort(e.begin(), e.end(), [&](int a, int b) { return logit[a] > logit[b]; });
    e.resize((size_t)n_used);
    return e;
}

static double share(const float *logit, int n_experts, const std::vector<int> &chosen, int e,
                    bool normalise)
{
    double sum = 0;
    if (normalise)
        for (int c : chosen)
            sum += exp((double)logit[c]);
    else
        for (int c = 0; c < n_experts; c++)
            sum += exp((double)logit[c]);
    return exp((double)logit[e]) / sum;
}

TEST(rows_choose_the_experts_with_the_largest_logits)
{
    static const struct {
        int n_experts, n_used;
        bool normalise;
    } cases[] = {{8, 2, true},    {60, 4, false}, {64, 8, false},
                 {512, 32, true}, {3, 3, false},  {1, 1, true}};
    for (auto &c : cases) {
        enum { ROWS = 5 };
        emu::seed((uint64_t)c.n_experts);
        auto logits = random_values(3, (size_t)(ROWS * c.n_experts), 3.0f);
        for (int e = 0; e < c.n_experts; e++) /* ties everywhere in row 1 */
            logits[(size_t)(c.n_experts + e)] = (float)(e % 2);
        size_t pairs = (size_t)(ROWS * c.n_used);
        on_device<float> d(logits), weight(pairs);
        on_device<int32_t> expert(pairs);
        launch_route({d.p, c.n_experts, c.n_used, c.normalise, 1.5f, expert.p, weight.p}, ROWS,
                     NULL);
        auto got = expert.get();
        auto w = weight.get();
        for (int r = 0; r < ROWS; r++) {
            const float *logit = &logits[(size_t)(r * c.n_experts)];
            auto want = choices(logit, c.n_experts, c.n_used);
            for (int k = 0; k < c.n_used; k++) {
                size_t pair = (size_t)(r * c.n_used + k);
                CHECK_INT(got[pair], want[(size_t)k]);
                double p = 1.5 * share(logit, c.n_experts, want, want[(size_t)k], c.normalise);
                CHECK_NEAR(w[pair], p, 2e-6 * p + 1e-9);
            }
        }
    }
}

TEST(logits_that_are_no_numbers_still_choose_different_experts_that_exist)
{
    enum { EXPERTS = 40, USED = 6 };
    auto logits = random_values(3, EXPERTS, 1.0f);
    for (size_t e = 0; e < EXPERTS; e++)
        logits[e] = e % 3 == 0 ? NAN : e % 3 == 1 ? -INFINITY : logits[e];
    on_device<float> d(logits), weight(USED);
    on_device<int32_t> expert(USED);
    launch_route({d.p, EXPERTS, USED, true, 1, expert.p, weight.p}, 1, NULL);
    auto got = expert.get();
    std::sort(got.begin(), got.end());
    CHECK(got.front() >= 0 && got.back() < EXPERTS);
    CHECK(std::unique(got.begin(), got.end()) == got.end());
}

TEST(sorted_pairs_keep_the_order_of_rows_and_tiles_cover_each_expert_once)
{
    for (int n_experts : {1, 5, 64, 300})
        for (int cols : {8, 16, 64}) {
            enum { ROWS = 45 };
            int used = n_experts < 3 ? 1 : 3, n_pairs = ROWS * used,
                n_tiles = expert_tiles(n_pairs, n_experts, cols);
            std::vector<int32_t> expert;
            for (int p = 0; p < n_pairs; p++) /* unequal: low numbers are liked */
                expert.push_back(p * p % 97 * (p % 5) % n_experts);
            emu::seed((uint64_t)(n_experts + cols));
            on_device<int32_t> d(expert), row((size_t)n_pairs), place((size_t)n_pairs);
            on_device<struct expert_tile> tiles((size_t)n_tiles);
            launch_sort({d.p, n_pairs, n_experts, used, row.p, place.p, tiles.p, cols, n_tiles},
                        NULL);
            std::vector<int32_t> want((size_t)n_pairs);
            for (int p = 0; p < n_pairs; p++)
                want[(size_t)p] = p;
            std::stable_sort(want.begin(), want.end(),
                             [&](int a, int b) { return expert[(size_t)a] < expert[(size_t)b]; });
            auto got_row = row.get(), got_place = place.get();
            for (int i = 0; i < n_pairs; i++) {
                CHECK_INT(got_place[(size_t)want[(size_t)i]], i);
                CHECK_INT(got_row[(size_t)i], want[(size_t)i] / used);
            }
            int next = 0;
            for (const auto &t : tiles.get())
                for (int i = 0; i < t.n; i++) {
                    CHECK(t.n <= cols && t.first + i == next);
                    CHECK_INT(expert[(size_t)want[(size_t)next]], t.expert);
                    next++;
                }
            CHECK_INT(next, n_pairs);
        }
}

/* ---- the whole operation, on a device opened through its table ---- */
struct mixture {
    int n_experts, n_used, n_embd, n_ff;
    bool normalise, with_shared;
    enum tensor_type type;
    std::vector<float> exact[3]; /* gate, up, down: [n_experts][n_out][n_in] */
    void *device = nullptr, *weight[3] = {};
    std::vector<float> x, logits, shared, shared_gate, before;
    enum { ROWS = 40 };

    void put(int i, int n_out, int n_in)
    {
        size_t rows = (size_t)(n_experts * n_out), row = tensor_row_bytes(type, n_in),
               n = (size_t)n_in, bytes;
        auto values = random_values(20 + (uint64_t)i, rows * n, 1.0f / sqrtf((float)n_in));
        std::vector<uint8_t> stored(rows * row);
        exact[i].resize(values.size());
        for (size_t r = 0; r < rows; r++) {
            quantise_row(type, &values[r * n], &stored[r * row], n_in);
            dequantise_row(type, &stored[r * row], &exact[i][r * n], n_in);
        }
        struct errmsg e = {};
        CHECK_INT(cuda_device.weight_new(device, &weight[i], type, (int)rows, n_in, stored.data(),
                                         &bytes, &e),
                  OK);
    }
    mixture(enum tensor_type t, int experts, int used, int embd, int ff, bool norm, bool with)
        : n_experts(experts), n_used(used), n_embd(embd), n_ff(ff), normalise(norm),
          with_shared(with), type(t)
    {
        struct errmsg e = {};
        CHECK_INT(cuda_device.open(&device, 0, "own", &e), OK);
        put(0, ff, embd), put(1, ff, embd), put(2, embd, ff);
        x = random_values(1, (size_t)(ROWS * embd), 1.0f);
        logits = random_values(2, (size_t)(ROWS * experts), 2.0f);
        shared = random_values(3, (size_t)(ROWS * embd), 1.0f);
        shared_gate = random_values(4, ROWS, 2.0f);
        before = random_values(5, (size_t)(ROWS * embd), 1.0f);
    }
    mixture(const mixture &) = delete;
    ~mixture()
    {
        for (void *w : weight)
            cuda_device.weight_free(device, w);
        cuda_device.close(device);
    }
    template <class T>
    static std::vector<T> taken(const std::vector<T> &all, const std::vector<int> &rows)
    {
        size_t n = all.size() / ROWS;
        std::vector<T> v;
        for (int r : rows)
            v.insert(v.end(), all.begin() + (long)((size_t)r * n),
                     all.begin() + (long)((size_t)(r + 1) * n));
        return v;
    }
    std::vector<float> run(const std::vector<int> &rows)
    {
        size_t pairs = rows.size() * (size_t)n_used;
        on_device<float> dx(taken(x, rows)), dl(taken(logits, rows)), ds(taken(shared, rows)),
            dg(taken(shared_gate, rows)), out(taken(before, rows)), gate(pairs * (size_t)n_ff),
            up(pairs * (size_t)n_ff), down(pairs * (size_t)n_embd);
        struct moe m = {};
        m.n_experts = n_experts, m.n_used = n_used, m.normalise = normalise, m.scale = 1.25f;
        m.logits = dl.p, m.x = dx.p, m.out = out.p, m.n_rows = (int)rows.size();
        m.shared = with_shared ? ds.p : NULL, m.shared_gate = with_shared ? dg.p : NULL;
        m.gate_rows = gate.p, m.up_rows = up.p, m.down_rows = down.p;
        cuda_device.moe(device, &m, weight);
        std::vector<float> host(out.n);
        struct errmsg e = {};
        CHECK_INT(cuda_device.read(device, host.data(), out.p, out.n * sizeof(float), &e), OK);
        return host;
    }
    static double dot(const float *w, const double *v, int n)
    {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += (double)w[i] * v[i];
        return sum;
    }
    std::vector<double> reference(int row) const
    {
        const float *logit = &logits[(size_t)(row * n_experts)];
        std::vector<double> in, h((size_t)n_ff), out;
        for (int i = 0; i < n_embd; i++) {
            in.push_back((double)x[(size_t)(row * n_embd + i)]);
            out.push_back((double)before[(size_t)(row * n_embd + i)]);
        }
        auto chosen = choices(logit, n_experts, n_used);
        for (int e : chosen) {
            double w = 1.25 * share(logit, n_experts, chosen, e, normalise);
            size_t at = (size_t)e * (size_t)n_ff * (size_t)n_embd;
            for (int i = 0; i < n_ff; i++) {
                size_t r = at + (size_t)(i * n_embd);
                double g = dot(&exact[0][r], in.data(), n_embd);
                h[(size_t)i] = g / (1 + exp(-g)) * dot(&exact[1][r], in.data(), n_embd);
            }
            for (int i = 0; i < n_embd; i++)
                out[(size_t)i] += w * dot(&exact[2][at + (size_t)(i * n_ff)], h.data(), n_ff);
        }
        double open = 1 / (1 + exp(-(double)shared_gate[(size_t)row]));
        for (int i = 0; with_shared && i < n_embd; i++)
            out[(size_t)i] += open * (double)shared[(size_t)(row * n_embd + i)];
        return out;
    }
    /* Root mean square of the difference, relative to what was added. */
    double error(const std::vector<int> &rows)
    {
        auto got = run(rows);
        double off = 0, size = 0;
        for (size_t r = 0; r < rows.size(); r++) {
            auto want = reference(rows[r]);
            for (size_t i = 0; i < want.size(); i++) {
                double d = want[i] - (double)got[r * want.size() + i],
                       added = want[i] - (double)before[(size_t)rows[r] * want.size() + i];
                off += d * d, size += added * added;
            }
        }
        return sqrt(off / size);
    }
};

static std::vector<int> first_rows(int n)
{
    std::vector<int> v;
    for (int i = 0; i < n; i++)
        v.push_back(i);
    return v;
}

/* Float weights: float32 sums, but for halves and many rows. Others: activations rounded to 1/127 of the peak of 16 (few rows), or all to f16 (many). */
TEST(every_type_of_experts_computes_the_formulas_for_few_and_for_many_rows)
{
    for (enum tensor_type t : all_types) {
        bool plain = t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16;
        int wide = tensor_type_block(t) == 256 ? 256 : 64;
        mixture m(t, 5, 2, wide, wide, t % 2, t % 3 == 0);
        for (int rows : {1, 6, 20}) {
            emu::seed((uint64_t)rows);
            bool f16 = rows > 8 && t != TENSOR_F32; /* tensor cores */
            double e = m.error(first_rows(rows)), most = f16 ? 1e-3 : plain ? 1e-5 : 0.02;
            CHECK_AT(e < most, "%s, %d rows: %.2g", tensor_type_name(t), rows, e);
        }
    }
}

TEST(many_rows_for_one_expert_and_widths_that_fill_no_block)
{
    mixture one(TENSOR_Q8_0, 1, 1, 96, 32, true, true), all(TENSOR_F16, 3, 3, 40, 24, false, false),
        few(TENSOR_Q4_0, 64, 2, 64, 96, false, true);
    CHECK_NEAR(one.error(first_rows(40)), 0, 1e-3);
    CHECK_NEAR(all.error(first_rows(40)), 0, 1e-3);
    CHECK_NEAR(all.error(first_rows(8)), 0, 1e-5);
    CHECK_NEAR(few.error(first_rows(40)), 0, 1e-3);
    CHECK_NEAR(few.error(first_rows(8)), 0, 0.02);
}

TEST(a_row_is_the_same_bits_among_other_rows)
{
    mixture m(TENSOR_Q4_1, 6, 3, 64, 96, true, true);
    for (int n : {8, 40}) {
        auto whole = m.run(first_rows(n));
        std::vector<int> some = n == 8 ? std::vector<int>{5, 2, 7}
                                       : std::vector<int>{30, 1, 17, 22, 9, 39, 4, 12, 3, 28};
        emu::seed(99);
        auto other = m.run(some);
        for (size_t i = 0; i < some.size(); i++)
            CHECK(!memcmp(&other[i * 64], &whole[(size_t)some[i] * 64], 64 * sizeof(float)));
    }
    auto alone = m.run({5}), whole = m.run(first_rows(8));
    CHECK(!memcmp(alone.data(), &whole[5 * 64], 64 * sizeof(float)));
}

TEST_MAIN()
