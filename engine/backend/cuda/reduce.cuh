/* reduce.cuh - sums and maxima over a warp or a block, always in the same order. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_REDUCE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_REDUCE_CUH
#include "engine/backend/cuda/device.cuh"

enum { LANES = 32 };

DEVICE float warp_sum(float v)
{
    for (int by = LANES / 2; by; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    return v;
}
DEVICE float warp_max(float v)
{
    for (int by = LANES / 2; by; by /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, by));
    return v;
}

/* The sum over all threads of the block, in a fixed order. partial: one float a warp. */
DEVICE float block_sum(float v, float *partial)
{
    v = warp_sum(v);
    if (threadIdx.x % LANES == 0) partial[threadIdx.x / LANES] = v;
    __syncthreads();
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / LANES; w++)
        total += partial[w];
    return total;
}

#endif
