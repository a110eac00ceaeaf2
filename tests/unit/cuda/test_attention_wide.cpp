/* test_attention_wide.cpp - attention of large tiles by TMA and wgmma (engine/backend/cuda/attend_wide.cuh) against double sums over the same
 * float16 keys and values: prompts, splits, windows, soft caps, head and block sizes; what no token has is NaN in the cache. In emulation, or
 * on a device of compute capability 9.0. */
#include <algorithm>

#include "engine/backend/cuda/attend_maps.h"
#include "tests/unit/cuda/rig.hpp"

enum { N_KV = 2, LAYERS = 2, LAYER = 1 };
struct scene {
    int dim, block_tokens, group, window;
    float softcap;
    std::vector<int> length,
        chunk;     /* of each sequence: tokens there are, rows of the step at their end */
    uint64_t seed; /* of where blocks lie */
};

struct cache { /* of a scene */
    struct kv_view view;
    int stride, n_blocks;
    size_t layer_bytes, values; /* of K or V in a sequence */
    std::vector<int32_t> table;
    std::vector<float> k, v; /* [seq][token][kv][dim], as rounded */
    std::vector<uint8_t> bytes;

    explicit cache(const scene &s)
        : view(kv_view_of(GPU_KV_F16, N_KV, s.dim, s.block_tokens)), stride(0)
    {
        int longest = *std::max_element(s.length.begin(), s.length.end());
        struct rng r;
        rng_seed(&r, s.seed);
        stride = (longest + s.block_tokens - 1) / s.block_tokens;
        n_blocks = stride * (int)s.length.size() + 3;
        for (int i = 0; i < n_blocks; i++)
            table.push_back(i);
        for (size_t i = table.size(); i > 1; i--)
            std::swap(table[i - 1], table[rng_below(&r, i)]);
        layer_bytes = view.block_bytes * (size_t)n_blocks;
        bytes.assign(layer_bytes * LAYERS, 0xff);
        values = (size_t)(longest * N_KV * s.dim);
        k = random_values(21, values * s.length.size(), 1.0f);
        v = random_values(22, values * s.length.size(), 1.0f);
        for (size_t q = 0; q < s.length.size(); q++)
            for (int t = 0; t < s.length[q]; t++)
                for (int h = 0; h < N_KV; h++)
                    put(s, q, t, h);
    }
    size_t at(const scene &s, size_t seq, int token, int head) const
    {
        return seq * values + (size_t)((token * N_KV + head) * s.dim);
    }
    void put(const scene &s, size_t seq, int token, int head)
    {
        size_t block = (size_t)table[seq * (size_t)stride + (size_t)(token / s.block_tokens)],
               to = LAYER * layer_bytes + block * view.block_bytes +
                    (size_t)head * view.head_bytes +
                    (size_t)(token % s.block_tokens * view.k_bytes);
        for (int i = 0; i < s.dim; i++) {
            size_t from = at(s, seq, token, head) + (size_t)i;
            uint16_t hk = f32_to_f16(k[from]), hv = f32_to_f16(v[from]);
            memcpy(&bytes[to + 2 * (size_t)i], &hk, 2);
            memcpy(&bytes[to + view.v_at + 2 * (size_t)i], &hv, 2);
            k[from] = f16_to_f32(hk), v[from] = f16_to_f32(hv);
        }
    }
};

struct steps { /* rows */
    std::vector<int32_t> pos, seq;
    explicit steps(const scene &s)
    {
        for (size_t q = 0; q < s.length.size(); q++)
            for (int p = s.length[q] - s.chunk[q]; p < s.length[q]; p++)
                pos.push_back(p), seq.push_back((int32_t)q);
    }
};

/* False: this device has no such instructions. */
static bool attend(const scene &s, const cache &c, const std::vector<float> &q,
                   std::vector<float> *out)
{
    steps rows(s);
    int n = (int)rows.pos.size(), many = attend_many(s.dim), n_heads = s.group * N_KV;
    struct attend_plan p;
    attend_plan_lay(&p, NULL, n, s.group, many);
    std::vector<uint64_t> memory(p.bytes / 8 + 2);
    attend_plan_lay(&p, memory.data(), n, s.group, many);
    std::vector<const int32_t *> tables;
    for (size_t i = 0; i < s.length.size(); i++)
        tables.push_back(&c.table[i * (size_t)c.stride]);
    struct attend_rows r = {};
    r.n_rows = n, r.pos = rows.pos.data(), r.seq = rows.seq.data(), r.block_table = tables.data();
    r.block_tokens = s.block_tokens, r.group = s.group, r.window = s.window, r.many = many;
    r.share = true;
    attend_plan_make(&p, &r);
    CHECK(p.n_many > 0);
    size_t parts = (size_t)(n * n_heads * p.splits_max);
    on_device<uint8_t> bytes(c.bytes);
    on_device<float> dq(q), dout(q.size()), part(parts * (size_t)s.dim), stats(parts * 2);
    on_device<struct attend_tile> few(std::vector<struct attend_tile>(p.few, p.few + p.n_few)),
        big(std::vector<struct attend_tile>(p.many, p.many + p.n_many));
    on_device<int32_t> members(std::vector<int32_t>(p.members, p.members + p.n_members)),
        splits(std::vector<int32_t>(p.n_splits, p.n_splits + n)), pos(rows.pos), seq(rows.seq),
        table(c.table);
    struct attend_maps maps;
    struct attend_args a = {};
    a.kv = c.view, a.kv.layer = bytes.p;
    cudaError_t code = attend_maps_make(&maps, a.kv, c.n_blocks, LAYERS, c.layer_bytes);
    if (code == cudaErrorInvalidDeviceFunction) return false;
    CHECK_INT(code, cudaSuccess);
    a.maps = &maps, a.layer = LAYER, a.kv.layer += LAYER * c.layer_bytes;
    a.rows = {pos.p, seq.p, table.p, c.stride, NULL, NULL, NULL};
    a.members = members.p, a.n_splits = splits.p, a.splits_max = p.splits_max, a.n_heads = n_heads;
    a.window = s.window, a.softcap = s.softcap, a.scale = (float)(1 / sqrt(s.dim));
    a.q = dq.p, a.out = dout.p, a.part_o = part.p, a.part_stats = stats.p;
    CHECK_INT(launch_attention(a, {few.p, big.p, p.n_few, p.n_many}, n, NULL), cudaSuccess);
    CHECK_INT(cudaDeviceSynchronize(), cudaSuccess);
    *out = dout.get();
    return true;
}

