/* moe.cuh - a mixture of experts: which experts a row goes to, pairs of row and expert sorted by expert, products of each expert's weights
 * with its own columns (grouped GEMM), and the weighted sum. How many rows an expert gets is known on the device only, so grids are as
 * large as any choice could need and blocks without a tile end at once: a step can be recorded.
 *
 * route_rows: grid = rows, block = one warp; a lane keeps every 32nd logit in registers. Bytes: the logits once.
 * sort_pairs: one block, a thread an expert, which looks at all pairs twice in their order: no atomics, so the order is always the same.
 *   Shared: one int an expert.
 * expert_gemv, expert_gemv_plain, expert_gemm, expert_gemm_half: gemv.cuh, gemm.cuh and gemm_half.cuh with grid.y = tiles; a tile is one expert's weights and up to 8, any
 *   number of, and 8 * TILES columns. Bytes: each used expert's weights once a tile.
 * expert_sum: grid = rows; each result is added in the order of the choice. Bytes: (n_used + 2) 4n a row.
 * Never measured on hardware. Sources: moe.h; grouping as in Gale et al. 2022, arXiv:2211.15841 (products over blocks of tokens by expert). */
#ifndef DEJA_ENGINE_BACKEND_CUDA_MOE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_MOE_CUH
#include "engine/backend/cuda/gemm_half.cuh"
#include "engine/backend/cuda/moe_launch.h"

enum { EXPERTS_MAX = 512, ROUTE_MAX = EXPERTS_MAX / LANES, USED_MAX = 32, SUM_THREADS = 256 };

struct liked {
    float v;
    int e; /* INT_MAX: nobody */
};
/* Symmetric in a and b, whatever the numbers are: all lanes agree. */
DEVICE struct liked more_liked(struct liked a, struct liked b)
{
    if (a.v > b.v) return a;
    if (b.v > a.v) return b;
    return a.e < b.e ? a : b;
}
DEVICE struct liked warp_most_liked(struct liked a)
{
    for (int by = LANES / 2; by; by /= 2) {
        struct liked b = {__shfl_xor_sync(0xffffffffu, a.v, by),
                          __shfl_xor_sync(0xffffffffu, a.e, by)};
        a = more_liked(a, b);
    }
    return a;
}

KERNEL route_rows(struct route_args a)
{
    enum { NOBODY = 0x7fffffff };
    int lane = (int)threadIdx.x;
    const float *logit = a.logits + (size_t)blockIdx.x * (size_t)a.n_experts;
    size_t pair = (size_t)blockIdx.x * (size_t)a.n_used;
    float v[ROUTE_MAX], most = 0, all = 0, chosen = 0, mine = 0;
    unsigned taken = 0; /* bit i: v[i] */
#pragma unroll
    for (int i = 0; i < ROUTE_MAX; i++)
        v[i] = i * LANES + lane < a.n_experts ? logit[i * LANES + lane] : 0;
    for (int k = 0; k < a.n_used; k++) {
        struct liked best = {-INFINITY, NOBODY};
#pragma unroll
        for (int i = 0; i < ROUTE_MAX; i++)
            if (i * LANES + lane < a.n_experts && !(taken >> i & 1))
                best = more_liked(best, {v[i], i * LANES + lane});
        best = warp_most_liked(best);
        if (best.e % LANES == lane) taken |= 1u << best.e / LANES;
        if (k == 0) most = best.v;
        float w = expf(best.v - most);
        chosen += w;
        if (k == lane) {
            mine = w;
            a.expert[pair + (size_t)k] = best.e;
        }
    }
#pragma unroll
    for (int i = 0; i < ROUTE_MAX; i++)
        if (i * LANES + lane < a.n_experts && !(taken >> i & 1)) all += expf(v[i] - most);
    all = warp_sum(all) + chosen;
    if (lane < a.n_used)
        a.weight[pair + (size_t)lane] = mine * (a.scale / (a.normalise ? chosen : all));
}

KERNEL __launch_bounds__(EXPERTS_MAX) sort_pairs(struct sort_args a)
{
    SHARED(int, count, EXPERTS_MAX);
    int e = (int)threadIdx.x, n = 0, first = 0, tile = 0, n_tiles = 0;
    for (int p = 0; e < a.n_experts && p < a.n_pairs; p++)
        n += a.expert[p] == e;
    if (e < a.n_experts) count[e] = n;
    __syncthreads();
    for (int f = 0; f < a.n_experts; f++) {
        int tiles = (count[f] + a.tile_cols - 1) / a.tile_cols;
        if (f < e) first += count[f], tile += tiles;
        n_tiles += tiles;
    }
    for (int t = n_tiles + e; t < a.n_tiles; t += (int)blockDim.x)
        a.tiles[t] = {0, 0, 0};
    if (e >= a.n_experts) return;
    for (int c = 0; c < n; c += a.tile_cols)
        a.tiles[tile++] = {e, first + c, min(n - c, a.tile_cols)};
    for (int p = 0; p < a.n_pairs; p++) {
        if (a.expert[p] != e) continue;
        a.place[p] = first;
        a.row[first++] = p / a.n_used;
    }
}

