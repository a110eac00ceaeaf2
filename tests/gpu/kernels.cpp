/* kernels.cpp - bytes a second of each kernel family beside those of a device-to-device copy on the same GPU, as one JSON object a line. Shapes
 * are a decoder's of 8B parameters; weights are random bits with plain scales, for a product's time does not depend on them. */
#include <algorithm>
#include <cstdio>
#include <vector>

#pragma GCC diagnostic ignored "-Wshadow"          /* C names a struct and a function alike */
#pragma GCC diagnostic ignored "-Wunused-variable" /* the harness runs no tests here */
extern "C" {
#include "base/clock.h"
#include "engine/backend/device.h"
}
#include "engine/backend/cuda/attend_maps.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/lt.h"
#include "engine/backend/cuda/moe_launch.h"
#include "tests/unit/cuda/rig.hpp"

enum { WARM = 3, TIMES = 30, N_IN = 4096, N_OUT = 14336 };

/* Milliseconds of one run, the best of TIMES: others only ever slow a machine down. */
template <class F> static double best_ms(F run)
{
    cudaEvent_t from, to;
    float best = 1e9f;
    cudaEventCreate(&from), cudaEventCreate(&to);
    for (int i = 0; i < WARM + TIMES; i++) {
        float ms = 0;
        cudaEventRecord(from, NULL);
        run();
        cudaEventRecord(to, NULL);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&ms, from, to);
        if (i >= WARM && ms < best) best = ms;
    }
    cudaEventDestroy(from), cudaEventDestroy(to);
    return best;
}

static double copy_rate; /* bytes read and written a second */

static void tell(const char *kernel, const char *shape, double bytes, double ms)
{
    double rate = bytes / ms * 1e3;
    printf("{\"kernel\":\"%s\",\"shape\":\"%s\",\"us\":%.2f,\"bytes_per_s\":%.4g,\"share_of_copy\":"
           "%.3f}\n",
           kernel, shape, ms * 1e3, rate, copy_rate > 0 ? rate / copy_rate : 1.0);
}

static void measure_copy()
{
    size_t n = 512u << 20;
    on_device<uint8_t> a(n), b(n);
    double ms = best_ms([&] { cudaMemcpyAsync(b.p, a.p, n, cudaMemcpyDeviceToDevice, NULL); });
    copy_rate = 2.0 * (double)n / ms * 1e3;
    tell("copy", "512 MiB", 2.0 * (double)n, ms);
}

static void measure_products()
{
    for (enum tensor_type t : all_types) {
        struct pack_layout l;
        struct errmsg e = {};
        CHECK_INT(pack_layout_of(t, N_OUT, N_IN, &l, &e), OK);
        on_device<uint8_t> bytes(l.bytes);
        cudaMemset(bytes.p, 0x11, l.bytes);
        struct packed w = {
            bytes.p, bytes.p + l.high_at, bytes.p + l.scale_at, bytes.p + l.super_at, N_OUT, N_IN,
            l.n_runs};
        for (int cols : {1, 4, 8, 16, 64, 256}) {
            size_t n = (size_t)cols * N_IN;
            on_device<int8_t> q(n);
            on_device<float> d(n / 16), s(n / 16), f(n), out((size_t)cols * N_OUT);
            on_device<uint16_t> h(n);
            cudaMemset(q.p, 1, n), cudaMemset(d.p, 0, n / 4), cudaMemset(s.p, 0, n / 4);
            cudaMemset(f.p, 0, n * 4), cudaMemset(h.p, 0, n * 2);
            struct product p = {t, w, q.p, d.p, s.p, f.p, h.p, cols, NULL, false, out.p};
            double ms = best_ms([&] { launch_product(p, NULL); });
            char shape[80];
            snprintf(shape, sizeof shape, "%s %dx%d, %d columns", tensor_type_name((uint32_t)t),
                     N_OUT, N_IN, cols);
            tell("product", shape, (double)l.bytes + (double)cols * (N_IN + 4.0 * N_OUT), ms);
        }
    }
}

