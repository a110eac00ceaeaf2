/* kv.c - the bytes of paged K and V, and rope. Owns storage; who may use which block is not known here.
 * Layout: [layer][block][kv head], each as in kv_layout.h.
 * Threading: see backend.h. Sources: paged KV, Kwon et al. 2023, arXiv:2309.06180; rotary embedding, Su et al. 2021,
 * arXiv:2104.09864 eq. 34. */
#include "engine/backend/kv.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { BLOCK_TOKENS_MAX = 256, ROWS_PER_TASK = 16 };

/* ---- rope ---- */
struct rope {
    struct rope_options o;
    float *cos_sin; /* [pos_max][dims/2][2] */
    size_t bytes;
    struct backend
        *be; /* who holds the table on a device, or NULL; fetched at its first use there */
    float *on_device;
};

enum err rope_new(struct rope **out, const struct rope_options *o, struct errmsg *e)
{
    *out = NULL;
    ASSERT(o->dims >= 2 && o->dims % 2 == 0 && o->dims <= ATTEND_HEAD_MAX && o->pos_max > 0 &&
           o->base > 0);
    size_t bytes = (size_t)o->pos_max * (size_t)o->dims * sizeof(float);
    float *table = mem_alloc_huge(bytes);
    if (!table)
        return err_set(e, ERR_FULL, "no memory for rotations of %d positions (%zu bytes)",
                       o->pos_max, bytes);
    double scale = o->linear_scale > 0 ? o->linear_scale : 1;
    double magnitude = o->magnitude > 0 ? (double)o->magnitude : 1;
    int half = o->dims / 2;
    for (int i = 0; i < half; i++) {
        double freq =
            pow(o->base, -2.0 * i / o->dims) / (o->freq_factors ? o->freq_factors[i] : 1.0);
        for (int pos = 0; pos < o->pos_max; pos++) {
            float *t = table + ((size_t)pos * (size_t)half + (size_t)i) * 2;
            t[0] = (float)(magnitude * cos(pos / scale * freq));
            t[1] = (float)(magnitude * sin(pos / scale * freq));
        }
    }
    struct rope *r = xcalloc(1, sizeof *r);
    *r = (struct rope){.o = *o, .cos_sin = table, .bytes = bytes};
    r->o.freq_factors = NULL; /* the caller's; used up */
    *out = r;
    return OK;
}

void rope_free(struct rope *r)
{
    if (!r) return;
    if (r->be) backend_floats_free(r->be, r->on_device);
    mem_free_huge(r->cos_sin, r->bytes);
    mem_free(r);
}

/* ---- storage ---- */
enum err kv_new(struct kv **out, struct backend *be, const struct kv_options *o, struct errmsg *e)
{
    *out = NULL;
    ASSERT(o->n_layers > 0 && o->n_kv_heads > 0 && o->n_blocks > 0);
    ASSERT(o->head_dim >= 8 && o->head_dim % 8 == 0 && o->head_dim <= ATTEND_HEAD_MAX);
    ASSERT(o->block_tokens >= 1 && o->block_tokens <= BLOCK_TOKENS_MAX);
    if (be->exact && o->type != KV_F16)
        return err_set(e, ERR_INVALID, "exact arithmetic keeps float32 KV: %s does not go with it",
                       kv_type_name(o->type));
    struct kv *kv = xcalloc(1, sizeof *kv);
    kv->o = *o;
    kv->be = be;
    if (be->ops) {
        enum err code = be->ops->kv_new(be->device, &kv->device, o, &kv->bytes, e);
        if (code) mem_free(kv);
        if (!code) *out = kv;
        return code;
    }
    kv_layout_init(&kv->layout, o->type, be->exact, o->head_dim, o->block_tokens);
    kv->block_bytes = kv->layout.head_bytes * (size_t)o->n_kv_heads;
    kv->layer_bytes = kv->block_bytes * (size_t)o->n_blocks;
    kv->bytes = kv->layer_bytes * (size_t)o->n_layers;
    kv->p = mem_alloc_huge(kv->bytes + KV_SLACK_BYTES);
    if (!kv->p) {
        size_t want = kv->bytes;
        mem_free(kv);
        return err_set(e, ERR_FULL, "no memory for %d KV blocks of %d tokens (%zu bytes)",
                       o->n_blocks, o->block_tokens, want);
    }
    *out = kv;
    return OK;
}

