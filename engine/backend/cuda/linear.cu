/* linear.cu - which kernel multiplies: up to GEMV_COLS_MAX columns the memory-bound one, more the tensor cores; float weights whose
 * rows tensor cores would round (F32), and odd row lengths, always take the plain one. */
#include "engine/backend/cuda/act.cuh"
#include "engine/backend/cuda/gemm_half.cuh"
#include "engine/backend/cuda/launch.h"

void launch_act(const struct act_args &a, int n_rows, cudaStream_t s)
{
    LAUNCH(act_rows, n_rows, ACT_THREADS, 0, s, a);
}

static bool is_plain(enum tensor_type t)
{
    return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16;
}

struct act_forms linear_forms(enum tensor_type t, int n_in, int n_cols)
{
    /* rows of halves are copied 16 bytes at a time */
    bool plain = is_plain(t), tensor_cores = !plain || (t != TENSOR_F32 && n_in % 8 == 0),
         many = n_cols > GEMV_COLS_MAX && tensor_cores;
    struct act_forms f = {!plain && !many, many, plain && !many};
    return f;
}

template <int TYPE, int COLS> static void gemv(const struct gemv_args &a, cudaStream_t s)
{
    int blocks = (a.w.n_out + GEMV_WARPS - 1) / GEMV_WARPS;
    constexpr bool type_is_plain = TYPE == TENSOR_F32 || TYPE == TENSOR_F16 || TYPE == TENSOR_BF16;
    if constexpr (type_is_plain) {
        auto kernel = gemv_plain<TYPE, COLS>;
        LAUNCH(kernel, blocks, GEMV_WARPS * LANES, 0, s, a);
    } else {
        auto kernel = gemv_packed<TYPE, COLS>;
        LAUNCH(kernel, blocks, GEMV_WARPS * LANES, 0, s, a);
    }
}

/* More than GEMV_COLS_MAX columns (float weights only) are taken in several launches. */
template <int TYPE> static void gemv_columns(const struct product &p, cudaStream_t s)
{
    size_t n_in = (size_t)p.w.n_in, n_out = (size_t)p.w.n_out;
    for (int c = 0; c < p.n_cols; c += GEMV_COLS_MAX) {
        int n = p.n_cols - c < GEMV_COLS_MAX ? p.n_cols - c : GEMV_COLS_MAX;
        size_t at = (size_t)c * n_in;
        struct gemv_args a = {p.w,
                              p.q ? p.q + at : NULL,
                              p.d ? p.d + at / 16 : NULL,
                              p.s ? p.s + at / 16 : NULL,
                              p.f ? p.f + at : NULL,
                              n,
                              p.bias,
                              p.accumulate,
                              p.out + (size_t)c * n_out};
        if (n == 1)
            gemv<TYPE, 1>(a, s);
        else if (n == 2)
            gemv<TYPE, 2>(a, s);
        else if (n <= 4)
            gemv<TYPE, 4>(a, s);
        else
            gemv<TYPE, 8>(a, s);
    }
}

template <int TYPE, int TILES> static void gemm(const struct gemm_args &a, cudaStream_t s)
{
    dim3 grid((unsigned)((a.w.n_out + GEMM_ROWS - 1) / GEMM_ROWS),
              (unsigned)((a.n_cols + TILES * 8 - 1) / (TILES * 8)));
    if constexpr (TYPE == TENSOR_F16 || TYPE == TENSOR_BF16) {
        auto kernel = gemm_half<TYPE, TILES>;
        LAUNCH(kernel, grid, GEMM_THREADS, 0, s, a);
    } else {
        auto kernel = gemm_packed<TYPE, TILES>;
        LAUNCH(kernel, grid, GEMM_THREADS, 0, s, a);
    }
}

template <int TYPE> static void product_of(const struct product &p, cudaStream_t s)
{
    if (linear_forms((enum tensor_type)TYPE, p.w.n_in, p.n_cols).h) {
        struct gemm_args a = {p.w, p.h, p.n_cols, p.bias, p.accumulate, p.out};
        if (p.n_cols <= 16)
            gemm<TYPE, 2>(a, s);
        else
            gemm<TYPE, 8>(a, s);
        return;
    }
    gemv_columns<TYPE>(p, s);
}

void launch_product(const struct product &p, cudaStream_t s)
{
    switch (p.type) {
#define ONE(t)                                                                                     \
    case TENSOR_##t:                                                                               \
        return product_of<TENSOR_##t>(p, s);
        EACH_QUANT(ONE)
#undef ONE
    case TENSOR_F32:
        return gemv_columns<TENSOR_F32>(p, s);
    case TENSOR_F16:
        return product_of<TENSOR_F16>(p, s);
    case TENSOR_BF16:
        return product_of<TENSOR_BF16>(p, s);
    }
}
