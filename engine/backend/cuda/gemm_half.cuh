/* gemm_half.cuh - F16 and BF16 rows times many columns (9 and up) on tensor cores: both sides go through shared memory, activations are f16,
 * sums float32 (mma m16n8k16). BF16 weights become f16 in registers, which is exact from 2^-14 to 65504 and off by at most 2^-25 below.
 *
 * gemm_half<type, tiles>: block = 4 warps; a block computes GEMM_ROWS = 64 output rows (16 a warp) of 8 * tiles columns. Grid =
 *   (rows / 64, columns / (8 * tiles)). Shared: two buffers of [64 + 8 * tiles][64] elements, rows 72 apart as in gemm.cuh (23 KB for 16
 *   columns, 37 KB for 64); filled by cp.async one step ahead, read by ldmatrix. K advances by 64 a step. Bytes a block: its weights
 *   once, in pieces of 128 bytes a row; 2 n_in a column. Each result is a sum over k in one fixed order: it does not depend on the other
 *   columns. n_in is a multiple of 8 (linear_forms).
 * Never measured on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_GEMM_HALF_CUH
#define DEJA_ENGINE_BACKEND_CUDA_GEMM_HALF_CUH
#include "engine/backend/cuda/gemm.cuh"

/* tile[row][k] for rows row0.. (those past the end are the last one again) and elements k0..k0+63; what lies outside is zero. Belongs to
 * the group that the next gemm_load closes. */
DEVICE void gemm_half_load(const struct gemm_args &a, uint16_t *tile, int row0, int k0)
{
    for (int i = (int)threadIdx.x; i < GEMM_ROWS * (GEMM_K / 8); i += GEMM_THREADS) {
        int row = i / (GEMM_K / 8), k = i % (GEMM_K / 8) * 8, from = min(row0 + row, a.w.n_out - 1);
        uint16_t *to = tile + row * GEMM_STRIDE + k;
        if (k0 + k < a.w.n_in)
            COPY_ASYNC_16(to, (const uint16_t *)a.w.q + (size_t)from * (size_t)a.w.n_in +
                                  (size_t)(k0 + k));
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    }
}

/* Two bf16 to two f16, what is too large to the largest. */
DEVICE unsigned halves_of_bf16(unsigned two)
{
    float lo = bf16_float((uint16_t)(two & 0xffffu)), hi = bf16_float((uint16_t)(two >> 16));
    return two_halves(fminf(fmaxf(lo, -65504.0f), 65504.0f), fminf(fmaxf(hi, -65504.0f), 65504.0f));
}

/* One step of K for a warp's 16 rows and all column tiles. */
template <int TYPE, int TILES>
DEVICE void gemm_half_step(const uint16_t *rows, const uint16_t *cols, int lane,
                           float acc[TILES][4])
{
    for (int k = 0; k < GEMM_K; k += 16) {
        unsigned fa[4];
        LDMATRIX_X4(fa, rows + lane % 16 * GEMM_STRIDE + k + lane / 16 * 8);
        if (TYPE == TENSOR_BF16)
            for (int i = 0; i < 4; i++)
                fa[i] = halves_of_bf16(fa[i]);
        for (int t = 0; t < TILES; t += 2) {
            unsigned fb[4]; /* of two tiles */
            int col = t * 8 + lane % 8 + lane / 16 * 8;
            LDMATRIX_X4(fb, cols + col * GEMM_STRIDE + k + lane / 8 % 2 * 8);
            MMA_F16(acc[t], fa, fb);
            MMA_F16(acc[t + 1], fa, fb + 2);
        }
    }
}

/* What a block does: 64 rows of columns col0.. */
template <int TYPE, int TILES> DEVICE void gemm_half_block(const struct gemm_args &a, int col0)
{
    enum { BUFFER = (GEMM_ROWS + TILES * 8) * GEMM_STRIDE };
    static_assert(TILES % 2 == 0, "two tiles a load");
    SHARED(uint16_t, tiles, 2 * BUFFER);
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES,
        row0 = (int)blockIdx.x * GEMM_ROWS;
    float acc[TILES][4] = {{0}};
    gemm_half_load(a, tiles, row0, 0);
    gemm_load<TILES>(a, tiles + GEMM_ROWS * GEMM_STRIDE, col0, 0);
    for (int k0 = 0, step = 0; k0 < a.w.n_in; k0 += GEMM_K, step++) {
        const uint16_t *now = tiles + step % 2 * BUFFER;
        uint16_t *next = tiles + (step + 1) % 2 * BUFFER;
        gemm_half_load(a, next, row0, k0 + GEMM_K);
        gemm_load<TILES>(a, next + GEMM_ROWS * GEMM_STRIDE, col0, k0 + GEMM_K);
        COPY_WAIT(1);
        __syncthreads();
        gemm_half_step<TYPE, TILES>(now + warp * 16 * GEMM_STRIDE, now + GEMM_ROWS * GEMM_STRIDE,
                                    lane, acc);
        __syncthreads();
    }
    COPY_WAIT(0);
    gemm_write<TILES>(a, row0 + warp * 16, col0, lane, acc);
}

template <int TYPE, int TILES> KERNEL gemm_half(struct gemm_args a)
{
    gemm_half_block<TYPE, TILES>(a, (int)blockIdx.y * TILES * 8);
}

#endif
