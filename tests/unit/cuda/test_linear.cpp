/* test_linear.cpp - activation forms and matrix products of engine/backend/cuda, in emulation, against double sums over the exact
 * weights. Shapes are small and odd: tails of rows, columns and runs. */
#include "engine/backend/cuda/launch.h"
#include "tests/unit/cuda/rig.hpp"

/* What act_rows makes of x, read back as the numbers the products work with. */
struct forms {
    on_device<int8_t> q;
    on_device<float> d, s, f;
    on_device<uint16_t> h;
    forms(size_t rows, size_t n)
        : q(rows * n), d(rows * n / 16 + 1), s(rows * n / 16 + 1), f(rows * n), h(rows * n)
    {
    }
};

static void check_product(enum tensor_type t, int n_out, int n_in, int n_cols)
{
    matrix m(t, n_out, n_in);
    auto x = random_values(8, (size_t)n_cols * (size_t)n_in, 1.0f),
         bias = random_values(9, (size_t)n_out, 1.0f);
    auto before = random_values(10, (size_t)n_cols * (size_t)n_out, 1.0f);
    on_device<float> dx(x), dbias(bias), out(before);
    forms f((size_t)n_cols, (size_t)n_in);
    struct act_forms want = linear_forms(t, n_in, n_cols);
    struct act_args a = {};
    a.in = ACT_PLAIN, a.x = dx.p, a.n = n_in;
    a.q = want.q ? f.q.p : NULL, a.d = f.d.p, a.s = f.s.p;
    a.h = want.h ? f.h.p : NULL, a.f = want.f ? f.f.p : NULL;
    launch_act(a, n_cols, NULL);
    struct product p = {t,     m.view(), f.q.p,   f.d.p, f.s.p, f.f.p,
                        f.h.p, n_cols,   dbias.p, true,  out.p};
    launch_product(p, NULL);
    auto got = out.get();
    /* against the rounded activations: what is left is float32 summation, and weights rounded to f16 on tensor cores */
    if (want.q) {
        auto q = f.q.get();
        auto d = f.d.get();
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (float)q[i] * d[i / 16];
    } else if (want.h) {
        auto h = f.h.get();
        for (size_t i = 0; i < x.size(); i++)
            x[i] = f16_to_f32(h[i]);
    }
    double tolerance = want.h ? 1e-3 : 3e-6;
    int bad = 0;
    for (int c = 0; c < n_cols; c++)
        for (int o = 0; o < n_out; o++) {
            double sum = 0, squares = 0;
            for (int i = 0; i < n_in; i++) {
                double part = (double)m.exact[(size_t)o * (size_t)n_in + (size_t)i] *
                              x[(size_t)c * (size_t)n_in + (size_t)i];
                sum += part;
                squares += part * part;
            }
            size_t at = (size_t)c * (size_t)n_out + (size_t)o;
            double expected = sum + bias[(size_t)o] + before[at];
            bad += !(fabs(got[at] - expected) <=
                     tolerance * sqrt(squares) + 4e-6 * (fabs(expected) + sqrt((double)n_in)));
        }
    CHECK_AT(!bad, "%s %dx%d, %d columns: %d results are off", tensor_type_name(t), n_out, n_in,
             n_cols, bad);
}

TEST(every_type_times_a_few_columns)
{
    for (enum tensor_type t : all_types)
        for (int cols : {1, 2, 3, 8}) {
            emu::seed((uint64_t)cols);
            check_product(t, 13, 512, cols);
        }
}

TEST(every_type_times_many_columns)
{
    for (enum tensor_type t : all_types)
        for (int cols : {9, 16, 37}) {
            emu::seed((uint64_t)cols);
            check_product(t, 70, 512, cols);
        }
}

TEST(rows_that_are_no_multiple_of_a_step)
{
    for (enum tensor_type t : {TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q8_0, TENSOR_F16})
        for (int cols : {1, 20})
            for (int n_in : {32, 96, 576})
                check_product(t, 5, n_in, cols);
}

TEST(halves_of_any_row_length_times_many_columns)
{
    for (enum tensor_type t : {TENSOR_F16, TENSOR_BF16}) {
        check_product(t, 130, 200,
                      100); /* three blocks of rows, two of columns; a tail of 8 elements */
        for (int n_in : {8, 72, 36, 33}) /* the last two lie where no 16 bytes can be copied */
            for (int cols : {9, 66})
                check_product(t, 5, n_in, cols);
    }
}

TEST(bf16_weights_outside_of_f16_are_held_to_its_range)
{
    enum { N_IN = 64, COLS = 9 };
    struct pack_layout l;
    struct errmsg e = {};
    CHECK_INT(pack_layout_of(TENSOR_BF16, 1, N_IN, &l, &e), OK);
    std::vector<float> w(N_IN, 0), x((size_t)COLS * N_IN, 1);
    w[0] = 1e6f, w[1] = -1e6f, w[2] = 3, w[3] = 0x1p-20f, w[4] = 0x1p-30f; /* the last is nothing */
    std::vector<uint8_t> row(tensor_row_bytes(TENSOR_BF16, N_IN)), packed(l.bytes);
    quantise_row(TENSOR_BF16, w.data(), row.data(), N_IN);
    pack_rows(&l, row.data(), packed.data());
    on_device<uint8_t> bytes(packed);
    on_device<float> dx(x), out((size_t)COLS);
    on_device<uint16_t> h((size_t)COLS * N_IN);
    struct act_args a = {};
    a.in = ACT_PLAIN, a.x = dx.p, a.n = N_IN, a.h = h.p;
    launch_act(a, COLS, NULL);
    struct product p = {TENSOR_BF16, {bytes.p, NULL, NULL, NULL, 1, N_IN, 0},
                        NULL,        NULL,
                        NULL,        NULL,
                        h.p,         COLS,
                        NULL,        false,
                        out.p};
    launch_product(p, NULL);
    for (float v : out.get())
        CHECK_NEAR(v, 3 + 0x1p-20, 1e-7);
}

