/* test_attention.cpp - rope, the paged store and attention of engine/backend/cuda, in emulation, against double arithmetic over the
 * same keys and values. */
#include <algorithm>

#include "engine/backend/cuda/launch.h"
#include "tests/unit/cuda/rig.hpp"

struct shape {
    enum gpu_kv_type type;
    int n_heads, n_kv, dim, block_tokens;
    int window;
    float softcap;
    bool half_split;
};

/* A step: rows of some sequences, each at the end of its own context. */
struct scene {
    struct shape s;
    std::vector<int32_t> length,
        table; /* tokens each sequence has after the step; [n_seqs][stride] */
    int stride, n_blocks;
    std::vector<float> k, v; /* [seq][token][kv][dim], before rope */
    int longest;

    scene(const struct shape &shape, std::vector<int32_t> lengths, uint64_t seed)
        : s(shape), length(lengths)
    {
        longest = *std::max_element(length.begin(), length.end());
        stride = (longest + s.block_tokens - 1) / s.block_tokens;
        n_blocks = stride * (int)length.size();
        for (int i = 0; i < n_blocks; i++)
            table.push_back(i);
        struct rng r;
        rng_seed(&r, seed);
        for (size_t i = table.size(); i > 1; i--)
            std::swap(table[i - 1], table[rng_below(&r, i)]);
        size_t n = length.size() * (size_t)longest * (size_t)(s.n_kv * s.dim);
        k = random_values(21, n, 1.0f);
        v = random_values(22, n, 1.0f);
    }
    size_t at(int seq, int token, int head) const
    {
        return (((size_t)seq * (size_t)longest + (size_t)token) * (size_t)s.n_kv + (size_t)head) *
               (size_t)s.dim;
    }
};

static std::vector<float> rope_table(int pos_max, int dims)
{
    std::vector<float> t;
    for (int p = 0; p < pos_max; p++)
        for (int i = 0; i < dims / 2; i++) {
            double angle = p * pow(10000.0, -2.0 * i / dims);
            t.push_back((float)cos(angle));
            t.push_back((float)sin(angle));
        }
    return t;
}

static std::vector<double> turned(const float *x, int dim, int dims, int pos, bool half_split)
{
    std::vector<double> out(x, x + dim);
    for (int i = 0; i < dims / 2; i++) {
        double angle = pos * pow(10000.0, -2.0 * i / dims), c = cos(angle), s = sin(angle);
        int a = half_split ? i : 2 * i, b = half_split ? i + dims / 2 : 2 * i + 1;
        out[(size_t)a] = x[a] * c - x[b] * s;
        out[(size_t)b] = x[a] * s + x[b] * c;
    }
    return out;
}

struct row {
    int32_t seq, pos;
    int32_t slot = -1, from = 0; /* of a tree of drafts: where it lies, and the first node */
    uint64_t mask = 0;           /* ancestors */
    int32_t at() const { return slot < 0 ? pos : slot; }
};
static bool is_tree(const std::vector<row> &rows)
{
    return !rows.empty() && rows[0].slot >= 0;
}
/* Their numbers on the device. */
struct placed_rows {
    std::vector<int32_t> pos, seq, slot, from;
    std::vector<uint64_t> mask;
    on_device<int32_t> dpos, dseq, dslot, dfrom;
    on_device<uint64_t> dmask;
    template <class T, class F> static std::vector<T> all(const std::vector<row> &rows, F f)
    {
        std::vector<T> v;
        for (const row &r : rows)
            v.push_back(f(r));
        return v;
    }
    explicit placed_rows(const std::vector<row> &r)
        : pos(all<int32_t>(r, [](const row &x) { return x.pos; })),
          seq(all<int32_t>(r, [](const row &x) { return x.seq; })),
          slot(all<int32_t>(r, [](const row &x) { return x.at(); })),
          from(all<int32_t>(r, [](const row &x) { return x.from; })),
          mask(all<uint64_t>(r, [](const row &x) { return x.mask; })), dpos(pos), dseq(seq),
          dslot(slot), dfrom(from), dmask(mask)
    {
    }
    struct rows_view view(const int32_t *table, int stride, bool tree) const
    {
        return {dpos.p,
                dseq.p,
                table,
                stride,
                tree ? dslot.p : NULL,
                tree ? dfrom.p : NULL,
                tree ? dmask.p : NULL};
    }
};

