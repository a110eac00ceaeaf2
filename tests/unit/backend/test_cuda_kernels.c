/* test_cuda_kernels.c - the lines nvcc compiles, run on the CPU by tests/cuda_emu and compared with double sums. Catches wrong
 * indices, missing barriers and bad tails; says nothing about speed, and hardware has not confirmed the emulation. */
#include "tests/unit/backend/helpers.h"
#include "tests/cuda_emu/emu.h"
#include "engine/backend/cuda/rows.cuh"

struct launch {
    enum tensor_type type;
    const void *rows;
    const float *x, *weight;
    float eps, *out;
    int n_out, n_in, n_cols;
};

static void run_rmsnorm(void *arg)
{
    const struct launch *l = arg;
    rmsnorm_rows(l->x, l->weight, l->eps, l->n_in, l->out);
}

static void run_gemv(void *arg)
{
    const struct launch *l = arg;
    if (l->type == TENSOR_Q8_0)
        gemv_q8_0(l->rows, l->x, l->n_out, l->n_in, l->n_cols, l->out);
    else
        gemv_q4_0(l->rows, l->x, l->n_out, l->n_in, l->n_cols, l->out);
}

TEST(rmsnorm_kernel_matches_the_formula)
{
    static const int widths[] = {32, 100, 576, 1536};
    rng_seed(&emu.rng, 1);
    for (int k = 0; k < 4; k++) {
        struct rng r;
        rng_seed(&r, 40);
        int n = widths[k];
        float *x = random_values(&r, (size_t)(3 * n), 2.0f),
              *w = random_values(&r, (size_t)n, 1.0f), *out = xcalloc((size_t)(3 * n), 4);
        struct launch l = {.x = x, .weight = w, .eps = 1e-5f, .out = out, .n_in = n};
        emu_launch(3, ROWS_THREADS, run_rmsnorm, &l);
        for (int i = 0; i < 3; i++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += (double)x[i * n + j] * x[i * n + j];
            for (int j = 0; j < n; j++)
                CHECK_NEAR(out[i * n + j], x[i * n + j] / sqrt(sum / n + 1e-5) * w[j], 1e-5);
        }
        mem_free(x), mem_free(w), mem_free(out);
    }
}

static void check_gemv(enum tensor_type t, int n_out, int n_in, int n_cols)
{
    struct rng r;
    rng_seed(&r, 41);
    size_t row = tensor_row_bytes(t, n_in);
    uint16_t *rows =
        xmalloc(row * (size_t)n_out); /* exactly: an overread faults under a sanitizer */
    float *values = random_values(&r, (size_t)(n_out * n_in), 0.1f),
          *exact = xmalloc((size_t)n_in * 4);
    float *x = random_values(&r, (size_t)(n_cols * n_in), 1.0f),
          *out = xcalloc((size_t)(n_cols * n_out), 4);
    for (int o = 0; o < n_out; o++)
        quantise_row(t, values + o * n_in, (uint8_t *)rows + (size_t)o * row, n_in);
    struct launch l = {.type = t,
                       .rows = rows,
                       .x = x,
                       .out = out,
                       .n_out = n_out,
                       .n_in = n_in,
                       .n_cols = n_cols};
    emu_launch((n_out + GEMV_WARPS - 1) / GEMV_WARPS, GEMV_WARPS * LANES, run_gemv, &l);
    for (int o = 0; o < n_out; o++) {
        dequantise_row(t, (uint8_t *)rows + (size_t)o * row, exact, n_in);
        for (int c = 0; c < n_cols; c++) {
            double sum = 0, size = 0;
            for (int i = 0; i < n_in; i++) {
                sum += (double)exact[i] * x[c * n_in + i];
                size += fabs((double)exact[i] * x[c * n_in + i]);
            }
            CHECK_NEAR(out[c * n_out + o], sum, size * 2e-6);
        }
    }
    mem_free(rows), mem_free(values), mem_free(exact), mem_free(x), mem_free(out);
}

TEST(gemv_kernels_match_the_double_sum_for_odd_shapes)
{
    rng_seed(&emu.rng, 2);
    for (int t = 0; t < 2; t++)
        for (int cols = 1; cols <= GEMV_COLS; cols += 3) {
            check_gemv(t ? TENSOR_Q4_0 : TENSOR_Q8_0, 13, 576, cols);
            check_gemv(t ? TENSOR_Q4_0 : TENSOR_Q8_0, 4, 32, cols);
            check_gemv(t ? TENSOR_Q4_0 : TENSOR_Q8_0, 1, 96, cols);
        }
}

TEST_MAIN()
