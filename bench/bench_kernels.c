/* bench_kernels.c - speed of the backend's ops on this machine: linear layers per tensor type and batch size (GMAC/s, weight bytes
 * read per second), attention per context. One line a figure with a checksum of the result, so that a faster wrong kernel
 * shows. Usage: bench_kernels [threads] [isa] [name filter]. Best of the repetitions of half a second: machines are shared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/backend/backend.h"

enum { COLS_MAX = 512, LAYERS = 12, BUDGET_MS = 400 };

static uint32_t checksum(const float *x, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        h = (h ^ u) * 16777619u;
    }
    return h;
}

static float *random_values(size_t n, float scale)
{
    struct rng r;
    rng_seed(&r, 1);
    float *x = xmalloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_f64(&r) - 0.5) * scale;
    return x;
}

static struct weight *make_weight(struct backend *be, enum tensor_type t, int n_out, int n_in,
                                  const float *values)
{
    size_t row = tensor_row_bytes(t, n_in);
    uint8_t *bytes = xmalloc(row * (size_t)n_out);
    for (int i = 0; i < n_out; i++)
        quantise_row(t, values + (size_t)(i % 64) * (size_t)n_in, bytes + (size_t)i * row, n_in);
    struct weight *w;
    struct errmsg e = {0};
    if (weight_new(&w, be, t, n_out, n_in, bytes, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.text);
        exit(1);
    }
    mem_free(bytes);
    return w;
}

/* LAYERS different matrices in turn, so that a batch of one reads memory rather than the caches. */
static void bench_linear(struct backend *be, enum tensor_type t, int n_out, int n_in)
{
    float *values = random_values((size_t)64 * (size_t)n_in, 0.1f),
          *x = random_values((size_t)COLS_MAX * (size_t)n_in, 2.0f);
    float *out = xmalloc((size_t)COLS_MAX * (size_t)n_out * 4);
    struct weight *w[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        w[i] = make_weight(be, t, n_out, n_in, values);
    static const int cols[] = {1, 2, 4, 8, 16, 64, 512};
    for (size_t k = 0; k < sizeof cols / sizeof cols[0]; k++) {
        uint64_t best = UINT64_MAX, until = clock_ms() + BUDGET_MS;
        do {
            uint64_t start = clock_us();
            for (int i = 0; i < LAYERS; i++)
                backend_linear(
                    be,
                    &(struct linear){
                        .n_weights = 1, .weight = {w[i]}, .out = {out}, .x = x, .n_rows = cols[k]});
            uint64_t took = clock_us() - start;
            if (took < best) best = took;
        } while (clock_ms() < until);
        double us = (double)best / LAYERS;
        double gmac = (double)n_out * n_in * cols[k] / us / 1e3,
               gbytes = (double)weight_bytes(w[0]) / us / 1e3;
        printf("linear %-5s %5dx%-5d rows %3d  %9.1f us  %7.1f GMAC/s  %6.1f GB/s  checksum %08x\n",
               tensor_type_name((uint32_t)t), n_out, n_in, cols[k], us, gmac, gbytes,
               checksum(out, (size_t)cols[k] * (size_t)n_out));
    }
    for (int i = 0; i < LAYERS; i++)
        weight_free(w[i]);
    mem_free(values), mem_free(x), mem_free(out);
}

static void bench_attention(struct backend *be, int heads, int kv_heads, int context, int n_rows)
{
    enum { HEAD = 64, BLOCK = 16, KV_LAYERS = 8 };
    struct kv *kv;
    struct errmsg e = {0};
    int n_blocks = (context + BLOCK - 1) / BLOCK;
    struct kv_options o = {.n_layers = KV_LAYERS,
                           .n_kv_heads = kv_heads,
                           .head_dim = HEAD,
                           .n_blocks = n_blocks,
                           .block_tokens = BLOCK};
    if (kv_new(&kv, be, &o, &e)) exit(1);
    float *q = random_values((size_t)context * (size_t)(heads * HEAD), 2);
    float *k = random_values((size_t)context * (size_t)(kv_heads * HEAD), 2);
    float *out = xmalloc((size_t)context * (size_t)(heads * HEAD) * 4);
    int32_t *pos = xcalloc((size_t)context, 4), *seq = xcalloc((size_t)context, 4),
            *table = xcalloc((size_t)n_blocks, 4);
    for (int i = 0; i < context; i++)
        pos[i] = i;
    for (int i = 0; i < n_blocks; i++)
        table[i] = i;
    const int32_t *tables = table;
    struct kv_rows rows = {.n_rows = context, .pos = pos, .seq = seq, .block_table = &tables};
    for (int layer = 0; layer < KV_LAYERS; layer++)
        backend_rope_store(
            be, kv, &rows,
            &(struct rope_store){.layer = layer, .n_heads = heads, .q = q, .k = k, .v = k});
    rows.n_rows = n_rows;
    rows.pos += context - n_rows;
    uint64_t best = UINT64_MAX, until = clock_ms() + BUDGET_MS;
    do {
        uint64_t start = clock_us();
        for (int layer = 0; layer < KV_LAYERS; layer++)
            backend_attention(
                be, kv, &rows,
                &(struct attention){
                    .layer = layer, .n_heads = heads, .q = q, .scale = 0.125f, .out = out});
        uint64_t took = clock_us() - start;
        if (took < best) best = took;
    } while (clock_ms() < until);
    double us = (double)best / KV_LAYERS,
           mac = 2.0 * heads * HEAD * n_rows * (context - n_rows / 2.0);
    printf("attention %2d/%d heads context %5d rows %3d  %9.1f us  %7.1f GMAC/s  checksum %08x\n",
           heads, kv_heads, context, n_rows, us, mac / us / 1e3,
           checksum(out, (size_t)(n_rows * heads * HEAD)));
    kv_free(kv);
    mem_free(q), mem_free(k), mem_free(out), mem_free(pos), mem_free(seq), mem_free(table);
}

int main(int argc, char **argv)
{
    struct backend *be;
    struct errmsg e = {0};
    const char *only = argc > 3 ? argv[3] : "";
    struct backend_options o = {.n_threads = argc > 1 ? atoi(argv[1]) : 0,
                                .isa = argc > 2 ? argv[2] : NULL};
    if (backend_open(&be, &o, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.text);
        return 1;
    }
    printf("%s, %d threads\n", backend_isa_name(be), backend_threads(be));
    static const enum tensor_type types[] = {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1,
                                             TENSOR_Q8_0, TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K,
                                             TENSOR_F16,  TENSOR_BF16, TENSOR_F32};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strstr(tensor_type_name((uint32_t)types[i]), only))
            bench_linear(be, types[i], 1536, tensor_type_block(types[i]) == 256 ? 768 : 576);
    if (strstr("Q8_0 head", only)) bench_linear(be, TENSOR_Q8_0, 49152, 576);
    if (strstr("attention", only)) {
        bench_attention(be, 9, 3, 512, 1);
        bench_attention(be, 9, 3, 512, 512);
        bench_attention(be, 9, 3, 4096, 1);
        bench_attention(be, 14, 2, 512, 512);
        bench_attention(be, 14, 2, 2048, 1);
    }
    backend_close(be);
    return 0;
}
