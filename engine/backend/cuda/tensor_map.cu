/* tensor_map.cu - see tensor_map.h. The driver's function is asked for by name: a program built with CUDA starts where no driver is. */
#ifdef __CUDACC__ /* the emulation has its own */
#include "engine/backend/cuda/tensor_map.h"

#include <cuda.h>

static_assert(sizeof(struct tensor_map) == sizeof(CUtensorMap), "the driver writes it");

#if CUDART_VERSION >= 12050
typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

cudaError_t tensor_map_make(struct tensor_map *out, const struct tensor_shape *s)
{
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult status;
    cuuint64_t dims[TENSOR_MAP_RANK], strides[TENSOR_MAP_RANK - 1];
    cuuint32_t box[TENSOR_MAP_RANK], ones[TENSOR_MAP_RANK];
    cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                        cudaEnableDefault, &status);
    if (code != cudaSuccess || status != cudaDriverEntryPointSuccess || !found)
        return code != cudaSuccess ? code : cudaErrorInsufficientDriver;
    for (int i = 0; i < TENSOR_MAP_RANK; i++) {
        dims[i] = s->dims[i], box[i] = s->box[i], ones[i] = 1;
        if (i) strides[i - 1] = s->strides[i - 1];
    }
    CUresult made = ((encode_fn)found)(
        (CUtensorMap *)out, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, TENSOR_MAP_RANK, s->base, dims,
        strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
#else
cudaError_t tensor_map_make(struct tensor_map *, const struct tensor_shape *)
{
    return cudaErrorInsufficientDriver;
}
#endif
#endif
