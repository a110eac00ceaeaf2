/* positions.cu - where the rows of a step are: positions, block tables and attention plans cross over once a step, through pinned memory;
 * then what looks at them, rope with the store and attention. Threading: the step thread. */
#include <limits.h>
#include <string.h>

#include "engine/backend/cuda/gpu.h"

static int slot_of(const struct kv_rows *rows, int i)
{
    return rows->tree ? rows->tree->slot[i] : rows->pos[i];
}

static int blocks_of(const struct kv_rows *rows, int block_tokens, int *n_seqs)
{
    int longest = 0;
    *n_seqs = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        if (rows->seq[i] + 1 > *n_seqs) *n_seqs = rows->seq[i] + 1;
        int n = slot_of(rows, i) / block_tokens + 1;
        if (n > longest) longest = n;
    }
    return longest;
}

/* Host and device: masks of a tree, pos, seq, [slot, tree_from], table. */
void gpu_set_rows(void *device, const void *kv, const struct kv_rows *rows)
{
    struct gpu *g = on(device);
    int block_tokens = ((const struct gpu_kv *)kv)->o.block_tokens, n_seqs, n = rows->n_rows;
    int stride = blocks_of(rows, block_tokens, &n_seqs), lists = rows->tree ? 4 : 2;
    size_t masks = rows->tree ? (size_t)n * sizeof(uint64_t) : 0,
           list = (size_t)n * sizeof(int32_t),
           bytes = masks + (size_t)lists * list + (size_t)n_seqs * (size_t)stride * sizeof(int32_t);
    uint8_t *host = (uint8_t *)xcalloc(1, bytes);
    int32_t *ints = (int32_t *)(host + masks);
    memcpy(ints, rows->pos, list);
    memcpy(ints + n, rows->seq, list);
    if (rows->tree) {
        memcpy(host, rows->tree->mask, masks);
        memcpy(ints + 2 * n, rows->tree->slot, list);
        memcpy(ints + 3 * n, rows->tree->from, list);
    }
    for (int i = 0; i < n;
         i++) { /* only what is in use: a caller's table may be shorter than stride */
        int32_t *to = ints + (size_t)(lists * n) + (size_t)rows->seq[i] * (size_t)stride;
        memcpy(to, rows->block_table[rows->seq[i]],
               (size_t)(slot_of(rows, i) / block_tokens + 1) * sizeof *to);
    }
    uint8_t *to = (uint8_t *)need_apart(g, &g->rows, bytes);
    if (to) upload(g, to, host, bytes);
    mem_free(host);
    g->host = *rows;
    const int32_t *on = (const int32_t *)(to + masks);
    g->view = {on, on + n, on + (size_t)(lists * n), stride, NULL, NULL, NULL};
    if (rows->tree)
        g->view.slot = on + 2 * n, g->view.tree_from = on + 3 * n,
        g->view.tree_mask = (const uint64_t *)to;
    g->n_plans = 0;
    g->now = NULL;
}

void gpu_rope_store(void *device, void *kv, const struct rope_store *p,
                    const struct rope_table *rope)
{
    struct gpu *g = on(device);
    struct gpu_kv *k = (struct gpu_kv *)kv;
    if (is_lost(g)) return;
    struct rope_store_args a = {k->view, {NULL, 0, false}, g->view, p->n_heads, p->q, p->k,
                                p->v,    p->spread};
    if (rope) a.rope = {rope->cos_sin, rope->dims, rope->half_split};
    a.kv.layer += (size_t)p->layer * k->layer_bytes;
    launch_rope_store(a, g->host.n_rows, g->stream);
}

/* ---- plans ---- */
void plan_room(struct plan *p, int n_pieces)
{
    if (n_pieces <= p->room) return;
    mem_free(p->piece);
    p->piece = (struct piece *)xcalloc((size_t)n_pieces, sizeof *p->piece);
    p->room = n_pieces;
}

struct piece piece_of(const struct attend_plan *made, const uint8_t *host, const uint8_t *device)
{
    auto there = [&](const void *p) { return device + ((const uint8_t *)p - host); };
    struct piece one = {};
    one.splits_max = made->splits_max;
    one.tiles = {(const struct attend_tile *)there(made->few),
                 (const struct attend_tile *)there(made->many), made->n_few, made->n_many};
    one.members = (const int32_t *)there(made->members);
    one.n_splits = (const int32_t *)there(made->n_splits);
    return one;
}