/* One product of a mixture of 64 experts, 8 a row: bytes are those of the experts somebody chose. */
static void measure_experts()
{
    enum { EXPERTS = 64, USED = 8, WIDTH = 2048, FF = 1024 };
    for (enum tensor_type t : {TENSOR_Q4_0, TENSOR_Q4_K, TENSOR_Q8_0})
        for (int rows : {1, 8, 64, 512}) {
            struct pack_layout l;
            struct errmsg e = {};
            CHECK_INT(pack_layout_of(t, EXPERTS * FF, WIDTH, &l, &e), OK);
            size_t pairs = (size_t)rows * USED, n = pairs * WIDTH;
            int cols = expert_tile_cols(rows, USED, EXPERTS),
                n_tiles = expert_tiles((int)pairs, EXPERTS, cols);
            on_device<uint8_t> bytes(l.bytes);
            on_device<float> logits(random_values(3, (size_t)rows * EXPERTS, 1)), share(pairs),
                d(n / 16), s(n / 16), out(pairs * FF);
            on_device<int32_t> expert(pairs), row(pairs), place(pairs);
            on_device<struct expert_tile> tiles((size_t)n_tiles);
            on_device<int8_t> q(n);
            on_device<uint16_t> h(n);
            cudaMemset(bytes.p, 0x11, l.bytes), cudaMemset(q.p, 1, n), cudaMemset(h.p, 0, n * 2);
            cudaMemset(d.p, 0, n / 4), cudaMemset(s.p, 0, n / 4);
            auto choose = [&] {
                launch_route({logits.p, EXPERTS, USED, true, 1, expert.p, share.p}, rows, NULL);
                launch_sort(
                    {expert.p, (int)pairs, EXPERTS, USED, row.p, place.p, tiles.p, cols, n_tiles},
                    NULL);
            };
            struct expert_product p = {t,
                                       {bytes.p, bytes.p + l.high_at, bytes.p + l.scale_at,
                                        bytes.p + l.super_at, FF, WIDTH, l.n_runs},
                                       q.p,
                                       d.p,
                                       s.p,
                                       NULL,
                                       h.p,
                                       rows,
                                       tiles.p,
                                       cols,
                                       n_tiles,
                                       out.p};
            choose();
            double chosen = 0, ms = best_ms([&] { launch_expert_product(p, NULL); });
            std::vector<bool> seen(EXPERTS);
            for (int32_t x : expert.get())
                if (!seen[(size_t)x]) seen[(size_t)x] = true, chosen++;
            char shape[80];
            snprintf(shape, sizeof shape, "%s %dx%d, %d rows, %.0f of %d experts",
                     tensor_type_name((uint32_t)t), FF, WIDTH, rows, chosen, EXPERTS);
            tell("experts", shape,
                 (double)l.bytes * chosen / EXPERTS + (double)pairs * (WIDTH + 4.0 * FF), ms);
            if (t == TENSOR_Q4_0)
                tell("choosing experts", shape, (double)rows * EXPERTS * 4, best_ms(choose));
        }
}

/* What cuBLASLt reaches for a long prompt, in each form that prompts are multiplied in. */
static void measure_large_products()
{
    enum { COLS = 2048 };
    static const struct {
        enum lt_kind kind;
        const char *name;
    } all[] = {{LT_F16, "f16"}, {LT_BF16, "bf16"}, {LT_E4M3, "fp8"}, {LT_INT8, "int8"}};
    for (auto &one : all) {
        struct lt *t;
        struct errmsg e = {};
        if (lt_open(&t, one.kind, &e)) {
            fprintf(stderr, "kernels: %s products: %s\n", one.name, e.text);
            continue;
        }
        on_device<uint16_t> w((size_t)N_OUT * N_IN), x((size_t)COLS * N_IN);
        on_device<float> d((size_t)COLS * N_OUT);
        cudaMemset(w.p, 0, w.n * 2), cudaMemset(x.p, 0, x.n * 2);
        struct lt_product p = {one.kind, N_OUT, N_IN, COLS, w.p, x.p, d.p, N_OUT, false};
        cudaError_t code = cudaSuccess;
        double ms = best_ms([&] {
            cudaError_t now = lt_multiply(t, &p, NULL);
            if (now != cudaSuccess) code = now;
        });
        printf("{\"kernel\":\"large product\",\"shape\":\"%s %dx%d, %d "
               "columns\",\"ok\":%s,\"us\":%.2f,"
               "\"flops\":%.4g}\n",
               one.name, N_OUT, N_IN, COLS, code == cudaSuccess ? "true" : "false", ms * 1e3,
               2.0 * N_OUT * N_IN * COLS / ms * 1e3);
        lt_close(t);
    }
}