static std::vector<double> expected(const scene &s, const cache &c, size_t seq, int pos,
                                    const float *q, int head)
{
    int from = s.window && pos + 1 > s.window ? pos + 1 - s.window : 0;
    std::vector<double> score, out((size_t)s.dim, 0.0);
    double most = -1e300, sum = 0;
    for (int t = from; t <= pos; t++) {
        const float *k = &c.k[c.at(s, seq, t, head / s.group)];
        double x = 0;
        for (int i = 0; i < s.dim; i++)
            x += (double)k[i] * q[i];
        x /= sqrt(s.dim);
        if (s.softcap > 0) x = s.softcap * tanh(x / s.softcap);
        score.push_back(x), most = std::max(most, x);
    }
    for (double &x : score)
        sum += x = exp(x - most);
    for (size_t t = 0; t < score.size(); t++)
        for (int i = 0; i < s.dim; i++)
            out[(size_t)i] +=
                score[t] / sum * c.v[c.at(s, seq, from + (int)t, head / s.group) + (size_t)i];
    return out;
}

/* f16: queries and weights are rounded to 2^-11; values reach 3 */
static void check(const scene &s)
{
    cache c(s);
    steps rows(s);
    int n_heads = s.group * N_KV;
    size_t width = (size_t)(n_heads * s.dim);
    auto q = random_values(30, rows.pos.size() * width, 1.0f);
    std::vector<float> got;
    if (!attend(s, c, q, &got)) SKIP("needs compute capability 9.0");
    double worst = 0;
    for (size_t r = 0; r < rows.pos.size(); r += 1 + r % 3)
        for (int h = 0; h < n_heads; h++) {
            size_t at = r * width + (size_t)(h * s.dim);
            auto want = expected(s, c, (size_t)rows.seq[r], rows.pos[r], &q[at], h);
            for (int i = 0; i < s.dim; i++) {
                double off = fabs(want[(size_t)i] - got[at + (size_t)i]);
                worst = std::isnan(got[at + (size_t)i]) ? 1e9 : std::max(worst, off);
            }
        }
    CHECK_AT(worst < 4e-3, "dim %d, blocks of %d, group %d, window %d: off by %g", s.dim,
             s.block_tokens, s.group, s.window, worst);
}

TEST(prompts_and_decoding_rows_beside_them)
{
    check({64, 16, 4, 0, 0, {37, 20, 9}, {20, 1, 9}, 5});
    check({128, 16, 2, 0, 0, {70}, {40}, 5});
}

TEST(blocks_of_every_size_and_ends_inside_of_them)
{
    for (int tokens : {8, 32, 64})
        check({64, tokens, 4, 0, 0, {83}, {17}, 5});
}

TEST(long_contexts_in_splits_windows_and_soft_caps)
{
    check({64, 16, 4, 0, 0, {330}, {18}, 5});
    check({64, 16, 4, 90, 0, {330}, {18}, 5});
    check({64, 16, 4, 0, 5.0f, {65}, {17}, 5});
}

TEST(where_blocks_lie_changes_no_bit)
{
    scene s = {64, 16, 4, 0, 0, {130}, {20}, 5};
    auto q = random_values(30, 20 * 4 * N_KV * 64, 1.0f);
    std::vector<float> first, second;
    if (!attend(s, cache(s), q, &first)) SKIP("needs compute capability 9.0");
    s.seed = 77;
    emu::seed(3);
    attend(s, cache(s), q, &second);
    CHECK(first == second);
}

TEST(caches_and_devices_it_is_not_for_are_refused)
{
    NEEDS_EMULATION();
    struct attend_maps maps;
    on_device<uint8_t> bytes(1 << 16);
    auto made = [&](enum gpu_kv_type type, int dim, int tokens) {
        struct kv_view v = kv_view_of(type, 1, dim, tokens);
        v.layer = bytes.p;
        return attend_maps_make(&maps, v, 2, 1, 2 * v.block_bytes);
    };
    CHECK_INT(made(GPU_KV_F16, 64, 16), cudaSuccess);
    CHECK_INT(made(GPU_KV_INT8, 64, 16), cudaErrorInvalidValue);
    CHECK_INT(made(GPU_KV_F16, 80, 16), cudaErrorInvalidValue);
    CHECK_INT(made(GPU_KV_F16, 64, 4), cudaErrorInvalidValue);
    setenv("CUDA_EMU_CAPABILITY", "8.9", 1);
    CHECK_INT(made(GPU_KV_F16, 64, 16), cudaErrorInvalidDeviceFunction);
    unsetenv("CUDA_EMU_CAPABILITY");
}

TEST_MAIN()
