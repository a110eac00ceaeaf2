/* step.cu - recorded steps: CUDA graphs of a whole decoding pass, one for each padded number of rows and each power of two of blocks in a
 * table. What differs from step to step (token ids, positions, tables, attention tiles) goes in one copy to an area whose layout depends on
 * those two numbers alone; rows that pad have position -1, write no KV and have no tile. A pass is made once as it is, so that
 * every area has its size, then recorded at its second time, then replayed. An area that grows drops all that is recorded.
 * The recorded pass computes what the ordinary one does, bit for bit: padding never changes which kernel multiplies. */
#include <string.h>

#include "engine/backend/cuda/gpu.h"

enum { ROWS_MAX = 256, STRIDE_MIN = 16 };

/* 1, 2, 4, 8, then multiples of 8 to 64, then of 32. */
static int padded(int n)
{
    if (n <= 8) return n <= 2 ? n : n <= 4 ? 4 : 8;
    return n <= 64 ? (n + 7) / 8 * 8 : (n + 31) / 32 * 32;
}

static int place_of(const struct kv_rows *rows, int i)
{
    return rows->tree ? rows->tree->slot[i] : rows->pos[i];
}

static int stride_for(const struct kv_rows *rows, int block_tokens)
{
    int stride = STRIDE_MIN;
    for (int i = 0; i < rows->n_rows; i++)
        while (place_of(rows, i) / block_tokens + 1 > stride)
            stride *= 2;
    return stride;
}

void steps_drop(struct gpu *g)
{
    for (int i = 0; i < g->n_steps; i++) {
        if (g->step[i].graph) cudaGraphExecDestroy(g->step[i].graph);
        g->step[i].graph = NULL;
        g->step[i].sized = false;
    }
}

static struct recorded *find(struct gpu *g, int n_rows, int stride, bool many, bool tree)
{
    for (int i = 0; i < g->n_steps; i++)
        if (g->step[i].n_rows == n_rows && g->step[i].stride == stride && g->step[i].many == many &&
            g->step[i].tree == tree)
            return &g->step[i];
    if (g->n_steps == STEPS_MAX) {
        steps_drop(g);
        g->n_steps = 0;
    }
    g->step[g->n_steps] = {n_rows, stride, many, tree, false, NULL};
    return &g->step[g->n_steps++];
}

struct
    layout { /* of the step's area: int32 pos, seq, ids [n], table [n][stride]; of trees masks, slots, from [n]; then each window's
                attention plan */
    size_t tree_at, plans_at, plan_bytes, bytes;
};
static struct layout layout_of(int n, int stride, int group, int many, int n_windows, bool tree)
{
    struct attend_plan p;
    struct layout l;
    attend_plan_lay(&p, NULL, n, group, many);
    l.plan_bytes = p.bytes;
    l.tree_at = ((size_t)n * (size_t)(3 + stride) * sizeof(int32_t) + 15) / 16 * 16;
    l.plans_at = l.tree_at + (tree ? (size_t)n * 16 : 0);
    l.bytes = l.plans_at + (size_t)n_windows * l.plan_bytes;
    return l;
}

static void fill(uint8_t *host, const struct backend_step *s, int n, int stride, int block_tokens)
{
    const struct kv_rows *rows = s->rows;
    int32_t *pos = (int32_t *)host, *seq = pos + n, *ids = seq + n, *table = ids + n;
    for (int i = 0; i < n; i++) {
        bool real = i < rows->n_rows;
        pos[i] = real ? rows->pos[i] : -1;
        seq[i] = real ? rows->seq[i] : 0;
        ids[i] = real ? s->token[i] : 0;
        if (!real || pos[i] < 0) continue;
        memcpy(table + (size_t)seq[i] * (size_t)stride, rows->block_table[seq[i]],
               (size_t)(place_of(rows, i) / block_tokens + 1) * sizeof *table);
    }
}

static void fill_tree(uint8_t *at, const struct kv_rows *rows, int n)
{
    size_t list = (size_t)rows->n_rows * sizeof(int32_t);
    memcpy(at, rows->tree->mask, 2 * list);
    memcpy(at + (size_t)n * 8, rows->tree->slot, list);
    memcpy(at + (size_t)n * 12, rows->tree->from, list);
}

/* Each window's plan into the area; those of all windows have large tiles, or none has. */
static bool fill_plans(struct gpu *g, uint8_t *host, const uint8_t *area, const struct layout *l,
                       const struct backend_step *s, int n, const struct gpu_kv *k)
{
    const struct kv_rows *rows = s->rows;
    int real = rows->n_rows, many = attend_many(k->o.head_dim);
    bool any = false;
    while (real && rows->pos[real - 1] < 0)
        real--; /* a pass for its recording alone */
    g->n_plans = s->n_windows;
    for (int w = 0; w < s->n_windows; w++) {
        size_t at = l->plans_at + (size_t)w * l->plan_bytes;
        struct attend_plan made;
        attend_plan_lay(&made, host + at, n, s->group, many);
        struct attend_rows r = {0,
                                real,
                                rows->pos,
                                rows->seq,
                                rows->tree ? rows->tree->from : NULL,
                                rows->tree ? rows->tree->mask : NULL,
                                rows->block_table,
                                k->o.block_tokens,
                                s->group,
                                s->window[w],
                                many,
                                true};
        attend_plan_make(&made, &r);
        any |= made.n_many > 0;
        struct plan *p = &g->plan[w];
        plan_room(p, 1);
        p->window = s->window[w], p->n_pieces = 1;
        p->piece[0] = piece_of(&made, host + at, area + at);
        p->piece[0].n_rows = n;
        p->piece[0].tiles.n_few = made.few_max; /* what is recorded is for any plan */
        p->piece[0].tiles.n_many = made.many_max;
    }
    for (int w = 0; w < s->n_windows && !any; w++)
        g->plan[w].piece[0].tiles.n_many = 0;
    return any;
}

