/* attention.cu - plans and launches of kv.cuh and attention.cuh. */
#include "engine/backend/cuda/attention.cuh"

struct kv_view kv_view_of(enum gpu_kv_type type, int n_heads, int head_dim, int block_tokens)
{
    struct kv_view v = {};
    size_t part = (size_t)block_tokens * (size_t)head_dim * (type == GPU_KV_F16 ? 2 : 1);
    v.type = type, v.n_heads = n_heads, v.head_dim = head_dim, v.block_tokens = block_tokens;
    v.v_at = part;
    v.scale_at = 2 * part;
    v.head_bytes = v.scale_at + (type == GPU_KV_F16 ? 0 : 2 * (size_t)block_tokens * sizeof(float));
    v.head_bytes = (v.head_bytes + 15) / 16 * 16;
    v.block_bytes = v.head_bytes * (size_t)n_heads;
    return v;
}

void launch_rope_store(const struct rope_store_args &a, int n_rows, cudaStream_t s)
{
    dim3 grid((unsigned)n_rows, (unsigned)(a.n_heads + a.kv.n_heads));
    LAUNCH(rope_store, grid, LANES, 0, s, a);
}

int attend_tiles_max(int n_rows, int group)
{
    return n_rows * ((group + ATTEND_VECTORS - 1) / ATTEND_VECTORS);
}

/* Rows of one sequence that lie side by side share tiles, as many as 16 query vectors hold. Where a split begins depends on the first
 * position a row may see, rounded down to a whole split: on nothing else in the batch. */
int attend_plan(int n_rows, const int32_t *pos, const int32_t *seq, int group, int window,
                struct attend_tile *tiles, int32_t *n_splits_of_row, int *splits_max)
{
    int n = 0, rows_of_tile = group >= ATTEND_VECTORS ? 1 : ATTEND_VECTORS / group;
    *splits_max = 1;
    for (int row = 0; row < n_rows;) {
        int first = window && pos[row] + 1 > window ? pos[row] + 1 - window : 0;
        int from = first / ATTEND_SPLIT * ATTEND_SPLIT, rows = 1;
        while (rows < rows_of_tile && row + rows < n_rows && seq[row + rows] == seq[row] &&
               pos[row + rows] == pos[row] + rows) {
            int next = window && pos[row + rows] + 1 > window ? pos[row + rows] + 1 - window : 0;
            if (next / ATTEND_SPLIT * ATTEND_SPLIT != from ||
                pos[row + rows] / ATTEND_SPLIT != pos[row] / ATTEND_SPLIT)
                break;
            rows++;
        }
        int to = pos[row + rows - 1] + 1, splits = (to - from + ATTEND_SPLIT - 1) / ATTEND_SPLIT;
        for (int v = 0; v < rows * group; v += ATTEND_VECTORS) {
            int vectors = rows * group - v < ATTEND_VECTORS ? rows * group - v : ATTEND_VECTORS;
            tiles[n++] = {row, v, vectors, seq[row], from, to, splits};
        }
        for (int i = 0; i < rows; i++)
            n_splits_of_row[row + i] = splits;
        if (splits > *splits_max) *splits_max = splits;
        row += rows;
    }
    return n;
}

template <int DIM> static void attend(const struct attend_args &a, int n_tiles, cudaStream_t s)
{
    dim3 grid((unsigned)(n_tiles * a.splits_max), (unsigned)a.kv.n_heads);
    int bytes = ATTEND_WARPS * attend_shape<DIM>::warp_elements * 2;
    auto kernel = attend_tiles<DIM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    LAUNCH(kernel, grid, ATTEND_THREADS, bytes, s, a);
}

void launch_attention(const struct attend_args &a, int n_tiles, int n_rows,
                      const int32_t *n_splits_of_row, cudaStream_t s)
{
    if (a.kv.head_dim <= 64)
        attend<64>(a, n_tiles, s);
    else if (a.kv.head_dim <= 128)
        attend<128>(a, n_tiles, s);
    else
        attend<256>(a, n_tiles, s);
    if (a.splits_max > 1) LAUNCH(attend_merge, n_rows * a.n_heads, 64, 0, s, a, n_splits_of_row);
}
