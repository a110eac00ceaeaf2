/* kv.c - the bytes of paged K and V, and rope. Owns storage; who may use which block is not known here.
 * Layout: [layer][block][kv head]{ K [head_dim][lanes], V [block_tokens][head_dim] }: K lies with tokens side by side, so that
 * scores need no horizontal sums; lanes = block_tokens rounded up to 8. float16, or float32 in exact mode.
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
    mem_free_huge(r->cos_sin, r->bytes);
    mem_free(r);
}

/* ---- storage ---- */
static size_t element_bytes(const struct backend *be)
{
    return be->exact ? 4 : 2;
}

size_t kv_bytes_per_token(const struct backend *be, int n_layers, int n_kv_heads, int head_dim)
{
    return (size_t)n_layers * (size_t)n_kv_heads * (size_t)head_dim * 2 * element_bytes(be);
}

enum err kv_new(struct kv **out, struct backend *be, const struct kv_options *o, struct errmsg *e)
{
    *out = NULL;
    ASSERT(o->n_layers > 0 && o->n_kv_heads > 0 && o->n_blocks > 0);
    ASSERT(o->head_dim >= 8 && o->head_dim % 8 == 0 && o->head_dim <= ATTEND_HEAD_MAX);
    ASSERT(o->block_tokens >= 1 && o->block_tokens <= BLOCK_TOKENS_MAX);
    struct kv *kv = xcalloc(1, sizeof *kv);
    kv->o = *o;
    kv->f32 = be->exact;
    kv->lanes = (o->block_tokens + 7) / 8 * 8;
    kv->v_offset = (size_t)kv->lanes * (size_t)o->head_dim;
    kv->head_bytes =
        (kv->v_offset + (size_t)o->block_tokens * (size_t)o->head_dim) * element_bytes(be);
    kv->block_bytes = kv->head_bytes * (size_t)o->n_kv_heads;
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
    mem_free_huge(kv->p, kv->bytes + KV_SLACK_BYTES);
    mem_free(kv);
}

size_t kv_bytes(const struct kv *kv)
{
    return kv->bytes;
}
size_t kv_block_bytes(const struct kv *kv)
{
    return kv->block_bytes * (size_t)kv->o.n_layers;
}

uint8_t *kv_head(const struct kv *kv, int layer, int block, int head)
{
    return kv->p + (size_t)layer * kv->layer_bytes + (size_t)block * kv->block_bytes +
           (size_t)head * kv->head_bytes;
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
    size_t el = kv->f32 ? 4 : 2, k_row = (size_t)kv->lanes * el, v_at = kv->v_offset * el;
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        for (int h = 0; h < kv->o.n_kv_heads; h++) {
            uint8_t *dst = kv_head(kv, layer, dst_block, h);
            const uint8_t *src = kv_head(kv, layer, src_block, h);
            for (int d = 0; d < kv->o.head_dim; d++)
                memcpy(dst + (size_t)d * k_row, src + (size_t)d * k_row, (size_t)n_tokens * el);
            memcpy(dst + v_at, src + v_at, (size_t)n_tokens * (size_t)kv->o.head_dim * el);
        }
}

void kv_block_read(const struct kv *kv, int block, void *to)
{
    check_block(kv, block);
    for (int layer = 0; layer < kv->o.n_layers; layer++)
        memcpy((uint8_t *)to + (size_t)layer * kv->block_bytes, kv_head(kv, layer, block, 0),
               kv->block_bytes);
}

void kv_block_write(struct kv *kv, int block, const void *from)
{
    check_block(kv, block);
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

static void put_k(const struct kv *kv, const struct kernels *k, uint8_t *head, size_t slot,
                  const float *x)
{
    int n = kv->o.head_dim;
    size_t lanes = (size_t)kv->lanes;
    if (kv->f32) {
        for (int d = 0; d < n; d++)
            memcpy(head + ((size_t)d * lanes + slot) * 4, x + d, 4);
        return;
    }
    uint16_t h[ATTEND_HEAD_MAX];
    k->to_f16(x, h, n);
    for (int d = 0; d < n; d++)
        memcpy(head + ((size_t)d * lanes + slot) * 2, h + d, 2);
}

static void put_v(const struct kv *kv, const struct kernels *k, uint8_t *head, size_t slot,
                  const float *x)
{
    size_t at = kv->v_offset + slot * (size_t)kv->o.head_dim;
    if (kv->f32)
        memcpy(head + at * 4, x, (size_t)kv->o.head_dim * 4);
    else
        k->to_f16(x, (uint16_t *)(void *)head + at, kv->o.head_dim);
}

static void store_row(const struct store_job *job, int i)
{
    const struct kv *kv = job->kv;
    const struct rope_store *p = job->p;
    const struct kernels *k = job->be->k;
    int pos = job->rows->pos[i], bt = kv->o.block_tokens, n = kv->o.head_dim;
    ASSERT(pos >= 0);
    int block = job->rows->block_table[job->rows->seq[i]][pos / bt];
    check_block(kv, block);
    struct rope_row r = {.head_dim = n};
    if (p->rope) {
        ASSERT(pos < p->rope->o.pos_max && p->rope->o.dims <= n);
        r.dims = p->rope->o.dims;
        r.half_split = p->rope->o.half_split;
        r.cos_sin = p->rope->cos_sin + (size_t)pos * (size_t)r.dims;
        for (int h = 0; h < p->n_heads; h++) {
            float *q = p->q + ((size_t)i * (size_t)p->n_heads + (size_t)h) * (size_t)n;
            k->rope(&r, q, q);
        }
    }
    for (int h = 0; h < kv->o.n_kv_heads; h++) {
        size_t at = ((size_t)i * (size_t)kv->o.n_kv_heads + (size_t)h) * (size_t)n,
               slot = (size_t)(pos % bt);
        float turned[ATTEND_HEAD_MAX];
        const float *x = p->k + at;
        if (p->rope) {
            k->rope(&r, x, turned);
            x = turned;
        }
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

void backend_rope_store(struct backend *be, struct kv *kv, const struct kv_rows *rows,
                        const struct rope_store *p)
{
    ASSERT(p->layer >= 0 && p->layer < kv->o.n_layers && rows->n_rows >= 0);
    ASSERT(p->n_heads > 0 && p->n_heads % kv->o.n_kv_heads == 0);
    struct store_job job = {be, kv, rows, p};
    pool_run(be->pool, (rows->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK, store_task, &job);
}
