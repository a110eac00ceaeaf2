/* lt.h - large products, a matrix times the many rows of a long prompt, by a library: cuBLASLt where the program was built with its headers
 * and finds it at run time (lt_cublas.cu); a plain double loop in the emulation (tests/cuda_emu/lt_host.cpp).
 * f16, bf16 and E4M3 sum in float32, int8 in int32. Scales of rows and tokens are the caller's (wide.cuh).
 * Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_LT_H
#define DEJA_ENGINE_BACKEND_CUDA_LT_H
#include <cuda_runtime.h>

extern "C" {
#include "base/err.h"
}

enum lt_kind { LT_F16, LT_BF16, LT_E4M3, LT_INT8 };
struct lt;
struct lt_product { /* d[n_cols][d_stride] (+)= x[n_cols][n_in] times w[n_out][n_in] transposed */
    enum lt_kind kind;
    int n_out, n_in, n_cols; /* n_in and n_out are multiples of LT_ALIGN */
    const void *w, *x;
    void *d;      /* f32, or s32 for int8 */
    int d_stride; /* elements */
    bool accumulate;
};
enum { LT_ALIGN = 16 };
/* Of the current device; `kind` is what it will be asked for. ERR_UNSUPPORTED: one sentence why it cannot be had. */
enum err lt_open(struct lt **out, enum lt_kind kind, struct errmsg *e);
void lt_close(struct lt *t); /* NULL is fine */
/* Enqueues it. Anything but cudaSuccess: it was not. */
cudaError_t lt_multiply(struct lt *t, const struct lt_product *p, cudaStream_t s);

#endif