void kv_free(struct kv *kv)
{
    if (!kv) return;
    if (kv->device)
        kv->be->ops->kv_free(kv->be->device, kv->device);
    else
        mem_free_huge(kv->p, kv->bytes + KV_SLACK_BYTES);
    mem_free(kv);
}

void kv_touch(struct kv *kv, int part, int n_parts)
{
    if (kv->device) return; /* its maker gives memory at once */
    size_t from = kv->bytes / (size_t)n_parts * (size_t)part,
           to = part + 1 < n_parts ? kv->bytes / (size_t)n_parts * ((size_t)part + 1)
                                   : kv->bytes + KV_SLACK_BYTES;
    mem_touch(kv->p + from, to - from);
}

size_t kv_bytes(const struct kv *kv)
{
    return kv->bytes;
}
size_t kv_block_bytes(const struct kv *kv)
{
    if (kv->device) return kv->be->ops->kv_block_bytes(kv->device);
    return kv->block_bytes * (size_t)kv->o.n_layers;
}

uint8_t *kv_head(const struct kv *kv, int layer, int block, int head)
{
    return kv->p + (size_t)layer * kv->layer_bytes + (size_t)block * kv->block_bytes +
           (size_t)head * kv->layout.head_bytes;
}

static void check_block(const struct kv *kv, int block)
{
    ASSERT(block >= 0 && block < kv->o.n_blocks);
}

void kv_copy(struct kv *kv, int dst_block, int src_block, int n_tokens)
{
    check_block(kv, dst_block);
    check_block(kv, src_block);
    ASSERT(n_tokens >= 0 && n_tokens <= kv->o.block_tokens && dst_block != src_block);
    if (kv->device) {
        kv->be->ops->kv_copy(kv->be->device, kv->device, dst_block, src_block, n_tokens);
        return;
    }
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        for (int h = 0; h < kv->o.n_kv_heads; h++) {
            uint8_t *dst = kv_head(kv, layer, dst_block, h);
            const uint8_t *src = kv_head(kv, layer, src_block, h);
            for (int i = 0; i < kv->layout.n_planes; i++) {
                struct kv_plane p = kv->layout.plane[i];
                for (size_t row = 0, at = p.at; row < p.rows; row++, at += p.row_bytes)
                    memcpy(dst + at, src + at, (size_t)n_tokens * p.unit);
            }
        }
}

static void move_token(struct kv *kv, const struct kv_move *m)
{
    size_t from = (size_t)m->src_at, to = (size_t)m->dst_at;
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        for (int h = 0; h < kv->o.n_kv_heads; h++) {
            uint8_t *dst = kv_head(kv, layer, m->dst_block, h);
            const uint8_t *src = kv_head(kv, layer, m->src_block, h);
            for (int i = 0; i < kv->layout.n_planes; i++) {
                struct kv_plane p = kv->layout.plane[i];
                for (size_t row = 0, at = p.at; row < p.rows; row++, at += p.row_bytes)
                    memcpy(dst + at + to * p.unit, src + at + from * p.unit, p.unit);
            }
        }
}

void kv_move_tokens(struct kv *kv, const struct kv_move *moves, int n)
{
    for (int i = 0; i < n; i++) {
        const struct kv_move *m = &moves[i];
        check_block(kv, m->dst_block);
        check_block(kv, m->src_block);
        ASSERT(m->dst_at >= 0 && m->dst_at < kv->o.block_tokens && m->src_at >= 0 &&
               m->src_at < kv->o.block_tokens);
        ASSERT(m->dst_block != m->src_block || m->dst_at != m->src_at);
        if (!kv->device) move_token(kv, m);
    }
    if (kv->device && n) kv->be->ops->kv_move(kv->be->device, kv->device, moves, n);
}

static const char *const lanes_1[KV_TYPES] = {
    [KV_F16] = "lanes-1 f16", [KV_INT8] = "lanes-1 int8", [KV_K8V4] = "lanes-1 k8v4"};

