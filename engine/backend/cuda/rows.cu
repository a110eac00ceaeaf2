/* rows.cu - launches of rows.cuh. */
#include "engine/backend/cuda/rows.cuh"

static unsigned blocks(size_t n)
{
    return (unsigned)((n + ROWS_THREADS - 1) / ROWS_THREADS);
}

cudaError_t kernels_fit()
{
    struct cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, add_rows);
}

template <int TYPE>
static void embed(const struct packed &w, const int32_t *id, int n_rows, bool accumulate,
                  float *out, cudaStream_t s)
{
    auto kernel = embed_rows<TYPE>;
    LAUNCH(kernel, n_rows, ROWS_THREADS, 0, s, w, id, accumulate, out);
}

void launch_embed(enum tensor_type t, const struct packed &w, const int32_t *id, int n_rows,
                  bool accumulate, float *out, cudaStream_t s)
{
    static void (*const of[])(const struct packed &, const int32_t *, int, bool, float *,
                              cudaStream_t) = {
        embed<TENSOR_F32>,  embed<TENSOR_F16>,  embed<TENSOR_BF16>, embed<TENSOR_Q4_0>,
        embed<TENSOR_Q4_1>, embed<TENSOR_Q5_0>, embed<TENSOR_Q5_1>, embed<TENSOR_Q8_0>,
        embed<TENSOR_Q4_K>, embed<TENSOR_Q5_K>, embed<TENSOR_Q6_K>};
    static const enum tensor_type types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                                             TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                                             TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i] == t) of[i](w, id, n_rows, accumulate, out, s);
}

void launch_norm(const float *x, const float *weight, float eps, int n_rows, int n, float *out,
                 cudaStream_t s)
{
    LAUNCH(norm_rows, n_rows, ROWS_THREADS, 0, s, x, weight, eps, n, out);
}
void launch_add(const float *x, size_t n, float *inout, cudaStream_t s)
{
    LAUNCH(add_rows, blocks(n), ROWS_THREADS, 0, s, x, n, inout);
}
void launch_scale(float factor, size_t n, float *inout, cudaStream_t s)
{
    LAUNCH(scale_rows, blocks(n), ROWS_THREADS, 0, s, factor, n, inout);
}
void launch_gather(const float *x, const int32_t *row, int n_rows, int width, float *out,
                   cudaStream_t s)
{
    size_t n = (size_t)n_rows * (size_t)width;
    LAUNCH(gather_rows, blocks(n), ROWS_THREADS, 0, s, x, row, width, n, out);
}
void launch_kv_copy(const struct kv_view &kv, int n_layers, size_t layer_bytes, int dst, int src,
                    int n_tokens, cudaStream_t s)
{
    dim3 grid((unsigned)n_layers, (unsigned)kv.n_heads);
    LAUNCH(kv_copy_tokens, grid, ROWS_THREADS, 0, s, kv, layer_bytes, dst, src, n_tokens);
}
void launch_kv_move(const struct kv_view &kv, int n_layers, size_t layer_bytes,
                    const struct kv_move_list &list, cudaStream_t s)
{
    dim3 grid((unsigned)n_layers, (unsigned)kv.n_heads);
    LAUNCH(kv_move_tokens, grid, ROWS_THREADS, 0, s, kv, layer_bytes, list);
}
