/* gemm.cuh - packed weights times many columns (9 and up) on tensor cores: weights are turned into f16 fragments in registers,
 * activations are f16, sums float32 (mma m16n8k16).
 *
 * gemm_packed<type, tiles>: block = 4 warps; a block computes GEMM_ROWS = 64 output rows (16 a warp) of 8 * tiles columns. Grid =
 *   (rows / 64, columns / (8 * tiles)). Shared: two buffers of [8 * tiles][64] activations, rows 72 apart so that a fragment's
 *   loads fall into different banks; filled by cp.async one step ahead. K advances by 64 (two runs) a step. Bytes a block: its weights once,
 *   2 n_in a column. Each result is a sum over k in one fixed order: it does not depend on the other columns.
 * Source of the in-register dequantisation idea: Frantar et al. 2024, arXiv:2408.11743 (Marlin); the layout here is our own.
 * Never measured on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_GEMM_CUH
#define DEJA_ENGINE_BACKEND_CUDA_GEMM_CUH
#include "engine/backend/cuda/gemv.cuh"

enum {
    GEMM_WARPS = 4,
    GEMM_THREADS = GEMM_WARPS * LANES,
    GEMM_ROWS = 16 * GEMM_WARPS,
    GEMM_K = 64,
    GEMM_STRIDE = GEMM_K + 8
};

struct gemm_args {
    struct packed
        w; /* n_in is a multiple of 64, or of 32 with n_runs odd: the rest of the last step is zero */
    const uint16_t *h; /* f16 [n_cols][n_in] */
    int n_cols;
    const float *bias;
    bool accumulate;
    float *out; /* f32[n_cols][n_out] */
};

/* Elements e[0..3] = {2w, 2w+1, 2w+8, 2w+9} of both halves of a run: v[half][..]. */
template <int TYPE>
DEVICE void fragment_values(const struct packed &p, size_t run_i, int w, float v[2][4])
{
    typedef weight_traits<TYPE> t;
    struct weight_run s;
    run_scales<TYPE>(p, run_i, &s);
    for (int pair = 0; pair < 2; pair++) {
        int at = 2 * w + 8 * pair;
        unsigned two[2];
        if (t::wide) {
            two[0] = *(const uint16_t *)(p.q + run_i * 32 + (size_t)at);
            two[1] = *(const uint16_t *)(p.q + run_i * 32 + (size_t)at + 16);
        } else {
            unsigned bytes = *(const uint16_t *)(p.q + run_i * 16 + (size_t)at);
            two[0] = bytes & 0x0f0fu;
            two[1] = bytes >> 4 & 0x0f0fu;
        }
        for (int h = 0; h < 2; h++)
            for (int j = 0; j < 2; j++) {
                int e = at + 16 * h + j, q = (int)(two[h] >> 8 * j & 255);
                if (t::wide) q = (int)(int8_t)q;
                if (t::five) q |= (int)(*(const unsigned *)(p.high + run_i * 4) >> e & 1) << 4;
                if (t::six) q |= (p.high[run_i * 8 + (size_t)e / 4] >> e % 4 * 2 & 3) << 4;
                v[h][2 * pair + j] = s.scale[h] * (float)q + s.min[h];
            }
    }
}

DEVICE unsigned two_halves(float lo, float hi)
{
    return (unsigned)float_f16(hi) << 16 | float_f16(lo);
}

/* tile[col][k] for columns col0.. and elements k0..k0+63; what lies outside is zero. */
template <int TILES>
DEVICE void gemm_load(const struct gemm_args &a, uint16_t *tile, int col0, int k0)
{
    for (int i = (int)threadIdx.x; i < TILES * 8 * (GEMM_K / 8); i += GEMM_THREADS) {
        int col = i / (GEMM_K / 8), k = i % (GEMM_K / 8) * 8;
        uint16_t *to = tile + col * GEMM_STRIDE + k;
        if (col0 + col < a.n_cols && k0 + k < a.w.n_in)
            COPY_ASYNC_16(to, a.h + (size_t)(col0 + col) * (size_t)a.w.n_in + (size_t)(k0 + k));
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    }
    COPY_COMMIT();
}

/* One run (two products of k = 16) for all column tiles. */
template <int TYPE, int TILES>
DEVICE void gemm_run(const struct gemm_args &a, const int row[2], int run_i, const uint16_t *tile,
                     int lane, float acc[TILES][4])
{
    float v[2][2][4]; /* [row][half][element] */
    for (int r = 0; r < 2; r++)
        fragment_values<TYPE>(a.w, (size_t)row[r] * (size_t)a.w.n_runs + (size_t)run_i, lane % 4,
                              v[r]);
    for (int h = 0; h < 2; h++) {
        unsigned fa[4] = {two_halves(v[0][h][0], v[0][h][1]), two_halves(v[1][h][0], v[1][h][1]),
                          two_halves(v[0][h][2], v[0][h][3]), two_halves(v[1][h][2], v[1][h][3])};
        for (int t = 0; t < TILES; t++) {
            const uint16_t *b = tile + (t * 8 + lane / 4) * GEMM_STRIDE + 16 * h + lane % 4 * 2;
            unsigned fb[2] = {*(const unsigned *)b, *(const unsigned *)(b + 8)};
            MMA_F16(acc[t], fa, fb);
        }
    }
}

/* A warp's 16 rows from row0 on of all column tiles. */
template <int TILES>
DEVICE void gemm_write(const struct gemm_args &a, int row0, int col0, int lane,
                       const float acc[TILES][4])
{
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < 4; i++) {
            int out_row = row0 + lane / 4 + i / 2 * 8, col = col0 + t * 8 + lane % 4 * 2 + i % 2;
            if (out_row >= a.w.n_out || col >= a.n_cols) continue;
            float *out = a.out + (size_t)col * (size_t)a.w.n_out + out_row, sum = acc[t][i];
            if (a.bias) sum += a.bias[out_row];
            *out = a.accumulate ? *out + sum : sum;
        }
}

/* What a block does: 64 rows of columns col0.. */
template <int TYPE, int TILES> DEVICE void gemm_block(const struct gemm_args &a, int col0)
{
    SHARED(uint16_t, tiles, 2 * TILES * 8 * GEMM_STRIDE);
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES,
        row0 = (int)blockIdx.x * GEMM_ROWS + warp * 16;
    int row[2]; /* rows past the end compute the last one again; nobody writes them */
    for (int r = 0; r < 2; r++)
        row[r] = min(row0 + lane / 4 + 8 * r, a.w.n_out - 1);
    float acc[TILES][4] = {{0}};
    gemm_load<TILES>(a, tiles, col0, 0);
    for (int k0 = 0, step = 0; k0 < a.w.n_in; k0 += GEMM_K, step++) {
        const uint16_t *tile = tiles + step % 2 * TILES * 8 * GEMM_STRIDE;
        gemm_load<TILES>(a, tiles + (step + 1) % 2 * TILES * 8 * GEMM_STRIDE, col0, k0 + GEMM_K);
        COPY_WAIT(1);
        __syncthreads();
        for (int r = 0; r < 2; r++)
            if (k0 / 32 + r < a.w.n_runs)
                gemm_run<TYPE, TILES>(a, row, k0 / 32 + r, tile + 32 * r, lane, acc);
        __syncthreads();
    }
    COPY_WAIT(0);
    gemm_write<TILES>(a, row0, col0, lane, acc);
}

template <int TYPE, int TILES> KERNEL gemm_packed(struct gemm_args a)
{
    gemm_block<TYPE, TILES>(a, (int)blockIdx.y * TILES * 8);
}

#endif
