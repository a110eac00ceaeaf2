/* tensor_map.h - what the tensor memory accelerator (TMA, compute capability 9.0) knows of a tensor of f16 in device memory, so that one
 * instruction copies a box of it into shared memory: cuTensorMapEncodeTiled of the driver, found at run time (tensor_map.cu); in the
 * emulation the shape itself (tests/cuda_emu/emu_tma.cpp). Rows of the box are 128 bytes and lie swizzled: 16-byte chunk c of a row at
 * shared address A lies at c ^ (A / 128 % 8). Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_TENSOR_MAP_H
#define DEJA_ENGINE_BACKEND_CUDA_TENSOR_MAP_H
#include <cuda_runtime.h>
#include <stdint.h>

struct alignas(64) tensor_map { /* as the driver writes it */
    uint64_t words[16];
};
enum { TENSOR_MAP_RANK = 5 };
struct tensor_shape {
    void *base;                            /* a multiple of 16 */
    uint64_t dims[TENSOR_MAP_RANK];        /* elements; dims[0] is contiguous */
    uint64_t strides[TENSOR_MAP_RANK - 1]; /* bytes of dims 1 and up, multiples of 16 */
    uint32_t box[TENSOR_MAP_RANK];         /* box[0] is 64 */
};
/* Not cudaSuccess: the driver has no such call, or takes no such shape. */
cudaError_t tensor_map_make(struct tensor_map *out, const struct tensor_shape *s);

#endif