/* n sequences of `context` tokens, the first `shared` of which are the same blocks; `chunk` rows of each at its end. wide: large tiles by
 * attend_wide.cuh, where the device has the means. */
static void measure_one_attention(enum gpu_kv_type type, int n, int context, int shared,
                                  int chunk = 1, bool wide = false)
{
    enum { HEADS = 32, KV_HEADS = 8, DIM = 128, BLOCK = 16, GROUP = HEADS / KV_HEADS };
    int blocks = context / BLOCK, many = attend_many(DIM);
    struct kv_view kv = kv_view_of(type, KV_HEADS, DIM, BLOCK);
    on_device<uint8_t> layer(kv.block_bytes * (size_t)(blocks * n));
    cudaMemset(layer.p, 0, layer.n);
    kv.layer = layer.p;
    int rows = n * chunk;
    std::vector<int32_t> pos, seq, table;
    std::vector<const int32_t *> tables;
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < chunk; r++)
            seq.push_back(i), pos.push_back(context - chunk + r);
        for (int k = 0; k < blocks; k++)
            table.push_back((k * n + (k < shared / BLOCK ? 0 : i)) % (blocks * n));
    }
    for (int i = 0; i < n; i++)
        tables.push_back(&table[(size_t)(i * blocks)]);
    struct attend_plan p;
    attend_plan_lay(&p, NULL, rows, GROUP, many);
    std::vector<uint64_t> memory(p.bytes / 8 + 2);
    attend_plan_lay(&p, memory.data(), rows, GROUP, many);
    struct attend_rows r = {0,     rows,  pos.data(), seq.data(), NULL,      NULL, tables.data(),
                            BLOCK, GROUP, 0,          many,       shared > 0};
    attend_plan_make(&p, &r);
    on_device<int32_t> dpos(pos), dseq(seq), dtable(table),
        members(std::vector<int32_t>(p.members, p.members + p.n_members)),
        splits(std::vector<int32_t>(p.n_splits, p.n_splits + rows));
    on_device<struct attend_tile> few(std::vector<struct attend_tile>(p.few, p.few + p.n_few)),
        big(std::vector<struct attend_tile>(p.many, p.many + p.n_many));
    size_t vectors = (size_t)rows * HEADS, parts = vectors * (size_t)p.splits_max;
    on_device<float> q(vectors * DIM), part(parts * DIM), stats(parts * 2), out(vectors * DIM);
    cudaMemset(q.p, 0, q.n * 4);
    struct attend_args a = {};
    a.kv = kv, a.rows = {dpos.p, dseq.p, dtable.p, blocks, NULL, NULL, NULL};
    a.members = members.p, a.n_splits = splits.p, a.n_heads = HEADS, a.splits_max = p.splits_max;
    struct attend_maps maps;
    if (wide) {
        cudaError_t code = attend_maps_make(&maps, kv, blocks * n, 1, kv.block_bytes);
        if (code == cudaErrorInvalidDeviceFunction) return;
        CHECK_INT(code, cudaSuccess);
        a.maps = &maps;
    }
    a.scale = 0.088f, a.q = q.p, a.part_o = part.p, a.part_stats = stats.p, a.out = out.p;
    double ms = best_ms([&] {
        CHECK_INT(launch_attention(a, {few.p, big.p, p.n_few, p.n_many}, rows, NULL), cudaSuccess);
    });
    char shape[80];
    snprintf(shape, sizeof shape, "%s KV, %d sequences of %d tokens, %d of them shared",
             type == GPU_KV_F16    ? "f16"
             : type == GPU_KV_INT8 ? "int8"
                                   : "k8v4",
             n, context, shared);
    tell(wide        ? "attention by wgmma"
         : chunk > 1 ? "attention of a prompt"
                     : "attention",
         shape, (double)layer.n / n * (1 + (n - 1) * (1 - (double)shared / context)), ms);
}

