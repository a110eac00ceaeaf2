/* test_linear.c - linear layers against a double reference made here. Three kinds of activations: those that int8 holds exactly
 * (integers, the peak of 16 is 127, twice) must give a result right to float32 rounding, which catches every slip in a
 * layout; the same with up to four outliers far beyond the others, which are kept in float32; and ordinary ones, where the
 * error must stay under the bound that rounding to half a step allows. */
#include <math.h>

#include "tests/unit/backend/helpers.h"

static const int batch_sizes[] = {1, 2, 3, 5, 7, 8, 17};
enum { N_BATCHES = sizeof batch_sizes / sizeof batch_sizes[0], ROWS = 17 };

struct shape {
    int n_out, n_in;
};
static const struct shape shapes[] = {{37, 32},   {16, 576}, {50, 896}, {5, 1536},
                                      {19, 4864}, {1, 256},  {40, 768}};

static bool is_float(enum tensor_type t)
{
    return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16;
}

static void whole_activations(struct rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % 16 == 5    ? 127.0f
               : i % 16 == 11 ? -127.0f
                              : (float)((int)rng_below(r, 255) - 127);
}

/* Row c gets c % 5 outliers, in different groups of 16 as far as there are as many, at every place of a group in turn. */
static void add_outliers(struct rng *r, float *x, int n_rows, int n_in)
{
    for (int c = 0; c < n_rows; c++)
        for (int j = 0, value = 3000; j < c % 5; j++, value *= -7) {
            int group = n_in / 16 > 4 ? j * (n_in / 64) : j % (n_in / 16),
                at = 16 * group + (c + 3 * j) % 16;
            if (at % 16 == 5 || at % 16 == 11) at--;
            x[c * n_in + at] = (float)value + (float)rng_f64(r);
        }
}

enum kind { PLAIN, WHOLE, OUTLIERS };

struct reference {
    double value, size; /* sum and sum of magnitudes */
};
static struct reference reference(const float *w, const float *x, int n)
{
    struct reference s = {0, 0};
    for (int i = 0; i < n; i++) {
        s.value += (double)w[i] * x[i];
        s.size += fabs((double)w[i] * x[i]);
    }
    return s;
}

/* What rounding activations to steps of peak/127 per 16 can do to one sum. Of each 32 those are the even and the odd pairs, or the
 * two halves. */
static double rounding_bound(const float *w, const float *x, int n, bool pairs)
{
    double bound = 0;
    for (int i = 0; i < n; i += 32) {
        double peak[2] = {0, 0}, weight[2] = {0, 0};
        for (int j = i; j < i + 32; j++) {
            int g = pairs ? j / 2 % 2 : j / 16 % 2;
            peak[g] = fmax(peak[g], fabs(x[j]));
            weight[g] += fabs(w[j]);
        }
        for (int g = 0; g < 2; g++)
            bound += peak[g] / 127 * 0.5001 * weight[g];
    }
    return bound;
}

static void check_type(struct backend *be, enum tensor_type t, struct shape s, enum kind kind)
{
    if (s.n_in % tensor_type_block(t)) return;
    struct rng r;
    rng_seed(&r, 11 + (uint64_t)t);
    size_t n_w = (size_t)s.n_out * (size_t)s.n_in, n_x = (size_t)ROWS * (size_t)s.n_in;
    float *values = random_values(&r, n_w, 0.05f), *exact = xmalloc(n_w * 4),
          *x = random_values(&r, n_x, 2.0f);
    if (kind != PLAIN) whole_activations(&r, x, n_x);
    if (kind == OUTLIERS) add_outliers(&r, x, ROWS, s.n_in);
    struct weight *w = quantised_weight(be, t, s.n_out, s.n_in, values, exact);
    float *out = xmalloc((size_t)ROWS * (size_t)s.n_out * 4),
          *bias = random_values(&r, (size_t)s.n_out, 1.0f);
    bool rounds = kind == PLAIN && !is_float(t) && !backend_is_exact(be) &&
                  strcmp(backend_isa_name(be), "scalar") != 0,
         pairs = strcmp(backend_isa_name(be), "avx2") == 0;
    for (int b = 0; b < N_BATCHES; b++) {
        int n = batch_sizes[b];
        bool accumulate = b % 2;
        for (int i = 0; i < n * s.n_out; i++)
            out[i] = 0.25f;
        backend_linear(be, &(struct linear){.n_weights = 1,
                                            .weight = {w},
                                            .bias = {b % 3 ? bias : NULL},
                                            .out = {out},
                                            .accumulate = accumulate,
                                            .x = x,
                                            .n_rows = n});
        int bad = 0;
        for (int c = 0; c < n; c++)
            for (int o = 0; o < s.n_out; o++) {
                const float *wr = exact + (size_t)o * (size_t)s.n_in,
                            *xr = x + (size_t)c * (size_t)s.n_in;
                struct reference want = reference(wr, xr, s.n_in);
                double full = want.value + (b % 3 ? bias[o] : 0) + (accumulate ? 0.25 : 0);
                double tol =
                    want.size * 2e-6 + 1e-6 + (rounds ? rounding_bound(wr, xr, s.n_in, pairs) : 0);
                double got = out[(size_t)c * (size_t)s.n_out + (size_t)o];
                if (!(fabs(got - full) <= tol) && !bad++)
                    CHECK_AT(false,
                             "%s %s %dx%d %s rows %d: row %d out %d is %.9g, not %.9g within %.3g",
                             backend_isa_name(be), tensor_type_name(t), s.n_out, s.n_in,
                             kind == PLAIN   ? "plain"
                             : kind == WHOLE ? "whole"
                                             : "outliers",
                             n, c, o, got, full, tol);
            }
    }
    weight_free(w);
    mem_free(values), mem_free(exact), mem_free(x), mem_free(out), mem_free(bias);
}

