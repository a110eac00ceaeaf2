/* attention.c - cuts attention into passes: up to 12 queries (the query heads of one KV head, for one or several rows of a
 * sequence) over at most 256 positions; then merges the passes of a query in ascending order. The cuts are at fixed
 * positions and a pass treats its queries one by one, so a row's result depends on its own sequence only, and long contexts
 * can still be shared out between threads. Threading: see backend.h.
 * Source: Dao et al. 2022, arXiv:2205.14135, section 3.1 (merging softmax parts). */
#include <math.h>
#include <string.h>

#include "engine/backend/kv.h"

enum { BLOCKS_MAX = ATTEND_SLOTS, FULL_BLOCK = 16 };

/* Up to 12 queries that share a KV head and a sequence. */
struct tile {
    int row, n_rows, kv_head, head,
        n_heads; /* query heads head..head+n_heads-1 of rows row..row+n_rows-1 */
    int n_parts;
};

struct attention_job {
    struct backend *be;
    int n_heads, n_kv_heads, head_dim, block_tokens;
    const struct kv_layout *layout;
    float scale, softcap;
    const float *q;
    float *out;
    int part_tokens, rows_per_tile, heads_per_tile;
    /* paged */
    const struct kv *kv;
    const struct kv_rows *rows;
    int layer, window;
    /* encoder: packed K and V of one layer, per segment and head, in blocks of FULL_BLOCK */
    const float *packed;
    const int32_t *segment;       /* [n_rows] */
    const int32_t *segment_first; /* [n_segments+1] first row */
    const size_t *segment_block;  /* [n_segments] first packed block of head 0 */
    /* tiles */
    struct tile *tile;
    int n_tiles, parts_max;
    bool split; /* a task is one part of a tile, not a whole tile */
};

/* Scratch of one thread. */
struct work {
    float q[ATTEND_HEAD_MAX * ATTEND_QUERIES_MAX];
    int16_t q16[ATTEND_HEAD_MAX * ATTEND_QUERIES_MAX];
    float q_step[ATTEND_QUERIES_MAX];
    float score[ATTEND_QUERIES_MAX * ATTEND_SCORE_STRIDE];
    const void *block[BLOCKS_MAX];
    int32_t from[ATTEND_QUERIES_MAX], last[ATTEND_QUERIES_MAX], to[ATTEND_QUERIES_MAX];
    struct attend_path path[ATTEND_QUERIES_MAX]; /* of the tile's rows */
    const struct attend_path *path_of[ATTEND_QUERIES_MAX];
};

/* What one pass leaves, and what merging keeps. */
struct state {
    float max[ATTEND_QUERIES_MAX], sum[ATTEND_QUERIES_MAX];
    float acc[ATTEND_QUERIES_MAX * ATTEND_HEAD_MAX];
};
struct thread_space {
    struct work work;
    struct state total, part;
};

static int last_of(const struct attention_job *job, int row)
{
    if (job->kv) return job->rows->pos[row];
    int s = job->segment[row];
    return job->segment_first[s + 1] - job->segment_first[s] - 1;
}

static int first_of(const struct attention_job *job, int row)
{
    int last = last_of(job, row);
    return job->window > 0 && last >= job->window ? last - job->window + 1 : 0;
}

static int sequence_of(const struct attention_job *job, int row)
{
    return job->kv ? job->rows->seq[row] : job->segment[row];
}

static const void *block_of(const struct attention_job *job, int row, int kv_head_i, int block_i)
{
    int seq = sequence_of(job, row);
    if (job->kv) {
        int block = job->rows->block_table[seq][block_i];
        ASSERT(block >= 0 && block < job->kv->o.n_blocks);
        return kv_head(job->kv, job->layer, block, kv_head_i);
    }
    int length = job->segment_first[seq + 1] - job->segment_first[seq];
    size_t per_head = (size_t)(length + FULL_BLOCK - 1) / FULL_BLOCK;
    size_t block = job->segment_block[seq] + (size_t)kv_head_i * per_head + (size_t)block_i;
    return job->packed + block * (size_t)(2 * FULL_BLOCK) * (size_t)job->head_dim;
}

