/* device.cu - the table of engine/backend/device.h on one CUDA device: memory, uploads, and which launches make up an operation. All work
 * goes to one stream. Positions, block tables and attention plans cross over once a step (set_rows), through pinned memory.
 * An error (out of memory in a scratch area, a failed launch, a lost device) is remembered and told by the next read.
 * Threading: the step thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/cuda/attend_maps.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/gpu.h"

enum { MAJOR_MIN = 8 };

/* ---- errors and memory ---- */
static thread_local int current = -1;

struct gpu *on(void *device)
{
    struct gpu *g = (struct gpu *)device;
    if (current != g->index && cudaSetDevice(g->index) == cudaSuccess) current = g->index;
    return g;
}

void fail(struct gpu *g, const char *what, const char *why)
{
    if (is_lost(g)) return;
    (void)err_set(&g->failed, ERR_UNAVAILABLE, "the GPU failed at %s: %s", what, why);
    if (g->ranks) collective_abort(g->ranks, g->failed.text);
}

void note(struct gpu *g, const char *what, cudaError_t code)
{
    if (code != cudaSuccess) fail(g, what, cudaGetErrorString(code));
}

void *need(struct gpu *g, struct area *a, size_t bytes)
{
    if (bytes > a->bytes) steps_drop(g);
    return need_apart(g, a, bytes);
}

/* cudaFree waits for every GPU that the memory is mapped to. A rank's is mapped to the others, one of which may wait in a sum for this very
 * rank: nothing is freed before the end. Areas at least double, so that what was outgrown is no more than what is in use. */
static size_t outgrow(struct gpu *g, const struct area *a, size_t bytes)
{
    if (!a->p) return bytes;
    struct outgrown *old = (struct outgrown *)xcalloc(1, sizeof *old);
    *old = {g->outgrown, a->p};
    g->outgrown = old;
    return bytes > 2 * a->bytes ? bytes : 2 * a->bytes;
}

void *need_apart(struct gpu *g, struct area *a, size_t bytes)
{
    if (bytes <= a->bytes) return a->p;
    if (g->ranks) {
        bytes = outgrow(g, a, bytes);
    } else {
        note(g, "making room", settle(g));
        cudaFree(a->p);
    }
    *a = {NULL, 0};
    cudaError_t code = cudaMalloc(&a->p, bytes);
    note(g, "making room", code);
    if (code == cudaSuccess) a->bytes = bytes;
    return a->p;
}

void *need_pinned(struct gpu *g, struct area *a, size_t bytes)
{
    if (bytes <= a->bytes) return a->p;
    note(g, "making room on the host", settle(g));
    cudaFreeHost(a->p);
    *a = {NULL, 0};
    cudaError_t code = cudaMallocHost((void **)&a->p, bytes);
    note(g, "making room on the host", code);
    if (code == cudaSuccess) a->bytes = bytes;
    return a->p;
}

struct flight *making(struct gpu *g)
{
    ASSERT(g->n_flying < BACKEND_FLIGHTS);
    return &g->flight[(g->first + g->n_flying) % BACKEND_FLIGHTS];
}

uint8_t *stage_room(struct gpu *g, size_t n)
{
    struct flight *f = making(g);
    ASSERT(n <= STAGE_BYTES);
    if (n > STAGE_BYTES - f->staged) {
        note(g, "an upload", settle(g));
        f->staged = 0;
    }
    uint8_t *room = f->stage + f->staged;
    f->staged += (n + 15) / 16 * 16;
    return room;
}

void stage_send(struct gpu *g, void *to, const uint8_t *room, size_t n)
{
    note(g, "an upload", cudaMemcpyAsync(to, room, n, cudaMemcpyHostToDevice, g->stream));
}

void upload(struct gpu *g, void *to, const void *from, size_t bytes)
{
    if (is_lost(g)) return;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < (size_t)STAGE_BYTES ? bytes - done : (size_t)STAGE_BYTES;
        uint8_t *room = stage_room(g, n);
        memcpy(room, (const uint8_t *)from + done, n);
        stage_send(g, (uint8_t *)to + done, room, n);
    }
}

