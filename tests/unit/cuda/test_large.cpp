/* test_large.cpp - products with the rows of a long prompt (engine/backend/cuda/large.cu, wide.cuh) through backend_linear, in emulation, against
 * double arithmetic over the weights' exact values. The library's own arithmetic is tests/cuda_emu/lt_host.cpp there; on a GPU it is cuBLASLt. */
#include <string>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/backend.h"
#include "engine/backend/device.h"
}
#include "engine/backend/cuda/device.h"
#include "tests/unit/cuda/rig.hpp"

enum { ROWS = 260 };

static struct backend *open_backend(const char *products)
{
    struct backend *be = nullptr;
    struct backend_options o = {};
    struct errmsg e = {};
    backend_register(&cuda_device);
    o.n_threads = 1, o.device = "cuda", o.products = products;
    if (backend_open(&be, &o, &e) != OK) CHECK_AT(false, "%s: %s", products, e.text);
    return be;
}

struct opened { /* closed after what was made from it */
    struct backend *be;
    explicit opened(const char *products) : be(open_backend(products)) {}
    ~opened() { backend_close(be); }
};
struct floats { /* of the backend */
    struct backend *be;
    float *p;
    size_t n;
    floats(struct backend *b, const std::vector<float> &v)
        : be(b), p(backend_floats(b, v.size())), n(v.size())
    {
        backend_write(be, p, v.data(), n);
    }
    ~floats() { backend_floats_free(be, p); }
    std::vector<float> get() const
    {
        std::vector<float> v(n);
        struct errmsg e = {};
        CHECK_INT(backend_read(be, v.data(), p, n, &e), OK);
        return v;
    }
};

struct asked {
    enum tensor_type type;
    int n_out, n_in;
    enum linear_in in;
    bool bias, accumulate;
};

/* The largest difference to the exact product, in units of |x| |w| sqrt(n_in): what rounding either operand by a share costs at random. */
static double off(const char *products, const struct asked &c, std::vector<float> *got)
{
    opened one(products);
    struct backend *be = one.be;
    struct weight *w;
    struct errmsg e = {};
    size_t n_in = (size_t)c.n_in, n_out = (size_t)c.n_out, row = tensor_row_bytes(c.type, c.n_in);
    auto values = random_values(7, n_out * n_in, 0.1f), exact = values,
         x = random_values(8, ROWS * n_in, 1.0f), x2 = random_values(9, ROWS * n_in, 1.0f),
         norm = random_values(10, n_in, 0.2f), bias = random_values(11, n_out, 1.0f),
         before = random_values(12, ROWS * n_out, c.accumulate ? 1.0f : 0.0f);
    std::vector<uint8_t> bytes(n_out * row);
    for (size_t o = 0; o < n_out; o++) {
        quantise_row(c.type, &values[o * n_in], &bytes[o * row], c.n_in);
        dequantise_row(c.type, &bytes[o * row], &exact[o * n_in], c.n_in);
    }
    CHECK_INT(weight_new(&w, be, c.type, c.n_out, c.n_in, bytes.data(), &e), OK);
    floats fx(be, x), fx2(be, x2), fnorm(be, norm), fbias(be, bias), fout(be, before);
    struct linear l = {};
    l.n_weights = 1, l.weight[0] = w, l.bias[0] = c.bias ? fbias.p : nullptr, l.out[0] = fout.p;
    l.accumulate = c.accumulate, l.in = c.in, l.x = fx.p, l.x2 = fx2.p, l.norm_weight = fnorm.p;
    l.eps = 1e-5f, l.n_rows = ROWS;
    backend_linear(be, &l);
    *got = fout.get();
    double worst = 0;
    for (size_t r = 0; r < ROWS; r++) {
        std::vector<double> v(n_in);
        double square = 0;
        for (size_t i = 0; i < n_in; i++)
            square += (double)x[r * n_in + i] * x[r * n_in + i];
        for (size_t i = 0; i < n_in; i++) {
            double a = x[r * n_in + i];
            v[i] = c.in == LINEAR_RMSNORM    ? a / sqrt(square / (double)n_in + 1e-5) * norm[i]
                   : c.in == LINEAR_SILU_MUL ? a / (1 + exp(-a)) * x2[r * n_in + i]
                                             : a;
        }
        for (size_t o = 0; o < n_out; o++) {
            double sum = before[r * n_out + o] + (c.bias ? bias[o] : 0), size = 0;
            for (size_t i = 0; i < n_in; i++) {
                double part = v[i] * exact[o * n_in + i];
                sum += part, size += part * part;
            }
            float g = (*got)[r * n_out + o];
            worst = std::isnan(g) ? 1e9 : fmax(worst, fabs(sum - g) / (sqrt(size) + 0.05));
        }
    }
    weight_free(w);
    return worst;
}

