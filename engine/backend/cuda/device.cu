/* device.cu - the table of engine/backend/device.h on one CUDA device: memory, uploads, and which launches make up an operation. All work
 * goes to one stream. Positions, block tables and attention plans cross over once a step (set_rows), through pinned memory.
 * An error (out of memory in a scratch area, a failed launch, a lost device) is remembered and told by the next read.
 * Threading: the step thread. */
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "base/mem.h"
#include "engine/backend/device.h"
}
#include "engine/backend/cuda/device.h"
#include "engine/backend/cuda/launch.h"

enum { STAGE_BYTES = 8 << 20, PLANS_MAX = 2, MAJOR_MIN = 8 };

struct area { /* device scratch that only grows */
    uint8_t *p;
    size_t bytes;
};

struct plan { /* attention tiles of this step for one window */
    int window, n_tiles, splits_max;
    size_t tiles_at, splits_at; /* in the area `steps` */
    struct area area;
};

struct gpu {
    cudaStream_t stream;
    struct errmsg failed; /* text empty: nothing has failed */
    uint8_t *stage;       /* pinned */
    size_t staged;
    struct area q, d, s, h, f, ids, gathered, rows, parts;
    struct kv_rows host; /* of this step; arrays are the caller's until the next set_rows */
    int table_stride, n_seqs, group;
    struct rows_view view;
    struct plan plan[PLANS_MAX];
    int n_plans;
};

struct gpu_weight {
    struct pack_layout layout;
    uint8_t *bytes;
};
struct gpu_kv {
    struct kv_options o;
    struct kv_view view; /* .layer is layer 0 */
    size_t layer_bytes, bytes;
};

/* ---- errors and memory ---- */
static void note(struct gpu *g, const char *what, cudaError_t code)
{
    if (code != cudaSuccess && !g->failed.text[0])
        (void)err_set(&g->failed, ERR_UNAVAILABLE, "the GPU failed at %s: %s", what,
                      cudaGetErrorString(code));
}

static void *need(struct gpu *g, struct area *a, size_t bytes)
{
    if (bytes <= a->bytes) return a->p;
    note(g, "making room", cudaStreamSynchronize(g->stream));
    cudaFree(a->p);
    a->bytes = 0;
    cudaError_t code = cudaMalloc(&a->p, bytes);
    note(g, "making room", code);
    if (code == cudaSuccess) a->bytes = bytes;
    return a->p;
}

/* Host bytes to a device area, without waiting: they are copied to pinned memory first. */
static void upload(struct gpu *g, void *to, const void *from, size_t bytes)
{
    if (g->failed.text[0] || !bytes) return;
    for (size_t done = 0; done < bytes;) {
        if (g->staged == STAGE_BYTES) {
            note(g, "an upload", cudaStreamSynchronize(g->stream));
            g->staged = 0;
        }
        size_t n = bytes - done < STAGE_BYTES - g->staged ? bytes - done : STAGE_BYTES - g->staged;
        memcpy(g->stage + g->staged, (const uint8_t *)from + done, n);
        note(g, "an upload",
             cudaMemcpyAsync((uint8_t *)to + done, g->stage + g->staged, n, cudaMemcpyHostToDevice,
                             g->stream));
        g->staged += n;
        done += n;
    }
}

static void *gpu_alloc(void *device, size_t bytes)
{
    (void)device;
    void *p = NULL;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();
    return NULL;
}
static void gpu_release(void *device, void *p)
{
    cudaStreamSynchronize(((struct gpu *)device)->stream);
    cudaFree(p);
}
static void gpu_write(void *device, void *to, const void *host, size_t bytes)
{
    upload((struct gpu *)device, to, host, bytes);
}
static enum err gpu_read(void *device, void *host, const void *from, size_t bytes, struct errmsg *e)
{
    struct gpu *g = (struct gpu *)device;
    if (!g->failed.text[0]) {
        note(g, "a kernel", cudaGetLastError());
        note(g, "a download",
             cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, g->stream));
        note(g, "a kernel", cudaStreamSynchronize(g->stream));
        g->staged = 0;
    }
    if (!g->failed.text[0]) return OK;
    memset(host, 0xff, bytes); /* NaN: nobody mistakes it for logits */
    *e = g->failed;
    return ERR_UNAVAILABLE;
}
static size_t gpu_memory(void *device)
{
    (void)device;
    size_t left = 0, total = 0;
    return cudaMemGetInfo(&left, &total) == cudaSuccess ? left : 0;
}