static void *gpu_alloc(void *device, size_t bytes)
{
    (void)on(device);
    void *p = NULL;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();
    return NULL;
}
static void gpu_release(void *device, void *p)
{
    settle(on(device));
    cudaFree(p);
}
static void gpu_write(void *device, void *to, const void *host, size_t bytes)
{
    upload(on(device), to, host, bytes);
}
enum err fetch(struct gpu *g, void *host, const void *from, size_t bytes, struct errmsg *e)
{
    if (!is_lost(g)) {
        note(g, "a kernel", cudaGetLastError());
        /* A copy to pageable memory is waited for in the driver, which knows no bound: not behind sums of other ranks. */
        if (g->ranks) note(g, "a kernel", settle(g));
        if (!is_lost(g))
            note(g, "a download",
                 cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, g->stream));
        note(g, "a kernel", settle(g));
        if (g->n_flying < BACKEND_FLIGHTS) making(g)->staged = 0;
    }
    if (!is_lost(g)) return OK;
    *e = g->failed;
    return ERR_UNAVAILABLE;
}
static enum err gpu_read(void *device, void *host, const void *from, size_t bytes, struct errmsg *e)
{
    enum err code = fetch(on(device), host, from, bytes, e);
    if (code) memset(host, 0xff, bytes); /* NaN: nobody mistakes it for logits */
    return code;
}
static void gpu_memory(void *device, size_t *free_bytes, size_t *total_bytes)
{
    (void)on(device);
    if (cudaMemGetInfo(free_bytes, total_bytes) != cudaSuccess) *free_bytes = *total_bytes = 0;
}

/* ---- life ---- */
static const char *gpu_model(void *device)
{
    return ((struct gpu *)device)->model;
}
static const char *gpu_failure(void *device)
{
    const struct gpu *g = (struct gpu *)device;
    return is_lost(g) ? g->failed.text : NULL;
}

/* Why no device is there, after cudaGetDeviceCount said `code`. CUDA has one error for no driver at all and for one that is too old. */
static enum err no_device(cudaError_t code, struct errmsg *e)
{
    int driver = 0; /* 1000 x major + 10 x minor; 0: none is loaded */
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    (void)cudaGetLastError();
    if (code == cudaErrorInsufficientDriver && driver == 0)
        return err_set(e, ERR_UNSUPPORTED, "no CUDA device: there is no NVIDIA driver");
    if (code == cudaErrorInsufficientDriver)
        return err_set(e, ERR_UNSUPPORTED,
                       "no CUDA device: the driver is for CUDA %d.%d, this program for %d.%d",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
    return err_set(e, ERR_UNSUPPORTED, "no CUDA device: %s",
                   code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
}

/* Whether there is such a device and it can run these kernels. */
static enum err look(int index, struct cudaDeviceProp *p, struct errmsg *e)
{
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0) return no_device(code, e);
    if (index >= n)
        return err_set(e, ERR_UNSUPPORTED, "no CUDA device %d: there %s %d, counted from 0", index,
                       n == 1 ? "is" : "are", n);
    if ((code = cudaGetDeviceProperties(p, index)) != cudaSuccess)
        return err_set(e, ERR_UNSUPPORTED, "CUDA device %d does not answer: %s", index,
                       cudaGetErrorString(code));
    if (p->major < MAJOR_MIN)
        return err_set(e, ERR_UNSUPPORTED,
                       "%.60s has compute capability %d.%d; 8.0 or newer is needed", p->name,
                       p->major, p->minor);
    code = cudaSetDevice(index);
    current = -1;
    if (code == cudaSuccess) code = kernels_fit();
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction)
        return err_set(e, ERR_UNSUPPORTED,
                       "%.60s has compute capability %d.%d, for which this program was not built "
                       "(CMAKE_CUDA_ARCHITECTURES)",
                       p->name, p->major, p->minor);
    if (code != cudaSuccess)
        return err_set(e, ERR_UNSUPPORTED, "%.60s cannot be used: %s", p->name,
                       cudaGetErrorString(code));
    return OK;
}