/* How far rounding may take a product whose terms have the root of their squares' sum 1: four deviations of both operands' rounding. bf16: 2^-9
 * a value; int8: 1/254 of the largest of a row, some three times the usual value; E4M3: 2^-4 a value at most. */
static const struct {
    const char *products;
    double most;
} forms[] = {{"bf16", 0.02}, {"int8", 0.12}, {"fp8", 0.25}};

TEST(every_packed_type_is_multiplied_in_every_form)
{
    std::vector<float> got;
    for (enum tensor_type t : all_types)
        for (auto &f : forms) {
            double worst = off(f.products, {t, 16, 256, LINEAR_PLAIN, false, false}, &got);
            CHECK_AT(worst < f.most, "%s in %s: off by %g", tensor_type_name((uint32_t)t),
                     f.products, worst);
        }
}

TEST(norms_gates_biases_and_sums_go_with_it)
{
    std::vector<float> got;
    for (auto &f : forms)
        for (bool both : {false, true})
            for (enum linear_in in : {LINEAR_RMSNORM, LINEAR_SILU_MUL}) {
                double worst = off(f.products, {TENSOR_Q4_K, 48, 256, in, both, both}, &got);
                CHECK_AT(worst < f.most, "%s, in %d, both %d: off by %g", f.products, in, both,
                         worst);
            }
}

TEST(plain_half_matrices_are_multiplied_as_they_lie)
{
    std::vector<float> got;
    for (enum tensor_type t : {TENSOR_F16, TENSOR_BF16})
        for (bool bias : {false, true}) {
            double worst = off("auto", {t, 32, 96, LINEAR_RMSNORM, bias, true}, &got);
            CHECK_AT(worst < (t == TENSOR_F16 ? 0.004 : 0.02), "%s: off by %g",
                     tensor_type_name((uint32_t)t), worst);
        }
}

TEST(as_many_rows_as_a_step_may_have_are_launched)
{
    NEEDS_EMULATION();
    enum { MOST = 65536, N_IN = 32, N_OUT = 16 };
    setenv("CUDA_EMU_NO_KERNELS_RUN", "1", 1); /* it is the launches that are looked at */
    opened one("int8");
    std::vector<float> values(MOST * N_IN, 0.5f);
    std::vector<uint8_t> bytes(N_OUT * tensor_row_bytes(TENSOR_Q8_0, N_IN));
    struct weight *w;
    struct errmsg e = {};
    CHECK_INT(weight_new(&w, one.be, TENSOR_Q8_0, N_OUT, N_IN, bytes.data(), &e), OK);
    {
        floats x(one.be, values), out(one.be, std::vector<float>(MOST * N_OUT));
        struct linear l = {};
        l.n_weights = 1, l.weight[0] = w, l.out[0] = out.p, l.x = x.p, l.n_rows = MOST;
        backend_linear(one.be, &l);
        (void)out.get(); /* checks that nothing has failed */
    }
    weight_free(w);
    unsetenv("CUDA_EMU_NO_KERNELS_RUN");
}