const char *kv_layout_name(const struct kv *kv)
{
    if (kv->device) return kv->o.type == KV_F16 ? "device-1 f16" : "device-1 int8";
    return kv->layout.format == KV_FORMAT_F32 ? "lanes-1 f32" : lanes_1[kv->o.type];
}

void kv_block_read(const struct kv *kv, int block, void *to)
{
    check_block(kv, block);
    if (kv->device) {
        kv->be->ops->kv_read(kv->be->device, kv->device, block, to);
        return;
    }
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        memcpy((uint8_t *)to + (size_t)layer * kv->block_bytes, kv_head(kv, layer, block, 0),
               kv->block_bytes);
}

void kv_block_write(struct kv *kv, int block, const void *from)
{
    check_block(kv, block);
    if (kv->device) {
        kv->be->ops->kv_write(kv->be->device, kv->device, block, from);
        return;
    }
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        memcpy(kv_head(kv, layer, block, 0),
               (const uint8_t *)from + (size_t)layer * kv->block_bytes, kv->block_bytes);
}

/* ---- rope and store ---- */
struct store_job {
    struct backend *be;
    struct kv *kv;
    const struct kv_rows *rows;
    const struct rope_store *p;
};

static uint16_t *u16_at(uint8_t *head, size_t at, size_t i)
{
    return (uint16_t *)(void *)(head + at) + i;
}

static void put_k(const struct kv *kv, const struct kernels *k, uint8_t *head, size_t slot,
                  const float *x)
{
    const struct kv_layout *l = &kv->layout;
    size_t n = (size_t)l->head_dim, lanes = (size_t)l->lanes;
    if (l->format == KV_FORMAT_F32) {
        for (size_t d = 0; d < n; d++)
            memcpy(head + (d * lanes + slot) * 4, x + d, 4);
    } else if (l->format == KV_FORMAT_F16) {
        uint16_t h[ATTEND_HEAD_MAX];
        k->to_f16(x, h, l->head_dim);
        for (size_t d = 0; d < n; d++)
            memcpy(head + (d * lanes + slot) * 2, h + d, 2);
    } else {
        int8_t q[ATTEND_HEAD_MAX];
        *u16_at(head, l->k_scale_at, slot) = k->to_i8(x, q, l->head_dim);
        for (size_t d = 0; d < n; d += 4)
            memcpy(head + d * lanes + slot * 4, q + d, 4);
    }
}

/* Four bits a value, group by group. */
static void put_v4(const struct kv_layout *l, const struct kernels *k, uint8_t *head, size_t slot,
                   const float *x)
{
    uint8_t q[ATTEND_HEAD_MAX + 8] = {0},
                                *out = head + l->v_at + slot * kv_v4_row_bytes(l->head_dim);
    for (int d = 0, g = 0; d < l->head_dim; d += KV_V4_GROUP, g++) {
        int n = l->head_dim - d < KV_V4_GROUP ? l->head_dim - d : KV_V4_GROUP;
        size_t at = (size_t)g * (size_t)l->lanes + slot;
        k->to_u4(x + d, q + d, n, u16_at(head, l->v_scale_at, at), u16_at(head, l->v_min_at, at));
    }
    for (int d = 0; d < l->head_dim; d += 16)
        for (int i = 0; i < 8; i++)
            *out++ = (uint8_t)(q[d + i] | q[d + 8 + i] << 4);
}

static void put_v(const struct kv *kv, const struct kernels *k, uint8_t *head, size_t slot,
                  const float *x)
{
    const struct kv_layout *l = &kv->layout;
    size_t n = (size_t)l->head_dim;
    switch (l->format) {
    case KV_FORMAT_F32:
        memcpy(head + l->v_at + slot * n * 4, x, n * 4);
        break;
    case KV_FORMAT_F16:
        k->to_f16(x, u16_at(head, l->v_at, slot * n), l->head_dim);
        break;
    case KV_FORMAT_INT8:
        *u16_at(head, l->v_scale_at, slot) =
            k->to_i8(x, (int8_t *)head + l->v_at + slot * n, l->head_dim);
        break;
    case KV_FORMAT_K8V4:
        put_v4(l, k, head, slot, x);
        break;
    }
}