/* Room for what samples the rows, behind what the layout says: it is never grown for that alone, as nothing recorded may move. */
static size_t room_for(size_t bytes)
{
    size_t room = 64 << 10;
    while (room < bytes)
        room *= 2;
    return room;
}

/* All that the step needs, in one copy. True: its plans have large tiles. */
static bool send(struct gpu *g, const struct gpu_kv *k, const struct backend_step *s,
                 const struct layout *l, int n, int stride)
{
    size_t sample_at = (l->bytes + 15) / 16 * 16,
           bytes = sample_at + (s->sample ? sample_bytes(s->sample) : 0);
    bool apart = bytes > STAGE_BYTES; /* the picks' parameters, by submit */
    if (apart) bytes = sample_at;
    uint8_t *area = (uint8_t *)need(g, &g->step_area, room_for(bytes)),
            *host = (uint8_t *)stage_room(g, bytes);
    fill(host, s, n, stride, k->o.block_tokens);
    memset(host + l->tree_at, 0, l->bytes - l->tree_at);
    if (s->rows->tree) fill_tree(host + l->tree_at, s->rows, n);
    bool many = fill_plans(g, host, area, l, s, n, k);
    if (s->sample && !apart) sample_fill(host + sample_at, s->sample);
    if (is_lost(g)) return many;
    stage_send(g, area, host, bytes);
    resolve_ids(g, (int32_t *)area + 2 * n, s->token, s->rows->n_rows);
    g->sent = s->sample && !apart ? s->sample->row : NULL;
    g->sent_at = area + sample_at;
    return many;
}

/* Whether such a pass can be made in one go: its table has a row for every sequence, one copy takes what it sends, and the scratch its parts
 * of long contexts. */
static bool fits(const struct backend_step *s, const struct gpu_kv *k, const struct layout *l,
                 int n, int splits)
{
    int n_heads = s->group * k->o.n_kv_heads;
    for (int i = 0; i < s->rows->n_rows; i++)
        if (s->rows->seq[i] >= n) return false;
    if (l->bytes > STAGE_BYTES) return false;
    return splits == 1 ||
           (size_t)n * row_part_bytes(n_heads, k->o.head_dim, splits) <= PARTS_BYTES_MAX;
}

/* Sums over ranks must be recorded by all of them or by none: a group ends here; alone, passes are made call by call from now on. */
static void not_recorded(struct gpu *g, cudaError_t code)
{
    (void)cudaGetLastError();
    if (g->ranks) note(g, "recording a step", code);
    g->no_recording = true;
}

bool gpu_step_begin(void *device, const void *kv, const struct backend_step *s, int *n_rows)
{
    struct gpu *g = on(device);
    const struct gpu_kv *k = (const struct gpu_kv *)kv;
    int block_tokens = k->o.block_tokens, stride = stride_for(s->rows, block_tokens),
        n = padded(s->rows->n_rows),
        splits = (stride * block_tokens + ATTEND_SPLIT - 1) / ATTEND_SPLIT;
    if (n > s->rows_max) n = s->rows->n_rows;
    bool tree = s->rows->tree != NULL;
    struct layout l =
        layout_of(n, stride, s->group, attend_many(k->o.head_dim), s->n_windows, tree);
    if (!fits(s, k, &l, n, splits)) {
        *n_rows = s->rows->n_rows;
        gpu_set_rows(device, kv, s->rows);
        return false;
    }
    *n_rows = n;
    bool many = send(g, k, s, &l, n, stride);
    if (is_lost(g)) return true;
    struct recorded *r = find(g, n, stride, many, tree);
    if (r->graph) {
        note(g, "a replay", cudaGraphLaunch(r->graph, g->stream));
        return true;
    }
    const int32_t *ints = (const int32_t *)g->step_area.p;
    g->host = *s->rows;
    g->host.n_rows = n;
    g->view = {ints, ints + n, ints + 3 * n, stride, NULL, NULL, NULL};
    if (tree) {
        const uint8_t *area = g->step_area.p;
        g->view.tree_mask = (const uint64_t *)(area + l.tree_at);
        g->view.slot = (const int32_t *)(area + l.tree_at) + 2 * n;
        g->view.tree_from = g->view.slot + n;
    }
    g->token_ids = ints + 2 * n;
    for (int w = 0; w < s->n_windows; w++)
        g->plan[w].piece[0].splits_max = splits;
    g->now = r;
    g->capturing = r->sized && !g->no_recording && n <= ROWS_MAX;
    if (!g->capturing) return false;
    recording_begins(g);
    cudaError_t code = cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal);
    if (code == cudaSuccess) return false;
    recording_ends(g);
    g->capturing = false;
    not_recorded(g, code);
    return false;
}

bool gpu_step_end(void *device)
{
    struct gpu *g = on(device);
    struct recorded *r = g->now;
    cudaGraph_t graph = NULL;
    if (!r) return true;
    r->sized = true;
    if (!g->capturing) {
        g->now = NULL;
        return true;
    }
    g->capturing = false;
    cudaError_t code = cudaStreamEndCapture(g->stream, &graph);
    recording_ends(g);
    if (code == cudaSuccess) code = cudaGraphInstantiate(&r->graph, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (code != cudaSuccess) {
        r->graph = NULL;
        not_recorded(g, code);
        if (!is_lost(g)) return false; /* the calls are made again */
    }
    g->now = NULL;
    if (is_lost(g)) return true;
    note(g, "a replay", cudaGraphLaunch(r->graph, g->stream));
    return true;
}