size_t row_part_bytes(int n_heads, int head_dim, int splits_max)
{
    return (size_t)n_heads * (size_t)splits_max * (size_t)(head_dim + 2) * sizeof(float);
}

/* Rows whose parts fit into the scratch together: a chunk of a long prompt takes several turns. */
static int rows_at_once(const struct gpu *g, const struct gpu_kv *k, int group)
{
    int longest = 0;
    for (int i = 0; i < g->host.n_rows; i++)
        if (slot_of(&g->host, i) > longest) longest = slot_of(&g->host, i);
    int splits = longest / ATTEND_SPLIT + 1, n_heads = group * k->o.n_kv_heads;
    size_t n = PARTS_BYTES_MAX / row_part_bytes(n_heads, k->o.head_dim, splits);
    return splits == 1 || n > INT_MAX ? INT_MAX : n < 1 ? 1 : (int)n;
}

/* The tiles for this window; made at its first use in a step. */
static const struct plan *plan_for(struct gpu *g, const struct gpu_kv *k, int group, int window)
{
    for (int i = 0; i < g->n_plans; i++)
        if (g->plan[i].window == window) return &g->plan[i];
    struct plan *p = &g->plan[g->n_plans < PLANS_MAX ? g->n_plans++ : PLANS_MAX - 1];
    const struct kv_rows *rows = &g->host;
    int n = rows->n_rows, most = rows_at_once(g, k, group), many = attend_many(k->o.head_dim);
    if (most > n) most = n;
    struct attend_plan made;
    attend_plan_lay(&made, NULL, most, group, many);
    size_t bytes = made.bytes, device_bytes = made.device_bytes;
    uint8_t *host = (uint8_t *)xcalloc(1, bytes);
    p->window = window;
    p->n_pieces = (n + most - 1) / most;
    plan_room(p, p->n_pieces);
    uint8_t *to = (uint8_t *)need_apart(g, &p->area, (size_t)p->n_pieces * device_bytes);
    for (int i = 0; i < p->n_pieces; i++) {
        int first = i * most, rest = n - first < most ? n - first : most;
        uint8_t *at = to + (size_t)i * device_bytes;
        attend_plan_lay(&made, host, most, group, many);
        struct attend_rows r = {first,
                                rest,
                                rows->pos + first,
                                rows->seq + first,
                                rows->tree ? rows->tree->from + first : NULL,
                                rows->tree ? rows->tree->mask + first : NULL,
                                rows->block_table,
                                k->o.block_tokens,
                                group,
                                window,
                                many,
                                true};
        attend_plan_make(&made, &r);
        p->piece[i] = piece_of(&made, host, at);
        p->piece[i].first_row = first, p->piece[i].n_rows = rest;
        if (to) upload(g, at, host, device_bytes);
    }
    mem_free(host);
    return p;
}

void gpu_attention(void *device, const void *kv, const struct attention *p)
{
    struct gpu *g = on(device);
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    const struct plan *plan = plan_for(g, k, p->n_heads / k->o.n_kv_heads, p->window);
    struct attend_args a = {};
    a.kv = k->view, a.rows = g->view, a.n_heads = p->n_heads, a.window = p->window;
    a.scale = p->scale, a.softcap = p->softcap, a.q = p->q, a.out = p->out;
    a.kv.layer += (size_t)p->layer * k->layer_bytes;
    a.maps = k->maps, a.layer = p->layer;
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct piece *one = &plan->piece[i];
        size_t vectors = one->splits_max > 1 ? (size_t)one->n_rows * (size_t)a.n_heads : 0;
        float *parts = (float *)need(
            g, &g->parts,
            one->splits_max > 1
                ? (size_t)one->n_rows * row_part_bytes(a.n_heads, k->o.head_dim, one->splits_max)
                : 0);
        if (is_lost(g)) return;
        a.members = one->members, a.n_splits = one->n_splits, a.splits_max = one->splits_max;
        a.part_o = parts;
        a.part_stats = parts + vectors * (size_t)(a.splits_max * a.kv.head_dim);
        a.first_vector = (size_t)one->first_row * (size_t)a.n_heads;
        note(g, "attention", launch_attention(a, one->tiles, one->n_rows, g->stream));
    }
}
