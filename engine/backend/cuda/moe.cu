/* moe.cu - launches of moe.cuh, and the operation of engine/backend/device.h made of them. Up to GEMV_COLS_MAX rows a step the memory-bound
 * products run, more rows take tensor cores, by the step's rows as in linear.cu: padding changes neither. */
#include "engine/backend/cuda/moe.cuh"

#include "engine/backend/cuda/gpu.h"

static_assert((int)EXPERTS_MAX == (int)MOE_EXPERTS_MAX && (int)USED_MAX == (int)MOE_USED_MAX,
              "limits of moe.h");
static_assert((int)USED_MAX <= (int)LANES, "a lane keeps the weight of one choice");

enum { FEW_COLS = 16, MANY_COLS = 64 };

void launch_route(const struct route_args &a, int n_rows, cudaStream_t s)
{
    LAUNCH(route_rows, n_rows, LANES, 0, s, a);
}

int expert_tiles(int n_pairs, int n_experts, int tile_cols)
{
    return (n_pairs < n_experts ? n_pairs : n_experts) + n_pairs / tile_cols;
}

int expert_tile_cols(int n_rows, int n_used, int n_experts)
{
    if (n_rows <= GEMV_COLS_MAX) return GEMV_COLS_MAX;
    return (long)n_rows * n_used <= (long)n_experts * FEW_COLS ? FEW_COLS : MANY_COLS;
}

void launch_sort(const struct sort_args &a, cudaStream_t s)
{
    int threads = (a.n_experts + LANES - 1) / LANES * LANES;
    LAUNCH(sort_pairs, 1, threads, 0, s, a);
}

/* A block takes so many rows of a tile. */
static dim3 grid_of(const struct expert_product &p, int rows)
{
    return dim3((unsigned)((p.w.n_out + rows - 1) / rows), (unsigned)p.n_tiles);
}

template <int TYPE> static void packed_product(const struct expert_product &p, cudaStream_t s)
{
    if (!linear_forms((enum tensor_type)TYPE, p.w.n_in, p.n_rows).h) {
        auto one = expert_gemv<TYPE, 1>, many = expert_gemv<TYPE, GEMV_COLS_MAX>;
        dim3 rows = grid_of(p, GEMV_WARPS);
        if (p.n_rows == 1)
            LAUNCH(one, rows, GEMV_WARPS * LANES, 0, s, p);
        else
            LAUNCH(many, rows, GEMV_WARPS * LANES, 0, s, p);
        return;
    }
    dim3 grid = grid_of(p, GEMM_ROWS);
    auto few = expert_gemm<TYPE, FEW_COLS / 8>, many = expert_gemm<TYPE, MANY_COLS / 8>;
    if (p.tile_cols == FEW_COLS)
        LAUNCH(few, grid, GEMM_THREADS, 0, s, p);
    else
        LAUNCH(many, grid, GEMM_THREADS, 0, s, p);
}

template <int TYPE> static void plain_product(const struct expert_product &p, cudaStream_t s)
{
    if constexpr (TYPE != TENSOR_F32) {
        if (linear_forms((enum tensor_type)TYPE, p.w.n_in, p.n_rows).h) {
            auto few = expert_gemm_half<TYPE, FEW_COLS / 8>,
                 many = expert_gemm_half<TYPE, MANY_COLS / 8>;
            dim3 tiles = grid_of(p, GEMM_ROWS);
            if (p.tile_cols == FEW_COLS)
                LAUNCH(few, tiles, GEMM_THREADS, 0, s, p);
            else
                LAUNCH(many, tiles, GEMM_THREADS, 0, s, p);
            return;
        }
    }
    auto kernel = expert_gemv_plain<TYPE>;
    dim3 rows = grid_of(p, GEMV_WARPS);
    LAUNCH(kernel, rows, GEMV_WARPS * LANES, 0, s, p);
}