static void check_all(const char *isa, bool exact, enum kind kind)
{
    struct backend *be = open_backend(isa, 2, exact);
    if (!be) SKIP("this CPU lacks the instruction set");
    for (int t = 0; t < N_TYPES; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            check_type(be, all_types[t], shapes[s], kind);
    backend_close(be);
}

TEST(scalar_linear_is_the_double_sum)
{
    check_all("scalar", false, PLAIN);
}
TEST(avx2_linear_is_exact_when_int8_holds_the_activations)
{
    check_all("avx2", false, WHOLE);
}
TEST(avx2_linear_keeps_outliers_in_float32)
{
    check_all("avx2", false, OUTLIERS);
}
TEST(avx2_linear_errs_by_activation_rounding_only)
{
    check_all("avx2", false, PLAIN);
}
TEST(avx512_linear_is_exact_when_int8_holds_the_activations)
{
    check_all("avx512", false, WHOLE);
}
TEST(avx512_linear_keeps_outliers_in_float32)
{
    check_all("avx512", false, OUTLIERS);
}
TEST(avx512_linear_errs_by_activation_rounding_only)
{
    check_all("avx512", false, PLAIN);
}
TEST(exact_mode_avoids_activation_rounding_on_avx2)
{
    check_all("avx2", true, PLAIN);
}
TEST(exact_mode_avoids_activation_rounding_on_avx512)
{
    check_all("avx512", true, PLAIN);
}

/* Bits of every output row, for one batch and thread count. */
static void run_rows(const char *isa, enum tensor_type t, int threads, bool exact, int n_in,
                     float *alone, float *batch)
{
    enum { OUT = 83 };
    struct backend *be = open_backend(isa, threads, exact);
    if (!be) return;
    struct rng r;
    rng_seed(&r, 3);
    float *values = random_values(&r, (size_t)OUT * (size_t)n_in, 0.05f),
          *x = random_values(&r, (size_t)ROWS * (size_t)n_in, 3.0f);
    float *norm = random_values(&r, (size_t)n_in, 1.0f);
    struct weight *w = quantised_weight(be, t, OUT, n_in, values, NULL);
    struct linear l = {.n_weights = 1,
                       .weight = {w},
                       .out = {batch},
                       .x = x,
                       .n_rows = ROWS,
                       .in = LINEAR_RMSNORM,
                       .norm_weight = norm,
                       .eps = 1e-5f};
    backend_linear(be, &l);
    for (int i = 0; i < ROWS; i++) {
        int32_t row = i;
        l.n_rows = 1;
        l.row = &row;
        l.out[0] = alone + i * OUT;
        backend_linear(be, &l);
    }
    weight_free(w);
    backend_close(be);
    mem_free(values), mem_free(x), mem_free(norm);
}

TEST(a_row_has_the_same_bits_alone_in_a_batch_and_for_any_thread_count)
{
    enum { OUT = 83 };
    static float alone[ROWS * OUT], batch[ROWS * OUT], first[ROWS * OUT];
    for (int isa = 0; isa < N_ISAS; isa++)
        for (int t = 0; t < N_TYPES; t++)
            for (int exact = 0; exact < 2; exact++)
                for (int threads = 1; threads <= 3; threads++) {
                    memset(alone, 0, sizeof alone);
                    memset(batch, 0, sizeof batch);
                    run_rows(all_isas[isa], all_types[t], threads, exact, 768, alone, batch);
                    if (threads == 1) memcpy(first, batch, sizeof first);
                    CHECK_AT(!memcmp(alone, batch, sizeof batch), "%s %s: alone and batched differ",
                             all_isas[isa], tensor_type_name(all_types[t]));
                    CHECK_AT(!memcmp(first, batch, sizeof batch), "%s %s: %d threads differ from 1",
                             all_isas[isa], tensor_type_name(all_types[t]), threads);
                }
}

TEST(several_weights_of_different_types_share_one_input)
{
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct backend *be = open_backend(all_isas[isa], 2, false);
        if (!be) continue;
        struct rng r;
        rng_seed(&r, 5);
        enum { IN = 512 };
        const enum tensor_type types[4] = {TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_F16, TENSOR_Q8_0};
        const int n_out[4] = {64, 24, 7, 130};
        float *x = random_values(&r, 9 * IN, 1.0f), *out[4], *one[4];
        struct linear l = {.n_weights = 4, .x = x, .n_rows = 9};
        for (int i = 0; i < 4; i++) {
            float *values = random_values(&r, (size_t)n_out[i] * IN, 0.1f);
            l.weight[i] = quantised_weight(be, types[i], n_out[i], IN, values, NULL);
            l.out[i] = out[i] = xcalloc((size_t)(9 * n_out[i]), 4);
            one[i] = xcalloc((size_t)(9 * n_out[i]), 4);
            mem_free(values);
        }
        backend_linear(be, &l);
        for (int i = 0; i < 4; i++) {
            backend_linear(
                be,
                &(struct linear){
                    .n_weights = 1, .weight = {l.weight[i]}, .out = {one[i]}, .x = x, .n_rows = 9});
            CHECK_AT(!memcmp(out[i], one[i], (size_t)(9 * n_out[i]) * 4),
                     "%s: weight %d differs when it shares the call", all_isas[isa], i);
            weight_free((struct weight *)l.weight[i]);
            mem_free(out[i]), mem_free(one[i]);
        }
        mem_free(x);
        backend_close(be);
    }
}

