/* cuda.h - what the CUDA files offer to C: launches on device memory. A seed: not yet behind backend_open.
 * No CUDA type leaves this folder: a stream is passed as a pointer (cudaStream_t), NULL for the default one.
 * Threading: as CUDA streams. Every call only enqueues; errors of the kernel itself show at the next synchronisation. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_CUDA_H
#define DEJA_ENGINE_BACKEND_CUDA_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "engine/backend/quant.h"

/* Devices that can run our code; 0 without a driver. */
int cuda_device_count(void);
/* All pointers are device memory. ERR_UNAVAILABLE with CUDA's own text when the launch is refused. */
MUST enum err cuda_rmsnorm(const float *x, const float *weight, float eps, int n_rows, int n,
                           float *out, void *stream, struct errmsg *e);

struct cuda_gemv_args {
    enum tensor_type type; /* Q8_0 or Q4_0, else ERR_UNSUPPORTED */
    const void *rows;      /* n_out rows as stored in the file, 2-byte aligned */
    int n_out, n_in, n_cols;
    const float *x; /* f32[n_cols][n_in] */
    float *out;     /* f32[n_cols][n_out] */
};
MUST enum err cuda_gemv(const struct cuda_gemv_args *g, void *stream, struct errmsg *e);

#ifdef __cplusplus
}
#endif
#endif
