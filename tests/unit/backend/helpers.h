/* helpers.h - seeded data and backends for the backend's tests: every instruction set this CPU has, plain random rows. */
#ifndef DEJA_TESTS_BACKEND_HELPERS_H
#define DEJA_TESTS_BACKEND_HELPERS_H
#include "base/mem.h"
#include "base/rng.h"
#include "engine/backend/backend.h"
#include "tests/check.h"

static const enum tensor_type all_types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                                             TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                                             TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };
static const char *const all_isas[] = {"scalar", "avx2", "avx512"};
enum { N_ISAS = 3 };

/* NULL when this CPU lacks the set (then the case is left out; scalar never is). */
static inline struct backend *open_backend(const char *isa, int n_threads, bool exact)
{
    struct backend *be = NULL;
    struct errmsg e = {0};
    enum err err = backend_open(
        &be, &(struct backend_options){.n_threads = n_threads, .isa = isa, .exact = exact}, &e);
    if (err && err != ERR_UNSUPPORTED) CHECK_AT(false, "backend_open(%s): %s", isa, e.text);
    return be;
}

/* Roughly normal, in [-3,3]. */
static inline float random_value(struct rng *r)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += rng_f64(r) - 0.5;
    return (float)(s * 1.5);
}

static inline float *random_values(struct rng *r, size_t n, float scale)
{
    float *x = xmalloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_value(r) * scale;
    return x;
}

static inline struct weight *quantised_weight(struct backend *be, enum tensor_type t, int n_out,
                                              int n_in, const float *values, float *exact)
{
    size_t row = tensor_row_bytes(t, n_in);
    uint8_t *bytes = xmalloc((size_t)n_out * row);
    for (int r = 0; r < n_out; r++) {
        quantise_row(t, values + (size_t)r * (size_t)n_in, bytes + (size_t)r * row, n_in);
        if (exact)
            dequantise_row(t, bytes + (size_t)r * row, exact + (size_t)r * (size_t)n_in, n_in);
    }
    struct weight *w = NULL;
    struct errmsg e = {0};
    enum err err = weight_new(&w, be, t, n_out, n_in, bytes, &e);
    CHECK_AT(!err, "weight_new: %s", e.text);
    mem_free(bytes);
    return w;
}

#endif
