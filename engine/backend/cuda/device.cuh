/* device.cuh - the few words kernels use, for nvcc. tests/cuda_emu/emu.h defines the same words for the CPU. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_DEVICE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_DEVICE_CUH
#include <cuda_fp16.h>

#define KERNEL __global__ void
#define DEVICE __device__ static inline
#define SHARED(type, name, n) __shared__ type name[n]
#define THREAD_X ((int)threadIdx.x)
#define BLOCK_X ((int)blockIdx.x)
#define BARRIER() __syncthreads()
#define SHUFFLE_XOR(v, mask) __shfl_xor_sync(0xffffffffu, v, mask)
#define HALF_TO_FLOAT(bits) __half2float(__ushort_as_half(bits))

#endif
