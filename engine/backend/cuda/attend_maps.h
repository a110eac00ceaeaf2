/* attend_maps.h - the KV of all layers as tensors [layer][block][head][token][dimension], for attend_wide.cuh.
 * Private to engine/backend/cuda. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ATTEND_MAPS_H
#define DEJA_ENGINE_BACKEND_CUDA_ATTEND_MAPS_H
#include "engine/backend/cuda/launch.h"
#include "engine/backend/cuda/tensor_map.h"

struct attend_maps {
    struct tensor_map k, v;
};
/* kv.layer is layer 0. cudaErrorInvalidValue: KV that the kernel does not take (f16, heads of 64 or 128, blocks of 8 to 64 tokens);
 * cudaErrorInvalidDeviceFunction: the current device's compute capability is not 9.0, or the program was not built for sm_90a. */
cudaError_t attend_maps_make(struct attend_maps *out, const struct kv_view &kv, int n_blocks,
                             int n_layers, size_t layer_bytes);
/* Tiles of up to 64 vectors by a.maps, which is there. Errors: as launch_attention. */
cudaError_t launch_attend_wide(struct attend_args a, const struct attend_tile *tiles, int n_tiles,
                               cudaStream_t s);

#endif
