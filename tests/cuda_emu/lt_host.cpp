/* lt_host.cpp - engine/backend/cuda/lt.h in the emulation: plain loops over the operands' exact values, in int32 (int8) or double,
 * at their turn in the stream.
 * CUDA_EMU_NO_LT=1: the library is not to be found. CUDA_EMU_LT_ROWS=n: it has nothing for matrices of more rows. Threading: one OS thread. */
#include <cstdlib>
#include <vector>

#include "engine/backend/cuda/lt.h"

struct lt {
    int unused;
};

enum err lt_open(struct lt **out, enum lt_kind kind, struct errmsg *e)
{
    struct cudaDeviceProp p;
    *out = NULL;
    if (getenv("CUDA_EMU_NO_LT"))
        return err_set(e, ERR_UNSUPPORTED, "libcublasLt is not to be found");
    if (kind == LT_E4M3 &&
        (cudaGetDeviceProperties(&p, 0) != cudaSuccess || p.major * 10 + p.minor < 89))
        return err_set(e, ERR_UNSUPPORTED, "FP8 products need compute capability 8.9");
    *out = new lt();
    return OK;
}
void lt_close(struct lt *t)
{
    delete t;
}

static float value(enum lt_kind kind, const void *p, size_t i)
{
    switch (kind) {
    case LT_F16:
        return f16_float(((const uint16_t *)p)[i]);
    case LT_BF16:
        return bf16_float(((const uint16_t *)p)[i]);
    default:
        return e4m3_float(((const uint8_t *)p)[i]);
    }
}

static std::vector<float> values(enum lt_kind kind, const void *p, size_t n)
{
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = value(kind, p, i);
    return v;
}

static void multiply_int8(const struct lt_product &a)
{
    size_t n = (size_t)a.n_in;
    for (int c = 0; c < a.n_cols; c++)
        for (int o = 0; o < a.n_out; o++) {
            const int8_t *w = (const int8_t *)a.w + (size_t)o * n,
                         *x = (const int8_t *)a.x + (size_t)c * n;
            int32_t sum = 0, *d = (int32_t *)a.d + (size_t)c * (size_t)a.d_stride + (size_t)o;
            for (size_t i = 0; i < n; i++)
                sum += w[i] * x[i];
            *d = (a.accumulate ? *d : 0) + sum;
        }
}

static void multiply_float(const struct lt_product &a)
{
    size_t n = (size_t)a.n_in;
    auto w = values(a.kind, a.w, n * (size_t)a.n_out),
         x = values(a.kind, a.x, n * (size_t)a.n_cols);
    for (int c = 0; c < a.n_cols; c++)
        for (int o = 0; o < a.n_out; o++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)w[(size_t)o * n + i] * (double)x[(size_t)c * n + i];
            float *d = (float *)a.d + (size_t)c * (size_t)a.d_stride + (size_t)o;
            *d = (a.accumulate ? *d : 0) + (float)sum;
        }
}

cudaError_t lt_multiply(struct lt *, const struct lt_product *p, cudaStream_t s)
{
    struct lt_product a = *p;
    if (a.n_in % LT_ALIGN || a.n_out % LT_ALIGN) return cudaErrorInvalidValue;
    const char *most = getenv("CUDA_EMU_LT_ROWS");
    if (most && a.n_out > atoi(most)) return cudaErrorInvalidValue;
    emu::enqueue(s, [a] {
        if (!emu::may_run()) return;
        if (a.kind == LT_INT8)
            multiply_int8(a);
        else
            multiply_float(a);
    });
    return cudaSuccess;
}