TEST(a_column_does_not_depend_on_its_neighbours)
{
    for (int n_cols : {6, 40}) {
        enum { N_OUT = 24, N_IN = 128 };
        matrix m(TENSOR_Q4_1, N_OUT, N_IN);
        auto x = random_values(8, (size_t)n_cols * N_IN, 1.0f);
        std::vector<float> first, second;
        for (int pass = 0; pass < 2; pass++) {
            auto y = x;
            if (pass) /* all but column 3 change */
                for (size_t i = 0; i < y.size(); i++)
                    if (i / N_IN != 3) y[i] = -y[i] * 3;
            on_device<float> dx(y), out((size_t)n_cols * N_OUT);
            forms f((size_t)n_cols, N_IN);
            struct act_args a = {};
            a.in = ACT_PLAIN, a.x = dx.p, a.n = N_IN;
            a.q = f.q.p, a.d = f.d.p, a.s = f.s.p, a.h = f.h.p;
            launch_act(a, n_cols, NULL);
            struct product p = {TENSOR_Q4_1, m.view(), f.q.p, f.d.p, f.s.p, NULL,
                                f.h.p,       n_cols,   NULL,  false, out.p};
            launch_product(p, NULL);
            (pass ? second : first) = out.get();
        }
        CHECK(!memcmp(&first[3 * N_OUT], &second[3 * N_OUT], N_OUT * 4));
        CHECK(memcmp(&first[4 * N_OUT], &second[4 * N_OUT], N_OUT * 4));
    }
}

static double transform(enum act_in in, const float *x, const float *x2, const float *norm, int n,
                        int i)
{
    double v = x[i], square = 0;
    switch (in) {
    case ACT_RMSNORM:
        for (int j = 0; j < n; j++)
            square += (double)x[j] * x[j];
        return v / sqrt(square / n + 1e-5) * norm[i];
    case ACT_SILU_MUL:
        return v / (1 + exp(-v)) * x2[i];
    case ACT_GELU_MUL:
        return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) * x2[i];
    case ACT_GELU:
        return 0.5 * v * (1 + erf(v / sqrt(2.0)));
    default:
        return v;
    }
}

TEST(activations_are_normed_gated_gathered_and_rounded)
{
    static const int32_t rows[] = {2, 0};
    for (enum act_in in : {ACT_PLAIN, ACT_RMSNORM, ACT_SILU_MUL, ACT_GELU_MUL, ACT_GELU})
        for (int n : {32, 100, 576}) {
            auto x = random_values(1, (size_t)n * 3, 2.0f),
                 x2 = random_values(2, (size_t)n * 3, 1.0f),
                 norm = random_values(3, (size_t)n, 1.0f);
            on_device<float> dx(x), dx2(x2), dnorm(norm);
            on_device<int32_t> drow(std::vector<int32_t>(rows, rows + 2));
            forms f(2, (size_t)n);
            bool int8 = n % 16 == 0;
            struct act_args a = {in,    dx.p,  dx2.p,  dnorm.p,
                                 1e-5f, n,     drow.p, int8 ? f.q.p : NULL,
                                 f.d.p, f.s.p, f.h.p,  f.f.p};
            launch_act(a, 2, NULL);
            auto q = f.q.get();
            auto d = f.d.get(), s = f.s.get(), plain = f.f.get();
            auto h = f.h.get();
            for (int r = 0; r < 2; r++) {
                const float *xr = &x[(size_t)(rows[r] * n)], *x2r = &x2[(size_t)(rows[r] * n)];
                double group_sum = 0;
                for (int i = 0; i < n; i++) {
                    size_t at = (size_t)(r * n + i);
                    double v = transform(in, xr, x2r, norm.data(), n, i);
                    CHECK_NEAR(plain[at], v, 1e-5 * (1 + fabs(v)));
                    CHECK_NEAR(f16_to_f32(h[at]), v, fabs(v) / 1024 + 1e-6);
                    if (!int8) continue;
                    CHECK_NEAR(q[at] * d[at / 16], v, d[at / 16] * 0.51);
                    group_sum = (i % 16 ? group_sum : 0) + q[at] * d[at / 16];
                    if (i % 16 == 15)
                        CHECK_NEAR(s[at / 16], group_sum, 1e-4 * (1 + fabs(group_sum)));
                }
            }
        }
}

TEST(a_row_length_that_is_no_multiple_of_the_block_is_refused)
{
    struct pack_layout l;
    struct errmsg e = {};
    CHECK_INT(pack_layout_of(TENSOR_Q6_K, 4, 96, &l, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "96") != NULL);
}

TEST_MAIN()