static struct rope_row rotation_of(const struct store_job *job, int pos)
{
    const struct rope *rope = job->p->rope;
    struct rope_row r = {.head_dim = job->kv->o.head_dim};
    if (!rope) return r;
    ASSERT(pos < rope->o.pos_max && rope->o.dims <= r.head_dim);
    r.dims = rope->o.dims;
    r.half_split = rope->o.half_split;
    r.cos_sin = rope->cos_sin + (size_t)pos * (size_t)r.dims;
    return r;
}

static void turn_queries(const struct store_job *job, int i, const struct rope_row *r)
{
    const struct rope_store *p = job->p;
    int n = r->head_dim, group = p->n_heads / job->kv->o.n_kv_heads;
    for (int h = 0; h < p->n_heads; h++) {
        float *q = p->q + ((size_t)i * (size_t)p->n_heads + (size_t)h) * (size_t)n;
        if (p->rope) job->be->k->rope(r, q, q);
        if (!p->spread) continue;
        const float *spread = p->spread + h / group * n;
        for (int d = 0; d < n; d++)
            q[d] *= spread[d];
    }
}

static void store_row(const struct store_job *job, int i)
{
    const struct kv *kv = job->kv;
    const struct rope_store *p = job->p;
    const struct kernels *k = job->be->k;
    int pos = job->rows->pos[i], bt = kv->o.block_tokens, n = kv->o.head_dim,
        place = job->rows->tree ? job->rows->tree->slot[i] : pos;
    ASSERT(pos >= 0 && place >= pos);
    int block = job->rows->block_table[job->rows->seq[i]][place / bt];
    check_block(kv, block);
    struct rope_row r = rotation_of(job, pos);
    if (p->rope || p->spread) turn_queries(job, i, &r);
    for (int h = 0; h < kv->o.n_kv_heads; h++) {
        size_t at = ((size_t)i * (size_t)kv->o.n_kv_heads + (size_t)h) * (size_t)n,
               slot = (size_t)(place % bt);
        float turned[ATTEND_HEAD_MAX];
        const float *x = p->k + at;
        if (p->rope) {
            k->rope(&r, x, turned);
            x = turned;
        }
        for (int d = 0; p->spread && d < n; d++)
            turned[d] = x[d] / p->spread[h * n + d];
        if (p->spread) x = turned;
        uint8_t *head = kv_head(kv, p->layer, block, h);
        put_k(kv, k, head, slot, x);
        put_v(kv, k, head, slot, p->v + at);
    }
}

static void store_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    const struct store_job *job = arg;
    int end = (task_i + 1) * ROWS_PER_TASK;
    for (int i = task_i * ROWS_PER_TASK; i < end && i < job->rows->n_rows; i++)
        store_row(job, i);
}

static void store_on_device(struct backend *be, struct kv *kv, const struct rope_store *p)
{
    struct rope *r = (struct rope *)p->rope; /* its copy on the device is a cache */
    struct rope_table t = {0};
    if (r && !r->on_device) {
        r->be = be;
        r->on_device = backend_floats(be, r->bytes / sizeof(float));
        if (r->on_device) backend_write(be, r->on_device, r->cos_sin, r->bytes / sizeof(float));
    }
    if (r) t = (struct rope_table){r->on_device, r->o.dims, r->o.half_split};
    be->ops->rope_store(be->device, kv->device, p, r ? &t : NULL);
}

void backend_rope_store(struct backend *be, struct kv *kv, const struct kv_rows *rows,
                        const struct rope_store *p)
{
    ASSERT(p->layer >= 0 && p->layer < kv->o.n_layers && rows->n_rows >= 0);
    ASSERT(p->n_heads > 0 && p->n_heads % kv->o.n_kv_heads == 0);
    if (be->ops) {
        store_on_device(be, kv, p);
        return;
    }
    struct store_job job = {be, kv, rows, p};
    pool_run(be->pool, (rows->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK, store_task, &job);
}
