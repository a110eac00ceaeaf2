/* kernels.cpp - bytes a second of each kernel family beside those of a device-to-device copy on the same GPU, and operations a second of
 * products with many columns beside what its multiprocessors could do, as one JSON object a line: `kernels FAMILY`, `kernels --list`. A
 * family a process: a kernel that fails takes the device away from all that come after it in its process. Nothing that a run reads is left
 * in the L2 cache by the run before. Shapes are a decoder's of 8B parameters; a product's time does not depend on the weights' values. */
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
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

enum { WARM = 3, TIMES = 20, N_IN = 4096, N_OUT = 14336, FLUSH_BYTES = 256 << 20 };

/* Milliseconds of one run, the best of TIMES: others only ever slow a machine down. */
template <class F> static double best_ms(F run)
{
    static on_device<uint8_t> flush(FLUSH_BYTES); /* several times any L2 cache */
    cudaEvent_t from, to;
    float best = 1e9f;
    cudaEventCreate(&from), cudaEventCreate(&to);
    for (int i = 0; i < WARM + TIMES; i++) {
        float ms = 0;
        cudaMemsetAsync(flush.p, i, FLUSH_BYTES, NULL);
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
static double peak_rate; /* operations a second; 0: not known */

/* A family whose kernel failed ends here. */
static void check_device(const char *kernel, const char *shape)
{
    cudaError_t code = cudaDeviceSynchronize(), last = cudaGetLastError();
    if (code == cudaSuccess) code = last;
    if (code == cudaSuccess) return;
    printf("{\"kernel\":\"%s\",\"shape\":\"%s\",\"error\":\"%s\"}\n", kernel, shape,
           cudaGetErrorString(code));
    fprintf(stderr, "kernels: %s, %s: %s\n", kernel, shape, cudaGetErrorString(code));
    exit(1);
}

static void tell(const char *kernel, const char *shape, double bytes, double ms,
                 double operations = 0)
{
    double rate = bytes / ms * 1e3, flops = operations / ms * 1e3;
    check_device(kernel, shape);
    printf("{\"kernel\":\"%s\",\"shape\":\"%s\",\"us\":%.2f,\"bytes_per_s\":%.4g,"
           "\"share_of_copy\":%.3f",
           kernel, shape, ms * 1e3, rate, copy_rate > 0 ? rate / copy_rate : 1.0);
    if (flops > 0) printf(",\"flops\":%.4g", flops);
    if (flops > 0 && peak_rate > 0) printf(",\"share_of_peak\":%.3f", flops / peak_rate);
    printf("}\n");
    fflush(stdout);
}

/* Of dense products in f16 summed in f32, by clock and multiprocessor: NVIDIA's figures of each architecture. */
static int operations_a_clock(int major, int minor)
{
    if (major == 10) return 8192;
    if (major == 9) return 4096;
    if (major == 8) return minor == 0 ? 2048 : minor == 9 ? 1024 : 512;
    return major == 12 ? 512 : 0;
}

static void find_peak()
{
    struct cudaDeviceProp p;
    int khz = 0;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess ||
        cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0) != cudaSuccess)
        return;
    peak_rate = (double)p.multiProcessorCount * khz * 1e3 * operations_a_clock(p.major, p.minor);
}

static void measure_peak()
{
    printf("{\"kernel\":\"peak\",\"shape\":\"f16 products, by clock and multiprocessors\","
           "\"flops\":%.4g}\n",
           peak_rate);
}

static void measure_copy()
{
    size_t n = 512u << 20;
    on_device<uint8_t> a(n), b(n);
    double ms = best_ms([&] { cudaMemcpyAsync(b.p, a.p, n, cudaMemcpyDeviceToDevice, NULL); });
    copy_rate = 2.0 * (double)n / ms * 1e3;
    check_device("copy", "512 MiB");
}
static void tell_copy()
{
    printf("{\"kernel\":\"copy\",\"shape\":\"512 MiB\",\"bytes_per_s\":%.4g}\n", copy_rate);
}

