/* test_rows.cpp - the kernels of rows.cuh through their launchers, in emulation, compared with double sums: wrong indices, missing
 * barriers, bad tails. */
#include "tests/unit/cuda/rig.hpp"

TEST(rmsnorm_kernel_matches_the_formula)
{
    for (int n : {32, 100, 576, 1536}) {
        auto x = random_values(40, (size_t)(3 * n), 2.0f), w = random_values(41, (size_t)n, 1.0f);
        on_device<float> dx(x), dw(w), dout(x.size());
        struct errmsg e = {};
        REQUIRE(cuda_rmsnorm(dx.p, dw.p, 1e-5f, 3, n, dout.p, nullptr, &e) == OK);
        auto out = dout.get();
        for (int i = 0; i < 3; i++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += (double)x[(size_t)(i * n + j)] * x[(size_t)(i * n + j)];
            for (int j = 0; j < n; j++) {
                size_t at = (size_t)(i * n + j);
                CHECK_NEAR(out[at], x[at] / sqrt(sum / n + 1e-5) * w[(size_t)j], 1e-5);
            }
        }
    }
}

static void check_gemv(enum tensor_type t, int n_out, int n_in, int n_cols)
{
    size_t row = tensor_row_bytes(t, n_in);
    std::vector<uint8_t> rows((size_t)n_out * row);
    auto values = random_values(42, (size_t)(n_out * n_in), 0.1f),
         x = random_values(43, (size_t)(n_cols * n_in), 1.0f);
    std::vector<float> exact((size_t)n_in);
    for (int o = 0; o < n_out; o++)
        quantise_row(t, &values[(size_t)(o * n_in)], &rows[(size_t)o * row], n_in);
    on_device<uint8_t> drows(rows);
    on_device<float> dx(x), dout((size_t)(n_cols * n_out));
    struct cuda_gemv_args g = {t, drows.p, n_out, n_in, n_cols, dx.p, dout.p};
    struct errmsg e = {};
    REQUIRE(cuda_gemv(&g, nullptr, &e) == OK);
    auto out = dout.get();
    for (int o = 0; o < n_out; o++) {
        dequantise_row(t, &rows[(size_t)o * row], exact.data(), n_in);
        for (int c = 0; c < n_cols; c++) {
            double sum = 0, size = 0;
            for (int i = 0; i < n_in; i++) {
                double part = (double)exact[(size_t)i] * x[(size_t)(c * n_in + i)];
                sum += part;
                size += fabs(part);
            }
            CHECK_NEAR(out[(size_t)(c * n_out + o)], sum, size * 2e-6);
        }
    }
}

TEST(gemv_kernels_match_the_double_sum_for_odd_shapes)
{
    for (enum tensor_type t : {TENSOR_Q8_0, TENSOR_Q4_0})
        for (int cols : {1, 4, 6}) {
            check_gemv(t, 13, 576, cols);
            check_gemv(t, 4, 32, cols);
            check_gemv(t, 1, 96, cols);
        }
}

TEST(gemv_refuses_a_type_it_has_no_kernel_for)
{
    struct cuda_gemv_args g = {TENSOR_Q6_K, nullptr, 1, 256, 1, nullptr, nullptr};
    struct errmsg e = {};
    CHECK_INT(cuda_gemv(&g, nullptr, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "256") != NULL);
}

TEST_MAIN()