/* Query i of n as 16-bit integers. */
static void round_query(const struct attention_job *job, const float *q, int i, int n,
                        struct work *w)
{
    int16_t r[ATTEND_HEAD_MAX];
    w->q_step[i] = job->be->k->to_i16(q, r, job->head_dim) * job->scale;
    for (int d = 0; d < job->head_dim; d += 4) {
        int16_t *to = w->q16 + d * n + 4 * i;
        to[0] = r[d], to[1] = r[d + 2], to[2] = r[d + 1], to[3] = r[d + 3];
    }
}

/* Queries of a tile, dimension by dimension, scaled. */
static void load_queries(const struct attention_job *job, const struct tile *t, struct work *w)
{
    int n = t->n_rows * t->n_heads;
    bool round = kv_format_has_int8_k(job->layout->format) && job->be->k->to_i16;
    for (int r = 0; r < t->n_rows; r++)
        for (int h = 0; h < t->n_heads; h++) {
            int i = r * t->n_heads + h;
            const float *q =
                job->q + ((size_t)(t->row + r) * (size_t)job->n_heads + (size_t)(t->head + h)) *
                             (size_t)job->head_dim;
            if (round)
                round_query(job, q, i, n, w);
            else
                for (int d = 0; d < job->head_dim; d++)
                    w->q[d * n + i] = q[d] * job->scale;
            w->from[i] = first_of(job, t->row + r);
            w->last[i] = last_of(job, t->row + r);
        }
}

/* What of a row's path lies in the pass over positions first..end-1; returns where the last of it lies, -1: nothing does. */
static int cut_path(const struct kv_tree *tree, int row, int first, int end,
                    struct attend_path *path)
{
    int pos = tree->from[row];
    path->n = path->from = 0;
    for (uint64_t left = tree->mask[row]; left && pos < end; left &= left - 1, pos++) {
        if (pos < first) continue;
        if (!path->n) path->from = pos - first;
        path->slot[path->n++] = (int16_t)(tree->from[row] + __builtin_ctzll(left) - first);
    }
    return path->n ? first + path->slot[path->n - 1] : -1;
}

/* The paths of the tile's rows in a pass; returns the last place that is looked at, at least `last`. */
static int cut_paths(const struct attention_job *job, const struct tile *t, int first, int last,
                     struct work *w)
{
    for (int r = 0; r < t->n_rows; r++) {
        int place =
            cut_path(job->rows->tree, t->row + r, first, first + job->part_tokens, &w->path[r]);
        if (place > last) last = place;
        for (int h = 0; h < t->n_heads; h++)
            w->path_of[r * t->n_heads + h] = &w->path[r];
    }
    return last;
}

static void run_part(const struct attention_job *job, const struct tile *t, int part_i,
                     struct work *w, struct state *s)
{
    int first = part_i * job->part_tokens, end = first + job->part_tokens, last = -1;
    bool tree = job->kv && job->rows->tree;
    for (int i = 0; i < t->n_rows * t->n_heads; i++) {
        w->to[i] = w->last[i] < end ? w->last[i] : end - 1;
        if (w->to[i] > last) last = w->to[i];
    }
    if (tree) last = cut_paths(job, t, first, last, w);
    int n_blocks = (last - first) / job->block_tokens + 1;
    for (int b = 0; b < n_blocks; b++)
        w->block[b] = block_of(job, t->row, t->kv_head, first / job->block_tokens + b);
    struct attend a = {.kv = job->layout,
                       .block = w->block,
                       .n_blocks = n_blocks,
                       .first_pos = first,
                       .n_queries = t->n_rows * t->n_heads,
                       .q = w->q,
                       .q16 = w->q16,
                       .q_step = w->q_step,
                       .from = w->from,
                       .to = w->to,
                       .path = tree ? w->path_of : NULL,
                       .softcap = job->softcap,
                       .score = w->score,
                       .score_stride = ATTEND_SCORE_STRIDE,
                       .max = s->max,
                       .sum = s->sum,
                       .acc = s->acc};
    job->be->k->attend(&a);
}