static void gpu_close(void *device)
{
    struct gpu *g = on(device);
    struct area *all[] = {&g->q,
                          &g->d,
                          &g->s,
                          &g->h,
                          &g->f,
                          &g->pairs,
                          &g->ids,
                          &g->gathered,
                          &g->rows,
                          &g->parts,
                          &g->plan[0].area,
                          &g->plan[1].area,
                          &g->sample_in,
                          &g->sample_work,
                          &g->step_area,
                          &g->sample_out[0],
                          &g->sample_out[1],
                          &g->gathered_parts};
    settle(g);
    if (g->ranks) collective_show(g->ranks, g->rank, NULL);
    steps_drop(g);
    nccl_close(g->nccl);
    large_close(g);
    mem_free(g->plan[0].piece);
    mem_free(g->plan[1].piece);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cudaFree(all[i]->p);
    for (struct outgrown *o = g->outgrown, *next; o; o = next) {
        next = o->next;
        cudaFree(o->p);
        mem_free(o);
    }
    for (struct flight &f : g->flight) {
        cudaFreeHost(f.stage);
        cudaFreeHost(f.host.p);
        if (f.over) cudaEventDestroy(f.over);
        mem_free(f.n_top);
    }
    if (g->stream) cudaStreamDestroy(g->stream);
    mem_free(g);
}

/* A kernel that is loaded at its first launch may wait for all that runs on its device; behind a sum that waits for this very rank that
 * is for ever (NVIDIA, CUDA C++ Programming Guide, "Lazy Loading"). */
