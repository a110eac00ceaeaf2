/* gemv.cuh - packed weights times a few columns, as in decoding: memory-bound, so weights are read once, 16 bytes a lane.
 *
 * gemv_packed<type, columns>: a warp per output row, GEMV_WARPS rows a block, lane l takes runs l, l + 32, ... No shared memory. Bytes:
 *   the weights once; 1.5 n_in a column from L1/L2. Integer dot products of 16 elements are exact (dp4a), scales are applied in
 *   float32; lanes are folded by xor shuffles: a fixed order, so a column's result does not depend on the others.
 * gemv_plain<type, columns>: the same for F32, F16, BF16 rows with float32 activations.
 * Never measured on hardware: no share of peak bandwidth is claimed. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_GEMV_CUH
#define DEJA_ENGINE_BACKEND_CUDA_GEMV_CUH
#include "engine/backend/cuda/reduce.cuh"
#include "engine/backend/cuda/weight.cuh"

enum { GEMV_WARPS = 4, GEMV_COLS_MAX = 8 };

struct gemv_args {
    struct packed w;
    const int8_t *q; /* activations, as act_rows writes them */
    const float *d, *s, *f;
    int n_cols;
    const float *bias; /* f32[n_out] or NULL */
    bool accumulate;
    float *out; /* f32[n_cols][n_out] */
};

DEVICE void gemv_write(const struct gemv_args &a, int row, int col, float sum)
{
    float *out = a.out + (size_t)col * (size_t)a.w.n_out + row;
    if (a.bias) sum += a.bias[row];
    *out = a.accumulate ? *out + sum : sum;
}

/* What a block does: a row a warp, all columns. */
template <int TYPE, int COLS> DEVICE void gemv_packed_block(const struct gemv_args &a)
{
    int row = (int)(blockIdx.x * GEMV_WARPS + threadIdx.x / LANES), lane = (int)threadIdx.x % LANES;
    if (row >= a.w.n_out) return; /* whole warps only: a warp has one row */
    float acc[COLS] = {0};
    for (int r = lane; r < a.w.n_runs; r += LANES) {
        struct weight_run run;
        run_take<TYPE>(a.w, (size_t)row * (size_t)a.w.n_runs + (size_t)r, &run);
        for (int c = 0; c < COLS; c++) {
            if (c >= a.n_cols) break;
            size_t at = (size_t)c * (size_t)a.w.n_in + (size_t)r * 32;
            int4 lo = *(const int4 *)(a.q + at), hi = *(const int4 *)(a.q + at + 16);
            const float *d = a.d + at / 16, *s = a.s + at / 16;
            int dot0 = __dp4a(run.w[0], lo.x, 0), dot1 = __dp4a(run.w[4], hi.x, 0);
            dot0 = __dp4a(run.w[1], lo.y, dot0), dot1 = __dp4a(run.w[5], hi.y, dot1);
            dot0 = __dp4a(run.w[2], lo.z, dot0), dot1 = __dp4a(run.w[6], hi.z, dot1);
            dot0 = __dp4a(run.w[3], lo.w, dot0), dot1 = __dp4a(run.w[7], hi.w, dot1);
            acc[c] += run.scale[0] * d[0] * (float)dot0 + run.scale[1] * d[1] * (float)dot1 +
                      run.min[0] * s[0] + run.min[1] * s[1];
        }
    }
    for (int c = 0; c < COLS; c++) {
        float sum = warp_sum(acc[c]);
        if (lane == 0 && c < a.n_cols) gemv_write(a, row, c, sum);
    }
}
template <int TYPE, int COLS> KERNEL gemv_packed(struct gemv_args a)
{
    gemv_packed_block<TYPE, COLS>(a);
}

template <int TYPE> DEVICE float plain_value(const struct packed &p, size_t i)
{
    if (TYPE == TENSOR_F32) return ((const float *)p.q)[i];
    uint16_t bits = ((const uint16_t *)p.q)[i];
    return TYPE == TENSOR_F16 ? f16_float(bits) : bf16_float(bits);
}

template <int TYPE, int COLS> DEVICE void gemv_plain_block(const struct gemv_args &a)
{
    int row = (int)(blockIdx.x * GEMV_WARPS + threadIdx.x / LANES), lane = (int)threadIdx.x % LANES;
    if (row >= a.w.n_out) return;
    float acc[COLS] = {0};
    for (int i = lane; i < a.w.n_in; i += LANES) {
        float w = plain_value<TYPE>(a.w, (size_t)row * (size_t)a.w.n_in + (size_t)i);
        for (int c = 0; c < COLS; c++)
            if (c < a.n_cols) acc[c] += w * a.f[(size_t)c * (size_t)a.w.n_in + (size_t)i];
    }
    for (int c = 0; c < COLS; c++) {
        float sum = warp_sum(acc[c]);
        if (lane == 0 && c < a.n_cols) gemv_write(a, row, c, sum);
    }
}
template <int TYPE, int COLS> KERNEL gemv_plain(struct gemv_args a)
{
    gemv_plain_block<TYPE, COLS>(a);
}

#endif