/* total and part become total; an empty part changes nothing. */
static void merge(struct state *total, const struct state *part, int n_queries, int head_dim)
{
    for (int i = 0; i < n_queries; i++) {
        if (!(part->sum[i] > 0)) continue;
        float *acc = total->acc + i * head_dim;
        const float *add = part->acc + i * head_dim;
        float max = fmaxf(total->max[i], part->max[i]);
        float a = expf(total->max[i] - max), b = expf(part->max[i] - max);
        for (int d = 0; d < head_dim; d++)
            acc[d] = acc[d] * a + add[d] * b;
        total->sum[i] = total->sum[i] * a + part->sum[i] * b;
        total->max[i] = max;
    }
}

static void clear(struct state *s, int n_queries, int head_dim)
{
    for (int i = 0; i < n_queries; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
    }
    memset(s->acc, 0, (size_t)(n_queries * head_dim) * sizeof(float));
}

static void write_out(const struct attention_job *job, const struct tile *t, const struct state *s)
{
    for (int r = 0; r < t->n_rows; r++)
        for (int h = 0; h < t->n_heads; h++) {
            int i = r * t->n_heads + h;
            float *out =
                job->out + ((size_t)(t->row + r) * (size_t)job->n_heads + (size_t)(t->head + h)) *
                               (size_t)job->head_dim;
            float inverse = 1.0f / s->sum[i];
            for (int d = 0; d < job->head_dim; d++)
                out[d] = s->acc[i * job->head_dim + d] * inverse;
        }
}

static int first_part(const struct attention_job *job, const struct tile *t)
{
    int first = first_of(job, t->row);
    for (int r = 1; r < t->n_rows; r++)
        if (first_of(job, t->row + r) < first) first = first_of(job, t->row + r);
    return first / job->part_tokens;
}

static void tile_task(void *arg, int task_i, int thread_i)
{
    const struct attention_job *job = arg;
    struct thread_space *space = (struct thread_space *)(void *)job->be->thread[thread_i].p;
    const struct tile *t =
        &job->tile[job->n_tiles - 1 - task_i]; /* the longest last in order: start with it */
    int n = t->n_rows * t->n_heads;
    load_queries(job, t, &space->work);
    clear(&space->total, n, job->head_dim);
    for (int p = first_part(job, t); p < t->n_parts; p++) {
        run_part(job, t, p, &space->work, &space->part);
        merge(&space->total, &space->part, n, job->head_dim);
    }
    write_out(job, t, &space->total);
}

static void part_task(void *arg, int task_i, int thread_i)
{
    const struct attention_job *job = arg;
    const struct tile *t = &job->tile[task_i / job->parts_max];
    int p = task_i % job->parts_max;
    if (p < first_part(job, t) || p >= t->n_parts) return;
    struct thread_space *space = (struct thread_space *)(void *)job->be->thread[thread_i].p;
    load_queries(job, t, &space->work);
    run_part(job, t, p, &space->work, (struct state *)(void *)job->be->part.p + task_i);
}

static void merge_parts(const struct attention_job *job)
{
    const struct state *parts = (const struct state *)(const void *)job->be->part.p;
    struct state *total = &((struct thread_space *)(void *)job->be->thread[0].p)->total;
    for (int i = 0; i < job->n_tiles; i++) {
        const struct tile *t = &job->tile[i];
        int n = t->n_rows * t->n_heads;
        clear(total, n, job->head_dim);
        for (int p = first_part(job, t); p < t->n_parts; p++)
            merge(total, &parts[i * job->parts_max + p], n, job->head_dim);
        write_out(job, t, total);
    }
}