struct machine { /* device arrays of a scene */
    const scene &sc;
    int dims;
    struct kv_view kv;
    on_device<uint8_t> bytes;
    on_device<float> rope;
    on_device<int32_t> table;
    const on_device<float> *spread = nullptr;
    cudaError_t code = cudaSuccess; /* what attention answers */
    machine(const scene &of)
        : sc(of), dims(of.s.dim / 2 * 2),
          kv(kv_view_of(of.s.type, of.s.n_kv, of.s.dim, of.s.block_tokens)),
          bytes(kv.block_bytes * (size_t)of.n_blocks), rope(rope_table(of.longest, dims)),
          table(of.table)
    {
        kv.layer = bytes.p;
    }
    /* Stores keys and values of these rows; q is turned. */
    void store(const std::vector<row> &rows, std::vector<float> *q)
    {
        size_t width = (size_t)(sc.s.n_kv * sc.s.dim);
        std::vector<float> k, v;
        for (const row &r : rows) {
            const float *kr = &sc.k[sc.at(r.seq, r.at(), 0)], *vr = &sc.v[sc.at(r.seq, r.at(), 0)];
            k.insert(k.end(), kr, kr + width), v.insert(v.end(), vr, vr + width);
        }
        placed_rows placed(rows);
        on_device<float> dk(k), dv(v), dq(*q);
        struct rope_store_args a = {kv,
                                    {rope.p, dims, sc.s.half_split},
                                    placed.view(table.p, sc.stride, is_tree(rows)),
                                    sc.s.n_heads,
                                    dq.p,
                                    dk.p,
                                    dv.p,
                                    spread ? spread->p : NULL};
        launch_rope_store(a, (int)rows.size(), NULL);
        *q = dq.get();
    }
    void store_before(const std::vector<row> &rows)
    {
        std::vector<row> older;
        for (size_t s = 0; s < sc.length.size(); s++) {
            int32_t first = sc.length[s];
            for (const row &r : rows)
                if (r.seq == (int32_t)s) first = std::min(first, r.at());
            for (int32_t p = 0; p < first; p++)
                older.push_back({(int32_t)s, p});
        }
        if (older.empty()) return;
        std::vector<float> unused(older.size() * (size_t)(sc.s.n_heads * sc.s.dim), 0.0f);
        store(older, &unused);
    }
    /* Rows first..first+n-1 into out; the scratch holds their parts alone. */
    void attend_some(const std::vector<row> &rows, struct attend_args a, int first, int n)
    {
        int group = sc.s.n_heads / sc.s.n_kv, many = attend_many(sc.s.dim);
        struct attend_plan p;
        attend_plan_lay(&p, NULL, n, group, many);
        std::vector<uint64_t> memory(p.bytes / 8 + 2); /* tiles are copied with their padding */
        attend_plan_lay(&p, memory.data(), n, group, many);
        std::vector<const int32_t *> tables;
        for (size_t i = 0; i < sc.length.size(); i++)
            tables.push_back(&sc.table[i * (size_t)sc.stride]);
        placed_rows placed(rows);
        struct attend_rows r = {first,
                                n,
                                &placed.pos[(size_t)first],
                                &placed.seq[(size_t)first],
                                is_tree(rows) ? &placed.from[(size_t)first] : NULL,
                                is_tree(rows) ? &placed.mask[(size_t)first] : NULL,
                                tables.data(),
                                sc.s.block_tokens,
                                group,
                                sc.s.window,
                                many,
                                share};
        attend_plan_make(&p, &r);
        CHECK(p.n_few <= p.few_max && p.n_many <= p.many_max && p.n_members <= p.members_max);
        n_members = p.n_members, n_read = 0;
        for (int i = 0; i < p.n_few; i++)
            n_read += p.few[i].to - p.few[i].from;
        for (int i = 0; i < p.n_many; i++)
            n_read += p.many[i].to - p.many[i].from;
        size_t parts = (size_t)(n * sc.s.n_heads * p.splits_max);
        on_device<float> part(parts * (size_t)sc.s.dim), stats(parts * 2);
        on_device<struct attend_tile> few(std::vector<struct attend_tile>(p.few, p.few + p.n_few)),
            big(std::vector<struct attend_tile>(p.many, p.many + p.n_many));
        on_device<int32_t> members(std::vector<int32_t>(p.members, p.members + p.n_members)),
            splits(std::vector<int32_t>(p.n_splits, p.n_splits + n));
        a.rows = placed.view(table.p, sc.stride, is_tree(rows));
        a.members = members.p, a.n_splits = splits.p, a.splits_max = p.splits_max;
        a.part_o = part.p, a.part_stats = stats.p;
        a.first_vector = (size_t)(first * sc.s.n_heads);
        CHECK_INT(launch_attention(a, {few.p, big.p, p.n_few, p.n_many}, n, NULL), code);
        cudaDeviceSynchronize();
    }
    bool share = true;
    int n_members = 0,
        n_read = 0; /* of the last plan: rows in shared tiles; tokens read for a KV head */
    std::vector<float> attend(const std::vector<row> &rows, const std::vector<float> &q)
    {
        on_device<float> dq(q), out(q.size()), again(q.size());
        struct attend_args a = {};
        a.kv = kv, a.n_heads = sc.s.n_heads, a.window = sc.s.window;
        a.scale = (float)(1 / sqrt(sc.s.dim)), a.softcap = sc.s.softcap, a.q = dq.p,
        a.out = again.p;
        int n = (int)rows.size(), half = n / 2;
        if (half) attend_some(rows, a, 0, half);
        attend_some(rows, a, half, n - half);
        a.out = out.p;
        attend_some(rows, a, 0, n);
        auto whole = out.get(), parts = again.get(); /* the same in two turns */
        CHECK(!memcmp(parts.data(), whole.data(), whole.size() * sizeof(float)));
        return whole;
    }
};