static void gpu_expect_ranks(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

static enum err gpu_open(void **device, int index, const char *products, struct errmsg *e)
{
    struct cudaDeviceProp p;
    *device = NULL;
    enum err err = look(index, &p, e);
    if (err) return err;
    struct gpu *g = (struct gpu *)xcalloc(1, sizeof *g);
    g->index = index;
    g->pitch_max = p.memPitch;
    snprintf(g->model, sizeof g->model, "%.79s", p.name);
    const char *graphs = getenv("DEJA_GPU_GRAPHS"); /* "no": to measure what recording brings */
    g->no_recording = graphs && !strcmp(graphs, "no");
    (void)on(g);
    cudaError_t code = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    for (struct flight &f : g->flight) {
        if (code == cudaSuccess) code = cudaMallocHost((void **)&f.stage, STAGE_BYTES);
        if (code == cudaSuccess) code = cudaEventCreateWithFlags(&f.over, cudaEventDisableTiming);
    }
    if (code != cudaSuccess) {
        gpu_close(g);
        return err_set(e, ERR_UNSUPPORTED, "%.60s cannot be used: %s", p.name,
                       cudaGetErrorString(code));
    }
    if ((err = large_open(g, products, e))) {
        gpu_close(g);
        return err;
    }
    *device = g;
    return OK;
}

/* ---- weights ---- */
static enum err gpu_weight_new(void *device, void **weight, enum tensor_type t, int n_out, int n_in,
                               const void *rows, size_t *bytes, struct errmsg *e)
{
    struct gpu *g = on(device);
    struct pack_layout l;
    *weight = NULL;
    enum err code = pack_layout_of(t, n_out, n_in, &l, e);
    if (code) return code;
    uint8_t *host = (uint8_t *)try_malloc(l.bytes);
    struct gpu_weight *w = (struct gpu_weight *)xcalloc(1, sizeof *w);
    w->layout = l;
    w->bytes = (uint8_t *)gpu_alloc(g, l.bytes);
    if (!host || !w->bytes) {
        mem_free(host);
        if (w->bytes) gpu_release(g, w->bytes);
        mem_free(w);
        return err_set(e, ERR_FULL, "no GPU memory for a matrix of %d x %d (%zu bytes)", n_out,
                       n_in, l.bytes);
    }
    pack_rows(&l, rows, host);
    upload(g, w->bytes, host, l.bytes);
    mem_free(host);
    *bytes = l.bytes;
    *weight = w;
    return OK;
}
static size_t gpu_weight_planned(enum tensor_type t, int n_out, int n_in)
{
    struct pack_layout l;
    return pack_layout_of(t, n_out, n_in, &l, NULL) ? 0 : l.bytes;
}
static void gpu_weight_free(void *device, void *weight)
{
    gpu_release(device, ((struct gpu_weight *)weight)->bytes);
    mem_free(weight);
}

/* ---- rows ---- */
static const int32_t *upload_ids(struct gpu *g, const int32_t *id, int n)
{
    if (g->now) return g->token_ids;
    int32_t *to = (int32_t *)need_apart(g, &g->ids, (size_t)n * sizeof *id);
    if (!to) return to;
    upload(g, to, id, (size_t)n * sizeof *id);
    resolve_ids(g, to, id, n);
    return to;
}
static void gpu_embed(void *device, void *weight, const int32_t *id, int n_rows, bool accumulate,
                      float *out)
{
    struct gpu *g = on(device);
    const struct gpu_weight *w = (const struct gpu_weight *)weight;
    const int32_t *ids = upload_ids(g, id, n_rows);
    if (is_lost(g)) return;
    launch_embed(w->layout.type, view_of(w), ids, n_rows, accumulate, out, g->stream);
}
static void gpu_rmsnorm(void *device, const float *x, const float *weight, float eps, int n_rows,
                        int n, float *out)
{
    launch_norm(x, weight, eps, n_rows, n, out, on(device)->stream);
}
static void gpu_add(void *device, const float *x, size_t n, float *inout)
{
    launch_add(x, n, inout, on(device)->stream);
}
static void gpu_scale(void *device, float factor, size_t n, float *inout)
{
    launch_scale(factor, n, inout, on(device)->stream);
}
static void gpu_take_rows(void *device, float *x, int width, const int32_t *row, int n_rows)
{
    struct gpu *g = on(device);
    size_t bytes = (size_t)n_rows * (size_t)width * sizeof *x;
    if (!n_rows) return; /* a launch of no blocks is an error */
    const int32_t *rows = upload_ids(g, row, n_rows);
    float *taken = (float *)need_apart(g, &g->gathered, bytes);
    if (is_lost(g)) return;
    launch_gather(x, rows, n_rows, width, taken, g->stream);
    note(g, "gathering", cudaMemcpyAsync(x, taken, bytes, cudaMemcpyDeviceToDevice, g->stream));
}

/* ---- products ---- */
static void act_forms_of(const struct linear *l, void *const *weight, int n_in,
                         struct act_forms *all)
{
    *all = {false, false, false};
    for (int i = 0; i < l->n_weights; i++) {
        struct act_forms f =
            linear_forms(((const struct gpu_weight *)weight[i])->layout.type, n_in, l->n_rows);
        all->q |= f.q, all->h |= f.h, all->f |= f.f;
    }
}

void need_forms(struct gpu *g, struct act_forms forms, size_t n, struct act_args *a)
{
    if (forms.q) {
        a->q = (int8_t *)need(g, &g->q, n);
        a->d = (float *)need(g, &g->d, n / 16 * sizeof(float));
        a->s = (float *)need(g, &g->s, n / 16 * sizeof(float));
    }
    if (forms.h) a->h = (uint16_t *)need(g, &g->h, n * sizeof(uint16_t));
    if (forms.f) a->f = (float *)need(g, &g->f, n * sizeof(float));
}

static void gpu_linear(void *device, const struct linear *l, void *const *weight)
{
    static const enum act_in in_of[] = {ACT_PLAIN, ACT_RMSNORM, ACT_SILU_MUL, ACT_GELU_MUL,
                                        ACT_GELU};
    struct gpu *g = on(device);
    int n_in = ((const struct gpu_weight *)weight[0])->layout.n_in;
    size_t n = (size_t)l->n_rows * (size_t)n_in;
    struct act_forms forms;
    struct act_args a = {in_of[l->in], l->x, l->x2, l->norm_weight, l->eps, n_in,
                         NULL,         NULL, NULL,  NULL,           NULL,   NULL};
    if (l->row) a.row = upload_ids(g, l->row, l->n_rows);
    if (gpu_linear_large(g, l, weight, a)) return;
    act_forms_of(l, weight, n_in, &forms);
    need_forms(g, forms, n, &a);
    if (is_lost(g)) return;
    launch_act(a, l->n_rows, g->stream);
    for (int i = 0; i < l->n_weights; i++) {
        const struct gpu_weight *w = (const struct gpu_weight *)weight[i];
        struct product p = {w->layout.type, view_of(w), a.q,           a.d,      a.s, a.f, a.h,
                            l->n_rows,      l->bias[i], l->accumulate, l->out[i]};
        launch_product(p, g->stream);
    }
}

/* ---- KV ---- */
static enum err kv_view_for(const struct kv_options *o, struct kv_view *v, struct errmsg *e)
{
    static const enum gpu_kv_type type_of[KV_TYPES] = {GPU_KV_F16, GPU_KV_INT8, GPU_KV_K8V4};
    if (o->head_dim % 8)
        return err_set(e, ERR_UNSUPPORTED, "heads of %d elements: a GPU needs a multiple of 8",
                       o->head_dim);
    *v = kv_view_of(type_of[o->type], o->n_kv_heads, o->head_dim, o->block_tokens);
    return OK;
}
static enum err gpu_kv_planned(const struct kv_options *o, size_t *block_bytes, struct errmsg *e)
{
    struct kv_view v;
    enum err code = kv_view_for(o, &v, e);
    if (!code) *block_bytes = v.block_bytes * (size_t)o->n_layers;
    return code;
}
static void gpu_kv_free(void *device, void *kv)
{
    gpu_release(device, ((struct gpu_kv *)kv)->view.layer);
    cudaFreeHost(((struct gpu_kv *)kv)->out);
    delete ((struct gpu_kv *)kv)->maps;
    mem_free(kv);
}
/* DEJA_GPU_ATTENTION=wgmma: large tiles by attend_wide.cuh, which no device has run yet. */
static enum err make_maps(struct gpu_kv *k, struct errmsg *e)
{
    const char *how = getenv("DEJA_GPU_ATTENTION");
    if (!how || strcmp(how, "wgmma") != 0) return OK;
    k->maps = new struct attend_maps;
    cudaError_t code =
        attend_maps_make(k->maps, k->view, k->o.n_blocks, k->o.n_layers, k->layer_bytes);
    if (code == cudaSuccess) return OK;
    return err_set(e, ERR_UNSUPPORTED,
                   "DEJA_GPU_ATTENTION=wgmma needs compute capability 9.0, f16 KV, heads of 64 or "
                   "128 and blocks of 8 to 64 tokens");
}
static enum err gpu_kv_new(void *device, void **kv, const struct kv_options *o, size_t *bytes,
                           struct errmsg *e)
{
    struct kv_view view;
    *kv = NULL;
    enum err code = kv_view_for(o, &view, e);
    if (code) return code;
    struct gpu_kv *k = (struct gpu_kv *)xcalloc(1, sizeof *k);
    k->o = *o;
    k->view = view;
    k->layer_bytes = k->view.block_bytes * (size_t)o->n_blocks;
    k->bytes = k->layer_bytes * (size_t)o->n_layers;
    k->view.layer = (uint8_t *)gpu_alloc(device, k->bytes);
    if (cudaMallocHost((void **)&k->out, k->view.block_bytes * (size_t)o->n_layers) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        if (k->view.layer) gpu_release(device, k->view.layer);
        mem_free(k);
        return err_set(e, ERR_FULL, "no pinned memory for a KV block on its way from the GPU");
    }
    if (!k->view.layer) {
        cudaFreeHost(k->out);
        size_t want = k->bytes;
        mem_free(k);
        return err_set(e, ERR_FULL, "no GPU memory for %d KV blocks of %d tokens (%zu bytes)",
                       o->n_blocks, o->block_tokens, want);
    }
    if ((code = make_maps(k, e))) {
        gpu_kv_free(device, k);
        return code;
    }
    cudaError_t cleared = cudaMemsetAsync(k->view.layer, 0, k->bytes, on(device)->stream);
    if (cleared != cudaSuccess) {
        gpu_kv_free(device, k);
        return err_set(e, ERR_UNAVAILABLE, "the GPU failed at clearing its KV blocks: %s",
                       cudaGetErrorString(cleared));
    }
    *bytes = k->bytes;
    *kv = k;
    return OK;
}
static size_t gpu_kv_block_bytes(const void *kv)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    return k->view.block_bytes * (size_t)k->o.n_layers;
}
static void gpu_kv_copy(void *device, void *kv, int dst, int src, int n_tokens)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    if (n_tokens)
        launch_kv_copy(k->view, k->o.n_layers, k->layer_bytes, dst, src, n_tokens,
                       on(device)->stream);
}
static void gpu_kv_move(void *device, void *kv, const struct kv_move *moves, int n)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    for (int i = 0; i < n; i += KV_MOVES) {
        struct kv_move_list list = {};
        for (; list.n < KV_MOVES && i + list.n < n; list.n++) {
            const struct kv_move *m = &moves[i + list.n];
            list.move[list.n] = {m->dst_block, m->dst_at, m->src_block, m->src_at};
        }
        launch_kv_move(k->view, k->o.n_layers, k->layer_bytes, list, on(device)->stream);
    }
}
/* A block's layers lie layer_bytes apart; on the host they are one piece. It comes down to pinned memory, which a device fills without the
 * driver's own staging, in one copy, or layer by layer where they lie farther apart than the pitch of a copy may be (2 GiB); the way up
 * is upload's, which is pinned too. */