/* The largest of a token, over 448, is no number any more: a scale of 0 would make 0 / 0 of the zeros beside it. */
TEST(a_token_of_next_to_nothing_is_nothing)
{
    enum { IN = 64, OUT = 16 };
    for (const char *products : {"int8", "fp8"}) {
        opened one(products);
        struct weight *w;
        struct errmsg e = {};
        std::vector<uint8_t> rows(OUT * tensor_row_bytes(TENSOR_Q8_0, IN), 1);
        CHECK_INT(weight_new(&w, one.be, TENSOR_Q8_0, OUT, IN, rows.data(), &e), OK);
        std::vector<float> values(ROWS * IN);
        for (size_t i = 0; i < values.size(); i += IN)
            values[i] = 1e-44f;
        floats x(one.be, values), out(one.be, std::vector<float>(ROWS * OUT, 7.0f));
        struct linear l = {};
        l.n_weights = 1, l.weight[0] = w, l.out[0] = out.p, l.x = x.p, l.n_rows = ROWS;
        backend_linear(one.be, &l);
        double most = 0;
        for (float v : out.get())
            most = std::isnan(v) ? 1e9 : fmax(most, fabs(v));
        CHECK_AT(most < 1e-30, "%s: %g", products, most);
        weight_free(w);
    }
}

TEST(shapes_the_library_does_not_take_and_a_library_that_is_not_there_lose_nothing)
{
    std::vector<float> own, got;
    struct asked odd = {TENSOR_Q8_0, 17, 64, LINEAR_PLAIN, true, false};
    double worst = off("own", odd, &own);
    CHECK(worst < 0.01);
    off("int8", odd, &got);
    CHECK(own == got);
    struct asked fits = {TENSOR_Q8_0, 16, 64, LINEAR_PLAIN, true, false};
    off("own", fits, &own);
    off("int8", fits, &got);
    CHECK(own != got); /* it was the library */
    NEEDS_EMULATION();
    setenv("CUDA_EMU_NO_LT", "1", 1);
    struct asked even = {TENSOR_F16, 32, 64, LINEAR_PLAIN, false, false};
    worst = off("auto", even, &got);
    CHECK_AT(worst < 0.004, "off by %g", worst);
    struct backend *be = nullptr;
    struct backend_options o = {};
    struct errmsg e = {};
    o.n_threads = 1, o.device = "cuda", o.products = "int8";
    CHECK_INT(backend_open(&be, &o, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "products in int8: libcublasLt is not to be found") && !be);
    unsetenv("CUDA_EMU_NO_LT");
    o.products = "int4";
    CHECK_INT(backend_open(&be, &o, &e), ERR_INVALID);
    CHECK(strstr(e.text, "\"int4\": auto, own, bf16, fp8 and int8 are known"));
    setenv("CUDA_EMU_CAPABILITY", "8.0", 1);
    o.products = "fp8";
    CHECK_INT(backend_open(&be, &o, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "compute capability 8.9"));
    unsetenv("CUDA_EMU_CAPABILITY");
    CHECK_INT(device_bytes_left(), 0);
}

/* The second of two matrices is one the library has nothing for: other kernels multiply both. */
TEST(a_product_that_fails_after_another_is_made_up_for)
{
    NEEDS_EMULATION();
    enum { IN = 64 };
    opened one("auto");
    struct errmsg e = {};
    struct weight *w[2];
    std::vector<uint8_t> bytes(32 * IN * 2); /* zeros */
    CHECK_INT(weight_new(&w[0], one.be, TENSOR_F16, 16, IN, bytes.data(), &e), OK);
    CHECK_INT(weight_new(&w[1], one.be, TENSOR_F16, 32, IN, bytes.data(), &e), OK);
    floats x(one.be, random_values(8, ROWS * IN, 1.0f)),
        a(one.be, std::vector<float>(ROWS * 16, 7.0f)),
        b(one.be, std::vector<float>(ROWS * 32, 7.0f));
    struct linear l = {};
    l.n_weights = 2, l.weight[0] = w[0], l.weight[1] = w[1], l.out[0] = a.p, l.out[1] = b.p;
    l.in = LINEAR_PLAIN, l.x = x.p, l.n_rows = ROWS;
    setenv("CUDA_EMU_LT_ROWS", "16", 1);
    backend_linear(one.be, &l);
    CHECK(a.get() == std::vector<float>(ROWS * 16, 0.0f));
    CHECK(b.get() == std::vector<float>(ROWS * 32, 0.0f));
    unsetenv("CUDA_EMU_LT_ROWS");
    weight_free(w[0]), weight_free(w[1]);
}

TEST_MAIN()