static std::vector<double> expected(const scene &sc, const row &r, const float *q, int head)
{
    int kv = head / (sc.s.n_heads / sc.s.n_kv), dim = sc.s.dim;
    int from = sc.s.window && r.pos + 1 > sc.s.window ? r.pos + 1 - sc.s.window : 0;
    std::vector<double> score, out((size_t)dim, 0.0);
    double most = -1e300, sum = 0;
    std::vector<std::pair<int, int>> seen; /* place, position */
    for (int t = from; t <= r.pos && (r.slot < 0 || t < r.from); t++)
        seen.push_back({t, t});
    for (int i = 0, depth = 0; i < 64; i++)
        if (r.mask >> i & 1) seen.push_back({r.from + i, r.from + depth++});
    for (auto [t, pos] : seen) {
        auto k = turned(&sc.k[sc.at(r.seq, t, kv)], dim, dim / 2 * 2, pos, sc.s.half_split);
        double s = 0;
        for (int i = 0; i < dim; i++)
            s += k[(size_t)i] * q[i];
        s /= sqrt(dim);
        if (sc.s.softcap > 0) s = sc.s.softcap * tanh(s / sc.s.softcap);
        score.push_back(s);
        most = std::max(most, s);
    }
    for (double &s : score)
        sum += s = exp(s - most);
    for (size_t t = 0; t < seen.size(); t++)
        for (int i = 0; i < dim; i++)
            out[(size_t)i] += score[t] / sum * sc.v[sc.at(r.seq, seen[t].first, kv) + (size_t)i];
    return out;
}

