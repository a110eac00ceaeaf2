/* rows.cu - launches of the kernels in rows.cuh. Columns beyond GEMV_COLS are taken in several launches, weights being read
 * again: this family is for decoding. Never run on hardware yet. */
#include "engine/backend/cuda/cuda.h"
#include "engine/backend/cuda/device.cuh"
#include "engine/backend/cuda/rows.cuh"

static enum err launched(struct errmsg *e, const char *what)
{
    cudaError_t err = cudaGetLastError();
    return err == cudaSuccess
               ? OK
               : err_set(e, ERR_UNAVAILABLE, "%s on the GPU: %s", what, cudaGetErrorString(err));
}

extern "C" int cuda_device_count(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

extern "C" enum err cuda_rmsnorm(const float *x, const float *weight, float eps, int n_rows, int n,
                                 float *out, void *stream, struct errmsg *e)
{
    LAUNCH(rmsnorm_rows, n_rows, ROWS_THREADS, 0, (cudaStream_t)stream, x, weight, eps, n, out);
    return launched(e, "rmsnorm");
}

extern "C" enum err cuda_gemv(const struct cuda_gemv_args *g, void *stream, struct errmsg *e)
{
    if ((g->type != TENSOR_Q8_0 && g->type != TENSOR_Q4_0) || g->n_in % 32)
        return err_set(e, ERR_UNSUPPORTED, "no GPU kernel for rows of %d elements in %s", g->n_in,
                       tensor_type_name((uint32_t)g->type));
    const unsigned short *rows = (const unsigned short *)g->rows;
    int blocks = (g->n_out + GEMV_WARPS - 1) / GEMV_WARPS;
    for (int c = 0; c < g->n_cols; c += GEMV_COLS) {
        int n = g->n_cols - c < GEMV_COLS ? g->n_cols - c : GEMV_COLS;
        const float *x = g->x + (size_t)c * g->n_in;
        float *out = g->out + (size_t)c * g->n_out;
        if (g->type == TENSOR_Q8_0)
            LAUNCH(gemv_q8_0, blocks, GEMV_WARPS * LANES, 0, (cudaStream_t)stream, rows, x,
                   g->n_out, g->n_in, n, out);
        else
            LAUNCH(gemv_q4_0, blocks, GEMV_WARPS * LANES, 0, (cudaStream_t)stream, rows, x,
                   g->n_out, g->n_in, n, out);
    }
    return launched(e, "gemv");
}
