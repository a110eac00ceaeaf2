/* lt_cublas.cu - see lt.h. cuBLASLt is opened when it is asked for: a program built with CUDA starts and runs where the library is not.
 * Types and constants are those of its header. Which algorithm multiplies is the library's first choice for a shape, remembered for as many
 * shapes as a model has. Threading: the step thread. */
#ifdef __CUDACC__ /* the emulation has a host product instead */
#include "engine/backend/cuda/lt.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

extern "C" {
#include "base/mem.h"
}

enum { WORKSPACE_BYTES = 32 << 20, SHAPES_MAX = 64 };
#define SONAME_(major) "libcublasLt.so." #major
#define SONAME(major) SONAME_(major)

struct shape {
    enum lt_kind kind;
    int n_out, n_in, n_cols, d_stride;
    uint32_t align_w, align_x, align_d;
    cublasLtMatmulAlgo_t algo;
};
struct lt {
    void *library, *workspace;
    cublasLtHandle_t handle;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmul) multiply;
    decltype(&cublasLtMatmulDescCreate) desc_new;
    decltype(&cublasLtMatmulDescDestroy) desc_free;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_new;
    decltype(&cublasLtMatrixLayoutDestroy) layout_free;
    decltype(&cublasLtMatmulPreferenceCreate) preference_new;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_free;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
    struct shape shape[SHAPES_MAX];
    int n_shapes, oldest;
};

static bool find_all(struct lt *t)
{
    struct {
        const char *name;
        void *to;
    } all[] = {{"cublasLtCreate", &t->create},
               {"cublasLtDestroy", &t->destroy},
               {"cublasLtMatmul", &t->multiply},
               {"cublasLtMatmulDescCreate", &t->desc_new},
               {"cublasLtMatmulDescDestroy", &t->desc_free},
               {"cublasLtMatmulDescSetAttribute", &t->desc_set},
               {"cublasLtMatrixLayoutCreate", &t->layout_new},
               {"cublasLtMatrixLayoutDestroy", &t->layout_free},
               {"cublasLtMatmulPreferenceCreate", &t->preference_new},
               {"cublasLtMatmulPreferenceDestroy", &t->preference_free},
               {"cublasLtMatmulPreferenceSetAttribute", &t->preference_set},
               {"cublasLtMatmulAlgoGetHeuristic", &t->choose}};
    for (auto &f : all) {
        void *found = dlsym(t->library, f.name);
        if (!found) return false;
        memcpy(f.to, &found, sizeof found);
    }
    return true;
}