/* The rows of a step: the last of sequence i as many as chunk[i]. */
static std::vector<row> last_rows(const scene &sc, const std::vector<int> &chunk)
{
    std::vector<row> rows;
    for (size_t s = 0; s < sc.length.size(); s++)
        for (int32_t p = sc.length[s] - chunk[s]; p < sc.length[s]; p++)
            rows.push_back({(int32_t)s, p});
    return rows;
}

static void check_rows(scene &sc, const std::vector<row> &rows)
{
    const struct shape &s = sc.s;
    machine m(sc);
    size_t width = (size_t)(s.n_heads * s.dim);
    auto q = random_values(30, rows.size() * width, 1.0f), before = q;
    m.store_before(rows);
    m.store(rows, &q);
    auto got = m.attend(rows, q);
    /* f16: queries, keys, values and weights are rounded to 2^-11; int8: 1/254 of a head's largest; k8v4: V is off by at
     * most 1/30 of a group's range, 6 here */
    static const double tolerance_of[] = {4e-3, 2e-2, 0.22};
    double tolerance = tolerance_of[s.type];
    double worst = 0, worst_q = 0;
    for (size_t r = 0; r < rows.size(); r++)
        for (int h = 0; h < s.n_heads; h++) {
            size_t at = r * width + (size_t)(h * s.dim);
            auto want_q = turned(&before[at], s.dim, s.dim / 2 * 2, rows[r].pos, s.half_split);
            auto want = expected(sc, rows[r], &q[at], h);
            for (int i = 0; i < s.dim; i++) {
                worst_q = std::max(worst_q, fabs(want_q[(size_t)i] - q[at + (size_t)i]));
                double off = fabs(want[(size_t)i] - got[at + (size_t)i]);
                worst = std::isnan(got[at + (size_t)i]) ? 1e9 : std::max(worst, off);
            }
        }
    CHECK_AT(worst_q < 1e-4 && worst < tolerance,
             "type %d heads %d/%d dim %d block %d window %d: q off by %g, out by %g", s.type,
             s.n_heads, s.n_kv, s.dim, s.block_tokens, s.window, worst_q, worst);
}

static void check_attention(const struct shape &s, std::vector<int32_t> lengths,
                            const std::vector<int> &chunk)
{
    scene sc(s, lengths, 5);
    check_rows(sc, last_rows(sc, chunk));
}

TEST(decoding_rows_of_several_sequences)
{
    check_attention({GPU_KV_F16, 8, 2, 64, 16, 0, 0, false}, {1, 17, 40, 16}, {1, 1, 1, 1});
    check_attention({GPU_KV_F16, 9, 3, 64, 8, 0, 0, true}, {33, 5}, {1, 1});
}

TEST(prompt_chunks_beside_decoding_rows)
{
    check_attention({GPU_KV_F16, 4, 2, 64, 16, 0, 0, false}, {37, 20, 9}, {13, 1, 9});
}

TEST(one_head_a_group_many_heads_a_group_and_odd_head_sizes)
{
    check_attention({GPU_KV_F16, 2, 2, 128, 16, 0, 0, true}, {21}, {3});
    check_attention({GPU_KV_F16, 20, 1, 80, 16, 0, 0, false}, {19}, {2});
    check_attention({GPU_KV_F16, 4, 1, 256, 16, 0, 0, true}, {18}, {2});
}

/* A block may have 99 KiB of shared memory on compute capability 8.6, 8.9 and 12.x, 163 KiB on 8.0. */
TEST(every_head_size_fits_the_shared_memory_of_every_device)
{
    NEEDS_EMULATION();
    for (const char *capability : {"8.0", "8.9", "12.0"}) {
        setenv("CUDA_EMU_CAPABILITY", capability, 1);
        check_attention({GPU_KV_F16, 4, 1, 256, 16, 0, 0, true}, {150, 20}, {9, 1});
        check_attention({GPU_KV_K8V4, 4, 1, 256, 16, 0, 0, true}, {150, 20}, {9, 1});
        check_attention({GPU_KV_F16, 4, 1, 128, 16, 0, 0, true}, {150, 20}, {9, 1});
    }
    unsetenv("CUDA_EMU_CAPABILITY");
    CHECK_INT(cudaGetLastError(), cudaSuccess);
}