void launch_expert_product(const struct expert_product &p, cudaStream_t s)
{
    switch (p.type) {
#define ONE(t)                                                                                     \
    case TENSOR_##t:                                                                               \
        return packed_product<TENSOR_##t>(p, s);
        EACH_QUANT(ONE)
#undef ONE
    case TENSOR_F32:
        return plain_product<TENSOR_F32>(p, s);
    case TENSOR_F16:
        return plain_product<TENSOR_F16>(p, s);
    case TENSOR_BF16:
        return plain_product<TENSOR_BF16>(p, s);
    }
}

void launch_expert_sum(const struct expert_sum_args &a, int n_rows, cudaStream_t s)
{
    LAUNCH(expert_sum, n_rows, SUM_THREADS, 0, s, a);
}

/* ---- the operation ---- */
static struct packed one_of(const struct gpu_weight *w, int n_experts)
{
    struct packed p = view_of(w);
    p.n_out /= n_experts;
    return p;
}

/* Rounds the activations once for all products p[n], then multiplies. */
static void products(struct gpu *g, struct act_args a, int n_pairs, struct expert_product *p, int n)
{
    struct act_forms all = {false, false, false};
    for (int i = 0; i < n; i++) {
        struct act_forms f = linear_forms(p[i].type, a.n, p[i].n_rows);
        all.q |= f.q, all.h |= f.h, all.f |= f.f;
    }
    need_forms(g, all, (size_t)n_pairs * (size_t)a.n, &a);
    if (is_lost(g)) return;
    launch_act(a, n_pairs, g->stream);
    for (int i = 0; i < n; i++) {
        p[i].q = a.q, p[i].d = a.d, p[i].s = a.s, p[i].h = a.h, p[i].f = a.f;
        launch_expert_product(p[i], g->stream);
    }
}

void gpu_moe(void *device, const struct moe *m, void *const weight[3])
{
    struct gpu *g = on(device);
    int n_pairs = m->n_rows * m->n_used,
        cols = expert_tile_cols(m->n_rows, m->n_used, m->n_experts),
        n_tiles = expert_tiles(n_pairs, m->n_experts, cols);
    int32_t *mem = (int32_t *)need(
        g, &g->pairs, (size_t)n_pairs * 16 + (size_t)n_tiles * sizeof(struct expert_tile));
    if (is_lost(g)) return;
    int32_t *expert = mem, *row = mem + 2 * n_pairs, *place = mem + 3 * n_pairs;
    float *share = (float *)(mem + n_pairs);
    struct expert_tile *tiles = (struct expert_tile *)(mem + 4 * n_pairs);
    struct route_args route = {m->logits, m->n_experts, m->n_used, m->normalise,
                               m->scale,  expert,       share};
    launch_route(route, m->n_rows, g->stream);
    struct sort_args sort = {expert, n_pairs, m->n_experts, m->n_used, row,
                             place,  tiles,   cols,         n_tiles};
    launch_sort(sort, g->stream);
    float *out[] = {m->gate_rows, m->up_rows, m->down_rows};
    struct expert_product p[3];
    for (int i = 0; i < 3; i++) {
        const struct gpu_weight *w = (const struct gpu_weight *)weight[i];
        p[i] = {w->layout.type, one_of(w, m->n_experts),
                NULL,           NULL,
                NULL,           NULL,
                NULL,           m->n_rows,
                tiles,          cols,
                n_tiles,        out[i]};
    }
    struct act_args in = {ACT_PLAIN, m->x, NULL, NULL, 0,    p[0].w.n_in,
                          row,       NULL, NULL, NULL, NULL, NULL};
    products(g, in, n_pairs, p, 2);
    struct act_args between = {ACT_SILU_MUL, m->gate_rows, m->up_rows, NULL, 0,    p[2].w.n_in,
                               NULL,         NULL,         NULL,       NULL, NULL, NULL};
    products(g, between, n_pairs, p + 2, 1);
    if (is_lost(g)) return;
    struct expert_sum_args sum = {m->down_rows, place,     share,          m->n_used,
                                  p[2].w.n_out, m->shared, m->shared_gate, m->out};
    launch_expert_sum(sum, m->n_rows, g->stream);
}