TEST(embedding_rows_are_the_exact_values_of_the_stored_type)
{
    for (int isa = 0; isa < N_ISAS; isa++)
        for (int t = 0; t < N_TYPES; t++) {
            struct backend *be = open_backend(all_isas[isa], 2, false);
            if (!be) continue;
            enum { OUT = 37, IN = 512 };
            struct rng r;
            rng_seed(&r, 8);
            float *values = random_values(&r, OUT * IN, 0.3f), *exact = xmalloc(OUT * IN * 4),
                  out[3 * IN];
            struct weight *w = quantised_weight(be, all_types[t], OUT, IN, values, exact);
            const int32_t ids[3] = {36, 0, 17};
            backend_embed(be, w, ids, 3, false, out);
            for (int i = 0; i < 3; i++)
                CHECK_AT(!memcmp(out + i * IN, exact + ids[i] * IN, IN * 4), "%s %s row %d",
                         all_isas[isa], tensor_type_name(all_types[t]), ids[i]);
            backend_embed(be, w, ids, 1, true, out);
            CHECK(out[7] == exact[36 * IN + 7] + exact[36 * IN + 7]);
            weight_free(w);
            backend_close(be);
            mem_free(values), mem_free(exact);
        }
}

TEST(silu_gelu_and_norm_on_the_way_in_match_their_formulas)
{
    enum { IN = 96, N = 5 };
    struct rng r;
    rng_seed(&r, 21);
    float *x = random_values(&r, N * IN, 4.0f), *x2 = random_values(&r, N * IN, 1.0f),
          *norm = random_values(&r, IN, 1.0f);
    float unit[IN * IN] = {0};
    for (int i = 0; i < IN; i++)
        unit[i * IN + i] = 1;
    for (int isa = 0; isa < N_ISAS; isa++) {
        struct backend *be = open_backend(all_isas[isa], 2, false);
        if (!be) continue;
        struct weight *w = quantised_weight(be, TENSOR_F32, IN, IN, unit, NULL);
        for (int kind = LINEAR_PLAIN; kind <= LINEAR_GELU; kind++) {
            float out[N * IN];
            backend_linear(be, &(struct linear){.n_weights = 1,
                                                .weight = {w},
                                                .out = {out},
                                                .in = (enum linear_in)kind,
                                                .x = x,
                                                .x2 = x2,
                                                .norm_weight = norm,
                                                .eps = 1e-5f,
                                                .n_rows = N});
            for (int i = 0; i < N * IN; i++) {
                double v = x[i], want = v, ms = 0;
                for (int j = 0; j < IN; j++)
                    ms += (double)x[i / IN * IN + j] * x[i / IN * IN + j] / IN;
                if (kind == LINEAR_RMSNORM) want = v / sqrt(ms + 1e-5) * norm[i % IN];
                if (kind == LINEAR_SILU_MUL) want = v / (1 + exp(-v)) * x2[i];
                if (kind == LINEAR_GELU_MUL)
                    want =
                        0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) * x2[i];
                if (kind == LINEAR_GELU) want = 0.5 * v * (1 + erf(v / sqrt(2)));
                CHECK_AT(fabs(out[i] - want) <= 2e-6 * (1 + fabs(v)),
                         "%s kind %d x %.6g: %.9g, not %.9g", all_isas[isa], kind, v, out[i], want);
            }
        }
        weight_free(w);
        backend_close(be);
    }
    mem_free(x), mem_free(x2), mem_free(norm);
}

