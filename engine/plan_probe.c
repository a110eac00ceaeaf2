/* plan_probe.c - see plan_probe.h. Reading: every thread sums its part of one region in huge pages, the size of a small model's weights.
 * Multiplying: the backend's own matrix product, 256 rows against one 8-bit matrix that stays in the cache. Best of several rounds,
 * since neighbours only ever slow a machine down. */
#include "engine/plan_probe.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/backend/backend.h"

enum { REGION_BYTES = 128 << 20, ROUND_US = 1000000, SIDE = 1024, ROWS = 256, THREADS_MAX = 64 };

struct part {
    pthread_t thread;
    const uint64_t *p;
    size_t n;
    uint64_t sum;
};

static void *sum_part(void *arg)
{
    struct part *part = arg;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= part->n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += part->p[i + (size_t)k];
    for (int k = 0; k < 8; k++)
        part->sum += s[k];
    return NULL;
}

static double read_once(const uint64_t *region, int n_threads)
{
    struct part part[THREADS_MAX];
    size_t each = REGION_BYTES / sizeof(uint64_t) / (size_t)n_threads;
    uint64_t start_us = clock_us();
    for (int i = 0; i < n_threads; i++) {
        part[i] = (struct part){.p = region + (size_t)i * each, .n = each};
        if (pthread_create(&part[i].thread, NULL, sum_part, &part[i])) part[i].n = 0;
    }
    uint64_t sum = 0;
    size_t read = 0;
    for (int i = 0; i < n_threads; i++) {
        if (!part[i].n) continue;
        pthread_join(part[i].thread, NULL);
        sum += part[i].sum;
        read += part[i].n * sizeof(uint64_t);
    }
    ASSERT(sum != 1); /* so that the sums are needed */
    uint64_t us = clock_us() - start_us;
    return us ? (double)read * 1e6 / (double)us : 0;
}

static enum err multiply(struct backend *be, double *macs_per_s, struct errmsg *e)
{
    size_t row_bytes = tensor_row_bytes(TENSOR_Q8_0, SIDE);
    uint8_t *rows = xcalloc(SIDE, row_bytes);
    float *x = xcalloc((size_t)ROWS * SIDE, sizeof *x),
          *y = xcalloc((size_t)ROWS * SIDE, sizeof *y);
    struct weight *w = NULL;
    for (int i = 0; i < ROWS * SIDE; i++)
        x[i] = (float)(i % 17) - 8;
    for (int i = 0; i < SIDE; i++)
        quantise_row(TENSOR_Q8_0, x + (i % ROWS) * SIDE, rows + (size_t)i * row_bytes, SIDE);
    enum err code = weight_new(&w, be, TENSOR_Q8_0, SIDE, SIDE, rows, e);
    uint64_t best_us = UINT64_MAX, until = clock_us() + ROUND_US;
    while (!code && clock_us() < until) {
        struct linear l = {.n_weights = 1, .weight = {w}, .out = {y}, .x = x, .n_rows = ROWS};
        uint64_t start_us = clock_us();
        backend_linear(be, &l);
        uint64_t us = clock_us() - start_us;
        if (us && us < best_us) best_us = us;
    }
    *macs_per_s = (double)ROWS * SIDE * SIDE * 1e6 / (double)best_us;
    weight_free(w);
    mem_free(rows);
    mem_free(x);
    mem_free(y);
    return code;
}

enum err plan_probe(struct plan_machine *out, int n_threads, const char *isa, struct errmsg *e)
{
    struct backend *be = NULL;
    struct backend_options o = {.n_threads = n_threads, .isa = isa};
    enum err code = backend_open(&be, &o, e);
    if (code) return code;
    uint64_t *region = mem_alloc_huge(REGION_BYTES);
    if (!region) {
        backend_close(be);
        return err_set(e, ERR_FULL, "no memory for the self-test (%d bytes)", REGION_BYTES);
    }
    memset(region, 3, REGION_BYTES);
    int threads = backend_threads(be) < THREADS_MAX ? backend_threads(be) : THREADS_MAX;
    for (uint64_t until = clock_us() + ROUND_US; clock_us() < until;) {
        double now = read_once(region, threads);
        if (now > out->read_bytes_per_s) out->read_bytes_per_s = now;
    }
    mem_free_huge(region, REGION_BYTES);
    code = multiply(be, &out->macs_per_s, e);
    backend_close(be);
    return code;
}