static void measure_products(const char *type)
{
    for (enum tensor_type t : all_types) {
        if (strcmp(tensor_type_name((uint32_t)t), type)) continue;
        struct pack_layout l;
        struct errmsg e = {};
        CHECK_INT(pack_layout_of(t, N_OUT, N_IN, &l, &e), OK);
        on_device<uint8_t> bytes(l.bytes);
        cudaMemset(bytes.p, 0x11, l.bytes);
        struct packed w = {
            bytes.p, bytes.p + l.high_at, bytes.p + l.scale_at, bytes.p + l.super_at, N_OUT, N_IN,
            l.n_runs};
        for (int cols : {1, 4, 8, 16, 64, 256, 2048}) {
            size_t n = (size_t)cols * N_IN;
            on_device<int8_t> q(n);
            on_device<float> d(n / 16), s(n / 16), f(n), out((size_t)cols * N_OUT);
            on_device<uint16_t> h(n);
            cudaMemset(q.p, 1, n), cudaMemset(d.p, 0, n / 4), cudaMemset(s.p, 0, n / 4);
            cudaMemset(f.p, 0x2c, n * 4), cudaMemset(h.p, 0x2c, n * 2);
            struct product p = {t, w, q.p, d.p, s.p, f.p, h.p, cols, NULL, false, out.p};
            double ms = best_ms([&] { launch_product(p, NULL); });
            char shape[80];
            snprintf(shape, sizeof shape, "%s %dx%d, %d columns", tensor_type_name((uint32_t)t),
                     N_OUT, N_IN, cols);
            tell("product", shape, (double)l.bytes + (double)cols * (N_IN + 4.0 * N_OUT), ms,
                 2.0 * N_IN * N_OUT * cols);
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
        cudaMemset(w.p, 0x3b, w.n * 2), cudaMemset(x.p, 0x2c, x.n * 2); /* zeros need less power */
        struct lt_product p = {one.kind, N_OUT, N_IN, COLS, w.p, x.p, d.p, N_OUT, false};
        cudaError_t code = cudaSuccess;
        double ms = best_ms([&] {
            cudaError_t now = lt_multiply(t, &p, NULL);
            if (now != cudaSuccess) code = now;
        });
        char shape[80];
        snprintf(shape, sizeof shape, "%s %dx%d, %d columns", one.name, N_OUT, N_IN, COLS);
        if (code == cudaSuccess)
            tell("large product", shape, 4.0 * N_OUT * COLS, ms, 2.0 * N_OUT * N_IN * COLS);
        else
            printf("{\"kernel\":\"large product\",\"shape\":\"%s\",\"error\":\"the library takes "
                   "no such product\"}\n",
                   shape);
        lt_close(t);
    }
}

/* Where the KV of a sequence lies: in blocks of 16 tokens here and there, or one after the other; or not in blocks at all. */
enum pages { SCATTERED, IN_ORDER, CONTIGUOUS };
struct attention_shape {
    enum gpu_kv_type type;
    int n, context,
        shared; /* sequences of so many tokens, the first of which are the same blocks */
    int chunk;  /* rows of each, at its end */
    bool wide;  /* large tiles by attend_wide.cuh, where the device has the means */
    enum pages pages;
};

static std::vector<int32_t> tables_of(const struct attention_shape &s, int blocks)
{
    std::vector<int32_t> place((size_t)(blocks * s.n)), table;
    struct rng r;
    rng_seed(&r, 5);
    for (size_t i = 0; i < place.size(); i++)
        place[i] = (int32_t)i;
    for (size_t i = place.size(); i > 1 && s.pages == SCATTERED; i--)
        std::swap(place[i - 1], place[rng_below(&r, i)]);
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < blocks; k++)
            table.push_back(place[(size_t)((k * 16 < s.shared ? 0 : i) * blocks + k)]);
    return table;
}

static void tell_attention(const struct attention_shape &s, double cache_bytes, double ms)
{
    static const char *const pages_of[] = {"", ", blocks in order", ", contiguous"};
    char shape[120];
    double query_tokens = (double)s.n * s.chunk * (s.context - (s.chunk - 1) / 2.0);
    snprintf(shape, sizeof shape, "%s KV, %d sequences of %d tokens, %d of them shared%s",
             s.type == GPU_KV_F16    ? "f16"
             : s.type == GPU_KV_INT8 ? "int8"
                                     : "k8v4",
             s.n, s.context, s.shared, pages_of[s.pages]);
    tell(s.wide        ? "attention by wgmma"
         : s.chunk > 1 ? "attention of a prompt"
                       : "attention",
         shape, cache_bytes / s.n * (1 + (s.n - 1) * (1 - (double)s.shared / s.context)), ms,
         s.chunk > 1 ? 4.0 * 32 * 128 * query_tokens : 0);
}

