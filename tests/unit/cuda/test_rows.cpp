/* test_rows.cpp - embedding, norms, sums, gathering and KV copies of engine/backend/cuda, in emulation. */
#include "engine/backend/cuda/launch.h"
#include "tests/unit/cuda/rig.hpp"

TEST(embedding_gives_the_exact_values_of_every_type)
{
    enum { N_OUT = 5, N_IN = 256 };
    for (enum tensor_type t : all_types) {
        matrix m(t, N_OUT, N_IN);
        std::vector<int32_t> ids = {4, 0, 4};
        on_device<int32_t> did(ids);
        on_device<float> out(3 * N_IN);
        launch_embed(t, m.view(), did.p, 3, false, out.p, NULL);
        launch_embed(t, m.view(), did.p, 3, true, out.p, NULL);
        auto got = out.get();
        double worst = 0;
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < N_IN; i++) {
                double want = 2.0 * m.exact[(size_t)(ids[(size_t)r] * N_IN + i)];
                worst = fmax(worst, fabs(got[(size_t)(r * N_IN + i)] - want) / (1e-3 + fabs(want)));
            }
        CHECK_AT(worst < 1e-5, "%s is off by %g", tensor_type_name(t), worst);
    }
}

TEST(rows_are_normed_in_place_added_scaled_and_gathered)
{
    for (int n : {16, 100, 300}) {
        auto x = random_values(3, (size_t)(4 * n), 2.0f), w = random_values(4, (size_t)n, 1.0f);
        on_device<float> dx(x), dw(w), added(x), gathered((size_t)(2 * n));
        on_device<int32_t> rows(std::vector<int32_t>{3, 1});
        launch_gather(dx.p, rows.p, 2, n, gathered.p, NULL);
        launch_norm(dx.p, dw.p, 1e-6f, 4, n, dx.p, NULL);
        launch_add(dx.p, (size_t)(4 * n), added.p, NULL);
        launch_scale(0.5f, (size_t)(4 * n), added.p, NULL);
        auto normed = dx.get(), half = added.get(), two = gathered.get();
        CHECK(!memcmp(two.data(), &x[(size_t)(3 * n)], (size_t)n * 4) &&
              !memcmp(&two[(size_t)n], &x[(size_t)n], (size_t)n * 4));
        for (int r = 0; r < 4; r++) {
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += (double)x[(size_t)(r * n + i)] * x[(size_t)(r * n + i)];
            for (int i = 0; i < n; i++) {
                size_t at = (size_t)(r * n + i);
                CHECK_NEAR(normed[at], x[at] / sqrt(sum / n + 1e-6) * w[(size_t)i], 1e-5);
                CHECK_NEAR(half[at], (normed[at] + x[at]) / 2, 1e-6);
            }
        }
    }
}

TEST(the_beginning_of_a_block_is_copied_in_every_layer_and_nothing_else)
{
    for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_INT8}) {
        struct kv_view kv = kv_view_of(type, 2, 32, 8);
        size_t layer = kv.block_bytes * 3;
        std::vector<uint8_t> bytes(2 * layer);
        for (size_t i = 0; i < bytes.size(); i++)
            bytes[i] = (uint8_t)(i * 7 + i / 251);
        on_device<uint8_t> d(bytes);
        kv.layer = d.p;
        launch_kv_copy(kv, 2, layer, 2, 0, 5, NULL);
        auto got = d.get();
        size_t token = 32u * (type == GPU_KV_F16 ? 2 : 1);
        int wrong = 0;
        for (size_t i = 0; i < bytes.size(); i++) {
            size_t in_layer = i % layer, block = in_layer / kv.block_bytes,
                   in_head = in_layer % kv.block_bytes % kv.head_bytes;
            bool k = in_head < kv.v_at && in_head / token < 5,
                 v = in_head >= kv.v_at && in_head < kv.scale_at && (in_head - kv.v_at) / token < 5;
            bool scale =
                in_head >= kv.scale_at && type != GPU_KV_F16 && (in_head - kv.scale_at) / 4 % 8 < 5;
            uint8_t want =
                block == 2 && (k || v || scale) ? bytes[i - 2 * kv.block_bytes] : bytes[i];
            wrong += got[i] != want;
        }
        CHECK_INT(wrong, 0);
    }
}

TEST(tokens_move_in_turn_and_nothing_else_does)
{
    for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_INT8, GPU_KV_K8V4}) {
        struct kv_view kv = kv_view_of(type, 2, 32, 8);
        size_t layer = kv.block_bytes * 3;
        std::vector<uint8_t> want(2 * layer);
        for (size_t i = 0; i < want.size(); i++)
            want[i] = (uint8_t)(i * 7 + i / 251);
        on_device<uint8_t> d(want);
        /* the second reads what the first has written, the third writes where it was read */
        struct kv_move_list list = {3, {{2, 1, 0, 5}, {1, 7, 2, 1}, {0, 5, 1, 0}}};
        kv.layer = d.p;
        launch_kv_move(kv, 2, layer, list, NULL);
        for (int i = 0; i < list.n; i++)
            for (size_t at = 0; at < want.size(); at += layer)
                for (size_t head = 0; head < 2 * kv.head_bytes; head += kv.head_bytes) {
                    struct kv_place m = list.move[i];
                    uint8_t *to = &want[at + head + (size_t)m.dst_block * kv.block_bytes],
                            *from = &want[at + head + (size_t)m.src_block * kv.block_bytes];
                    struct {
                        size_t at;
                        int bytes;
                    } plane[4] = {{0, kv.k_bytes},
                                  {kv.v_at, kv.v_bytes},
                                  {kv.scale_at, 4},
                                  {kv.v_scale_at, kv.v_scale_bytes}};
                    for (int p = 0; p < (type == GPU_KV_F16 ? 2 : 4); p++)
                        memcpy(to + plane[p].at + (size_t)(m.dst_at * plane[p].bytes),
                               from + plane[p].at + (size_t)(m.src_at * plane[p].bytes),
                               (size_t)plane[p].bytes);
                }
        CHECK(d.get() == want);
    }
}

TEST_MAIN()