static cudaError_t copy_layers(struct gpu *g, const struct gpu_kv *k, int block)
{
    size_t n = k->view.block_bytes, layers = (size_t)k->o.n_layers;
    const uint8_t *from = k->view.layer + (size_t)block * n;
    if (k->layer_bytes <= g->pitch_max)
        return cudaMemcpy2DAsync(k->out, n, from, k->layer_bytes, n, layers, cudaMemcpyDeviceToHost,
                                 g->stream);
    cudaError_t code = cudaSuccess;
    for (size_t l = 0; l < layers && code == cudaSuccess; l++)
        code = cudaMemcpyAsync(k->out + l * n, from + l * k->layer_bytes, n, cudaMemcpyDeviceToHost,
                               g->stream);
    return code;
}
static void gpu_kv_read(void *device, const void *kv, int block, void *host)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    struct gpu *g = on(device);
    size_t n = gpu_kv_block_bytes(k);
    if (!is_lost(g)) note(g, "reading a KV block", copy_layers(g, k, block));
    note(g, "reading a KV block", settle(g));
    if (is_lost(g))
        memset(host, 0xff, n); /* what was on its way is nobody's K and V */
    else
        memcpy(host, k->out, n);
}
static void gpu_kv_write(void *device, void *kv, int block, const void *host)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    size_t n = k->view.block_bytes;
    for (int l = 0; l < k->o.n_layers; l++)
        upload(on(device), k->view.layer + (size_t)l * k->layer_bytes + (size_t)block * n,
               (const uint8_t *)host + (size_t)l * n, n);
}

extern "C" const struct device_ops cuda_device = {
    "cuda",         gpu_expect_ranks, gpu_open,        gpu_close,
    gpu_memory,     gpu_model,        gpu_failure,     gpu_weight_planned,
    gpu_kv_planned, gpu_alloc,        gpu_release,     gpu_write,
    gpu_read,       gpu_weight_new,   gpu_weight_free, gpu_embed,
    gpu_linear,     gpu_rmsnorm,      gpu_add,         gpu_scale,
    gpu_take_rows,  gpu_kv_new,       gpu_kv_free,     gpu_kv_block_bytes,
    gpu_kv_copy,    gpu_kv_move,      gpu_kv_read,     gpu_kv_write,
    gpu_set_rows,   gpu_rope_store,   gpu_attention,   gpu_step_begin,
    gpu_step_end,   gpu_submit,       gpu_wait,        gpu_moe,
    gpu_join,       gpu_all_reduce,   gpu_all_gather};