/* How many results of the layer's NOT_COLUMNS are numbers, where one value of the row is none. */
enum { NOT_COLUMNS = 5, NOT_LENGTH = 256 };
static int numbers_of(struct backend *be, enum tensor_type t, float value, int n_values)
{
    struct rng r;
    rng_seed(&r, 77);
    float *w = random_values(&r, NOT_COLUMNS * NOT_LENGTH, 1),
          *x = random_values(&r, NOT_LENGTH, 1), y[NOT_COLUMNS];
    struct weight *weight = quantised_weight(be, t, NOT_COLUMNS, NOT_LENGTH, w, NULL);
    for (int i = 0; i < n_values; i++)
        x[(37 + i) % NOT_LENGTH] = value;
    struct linear l = {.n_weights = 1, .weight = {weight}, .out = {y}, .x = x, .n_rows = 1};
    backend_linear(be, &l);
    int n = 0;
    for (int i = 0; i < NOT_COLUMNS; i++)
        n += isfinite(y[i]);
    weight_free(weight);
    mem_free(x);
    mem_free(w);
    return n;
}

TEST(what_is_no_number_is_none_afterwards)
{
    const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    const int counts[] = {1, 2, 7, NOT_LENGTH};
    for (int i = 0; i < N_ISAS; i++) {
        struct backend *be = open_backend(all_isas[i], 1, false);
        for (int k = 0; be && k < N_TYPES * 16; k++) {
            enum tensor_type t = all_types[k / 16];
            int n = numbers_of(be, t, values[k % 4], counts[k / 4 % 4]);
            CHECK_AT(!n, "%s, type %d: %d of %d values are %f, %d results are numbers", all_isas[i],
                     t, counts[k / 4 % 4], NOT_LENGTH, (double)values[k % 4], n);
        }
        if (be) backend_close(be);
    }
}

TEST(wrong_shapes_and_types_are_refused_with_the_reason)
{
    struct backend *be = open_backend("scalar", 1, false);
    struct weight *w = NULL;
    struct errmsg e = {0};
    uint8_t bytes[64] = {0};
    CHECK_INT(weight_new(&w, be, TENSOR_Q4_K, 1, 32, bytes, &e), ERR_INVALID);
    CHECK(strstr(e.text, "multiple of 256"));
    CHECK_INT(weight_new(&w, be, (enum tensor_type)20, 1, 32, bytes, &e), ERR_UNSUPPORTED);
    CHECK(strstr(e.text, "IQ4_NL"));
    CHECK_INT(weight_new(&w, be, TENSOR_F32, 0, 32, bytes, &e), ERR_INVALID);
    CHECK(!w);
    backend_close(be);
}

TEST(unknown_instruction_sets_and_thread_counts_are_refused)
{
    struct backend *be = NULL;
    struct errmsg e = {0};
    CHECK_INT(backend_open(&be, &(struct backend_options){.n_threads = 1, .isa = "sse9"}, &e),
              ERR_INVALID);
    CHECK(strstr(e.text, "scalar, avx2 and avx512"));
    CHECK_INT(backend_open(&be, &(struct backend_options){.n_threads = 65}, &e), ERR_INVALID);
    CHECK_INT(backend_open(&be, &(struct backend_options){.n_threads = -1}, &e), ERR_INVALID);
    setenv("DEJA_ISA", "mmx", 1);
    CHECK_INT(backend_open(&be, &(struct backend_options){.n_threads = 1}, &e), ERR_INVALID);
    CHECK(strstr(e.text, "DEJA_ISA"));
    setenv("DEJA_ISA", "scalar", 1);
    CHECK_INT(backend_open(&be, &(struct backend_options){.n_threads = 1}, &e), OK);
    CHECK_Z(backend_isa_name(be), "scalar");
    backend_close(be);
    unsetenv("DEJA_ISA");
}

TEST_MAIN()
