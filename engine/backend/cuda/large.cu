/* large.cu - products with the rows of a long prompt, by lt.h: F16 and BF16 matrices as they lie, packed ones widened a slab of rows at a time
 * to what --gpu-products names. From LARGE_ROWS_MIN rows on: recorded passes are shorter, so that they multiply as ordinary ones do.
 * Where the library cannot, the kernels of linear.cu multiply as they do for fewer rows. Threading: the step thread. */
#include <string.h>

#include "engine/backend/cuda/gpu.h"
#include "engine/backend/cuda/wide.cuh"

enum {
    LARGE_ROWS_MIN = 257,
    SLAB_BYTES = 32 << 20,
    INT8_IN_MAX = INT32_MAX / (127 * 127), /* longer rows could overflow their sums */
    SLAB_ROWS = 64 /* a slab begins at a multiple: 256 bytes of f32 sums, as the library likes */
};

static const char *const names[] = {"auto", "own", "bf16", "fp8", "int8"};
static const enum lt_kind kind_of[] = {LT_F16, LT_F16, LT_BF16, LT_E4M3, LT_INT8};

enum err large_open(struct gpu *g, const char *products, struct errmsg *e)
{
    struct errmsg why = {};
    int i = 0, n = sizeof names / sizeof names[0];
    while (i < n && products && strcmp(products, names[i]))
        i++;
    if (i == n)
        return err_set(e, ERR_INVALID,
                       "products \"%.20s\": auto, own, bf16, fp8 and int8 are known", products);
    g->large = (enum large_products)i;
    if (g->large == LARGE_OWN) return OK;
    enum err code = lt_open(&g->lt, kind_of[i], &why);
    if (!code) return OK;
    g->lt = NULL;
    if (g->large == LARGE_AUTO) return OK; /* F16 and BF16 matrices have kernels of our own */
    return err_set(e, code, "products in %s: %s", names[i], why.text);
}

void large_close(struct gpu *g)
{
    for (struct area &a : g->wide)
        cudaFree(a.p);
    lt_close(g->lt);
}

/* ---- launches ---- */
template <int TYPE, int KIND>
static void widen(const struct packed &w, int first, int n, const float *spread, void *out,
                  float *scale, cudaStream_t s)
{
    auto kernel = wide_rows<TYPE, KIND>;
    LAUNCH(kernel, n, WIDE_THREADS, 0, s, w, first, spread, out, scale);
}
template <int KIND>
static void widen_type(enum tensor_type t, const struct packed &w, int first, int n,
                       const float *spread, void *out, float *scale, cudaStream_t s)
{
    static const struct {
        enum tensor_type type;
        void (*widen)(const struct packed &, int, int, const float *, void *, float *,
                      cudaStream_t);
    } of[] = {{TENSOR_F16, widen<TENSOR_F16, KIND>},   {TENSOR_BF16, widen<TENSOR_BF16, KIND>},
              {TENSOR_Q4_0, widen<TENSOR_Q4_0, KIND>}, {TENSOR_Q4_1, widen<TENSOR_Q4_1, KIND>},
              {TENSOR_Q5_0, widen<TENSOR_Q5_0, KIND>}, {TENSOR_Q5_1, widen<TENSOR_Q5_1, KIND>},
              {TENSOR_Q8_0, widen<TENSOR_Q8_0, KIND>}, {TENSOR_Q4_K, widen<TENSOR_Q4_K, KIND>},
              {TENSOR_Q5_K, widen<TENSOR_Q5_K, KIND>}, {TENSOR_Q6_K, widen<TENSOR_Q6_K, KIND>}};
    for (auto &one : of)
        if (one.type == t) one.widen(w, first, n, spread, out, scale, s);
}
template <int KIND>
static void tokens(const struct act_args &a, int n_rows, const float *spread, void *out,
                   float *scale, cudaStream_t s)
{
    auto kernel = wide_tokens<KIND>;
    LAUNCH(kernel, n_rows, WIDE_THREADS, 0, s, a, spread, out, scale);
}
template <int KIND> static void sums(const struct wide_sums_args &a, int n_cols, cudaStream_t s)
{
    dim3 grid((unsigned)n_cols, (unsigned)((a.n_rows + WIDE_THREADS - 1) / WIDE_THREADS));
    auto kernel = wide_sums<KIND>;
    LAUNCH(kernel, grid, WIDE_THREADS, 0, s, a);
}
struct wide_kernels {
    void (*rows)(enum tensor_type, const struct packed &, int, int, const float *, void *, float *,
                 cudaStream_t);
    void (*tokens)(const struct act_args &, int, const float *, void *, float *, cudaStream_t);
    void (*sums)(const struct wide_sums_args &, int, cudaStream_t);
    size_t bytes; /* of an element */
};
static const struct wide_kernels kernels_of[] = {
    {NULL, tokens<LT_F16>, sums<LT_F16>, 2},
    {widen_type<LT_BF16>, tokens<LT_BF16>, sums<LT_BF16>, 2},
    {widen_type<LT_E4M3>, tokens<LT_E4M3>, sums<LT_E4M3>, 1},
    {widen_type<LT_INT8>, tokens<LT_INT8>, sums<LT_INT8>, 1}};

