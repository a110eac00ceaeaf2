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
};

struct machine { /* device arrays of a scene */
    const scene &sc;
    int dims;
    struct kv_view kv;
    on_device<uint8_t> bytes;
    on_device<float> rope;
    on_device<int32_t> table;
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
        std::vector<int32_t> pos, seq;
        for (const row &r : rows) {
            pos.push_back(r.pos), seq.push_back(r.seq);
            const float *kr = &sc.k[sc.at(r.seq, r.pos, 0)], *vr = &sc.v[sc.at(r.seq, r.pos, 0)];
            k.insert(k.end(), kr, kr + width), v.insert(v.end(), vr, vr + width);
        }
        on_device<float> dk(k), dv(v), dq(*q);
        on_device<int32_t> dpos(pos), dseq(seq);
        struct rope_store_args a = {kv,
                                    {rope.p, dims, sc.s.half_split},
                                    {dpos.p, dseq.p, table.p, sc.stride},
                                    sc.s.n_heads,
                                    dq.p,
                                    dk.p,
                                    dv.p};
        launch_rope_store(a, (int)rows.size(), NULL);
        *q = dq.get();
    }
    void store_before(const std::vector<row> &rows)
    {
        std::vector<row> older;
        for (size_t s = 0; s < sc.length.size(); s++) {
            int32_t first = sc.length[s];
            for (const row &r : rows)
                if (r.seq == (int32_t)s) first = std::min(first, r.pos);
            for (int32_t p = 0; p < first; p++)
                older.push_back({(int32_t)s, p});
        }
        if (older.empty()) return;
        std::vector<float> unused(older.size() * (size_t)(sc.s.n_heads * sc.s.dim), 0.0f);
        store(older, &unused);
    }
    std::vector<float> attend(const std::vector<row> &rows, const std::vector<float> &q)
    {
        std::vector<int32_t> pos, seq, splits(rows.size());
        for (const row &r : rows)
            pos.push_back(r.pos), seq.push_back(r.seq);
        int group = sc.s.n_heads / sc.s.n_kv, n = (int)rows.size(), splits_max;
        std::vector<struct attend_tile> tiles((size_t)attend_tiles_max(n, group));
        int n_tiles = attend_plan(n, pos.data(), seq.data(), group, sc.s.window, tiles.data(),
                                  splits.data(), &splits_max);
        CHECK(n_tiles <= (int)tiles.size());
        tiles.resize((size_t)n_tiles);
        size_t vectors = rows.size() * (size_t)sc.s.n_heads;
        on_device<float> dq(q), out(q.size()), part(vectors * (size_t)(splits_max * sc.s.dim)),
            stats(vectors * (size_t)(splits_max * 2));
        on_device<int32_t> dpos(pos), dseq(seq), dsplits(splits);
        on_device<struct attend_tile> dtiles(tiles);
        struct attend_args a = {kv,
                                {dpos.p, dseq.p, table.p, sc.stride},
                                dtiles.p,
                                sc.s.n_heads,
                                sc.s.window,
                                splits_max,
                                (float)(1 / sqrt(sc.s.dim)),
                                sc.s.softcap,
                                dq.p,
                                part.p,
                                stats.p,
                                out.p};
        launch_attention(a, n_tiles, n, dsplits.p, NULL);
        return out.get();
    }
};

static std::vector<double> expected(const scene &sc, const row &r, const float *q, int head)
{
    int kv = head / (sc.s.n_heads / sc.s.n_kv), dim = sc.s.dim;
    int from = sc.s.window && r.pos + 1 > sc.s.window ? r.pos + 1 - sc.s.window : 0;
    std::vector<double> score, out((size_t)dim, 0.0);
    double most = -1e300, sum = 0;
    for (int t = from; t <= r.pos; t++) {
        auto k = turned(&sc.k[sc.at(r.seq, t, kv)], dim, dim / 2 * 2, t, sc.s.half_split);
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
    for (int t = from; t <= r.pos; t++)
        for (int i = 0; i < dim; i++)
            out[(size_t)i] +=
                score[(size_t)(t - from)] / sum * sc.v[sc.at(r.seq, t, kv) + (size_t)i];
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

static void check_attention(const struct shape &s, std::vector<int32_t> lengths,
                            const std::vector<int> &chunk)
{
    scene sc(s, lengths, 5);
    machine m(sc);
    auto rows = last_rows(sc, chunk);
    size_t width = (size_t)(s.n_heads * s.dim);
    auto q = random_values(30, rows.size() * width, 1.0f), before = q;
    m.store_before(rows);
    m.store(rows, &q);
    auto got = m.attend(rows, q);
    /* f16: queries, keys, values and weights are rounded to 2^-11; int8: 1/254 of a head's largest; E4M3: 2^-4 of each value */
    double tolerance = s.type == GPU_KV_F16 ? 4e-3 : s.type == GPU_KV_INT8 ? 2e-2 : 0.12;
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

TEST(windows_and_soft_caps)
{
    check_attention({GPU_KV_F16, 4, 2, 64, 16, 20, 0, false}, {50, 12}, {4, 2});
    check_attention({GPU_KV_F16, 4, 2, 64, 16, 0, 5.0f, false}, {50}, {2});
}

TEST(eight_bit_keys_and_values)
{
    check_attention({GPU_KV_INT8, 4, 2, 64, 16, 0, 0, false}, {37, 20}, {3, 1});
    check_attention({GPU_KV_E4M3, 4, 2, 64, 16, 0, 0, false}, {37, 20}, {3, 1});
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

TEST_MAIN()
