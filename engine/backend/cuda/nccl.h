/* nccl.h - one rank's way to the GPUs of the others: NCCL, opened when it is asked for (nccl_lib.cu); loops over the ranks' memory at their
 * turn in the streams in the emulation (tests/cuda_emu/nccl_host.cpp). Calls enqueue on a stream of the rank's device, which
 * must be current, and can be recorded; every rank makes the same ones in the same order.
 * Threading: nccl_open by one thread for all; then each by its rank's. Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_NCCL_H
#define DEJA_ENGINE_BACKEND_CUDA_NCCL_H
#include <cuda_runtime.h>

extern "C" {
#include "base/err.h"
}

struct nccl;
/* out[n], of the devices device[n]. ERR_UNSUPPORTED: one sentence why they cannot be had together; out is then NULLs. The current device
 * may be another afterwards. */
enum err nccl_open(struct nccl **out, const int *device, int n, struct errmsg *e);
/* Also what is enqueued ends then, whether the others come or not. NULL is fine. */
void nccl_close(struct nccl *c);
/* x f32[n] = the sum of the ranks'; all f32[ranks][n] = part f32[n] of each. NULL, or why it was not enqueued (static text). */
const char *nccl_all_reduce(struct nccl *c, float *x, size_t n, cudaStream_t s);
const char *nccl_all_gather(struct nccl *c, const float *part, size_t n, float *all,
                            cudaStream_t s);
/* NULL, or what went wrong since (static text). */
const char *nccl_failure(struct nccl *c);

#endif
