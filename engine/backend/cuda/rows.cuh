/* rows.cuh - first CUDA kernel family: RMSNorm of rows, and GGUF rows (Q8_0, Q4_0) times a few columns, as in decoding.
 * Written in the words of device.cuh: nvcc makes device code of it, and the tests run the same lines on the CPU
 * (tests/cuda_emu), one fiber a thread.
 *
 * rmsnorm_rows: grid = rows, block = ROWS_THREADS. Shared: one float a warp. Bytes a row: 4n read twice (the second time from
 *   L1/L2), 4n written.
 * gemv_q8_0, gemv_q4_0: a warp per output row, GEMV_WARPS rows a block, up to GEMV_COLS columns. Eight lanes share a block of 32
 *   weights (34 or 18 bytes), so a warp reads 136 or 72 neighbouring bytes at a time; no shared memory. Bytes: the weights
 *   once, columns from L1/L2. Sums are folded by xor shuffles: a fixed order, so results do not vary from run to run.
 * Never measured on hardware: no share of peak bandwidth is claimed. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ROWS_CUH
#define DEJA_ENGINE_BACKEND_CUDA_ROWS_CUH

enum { ROWS_THREADS = 128, GEMV_WARPS = 4, GEMV_COLS = 4, LANES = 32, LANES_PER_RUN = 8 };

DEVICE float warp_sum(float v)
{
    for (int mask = LANES / 2; mask; mask /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, mask);
    return v;
}

/* out f32[rows][n] = x / sqrt(mean(x^2) + eps) * weight; x f32[rows][n] */
KERNEL rmsnorm_rows(const float *x, const float *weight, float eps, int n, float *out)
{
    SHARED(float, partial, ROWS_THREADS / LANES);
    const float *row = x + (size_t)(int)blockIdx.x * n;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += ROWS_THREADS)
        sum += row[i] * row[i];
    sum = warp_sum(sum);
    if ((int)threadIdx.x % LANES == 0) partial[(int)threadIdx.x / LANES] = sum;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < ROWS_THREADS / LANES; w++)
        total += partial[w];
    float scale = 1.0f / sqrtf(total / (float)n + eps);
    for (int i = (int)threadIdx.x; i < n; i += ROWS_THREADS)
        out[(size_t)(int)blockIdx.x * n + i] = row[i] * scale * weight[i];
}

/* rows: n_out rows of Q8_0, n_in elements each; x f32[n_cols][n_in]; out f32[n_cols][n_out]; n_cols <= GEMV_COLS */
KERNEL gemv_q8_0(const unsigned short *rows, const float *x, int n_out, int n_in, int n_cols,
                 float *out)
{
    int row_i = (int)blockIdx.x * GEMV_WARPS + (int)threadIdx.x / LANES,
        lane = (int)threadIdx.x % LANES;
    if (row_i >= n_out) return; /* whole warps only: a warp has one row */
    const unsigned short *row =
        rows + (size_t)row_i * (n_in / 32) * 17; /* 34 bytes a block, 2-byte aligned */
    float acc[GEMV_COLS] = {0};
    for (int run = lane / LANES_PER_RUN; run < n_in / 32; run += LANES / LANES_PER_RUN) {
        const unsigned short *b = row + (size_t)run * 17;
        int at = lane % LANES_PER_RUN * 4; /* four neighbouring elements */
        unsigned lo = b[1 + at / 2], hi = b[2 + at / 2];
        float d = f16_float(b[0]);
        float w0 = (float)(signed char)(lo & 255), w1 = (float)(signed char)(lo >> 8);
        float w2 = (float)(signed char)(hi & 255), w3 = (float)(signed char)(hi >> 8);
        for (int c = 0; c < GEMV_COLS; c++)
            if (c < n_cols) {
                const float *v = x + (size_t)c * n_in + run * 32 + at;
                acc[c] += d * (w0 * v[0] + w1 * v[1] + w2 * v[2] + w3 * v[3]);
            }
    }
    for (int c = 0; c < GEMV_COLS; c++) {
        float sum = warp_sum(acc[c]);
        if (lane == 0 && c < n_cols) out[(size_t)c * n_out + row_i] = sum;
    }
}

/* The same for Q4_0: byte j of a block holds elements j and j + 16. */
KERNEL gemv_q4_0(const unsigned short *rows, const float *x, int n_out, int n_in, int n_cols,
                 float *out)
{
    int row_i = (int)blockIdx.x * GEMV_WARPS + (int)threadIdx.x / LANES,
        lane = (int)threadIdx.x % LANES;
    if (row_i >= n_out) return;
    const unsigned short *row = rows + (size_t)row_i * (n_in / 32) * 9;
    float acc[GEMV_COLS] = {0};
    for (int run = lane / LANES_PER_RUN; run < n_in / 32; run += LANES / LANES_PER_RUN) {
        const unsigned short *b = row + (size_t)run * 9;
        int at = lane % LANES_PER_RUN * 2;
        unsigned two = b[1 + at / 2];
        float d = f16_float(b[0]);
        float w0 = (float)((int)(two & 15) - 8), w1 = (float)((int)(two >> 8 & 15) - 8);
        float w2 = (float)((int)(two >> 4 & 15) - 8), w3 = (float)((int)(two >> 12) - 8);
        for (int c = 0; c < GEMV_COLS; c++)
            if (c < n_cols) {
                const float *v = x + (size_t)c * n_in + run * 32 + at;
                acc[c] += d * (w0 * v[0] + w1 * v[1] + w2 * v[16] + w3 * v[17]);
            }
    }
    for (int c = 0; c < GEMV_COLS; c++) {
        float sum = warp_sum(acc[c]);
        if (lane == 0 && c < n_cols) out[(size_t)c * n_out + row_i] = sum;
    }
}

#endif