/* ---- life ---- */
static enum err gpu_open(void **device, struct errmsg *e)
{
    int n = 0;
    struct cudaDeviceProp p;
    *device = NULL;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess || n == 0)
        return err_set(e, ERR_UNSUPPORTED, "no CUDA device: %s",
                       code == cudaSuccess ? "the driver lists none" : cudaGetErrorString(code));
    if ((code = cudaGetDeviceProperties(&p, 0)) != cudaSuccess)
        return err_set(e, ERR_UNSUPPORTED, "CUDA device 0 does not answer: %s",
                       cudaGetErrorString(code));
    if (p.major < MAJOR_MIN)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has compute capability %d.%d; 8.0 or newer is needed", p.name, p.major,
                       p.minor);
    struct gpu *g = (struct gpu *)xcalloc(1, sizeof *g);
    code = cudaSetDevice(0);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaMallocHost((void **)&g->stage, STAGE_BYTES);
    if (code != cudaSuccess) {
        if (g->stream) cudaStreamDestroy(g->stream);
        mem_free(g);
        return err_set(e, ERR_UNSUPPORTED, "%s cannot be used: %s", p.name,
                       cudaGetErrorString(code));
    }
    *device = g;
    return OK;
}

static void gpu_close(void *device)
{
    struct gpu *g = (struct gpu *)device;
    struct area *all[] = {&g->q,           &g->d,        &g->s,    &g->h,     &g->f,
                          &g->ids,         &g->gathered, &g->rows, &g->parts, &g->plan[0].area,
                          &g->plan[1].area};
    cudaStreamSynchronize(g->stream);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cudaFree(all[i]->p);
    cudaFreeHost(g->stage);
    cudaStreamDestroy(g->stream);
    mem_free(g);
}