enum err lt_open(struct lt **out, enum lt_kind kind, struct errmsg *e)
{
    struct cudaDeviceProp p;
    int device = 0;
    *out = NULL;
    if (kind == LT_E4M3 &&
        (cudaGetDevice(&device) != cudaSuccess ||
         cudaGetDeviceProperties(&p, device) != cudaSuccess || p.major * 10 + p.minor < 89))
        return err_set(e, ERR_UNSUPPORTED, "FP8 products need compute capability 8.9");
    struct lt *t = (struct lt *)xcalloc(1, sizeof *t);
    t->library = dlopen(SONAME(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!t->library || !find_all(t)) {
        lt_close(t);
        return err_set(e, ERR_UNSUPPORTED, "%s is not to be found", SONAME(CUBLAS_VER_MAJOR));
    }
    cublasStatus_t status = t->create(&t->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        t->handle = NULL;
        lt_close(t);
        return err_set(e, ERR_UNSUPPORTED, "%s does not start (status %d)",
                       SONAME(CUBLAS_VER_MAJOR), (int)status);
    }
    if (cudaMalloc(&t->workspace, WORKSPACE_BYTES) != cudaSuccess) {
        (void)cudaGetLastError();
        t->workspace = NULL;
        lt_close(t);
        return err_set(e, ERR_FULL, "no GPU memory for the scratch of cuBLASLt");
    }
    *out = t;
    return OK;
}

void lt_close(struct lt *t)
{
    if (!t) return;
    cudaFree(t->workspace);
    if (t->handle) t->destroy(t->handle);
    mem_free(t); /* the library stays: what it left with the driver points into it */
}

/* What the library wants to be told of one product; freed whole. */
struct told {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w, x, d;
};

static bool tell(struct lt *t, const struct lt_product *p, struct told *o)
{
    static const cudaDataType_t type_of[] = {CUDA_R_16F, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_8I};
    bool whole = p->kind == LT_INT8;
    cudaDataType_t in = type_of[p->kind], out = whole ? CUDA_R_32I : CUDA_R_32F;
    cublasOperation_t turned = CUBLAS_OP_T;
    uint64_t n_in = (uint64_t)p->n_in, n_out = (uint64_t)p->n_out, n = (uint64_t)p->n_cols;
    *o = {};
    return !t->desc_new(&o->desc, whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, out) &&
           !t->desc_set(o->desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned) &&
           !t->layout_new(&o->w, in, n_in, n_out, p->n_in) &&
           !t->layout_new(&o->x, in, n_in, n, p->n_in) &&
           !t->layout_new(&o->d, out, n_out, n, p->d_stride);
}

static void tell_no_more(struct lt *t, struct told *o)
{
    if (o->d) t->layout_free(o->d);
    if (o->x) t->layout_free(o->x);
    if (o->w) t->layout_free(o->w);
    if (o->desc) t->desc_free(o->desc);
}

/* Bytes of which the address is a multiple, up to what the library takes for granted unless told. */
static uint32_t alignment(const void *p)
{
    uint32_t a = 256;
    while ((uintptr_t)p % a)
        a /= 2;
    return a;
}

/* The algorithm for this shape and these addresses; NULL: there is none. */
static const cublasLtMatmulAlgo_t *algorithm(struct lt *t, const struct lt_product *p,
                                             const struct told *o)
{
    uint32_t w = alignment(p->w), x = alignment(p->x), d = alignment(p->d);
    for (int i = 0; i < t->n_shapes; i++) {
        const struct shape *s = &t->shape[i];
        if (s->kind == p->kind && s->n_out == p->n_out && s->n_in == p->n_in &&
            s->n_cols == p->n_cols && s->d_stride == p->d_stride && s->align_w == w &&
            s->align_x == x && s->align_d == d)
            return &s->algo;
    }
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    size_t most = WORKSPACE_BYTES;
    int n = 0;
    if (t->preference_new(&preference)) return NULL;
    bool ok =
        !t->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                           sizeof most) &&
        !t->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &w, sizeof w) &&
        !t->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &x, sizeof x) &&
        !t->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d) &&
        !t->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d) &&
        !t->choose(t->handle, o->desc, o->w, o->x, o->d, o->d, preference, 1, &best, &n) && n > 0;
    t->preference_free(preference);
    if (!ok) return NULL;
    struct shape *to =
        t->n_shapes < SHAPES_MAX ? &t->shape[t->n_shapes++] : &t->shape[t->oldest++ % SHAPES_MAX];
    *to = {p->kind, p->n_out, p->n_in, p->n_cols, p->d_stride, w, x, d, best.algo};
    return &to->algo;
}

cudaError_t lt_multiply(struct lt *t, const struct lt_product *p, cudaStream_t s)
{
    struct told o;
    float one = 1, keep = p->accumulate ? 1.0f : 0.0f;
    int32_t one_i = 1, keep_i = p->accumulate;
    bool whole = p->kind == LT_INT8;
    const cublasLtMatmulAlgo_t *algo = tell(t, p, &o) ? algorithm(t, p, &o) : NULL;
    bool ok = algo && !t->multiply(t->handle, o.desc, whole ? (void *)&one_i : &one, p->w, o.w,
                                   p->x, o.x, whole ? (void *)&keep_i : &keep, p->d, o.d, p->d, o.d,
                                   algo, t->workspace, WORKSPACE_BYTES, s);
    tell_no_more(t, &o);
    return ok ? cudaSuccess : cudaErrorInvalidValue;
}

#else
enum err lt_open(struct lt **out, enum lt_kind, struct errmsg *e)
{
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without cuBLASLt");
}
void lt_close(struct lt *) {}
cudaError_t lt_multiply(struct lt *, const struct lt_product *, cudaStream_t)
{
    return cudaErrorInvalidValue;
}
#endif
#endif