/* What a device does not have is told, not left out: here one with less than is asked for anywhere. */
TEST(a_kernel_that_does_not_fit_the_device_is_told)
{
    NEEDS_EMULATION();
    scene sc({GPU_KV_F16, 4, 1, 256, 16, 0, 0, true}, {20}, 5);
    machine m(sc);
    setenv("CUDA_EMU_CAPABILITY", "7.0", 1);
    m.code = cudaErrorInvalidValue;
    m.attend(last_rows(sc, {1}), random_values(30, 4 * 256, 1.0f));
    unsetenv("CUDA_EMU_CAPABILITY");
    CHECK_INT(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(windows_and_soft_caps)
{
    check_attention({GPU_KV_F16, 4, 2, 64, 16, 20, 0, false}, {50, 12}, {4, 2});
    check_attention({GPU_KV_F16, 4, 2, 64, 16, 0, 5.0f, false}, {50}, {2});
}

TEST(eight_bit_keys_and_values)
{
    check_attention({GPU_KV_INT8, 4, 2, 64, 16, 0, 0, false}, {37, 20}, {3, 1});
}

TEST(keys_in_eight_and_values_in_four_bits)
{
    check_attention({GPU_KV_K8V4, 4, 2, 64, 16, 0, 0, false}, {37, 20}, {3, 1});
    check_attention({GPU_KV_K8V4, 4, 1, 80, 16, 0, 0, true}, {21, 9}, {2, 1});
    check_attention({GPU_KV_K8V4, 2, 1, 256, 8, 0, 0, false}, {18}, {2});
}

TEST(eight_bits_take_half_the_memory_and_eight_and_four_two_fifths)
{
    for (int dim : {64, 128}) {
        double wide = (double)kv_view_of(GPU_KV_F16, 2, dim, 16).block_bytes;
        CHECK((double)kv_view_of(GPU_KV_INT8, 2, dim, 16).block_bytes / wide < 0.54);
        CHECK((double)kv_view_of(GPU_KV_K8V4, 2, dim, 16).block_bytes / wide < 0.43);
    }
}

/* A constant V comes back as the average of equal values: a group whose range is nothing divides by nothing. */
TEST(values_that_are_all_alike_in_a_group_lose_nothing_in_four_bits)
{
    struct shape s = {GPU_KV_K8V4, 2, 1, 64, 16, 0, 0, false};
    scene sc(s, {20}, 5);
    std::fill(sc.v.begin(), sc.v.end(), -1.5f);
    machine m(sc);
    auto rows = last_rows(sc, {1});
    auto q = random_values(30, 128, 1.0f);
    m.store_before(rows);
    m.store(rows, &q);
    for (float x : m.attend(rows, q))
        CHECK(fabsf(x + 1.5f) < 1e-3f); /* weights are f16: 2^-11 */
}

/* Channels of K a hundred times larger than the others take all of a scale; divided by their size they do not. */
TEST(a_spread_of_k_changes_no_score_and_keeps_small_channels)
{
    struct shape s = {GPU_KV_INT8, 4, 2, 64, 16, 0, 0, false};
    std::vector<float> size(2 * 64, 1.0f);
    for (size_t i : {0u, 1u, 70u, 71u})
        size[i] = 100;
    double off[2];
    for (int with = 0; with < 2; with++) {
        scene sc(s, {40}, 5);
        for (size_t i = 0; i < sc.k.size(); i++)
            sc.k[i] *= size[i % size.size()];
        machine m(sc);
        on_device<float> spread(size);
        auto rows = last_rows(sc, {1});
        auto q = random_values(30, 4 * 64, 1.0f);
        for (size_t i = 0; i < q.size(); i++) /* scores stay of the order of one */
            q[i] /= size[i / 128 * 64 + i % 64];
        auto before = q;
        m.spread = with ? &spread : nullptr;
        m.store_before(rows);
        m.store(rows, &q);
        auto got = m.attend(rows, q);
        off[with] = 0;
        for (int h = 0; h < 4; h++) {
            auto turned_q = turned(&before[(size_t)h * 64], 64, 64, 39, false);
            std::vector<float> plain(turned_q.begin(), turned_q.end());
            auto want = expected(sc, rows[0], plain.data(), h);
            for (size_t i = 0; i < 64; i++)
                off[with] = std::max(off[with], fabs(want[i] - got[(size_t)h * 64 + i]));
        }
    }
    CHECK_AT(off[1] < 2e-2 && off[0] > 5 * off[1], "off by %g without and %g with", off[0], off[1]);
}

TEST(long_contexts_are_split_and_merged)
{
    check_attention({GPU_KV_F16, 2, 1, 64, 16, 0, 0, false}, {1100, 20, 513}, {1, 1, 2});
    check_attention({GPU_KV_F16, 2, 1, 64, 16, 600, 0, false}, {1100}, {1});
}

TEST(a_row_does_not_depend_on_the_batch_or_on_where_its_blocks_lie)
{
    struct shape s = {GPU_KV_F16, 4, 2, 64, 16, 0, 0, false};
    std::vector<float> first;
    for (int pass = 0; pass < 3; pass++) {
        scene sc(s, {600, 30}, (uint64_t)(100 + pass));
        machine m(sc);
        emu::seed((uint64_t)pass);
        auto rows = last_rows(sc, pass == 1 ? std::vector<int>{3, 2} : std::vector<int>{3, 0});
        auto q = random_values(31, 3 * 4 * 64, 1.0f), more = random_values(32, 2 * 4 * 64, 1.0f);
        if (pass == 1) q.insert(q.end(), more.begin(), more.end());
        m.store_before(rows);
        m.store(rows, &q);
        auto out = m.attend(rows, q);
        out.resize(3 * 4 * 64);
        if (!pass) first = out;
        CHECK(!memcmp(first.data(), out.data(), out.size() * 4));
    }
}

TEST(a_chunk_of_one_row_at_a_time_gives_the_same_bits)
{
    struct shape s = {GPU_KV_F16, 4, 2, 64, 16, 0, 0, false};
    scene sc(s, {40}, 7);
    machine m(sc);
    auto rows = last_rows(sc, {6});
    auto q = random_values(33, 6 * 4 * 64, 1.0f);
    m.store_before(rows);
    m.store(rows, &q);
    auto together = m.attend(rows, q);
    for (size_t i = 0; i < rows.size(); i++) {
        std::vector<float> one(q.begin() + (long)(i * 256), q.begin() + (long)((i + 1) * 256));
        auto alone = m.attend({rows[i]}, one);
        CHECK(!memcmp(alone.data(), &together[i * 256], 256 * 4));
    }
}

/* Sequence i begins with the same `shared[i]` tokens, in the same blocks, as sequence 0. */
static void share_prefix(scene *sc, const std::vector<int> &shared)
{
    size_t width = (size_t)(sc->s.n_kv * sc->s.dim);
    for (size_t i = 1; i < shared.size(); i++) {
        std::copy_n(sc->table.begin(), shared[i] / sc->s.block_tokens,
                    sc->table.begin() + (long)i * sc->stride);
        for (auto *x : {&sc->k, &sc->v})
            std::copy_n(x->begin(), (size_t)shared[i] * width,
                        x->begin() + (long)sc->at((int)i, 0, 0));
    }
}

TEST(a_shared_prefix_is_read_once_and_changes_no_bit)
{
    static const struct {
        struct shape s;
        std::vector<int32_t> lengths;
        std::vector<int> shared, chunk;
        int alone, together; /* tokens read a KV head */
    } all[] = {
        /* one level, the last sequence a stranger */
        {{GPU_KV_F16, 8, 2, 64, 16, 0, 0, false},
         {300, 310, 260, 290},
         {300, 256, 256, 0},
         {1, 1, 1, 1},
         1160,
         256 + 44 + 54 + 4 + 290},
        /* two levels: three share 256 tokens, two of them 512 */
        {{GPU_KV_INT8, 4, 2, 64, 16, 0, 0, true},
         {560, 530, 300},
         {560, 512, 256},
         {1, 1, 1},
         1390,
         256 + 256 + 48 + 18 + 44},
        /* drafts that are checked, several rows a sequence; 48 vectors */
        {{GPU_KV_K8V4, 8, 1, 128, 16, 0, 0, false},
         {300, 310},
         {300, 272},
         {3, 3},
         610,
         256 + 44 + 54},
        {{GPU_KV_F16, 4, 1, 256, 16, 0, 0, false},
         {270, 300},
         {270, 256},
         {1, 2},
         570,
         256 + 14 + 44},
        /* a window: those that no longer see the beginning do not share it */
        {{GPU_KV_F16, 4, 2, 64, 16, 280, 0, false},
         {560, 276, 270, 280},
         {560, 256, 256, 256},
         {1, 1, 1, 1},
         304 + 276 + 270 + 280,
         304 + 256 + 20 + 14 + 24},
    };
    for (auto &c : all) {
        scene sc(c.s, c.lengths, 5);
        share_prefix(&sc, c.shared);
        machine m(sc);
        auto rows = last_rows(sc, c.chunk);
        auto q = random_values(30, rows.size() * (size_t)(c.s.n_heads * c.s.dim), 1.0f);
        m.store_before(rows);
        m.store(rows, &q);
        m.share = false;
        auto alone = m.attend(rows, q);
        CHECK_INT(m.n_members, 0);
        int n_alone = m.n_read;
        m.share = true;
        for (uint64_t seed : {1u, 2u}) {
            emu::seed(seed);
            auto together = m.attend(rows, q);
            CHECK(!memcmp(alone.data(), together.data(), alone.size() * 4));
        }
        CHECK_INT(m.n_read, c.together);
        CHECK_INT(n_alone, c.alone);
        check_rows(sc, rows);
    }
}

/* Forty sequences behind one prompt: more than one tile of 64 vectors, in any order of rows. */
TEST(many_sequences_share_in_several_tiles)
{
    struct shape s = {GPU_KV_F16, 2, 1, 64, 16, 0, 0, false};
    scene sc(s, std::vector<int32_t>(40, 264), 5);
    share_prefix(&sc, std::vector<int>(40, 256));
    machine m(sc);
    auto rows = last_rows(sc, std::vector<int>(40, 1));
    auto q = random_values(30, rows.size() * 128, 1.0f);
    m.store_before(rows);
    m.store(rows, &q);
    auto got = m.attend(rows, q);
    CHECK_INT(m.n_members, 40);
    CHECK_INT(m.n_read, 2 * 256 + 40 * 8); /* 80 vectors: two tiles */
    std::vector<row> turned_round(rows.rbegin(), rows.rend());
    std::vector<float> q_round;
    for (size_t i = rows.size(); i-- > 0;)
        q_round.insert(q_round.end(), q.begin() + (long)i * 128, q.begin() + (long)(i + 1) * 128);
    auto other = m.attend(turned_round, q_round);
    for (size_t i = 0; i < rows.size(); i++)
        CHECK(!memcmp(&got[i * 128], &other[(rows.size() - 1 - i) * 128], 512));
}

/* Nodes of a tree behind `base` tokens of sequence `seq`: parent[i] < i, or -1. */
static void add_tree(std::vector<row> *rows, int seq, int base, const std::vector<int> &parent)
{
    std::vector<row> nodes;
    for (size_t i = 0; i < parent.size(); i++) {
        row r = {(int32_t)seq, base, base + (int32_t)i, base, 1ull << i};
        if (parent[i] >= 0) {
            r.pos = nodes[(size_t)parent[i]].pos + 1;
            r.mask |= nodes[(size_t)parent[i]].mask;
        }
        nodes.push_back(r);
    }
    rows->insert(rows->end(), nodes.begin(), nodes.end());
}

TEST(nodes_of_a_tree_see_their_ancestors_alone)
{
    const std::vector<int> tree = {-1, 0, 0, 1, 1, 2, -1, 6, 3, 0}, chain = {-1, 0, 1};
    for (auto [base, window] : {std::pair<int, int>{20, 0}, {509, 0}, {300, 100}})
        for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_K8V4}) {
            scene sc({type, 4, 2, 64, 16, window, 0, false}, {base + 10, 33}, 5);
            std::vector<row> rows;
            add_tree(&rows, 0, base, tree);
            add_tree(&rows, 1, 30, chain);
            check_rows(sc, rows);
        }
}