/* Fills tile[] (or only counts, tile NULL). */
static int cut_tiles(struct attention_job *job, int n_rows, struct tile *tile)
{
    int group = job->n_heads / job->n_kv_heads, n = 0;
    for (int row = 0, n_same; row < n_rows; row += n_same) {
        int parts = 0;
        for (n_same = 0; n_same < job->rows_per_tile && row + n_same < n_rows; n_same++) {
            if (sequence_of(job, row + n_same) != sequence_of(job, row)) break;
            int need = last_of(job, row + n_same) / job->part_tokens + 1;
            if (need > parts) parts = need;
        }
        if (parts > job->parts_max) job->parts_max = parts;
        for (int kh = 0; kh < job->n_kv_heads; kh++)
            for (int h = 0; h < group; h += job->heads_per_tile, n++) {
                int heads = group - h < job->heads_per_tile ? group - h : job->heads_per_tile;
                if (tile) tile[n] = (struct tile){row, n_same, kh, kh * group + h, heads, parts};
            }
    }
    return n;
}

static void run_attention(struct attention_job *job, int n_rows)
{
    struct backend *be = job->be;
    ASSERT(job->n_heads > 0 && job->n_heads % job->n_kv_heads == 0);
    int group = job->n_heads / job->n_kv_heads;
    job->heads_per_tile = group < ATTEND_QUERIES_MAX ? group : ATTEND_QUERIES_MAX;
    job->rows_per_tile = ATTEND_QUERIES_MAX / job->heads_per_tile;
    job->part_tokens = ATTEND_PART / job->block_tokens * job->block_tokens;
    job->n_tiles = cut_tiles(job, n_rows, NULL);
    job->tile = scratch_need(&be->tiles, (size_t)job->n_tiles * sizeof(struct tile));
    cut_tiles(job, n_rows, job->tile);
    for (int i = 0; i < pool_threads(be->pool); i++)
        scratch_need(&be->thread[i], sizeof(struct thread_space));
    /* few tiles (decode of a few sequences): share out the parts of long contexts as well */
    job->split = job->parts_max > 1 && pool_threads(be->pool) > 1 &&
                 job->n_tiles < 8 * pool_threads(be->pool);
    if (!job->split) {
        pool_run(be->pool, job->n_tiles, tile_task, job);
        return;
    }
    scratch_need(&be->part, (size_t)job->n_tiles * (size_t)job->parts_max * sizeof(struct state));
    pool_run(be->pool, job->n_tiles * job->parts_max, part_task, job);
    merge_parts(job);
}

static void check_tree(const struct kv_rows *rows)
{
    const struct kv_tree *t = rows->tree;
    for (int i = 0; i < rows->n_rows; i++) {
        int depth = __builtin_popcountll(t->mask[i]);
        ASSERT(t->from[i] >= 1 && rows->pos[i] == t->from[i] + depth - 1);
        ASSERT(t->slot[i] ==
               (depth ? t->from[i] + 63 - __builtin_clzll(t->mask[i]) : rows->pos[i]));
    }
}

void backend_attention(struct backend *be, const struct kv *kv, const struct kv_rows *rows,
                       const struct attention *p)
{
    ASSERT(p->layer >= 0 && p->layer < kv->o.n_layers && rows->n_rows >= 0);
    if (!rows->n_rows) return;
    if (be->ops) {
        be->ops->attention(be->device, kv->device, p);
        return;
    }
    for (int i = 0; i < rows->n_rows; i++)
        ASSERT(rows->pos[i] >= 0);
    ASSERT(!rows->tree || kv->o.block_tokens <= KV_TREE_NODES);
    if (rows->tree) check_tree(rows);
    struct attention_job job = {.be = be,
                                .n_heads = p->n_heads,
                                .n_kv_heads = kv->o.n_kv_heads,
                                .head_dim = kv->o.head_dim,
                                .block_tokens = kv->o.block_tokens,
                                .layout = &kv->layout,
                                .scale = p->scale,
                                .softcap = p->softcap,
                                .q = p->q,
                                .out = p->out,
                                .kv = kv,
                                .rows = rows,
                                .layer = p->layer,
                                .window = p->window};
    run_attention(&job, rows->n_rows);
}