/* ---- weights ---- */
static enum err gpu_weight_new(void *device, void **weight, enum tensor_type t, int n_out, int n_in,
                               const void *rows, size_t *bytes, struct errmsg *e)
{
    struct gpu *g = (struct gpu *)device;
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
static void gpu_weight_free(void *device, void *weight)
{
    gpu_release(device, ((struct gpu_weight *)weight)->bytes);
    mem_free(weight);
}
static struct packed view_of(const struct gpu_weight *w)
{
    const struct pack_layout *l = &w->layout;
    return {w->bytes,
            w->bytes + l->high_at,
            w->bytes + l->scale_at,
            w->bytes + l->super_at,
            l->n_out,
            l->n_in,
            l->n_runs};
}

/* ---- rows ---- */
static const int32_t *upload_ids(struct gpu *g, const int32_t *id, int n)
{
    int32_t *to = (int32_t *)need(g, &g->ids, (size_t)n * sizeof *id);
    if (to) upload(g, to, id, (size_t)n * sizeof *id);
    return to;
}
static void gpu_embed(void *device, void *weight, const int32_t *id, int n_rows, bool accumulate,
                      float *out)
{
    struct gpu *g = (struct gpu *)device;
    const struct gpu_weight *w = (const struct gpu_weight *)weight;
    const int32_t *ids = upload_ids(g, id, n_rows);
    if (g->failed.text[0]) return;
    launch_embed(w->layout.type, view_of(w), ids, n_rows, accumulate, out, g->stream);
}
static void gpu_rmsnorm(void *device, const float *x, const float *weight, float eps, int n_rows,
                        int n, float *out)
{
    launch_norm(x, weight, eps, n_rows, n, out, ((struct gpu *)device)->stream);
}
static void gpu_add(void *device, const float *x, size_t n, float *inout)
{
    launch_add(x, n, inout, ((struct gpu *)device)->stream);
}
static void gpu_scale(void *device, float factor, size_t n, float *inout)
{
    launch_scale(factor, n, inout, ((struct gpu *)device)->stream);
}
static void gpu_take_rows(void *device, float *x, int width, const int32_t *row, int n_rows)
{
    struct gpu *g = (struct gpu *)device;
    size_t bytes = (size_t)n_rows * (size_t)width * sizeof *x;
    const int32_t *rows = upload_ids(g, row, n_rows);
    float *taken = (float *)need(g, &g->gathered, bytes);
    if (g->failed.text[0]) return;
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

static void gpu_linear(void *device, const struct linear *l, void *const *weight)
{
    static const enum act_in in_of[] = {ACT_PLAIN, ACT_RMSNORM, ACT_SILU_MUL, ACT_GELU_MUL,
                                        ACT_GELU};
    struct gpu *g = (struct gpu *)device;
    int n_in = ((const struct gpu_weight *)weight[0])->layout.n_in;
    size_t n = (size_t)l->n_rows * (size_t)n_in;
    struct act_forms forms;
    act_forms_of(l, weight, n_in, &forms);
    struct act_args a = {in_of[l->in], l->x, l->x2, l->norm_weight, l->eps, n_in,
                         NULL,         NULL, NULL,  NULL,           NULL,   NULL};
    if (l->row) a.row = upload_ids(g, l->row, l->n_rows);
    if (forms.q) {
        a.q = (int8_t *)need(g, &g->q, n);
        a.d = (float *)need(g, &g->d, n / 16 * sizeof(float));
        a.s = (float *)need(g, &g->s, n / 16 * sizeof(float));
    }
    if (forms.h) a.h = (uint16_t *)need(g, &g->h, n * sizeof(uint16_t));
    if (forms.f) a.f = (float *)need(g, &g->f, n * sizeof(float));
    if (g->failed.text[0]) return;
    launch_act(a, l->n_rows, g->stream);
    for (int i = 0; i < l->n_weights; i++) {
        const struct gpu_weight *w = (const struct gpu_weight *)weight[i];
        struct product p = {w->layout.type, view_of(w), a.q,           a.d,      a.s, a.f, a.h,
                            l->n_rows,      l->bias[i], l->accumulate, l->out[i]};
        launch_product(p, g->stream);
    }
}

/* ---- KV ---- */
static enum err gpu_kv_new(void *device, void **kv, const struct kv_options *o, size_t *bytes,
                           struct errmsg *e)
{
    static const enum gpu_kv_type type_of[] = {GPU_KV_F16, GPU_KV_INT8};
    *kv = NULL;
    if ((size_t)o->type >= sizeof type_of / sizeof type_of[0])
        return err_set(e, ERR_UNSUPPORTED, "this KV type is not kept on a GPU; f16 and int8 are");
    if (o->head_dim % 8)
        return err_set(e, ERR_UNSUPPORTED, "heads of %d elements: a GPU needs a multiple of 8",
                       o->head_dim);
    struct gpu_kv *k = (struct gpu_kv *)xcalloc(1, sizeof *k);
    k->o = *o;
    k->view = kv_view_of(type_of[o->type], o->n_kv_heads, o->head_dim, o->block_tokens);
    k->layer_bytes = k->view.block_bytes * (size_t)o->n_blocks;
    k->bytes = k->layer_bytes * (size_t)o->n_layers;
    k->view.layer = (uint8_t *)gpu_alloc(device, k->bytes);
    if (!k->view.layer) {
        size_t want = k->bytes;
        mem_free(k);
        return err_set(e, ERR_FULL, "no GPU memory for %d KV blocks of %d tokens (%zu bytes)",
                       o->n_blocks, o->block_tokens, want);
    }
    cudaMemsetAsync(k->view.layer, 0, k->bytes, ((struct gpu *)device)->stream);
    *bytes = k->bytes;
    *kv = k;
    return OK;
}
static void gpu_kv_free(void *device, void *kv)
{
    gpu_release(device, ((struct gpu_kv *)kv)->view.layer);
    mem_free(kv);
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
                       ((struct gpu *)device)->stream);
}
/* A block's layers lie layer_bytes apart; on the host they are one piece. */
static void gpu_kv_read(void *device, const void *kv, int block, void *host)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    struct gpu *g = (struct gpu *)device;
    size_t n = k->view.block_bytes;
    note(g, "reading a KV block",
         cudaMemcpy2DAsync(host, n, k->view.layer + (size_t)block * n, k->layer_bytes, n,
                           (size_t)k->o.n_layers, cudaMemcpyDeviceToHost, g->stream));
    note(g, "reading a KV block", cudaStreamSynchronize(g->stream));
}
static void gpu_kv_write(void *device, void *kv, int block, const void *host)
{
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    size_t n = k->view.block_bytes;
    for (int l = 0; l < k->o.n_layers; l++)
        upload((struct gpu *)device, k->view.layer + (size_t)l * k->layer_bytes + (size_t)block * n,
               (const uint8_t *)host + (size_t)l * n, n);
}

/* ---- positions, tables, attention ---- */
static int blocks_of(const struct kv_rows *rows, int block_tokens, int *n_seqs)
{
    int longest = 0;
    *n_seqs = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        if (rows->seq[i] + 1 > *n_seqs) *n_seqs = rows->seq[i] + 1;
        int n = rows->pos[i] / block_tokens + 1;
        if (n > longest) longest = n;
    }
    return longest;
}