TEST(a_chain_of_drafts_told_as_a_tree_gives_the_bits_of_ordinary_rows)
{
    scene sc({GPU_KV_F16, 4, 2, 64, 16, 0, 0, false}, {260}, 5);
    machine m(sc);
    auto rows = last_rows(sc, {6});
    std::vector<row> nodes;
    add_tree(&nodes, 0, 254, {-1, 0, 1, 2, 3, 4});
    auto q = random_values(30, 6 * 256, 1.0f), again = q;
    m.store_before(rows);
    m.store(rows, &q);
    auto plain = m.attend(rows, q);
    m.store(nodes, &again);
    CHECK(q == again);
    auto as_tree = m.attend(nodes, again);
    CHECK(!memcmp(plain.data(), as_tree.data(), plain.size() * 4));
}

/* The same tokens as a chain in a sequence of their own: with the tree across two splits, a window, and rounded values. */
TEST(a_node_has_the_bits_of_the_last_row_of_its_chain)
{
    struct rng r;
    rng_seed(&r, 12);
    for (auto [base, window] : {std::pair<int, int>{20, 0}, {250, 0}, {509, 0}, {255, 100}})
        for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_INT8}) {
            enum { NODES = 12, WIDTH = 6 * 64, KV_WIDTH = 2 * 64 };
            scene sc({type, 6, 2, 64, 16, window, 0, false}, {base + NODES, base + NODES}, 5);
            machine m(sc);
            std::vector<int> parent;
            for (int i = 0; i < NODES; i++)
                parent.push_back(i && rng_below(&r, 2) ? i - 1
                                                       : (int)rng_below(&r, (uint64_t)i + 1) - 1);
            std::vector<row> nodes, before;
            add_tree(&nodes, 0, base, parent);
            auto copy = [&](int to, int from) { /* a token of the tree to one of the chain */
                                                for (auto *x : {&sc.k, &sc.v})
                                                    std::copy_n(&(*x)[sc.at(0, from, 0)], KV_WIDTH,
                                                                &(*x)[sc.at(1, to, 0)]);
            };
            for (int p = 0; p < base; p++)
                copy(p, p), before.push_back({0, p}), before.push_back({1, p});
            std::vector<float> unused(before.size() * WIDTH, 0.0f);
            m.store(before, &unused);
            auto raw = random_values(40, NODES * WIDTH, 1.0f), q = raw;
            m.store(nodes, &q);
            auto got = m.attend(nodes, q);
            for (int i = 0; i < NODES; i++) {
                std::vector<row> chain, last;
                for (int k = i; k >= 0; k = parent[(size_t)k])
                    copy(nodes[(size_t)k].pos, base + k);
                for (int p = base; p <= nodes[(size_t)i].pos; p++)
                    chain.push_back({1, p});
                std::vector<float> cq(chain.size() * WIDTH, 0.0f);
                std::copy_n(&raw[(size_t)i * WIDTH], WIDTH, &cq[(chain.size() - 1) * WIDTH]);
                m.store(chain, &cq);
                auto one = m.attend({chain.back()}, std::vector<float>(cq.end() - WIDTH, cq.end()));
                CHECK(!memcmp(&got[(size_t)i * WIDTH], one.data(), WIDTH * 4));
            }
        }
}

TEST_MAIN()
