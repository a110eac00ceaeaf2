/* attend_wide.cu - launches of attend_wide.cuh, and the maps of the KV they read by. */
#include "engine/backend/cuda/attend_wide.cuh"

#if defined __CUDACC__ && !defined DEJA_SM90A
enum { SM90A = false }; /* the kernel in this program is a trap (hopper.cuh) */
#else
enum { SM90A = true };
#endif

cudaError_t attend_maps_make(struct attend_maps *out, const struct kv_view &kv, int n_blocks,
                             int n_layers, size_t layer_bytes)
{
    struct cudaDeviceProp p;
    int device = 0, tokens = kv.block_tokens;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess) code = cudaGetDeviceProperties(&p, device);
    if (code != cudaSuccess) return code;
    if (!SM90A || p.major != 9 || p.minor != 0) return cudaErrorInvalidDeviceFunction;
    if (kv.type != GPU_KV_F16 || (kv.head_dim != 64 && kv.head_dim != 128) || tokens % 8 ||
        WIDE_RUN % tokens)
        return cudaErrorInvalidValue;
    struct tensor_shape s = {kv.layer,
                             {(uint64_t)kv.head_dim, (uint64_t)tokens, (uint64_t)kv.n_heads,
                              (uint64_t)n_blocks, (uint64_t)n_layers},
                             {(uint64_t)kv.k_bytes, kv.head_bytes, kv.block_bytes, layer_bytes},
                             {64, (uint32_t)tokens, 1, 1, 1}};
    if ((code = tensor_map_make(&out->k, &s)) != cudaSuccess) return code;
    s.base = kv.layer + kv.v_at;
    s.strides[0] = (uint64_t)kv.v_bytes;
    return tensor_map_make(&out->v, &s);
}

template <int DIM> static cudaError_t wide(const struct attend_args &a, int n_tiles, cudaStream_t s)
{
    dim3 grid((unsigned)(n_tiles * a.splits_max), (unsigned)a.kv.n_heads);
    auto kernel = attend_wide<DIM>;
    struct attend_maps maps = *a.maps;
    constexpr int bytes = wide_bytes<DIM>::all;
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (code != cudaSuccess) return code;
    LAUNCH(kernel, grid, WIDE_THREADS_ALL, bytes, s, a, maps);
    return cudaSuccess;
}

cudaError_t launch_attend_wide(struct attend_args a, const struct attend_tile *tiles, int n_tiles,
                               cudaStream_t s)
{
    if (!n_tiles) return cudaSuccess;
    a.tiles = tiles;
    return a.kv.head_dim == 64 ? wide<64>(a, n_tiles, s) : wide<128>(a, n_tiles, s);
}