/* ---- which, and how ---- */
static bool kind_for(const struct gpu *g, const struct linear *l, void *const *weight,
                     enum lt_kind *kind)
{
    bool all_f16 = true, all_bf16 = true;
    if (!g->lt || g->lt_refused || g->now || l->n_rows < LARGE_ROWS_MIN) return false;
    for (int i = 0; i < l->n_weights; i++) {
        const struct pack_layout *p = &((const struct gpu_weight *)weight[i])->layout;
        if (p->type == TENSOR_F32 || p->n_in % LT_ALIGN || p->n_out % LT_ALIGN) return false;
        all_f16 &= p->type == TENSOR_F16;
        all_bf16 &= p->type == TENSOR_BF16;
    }
    *kind = g->large != LARGE_AUTO ? kind_of[g->large] : all_f16 ? LT_F16 : LT_BF16;
    if (*kind == LT_INT8 && ((const struct gpu_weight *)weight[0])->layout.n_in > INT8_IN_MAX)
        return false;
    return g->large != LARGE_AUTO || all_f16 || all_bf16;
}

/* Rows of the matrix that are taken at once: both they and their sums fit a slab. */
static int slab_rows(int n_in, int n_cols, size_t element)
{
    size_t by_rows = SLAB_BYTES / ((size_t)n_in * element),
           by_sums = SLAB_BYTES / ((size_t)n_cols * sizeof(float)),
           n = by_rows < by_sums ? by_rows : by_sums;
    n = n / SLAB_ROWS * SLAB_ROWS;
    return n < SLAB_ROWS ? SLAB_ROWS : n > (1 << 20) ? 1 << 20 : (int)n;
}

enum { WIDE_X, WIDE_X_SCALE, WIDE_W, WIDE_W_SCALE, WIDE_SUMS };

/* One matrix. False: it failed, and may be multiplied anew by other kernels: nothing was added to sums that are there. */
static bool multiply(struct gpu *g, const struct linear *l, int i, const struct gpu_weight *w,
                     enum lt_kind kind)
{
    const struct wide_kernels *k = &kernels_of[kind];
    struct packed p = view_of(w);
    bool as_it_lies = (kind == LT_F16 && w->layout.type == TENSOR_F16) ||
                      (kind == LT_BF16 && w->layout.type == TENSOR_BF16),
         scaled = kind == LT_INT8 || kind == LT_E4M3, direct = !scaled && !l->bias[i];
    size_t element = k->bytes;
    int most = direct && as_it_lies ? p.n_out : slab_rows(p.n_in, l->n_rows, element);
    for (int first = 0, n; first < p.n_out; first += n) {
        n = p.n_out - first < most ? p.n_out - first : most;
        const void *rows = p.q + (size_t)first * (size_t)p.n_in * element;
        float *scale = NULL;
        if (!as_it_lies) {
            rows = need_apart(g, &g->wide[WIDE_W], (size_t)most * (size_t)p.n_in * element);
            scale = (float *)need_apart(g, &g->wide[WIDE_W_SCALE], (size_t)most * sizeof(float));
        }
        void *d = l->out[i] + first;
        if (!direct) d = need_apart(g, &g->wide[WIDE_SUMS], (size_t)most * (size_t)l->n_rows * 4);
        if (is_lost(g)) return true;
        if (!as_it_lies)
            k->rows(w->layout.type, p, first, n, l->spread, (void *)rows, scale, g->stream);
        struct lt_product one = {kind,
                                 n,
                                 p.n_in,
                                 l->n_rows,
                                 rows,
                                 g->wide[WIDE_X].p,
                                 d,
                                 direct ? p.n_out : n,
                                 direct && l->accumulate};
        cudaError_t code = lt_multiply(g->lt, &one, g->stream);
        if (code != cudaSuccess && (first == 0 || !l->accumulate)) return false;
        note(g, "a large product", code);
        if (direct) continue;
        struct wide_sums_args a = {d,
                                   (const float *)g->wide[WIDE_X_SCALE].p,
                                   scale,
                                   l->bias[i],
                                   l->out[i],
                                   first,
                                   n,
                                   p.n_out,
                                   l->accumulate};
        k->sums(a, l->n_rows, g->stream);
    }
    return true;
}

bool gpu_linear_large(struct gpu *g, const struct linear *l, void *const *weight, struct act_args a)
{
    enum lt_kind kind;
    if (!kind_for(g, l, weight, &kind)) return false;
    size_t n = (size_t)l->n_rows * (size_t)a.n;
    void *x = need_apart(g, &g->wide[WIDE_X], n * kernels_of[kind].bytes);
    float *scale =
        (float *)need_apart(g, &g->wide[WIDE_X_SCALE], (size_t)l->n_rows * sizeof(float));
    if (is_lost(g)) return true;
    kernels_of[kind].tokens(a, l->n_rows, l->spread, x, scale, g->stream);
    for (int i = 0; i < l->n_weights; i++)
        if (!multiply(g, l, i, (const struct gpu_weight *)weight[i], kind)) {
            bool added = i > 0 && l->accumulate; /* of the matrices before it */
            if (added) note(g, "a large product", cudaErrorInvalidValue);
            g->lt_refused = true;
            return added;
        }
    return true;
}