static void gpu_set_rows(void *device, const void *kv, const struct kv_rows *rows)
{
    struct gpu *g = (struct gpu *)device;
    int block_tokens = ((const struct gpu_kv *)kv)->o.block_tokens, n_seqs, n = rows->n_rows;
    int stride = blocks_of(rows, block_tokens, &n_seqs);
    size_t ints = 2 * (size_t)n + (size_t)n_seqs * (size_t)stride;
    int32_t *host = (int32_t *)xcalloc(ints, sizeof *host);
    memcpy(host, rows->pos, (size_t)n * sizeof *host);
    memcpy(host + n, rows->seq, (size_t)n * sizeof *host);
    for (int i = 0; i < n;
         i++) { /* only what is in use: a caller's table may be shorter than stride */
        int32_t *to = host + 2 * n + (size_t)rows->seq[i] * (size_t)stride;
        memcpy(to, rows->block_table[rows->seq[i]],
               (size_t)(rows->pos[i] / block_tokens + 1) * sizeof *to);
    }
    int32_t *on = (int32_t *)need(g, &g->rows, ints * sizeof *host);
    if (on) upload(g, on, host, ints * sizeof *host);
    mem_free(host);
    g->host = *rows;
    g->view = {on, on + n, on + 2 * n, stride};
    g->n_plans = 0;
}

static void gpu_rope_store(void *device, void *kv, const struct rope_store *p,
                           const struct rope_table *rope)
{
    struct gpu *g = (struct gpu *)device;
    struct gpu_kv *k = (struct gpu_kv *)kv;
    if (g->failed.text[0]) return;
    struct rope_store_args a = {k->view, {NULL, 0, false}, g->view, p->n_heads, p->q, p->k, p->v};
    if (rope) a.rope = {rope->cos_sin, rope->dims, rope->half_split};
    a.kv.layer += (size_t)p->layer * k->layer_bytes;
    launch_rope_store(a, g->host.n_rows, g->stream);
}

/* The tiles for this window; made at its first use in a step. */
static const struct plan *plan_for(struct gpu *g, int group, int window)
{
    for (int i = 0; i < g->n_plans; i++)
        if (g->plan[i].window == window) return &g->plan[i];
    struct plan *p = &g->plan[g->n_plans < PLANS_MAX ? g->n_plans++ : PLANS_MAX - 1];
    int n = g->host.n_rows, most = attend_tiles_max(n, group);
    size_t tiles = (size_t)most * sizeof(struct attend_tile), splits = (size_t)n * sizeof(int32_t);
    uint8_t *host = (uint8_t *)xcalloc(1, tiles + splits);
    p->window = window;
    p->n_tiles = attend_plan(n, g->host.pos, g->host.seq, group, window, (struct attend_tile *)host,
                             (int32_t *)(host + tiles), &p->splits_max);
    p->tiles_at = 0;
    p->splits_at = tiles;
    void *to = need(g, &p->area, tiles + splits);
    if (to) upload(g, to, host, tiles + splits);
    mem_free(host);
    return p;
}

static void gpu_attention(void *device, const void *kv, const struct attention *p)
{
    struct gpu *g = (struct gpu *)device;
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    const struct plan *plan = plan_for(g, p->n_heads / k->o.n_kv_heads, p->window);
    size_t vectors = (size_t)g->host.n_rows * (size_t)p->n_heads * (size_t)plan->splits_max;
    float *parts =
        (float *)need(g, &g->parts, vectors * (size_t)(k->o.head_dim + 2) * sizeof(float));
    if (g->failed.text[0]) return;
    struct attend_args a = {k->view,
                            g->view,
                            (const struct attend_tile *)(plan->area.p + plan->tiles_at),
                            p->n_heads,
                            p->window,
                            plan->splits_max,
                            p->scale,
                            p->softcap,
                            p->q,
                            parts,
                            parts + vectors * (size_t)k->o.head_dim,
                            p->out};
    a.kv.layer += (size_t)p->layer * k->layer_bytes;
    launch_attention(a, plan->n_tiles, g->host.n_rows,
                     (const int32_t *)(plan->area.p + plan->splits_at), g->stream);
}

extern "C" const struct device_ops cuda_device = {
    "cuda",         gpu_open,        gpu_close,          gpu_memory,
    gpu_alloc,      gpu_release,     gpu_write,          gpu_read,
    gpu_weight_new, gpu_weight_free, gpu_embed,          gpu_linear,
    gpu_rmsnorm,    gpu_add,         gpu_scale,          gpu_take_rows,
    gpu_kv_new,     gpu_kv_free,     gpu_kv_block_bytes, gpu_kv_copy,
    gpu_kv_read,    gpu_kv_write,    gpu_set_rows,       gpu_rope_store,
    gpu_attention};