static void measure_attention()
{
    for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_INT8, GPU_KV_K8V4})
        for (int n : {1, 16, 64})
            measure_one_attention(type, n, 65536 / n > 4096 ? 4096 : 65536 / n, 0);
    for (int shared : {0, 1536})
        measure_one_attention(GPU_KV_F16, 64, 2048, shared);
    for (bool wide : {false, true})
        measure_one_attention(GPU_KV_F16, 1, 4096, 0, 1024, wide);
}

static void measure_sampling()
{
    enum { VOCAB = 128256 };
    for (int n : {1, 64})
        for (bool filtered : {false, true}) {
            auto values = random_values(3, (size_t)n * VOCAB, 4.0f);
            std::vector<struct sample_params> params((size_t)n);
            for (int i = 0; i < n; i++) {
                params[(size_t)i] = {};
                params[(size_t)i].logits = i, params[(size_t)i].n_top = -1,
                params[(size_t)i].allowed_at = -1;
                params[(size_t)i].repetition = 1, params[(size_t)i].top_p = filtered ? 0.9f : 1.0f;
                params[(size_t)i].temperature = filtered ? 0.8f : 0.0f,
                params[(size_t)i].draw = 0.5;
                params[(size_t)i].top_k = filtered ? 50 : 0;
            }
            on_device<float> logits(values), work(values.size());
            on_device<struct sample_params> dparams(params);
            on_device<int32_t> words(1);
            on_device<struct sample_head> head((size_t)n);
            on_device<struct sample_top> top((size_t)n);
            struct sample_args a = {logits.p, VOCAB,  0,      dparams.p, words.p,
                                    nullptr,  work.p, head.p, top.p};
            double ms = best_ms([&] { launch_sample(a, n, NULL); });
            char shape[80];
            snprintf(shape, sizeof shape, "%s, %d rows of %d",
                     filtered ? "top-k and top-p" : "greedy", n, VOCAB);
            tell("sampling", shape, 8.0 * n * VOCAB, ms);
        }
}

/* KV blocks of an 8B shape through pinned memory, one after the other as swap, disk and disaggregation move them. */
static void measure_block_moves()
{
    enum { BLOCKS = 64 };
    struct kv_options o = {};
    struct errmsg e = {};
    void *device, *kv;
    size_t bytes;
    o.n_layers = 32, o.n_kv_heads = 8, o.head_dim = 128, o.n_blocks = BLOCKS, o.block_tokens = 16;
    if (cuda_device.open(&device, 0, "own", &e) ||
        cuda_device.kv_new(device, &kv, &o, &bytes, &e)) {
        fprintf(stderr, "kernels: %s\n", e.text);
        return;
    }
    std::vector<uint8_t> host(bytes / BLOCKS);
    for (bool down : {true, false}) {
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < WARM; i++) {
            uint64_t start = clock_us();
            for (int b = 0; b < BLOCKS; b++)
                if (down)
                    cuda_device.kv_read(device, kv, b, host.data());
                else
                    cuda_device.kv_write(device, kv, b, host.data());
            cudaDeviceSynchronize();
            best = std::min(best, clock_us() - start);
        }
        tell(down ? "KV block to the host" : "KV block from the host", "32 layers of 8 x 128, f16",
             (double)bytes / BLOCKS, (double)best / BLOCKS / 1e3);
    }
    cuda_device.kv_free(device, kv);
    cuda_device.close(device);
}

int main()
{
    measure_copy();
    measure_products();
    measure_experts();
    measure_large_products();
    measure_attention();
    measure_sampling();
    measure_block_moves();
    cudaError_t code = cudaDeviceSynchronize();
    if (code == cudaSuccess) code = cudaGetLastError();
    if (code == cudaSuccess) return 0;
    fprintf(stderr, "kernels: %s\n", cudaGetErrorString(code));
    return 1;
}
