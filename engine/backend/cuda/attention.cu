/* attention.cu - plans and launches of kv.cuh and attention.cuh. */
#include "engine/backend/cuda/attention.cuh"

#include "engine/backend/cuda/attend_maps.h"

struct kv_view kv_view_of(enum gpu_kv_type type, int n_heads, int head_dim, int block_tokens)
{
    struct kv_view v = {};
    size_t tokens = (size_t)block_tokens;
    bool wide = type == GPU_KV_F16, four = type == GPU_KV_K8V4;
    v.type = type, v.n_heads = n_heads, v.head_dim = head_dim, v.block_tokens = block_tokens;
    v.k_bytes = wide ? 2 * head_dim : head_dim;
    v.v_bytes = four ? head_dim / 2 : v.k_bytes;
    v.v_scale_bytes = wide ? 0 : four ? (head_dim + GPU_V4_GROUP - 1) / GPU_V4_GROUP * 4 : 4;
    v.v_at = tokens * (size_t)v.k_bytes;
    v.scale_at = v.v_at + tokens * (size_t)v.v_bytes;
    v.v_scale_at = v.scale_at + (wide ? 0 : tokens * sizeof(float));
    v.head_bytes = (v.v_scale_at + tokens * (size_t)v.v_scale_bytes + 15) / 16 * 16;
    v.block_bytes = v.head_bytes * (size_t)n_heads;
    return v;
}

void launch_rope_store(const struct rope_store_args &a, int n_rows, cudaStream_t s)
{
    dim3 grid((unsigned)n_rows, (unsigned)(a.n_heads + a.kv.n_heads));
    LAUNCH(rope_store, grid, LANES, 0, s, a);
}

template <int DIM, int M>
static cudaError_t attend(struct attend_args a, const struct attend_tile *tiles, int n_tiles,
                          cudaStream_t s)
{
    if (!n_tiles) return cudaSuccess;
    dim3 grid((unsigned)(n_tiles * a.splits_max), (unsigned)a.kv.n_heads);
    constexpr int bytes = ATTEND_TEAMS * attend_shape<DIM>::team_elements * 2;
    static_assert(bytes <= SHARED_EVERYWHERE, "a kernel that some supported device cannot run");
    auto kernel = attend_tiles<DIM, M>;
    a.tiles = tiles;
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (code != cudaSuccess) return code;
    LAUNCH(kernel, grid, ATTEND_TEAMS * M * LANES, bytes, s, a);
    return cudaSuccess;
}
template <int DIM>
static cudaError_t attend_all(const struct attend_args &a, const struct attend_tiles_of &t,
                              cudaStream_t s)
{
    cudaError_t code = attend<DIM, 1>(a, t.few, t.n_few, s);
    if (code != cudaSuccess) return code;
    if (a.maps && !a.rows.tree_mask) return launch_attend_wide(a, t.many, t.n_many, s);
    return attend < DIM, DIM <= 128 ? 4 : 2 > (a, t.many, t.n_many, s);
}

cudaError_t launch_attention(const struct attend_args &a, const struct attend_tiles_of &tiles,
                             int n_rows, cudaStream_t s)
{
    cudaError_t code = a.kv.head_dim <= 64    ? attend_all<64>(a, tiles, s)
                       : a.kv.head_dim <= 128 ? attend_all<128>(a, tiles, s)
                                              : attend_all<256>(a, tiles, s);
    if (code == cudaSuccess && a.splits_max > 1)
        LAUNCH(attend_merge, n_rows * a.n_heads, 64, 0, s, a);
    return code;
}