static void measure_one_attention(const struct attention_shape &s)
{
    enum { HEADS = 32, KV_HEADS = 8, DIM = 128, GROUP = HEADS / KV_HEADS };
    int n = s.n, context = s.context, chunk = s.chunk;
    int block = s.pages == CONTIGUOUS ? context : 16, blocks = context / block,
        many = attend_many(DIM);
    struct kv_view kv = kv_view_of(s.type, KV_HEADS, DIM, block);
    on_device<uint8_t> layer(kv.block_bytes * (size_t)(blocks * n));
    cudaMemset(layer.p, 0x2c, layer.n); /* zeros need less power */
    kv.layer = layer.p;
    int rows = n * chunk;
    std::vector<int32_t> pos, seq, table = tables_of(s, blocks);
    std::vector<const int32_t *> tables;
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < chunk; r++)
            seq.push_back(i), pos.push_back(context - chunk + r);
        tables.push_back(&table[(size_t)(i * blocks)]);
    }
    struct attend_plan p;
    attend_plan_lay(&p, NULL, rows, GROUP, many);
    std::vector<uint64_t> memory(p.bytes / 8 + 2);
    attend_plan_lay(&p, memory.data(), rows, GROUP, many);
    struct attend_rows r = {0,     rows,  pos.data(), seq.data(), NULL,        NULL, tables.data(),
                            block, GROUP, 0,          many,       s.shared > 0};
    attend_plan_make(&p, &r);
    on_device<int32_t> dpos(pos), dseq(seq), dtable(table),
        members(std::vector<int32_t>(p.members, p.members + p.n_members)),
        splits(std::vector<int32_t>(p.n_splits, p.n_splits + rows));
    on_device<struct attend_tile> few(std::vector<struct attend_tile>(p.few, p.few + p.n_few)),
        big(std::vector<struct attend_tile>(p.many, p.many + p.n_many));
    size_t vectors = (size_t)rows * HEADS, parts = vectors * (size_t)p.splits_max;
    on_device<float> q(vectors * DIM), part(parts * DIM), stats(parts * 2), out(vectors * DIM);
    cudaMemset(q.p, 0x3c, q.n * 4);
    struct attend_args a = {};
    a.kv = kv, a.rows = {dpos.p, dseq.p, dtable.p, blocks, NULL, NULL, NULL};
    a.members = members.p, a.n_splits = splits.p, a.n_heads = HEADS, a.splits_max = p.splits_max;
    struct attend_maps maps;
    if (s.wide) {
        cudaError_t code = attend_maps_make(&maps, kv, blocks * n, 1, kv.block_bytes);
        if (code == cudaErrorInvalidDeviceFunction) return;
        CHECK_INT(code, cudaSuccess);
        a.maps = &maps;
    }
    a.scale = 0.088f, a.q = q.p, a.part_o = part.p, a.part_stats = stats.p, a.out = out.p;
    double ms = best_ms([&] {
        CHECK_INT(launch_attention(a, {few.p, big.p, p.n_few, p.n_many}, rows, NULL), cudaSuccess);
    });
    tell_attention(s, (double)layer.n, ms);
}

static void measure_attention()
{
    for (enum gpu_kv_type type : {GPU_KV_F16, GPU_KV_INT8, GPU_KV_K8V4})
        for (int n : {1, 16, 64})
            measure_one_attention(
                {type, n, 65536 / n > 4096 ? 4096 : 65536 / n, 0, 1, false, SCATTERED});
    for (int shared : {0, 1536})
        measure_one_attention({GPU_KV_F16, 64, 2048, shared, 1, false, SCATTERED});
}
/* What paging costs a decoding step. */
static void measure_paging()
{
    for (int n : {1, 64})
        for (enum pages pages : {SCATTERED, IN_ORDER, CONTIGUOUS})
            measure_one_attention({GPU_KV_F16, n, 2048, 0, 1, false, pages});
}
static void measure_prompts()
{
    measure_one_attention({GPU_KV_F16, 1, 4096, 0, 1024, false, SCATTERED});
}
static void measure_wgmma()
{
    measure_one_attention({GPU_KV_F16, 1, 4096, 0, 1024, true, SCATTERED});
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

struct family {
    const char *name;
    void (*measure)();
};
static const struct family families[] = {
    {"peak", measure_peak},           {"copy", tell_copy},
    {"experts", measure_experts},     {"large", measure_large_products},
    {"attention", measure_attention}, {"paging", measure_paging},
    {"prompts", measure_prompts},     {"wgmma", measure_wgmma},
    {"sampling", measure_sampling},   {"blocks", measure_block_moves}};

static int list()
{
    for (const struct family &f : families)
        puts(f.name);
    for (enum tensor_type t : all_types)
        printf("products:%s\n", tensor_type_name((uint32_t)t));
    return 0;
}

int main(int argc, char **argv)
{
    std::string asked = argc == 2 ? argv[1] : "", products = "products:";
    if (asked == "--list") return list();
    find_peak();
    measure_copy();
    for (const struct family &f : families)
        if (asked == f.name) {
            f.measure();
            check_device(f.name, "the end");
            return check_failures != 0;
        }
    if (asked.compare(0, products.size(), products)) {
        fprintf(stderr, "usage: kernels --list | FAMILY\n");
        return 2;
    }
    measure_products(asked.c_str() + products.size());
    return check_failures != 0;
}