/* The weights of one expert. */
template <int TYPE> DEVICE struct packed expert_weights(const struct packed &all, int expert)
{
    typedef weight_traits<TYPE> t;
    struct packed w = all;
    size_t rows = (size_t)expert * (size_t)all.n_out, runs = rows * (size_t)all.n_runs;
    w.q += runs * (t::wide ? 32 : 16);
    w.high += runs * (t::six ? 8 : 4);
    w.scale += runs * (!t::k && t::has_min ? 4 : 2);
    w.super += runs / 8 * 4;
    return w;
}

/* p.tiles [blockIdx.y] with columns c.. of it as the arguments of a gemv. */
DEVICE struct gemv_args expert_columns(const struct expert_product &p, const struct packed &w,
                                       const struct expert_tile &tile, int c)
{
    size_t col = (size_t)(tile.first + c), at = col * (size_t)w.n_in;
    struct gemv_args a = {w, NULL, NULL, NULL, NULL, tile.n - c, NULL, false, NULL};
    if (p.q) a.q = p.q + at, a.d = p.d + at / 16, a.s = p.s + at / 16;
    if (p.f) a.f = p.f + at;
    a.out = p.out + col * (size_t)w.n_out;
    return a;
}

template <int TYPE, int COLS> KERNEL expert_gemv(struct expert_product p)
{
    struct expert_tile tile = p.tiles[blockIdx.y];
    if (!tile.n) return;
    gemv_packed_block<TYPE, COLS>(
        expert_columns(p, expert_weights<TYPE>(p.w, tile.expert), tile, 0));
}

/* Of one expert. */
template <int TYPE> DEVICE size_t plain_bytes(const struct packed &w)
{
    return (size_t)w.n_out * (size_t)w.n_in * (TYPE == TENSOR_F32 ? 4 : 2);
}

template <int TYPE> KERNEL expert_gemv_plain(struct expert_product p)
{
    struct expert_tile tile = p.tiles[blockIdx.y];
    struct packed w = p.w;
    w.q += plain_bytes<TYPE>(w) * (size_t)tile.expert;
    for (int c = 0; c < tile.n; c += GEMV_COLS_MAX) {
        struct gemv_args a = expert_columns(p, w, tile, c);
        a.n_cols = min(a.n_cols, (int)GEMV_COLS_MAX);
        gemv_plain_block<TYPE, GEMV_COLS_MAX>(a);
    }
}

/* A tile's columns as the arguments of a gemm; w is of all experts. */
DEVICE struct gemm_args tile_columns(const struct expert_product &p, const struct expert_tile &tile)
{
    size_t first = (size_t)tile.first;
    struct gemm_args a = {p.w,   p.h + first * (size_t)p.w.n_in,   tile.n, NULL,
                          false, p.out + first * (size_t)p.w.n_out};
    return a;
}

template <int TYPE, int TILES> KERNEL expert_gemm(struct expert_product p)
{
    struct expert_tile tile = p.tiles[blockIdx.y];
    if (!tile.n) return;
    struct gemm_args a = tile_columns(p, tile);
    a.w = expert_weights<TYPE>(p.w, tile.expert);
    gemm_block<TYPE, TILES>(a, 0);
}

template <int TYPE, int TILES> KERNEL expert_gemm_half(struct expert_product p)
{
    struct expert_tile tile = p.tiles[blockIdx.y];
    if (!tile.n) return;
    struct gemm_args a = tile_columns(p, tile);
    a.w.q += plain_bytes<TYPE>(a.w) * (size_t)tile.expert;
    gemm_half_block<TYPE, TILES>(a, 0);
}

KERNEL expert_sum(struct expert_sum_args a)
{
    size_t row = blockIdx.x, n = (size_t)a.n;
    float open = a.shared ? 1.0f / (1.0f + expf(-a.shared_gate[row])) : 0;
    for (size_t i = threadIdx.x; i < n; i += SUM_THREADS) {
        float sum = a.out[row * n + i];
        for (int k = 0; k < a.n_used; k++) {
            size_t pair = row * (size_t)a.n_used + (size_t)k;
            sum += a.weight[pair] * a.down[(size_t)a.place[pair] * n + i];
        }
        if (a.shared) sum += open * a.shared[row * n + i];
        a.out[row * n + i] = sum;
    }
}

#endif