/* ---- encoders ---- */
struct full_job {
    const struct attention_full *p;
    float *packed;
    const int32_t *segment_first;
    const size_t *segment_block;
};

/* K and V of one head of one segment into blocks of 16 tokens; the last one padded with zeros. */
static void pack_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    const struct full_job *job = arg;
    const struct attention_full *p = job->p;
    int segment = task_i / p->n_heads, head = task_i % p->n_heads, n = p->head_dim;
    int first = job->segment_first[segment], length = job->segment_first[segment + 1] - first;
    size_t n_blocks = (size_t)(length + FULL_BLOCK - 1) / FULL_BLOCK,
           block_floats = (size_t)(2 * FULL_BLOCK) * (size_t)n;
    float *base =
        job->packed + (job->segment_block[segment] + (size_t)head * n_blocks) * block_floats;
    memset(base, 0, n_blocks * block_floats * sizeof(float));
    for (int i = 0; i < length; i++) {
        float *b = base + (size_t)(i / FULL_BLOCK) * block_floats;
        size_t at = ((size_t)(first + i) * (size_t)p->n_heads + (size_t)head) * (size_t)n;
        for (int d = 0; d < n; d++)
            b[d * FULL_BLOCK + i % FULL_BLOCK] = p->k[at + (size_t)d];
        memcpy(b + (FULL_BLOCK + i % FULL_BLOCK) * n, p->v + at, (size_t)n * sizeof(float));
    }
}

void backend_attention_full(struct backend *be, const struct attention_full *p)
{
    ASSERT(p->n_segments >= 0 && p->head_dim >= 8 && p->head_dim % 8 == 0 &&
           p->head_dim <= ATTEND_HEAD_MAX);
    if (!p->n_segments) return;
    size_t n = (size_t)p->n_segments, n_rows = 0, n_blocks = 0;
    for (size_t i = 0; i < n; i++) {
        ASSERT(p->length[i] > 0);
        n_rows += (size_t)p->length[i];
        n_blocks += (size_t)(p->length[i] + FULL_BLOCK - 1) / FULL_BLOCK * (size_t)p->n_heads;
    }
    size_t *segment_block =
        scratch_need(&be->segments, n * sizeof(size_t) + (n + 1 + n_rows) * sizeof(int32_t));
    int32_t *segment_first = (int32_t *)(void *)(segment_block + n),
            *segment = segment_first + n + 1;
    size_t row = 0, block = 0;
    for (size_t i = 0; i < n; i++) {
        segment_first[i] = (int32_t)row;
        segment_block[i] = block;
        block += (size_t)(p->length[i] + FULL_BLOCK - 1) / FULL_BLOCK * (size_t)p->n_heads;
        for (int r = 0; r < p->length[i]; r++)
            segment[row++] = (int32_t)i;
    }
    segment_first[n] = (int32_t)row;
    struct full_job full = {p,
                            scratch_need(&be->kv_f32, n_blocks * (size_t)(2 * FULL_BLOCK) *
                                                          (size_t)p->head_dim * sizeof(float)),
                            segment_first, segment_block};
    pool_run(be->pool, p->n_segments * p->n_heads, pack_task, &full);
    struct kv_layout layout;
    kv_layout_init(&layout, KV_F16, true, p->head_dim, FULL_BLOCK);
    struct attention_job job = {.be = be,
                                .n_heads = p->n_heads,
                                .n_kv_heads = p->n_heads,
                                .head_dim = p->head_dim,
                                .block_tokens = FULL_BLOCK,
                                .layout = &layout,
                                .scale = p->scale,
                                .q = p->q,
                                .out = p->out,
                                .packed = full.packed,
                                .segment = segment,
                                .segment_first = segment_first,
                                .segment_block = segment_block};
    run_attention(&job, (int)n_rows);
}
