/* model_forward.c - one pass of a decoder over a flattened batch. See model.h; what differs between architectures: arch.h.
 * Each layer: x += P(Wo attention(rope(N(Wq n)), rope(N(Wk n)), Wv n)) with n = rmsnorm(x), then x += P(Wdown(act(Wgate n) * Wup n))
 * (Touvron et al. 2023, section 2.2), or a mixture of experts (model_experts.c) in its place; N: norm of each head, P: norm of the result,
 * where the architecture has them. The last layer runs its second half for the wanted rows only: the others were only needed for their K
 * and V. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "engine/model/calibration.h"
#include "engine/model/model_private.h"

static void check_batch(const struct model *m, const struct model_batch *b)
{
    ASSERT(b->n_rows >= 1 && b->n_rows <= m->max_rows);
    ASSERT(b->n_seqs >= 1 && b->n_seqs <= m->max_seqs);
    ASSERT(b->n_out >= 0 && b->n_out <= b->n_rows);
    for (int i = 0; i < b->n_rows; i++) {
        ASSERT(b->token[i] >= (m->logits ? -m->max_seqs : 0) && b->token[i] < m->plan.n_vocab);
        ASSERT(b->pos[i] >= 0 && b->pos[i] < m->context_max);
        ASSERT(b->seq[i] >= 0 && b->seq[i] < b->n_seqs);
        ASSERT(b->slot || i == 0 || b->seq[i] != b->seq[i - 1] || b->pos[i] == b->pos[i - 1] + 1);
        int slot = b->slot ? b->slot[i] : b->pos[i];
        ASSERT(slot >= b->pos[i] && slot < m->context_max);
        int32_t block = b->block_table[b->seq[i]][slot / m->block_tokens];
        ASSERT(block >= 0 && block < m->n_blocks);
    }
    for (int i = 0; b->adapter && i < b->n_seqs; i++)
        ASSERT(b->adapter[i] >= -1 && b->adapter[i] < m->n_adapters);
    for (int i = 0; i < b->n_out; i++)
        ASSERT(b->out_row[i] < b->n_rows && b->out_row[i] > (i ? b->out_row[i - 1] : -1));
}

/* Of a product by the first of its matrices. */
static int place_of(const struct model *m, int layer, enum lora_target first)
{
    enum calibration_site site = first == LORA_Q          ? SITE_QKV
                                 : first == LORA_ATTN_OUT ? SITE_ATTN_OUT
                                 : first == LORA_GATE     ? SITE_GATE
                                                          : SITE_DOWN;
    return layer < m->plan.n_layer ? calibration_place(layer, site) : layer * SITES;
}

/* A linear layer and what adapters add to it. */
static void linear(struct model *m, struct linear *l, int layer, enum lora_target first)
{
    int place = place_of(m, layer, first);
    if (m->watch) m->watch(m->watch_arg, l, place);
    l->spread = m->spread ? m->spread[place] : NULL;
    backend_linear(m->be, l);
    if (m->lora_rows.n_groups)
        lora_apply(m->be, m->adapters, &m->lora_rows, l, lora_place(layer, first),
                   &m->lora_scratch);
}

static void project_qkv(struct model *m, int layer, int n_rows)
{
    const struct layer *l = &m->layers[layer];
    struct linear qkv = {
        .n_weights = 3,
        .weight = {l->q.weight, l->k.weight, l->v.weight},
        .bias = {l->q.bias, l->k.bias, l->v.bias},
        .out = {m->q, m->k, m->v},
        .in = LINEAR_RMSNORM,
        .x = m->x,
        .norm_weight = l->attn_norm,
        .eps = m->plan.norm_eps,
        .n_rows = n_rows,
    };
    linear(m, &qkv, layer, LORA_Q);
}

static void norm_heads(struct model *m, const struct layer *l, int n_rows)
{
    if (!l->q_norm) return;
    const struct model_plan *p = &m->plan;
    int hd = p->head_dim;
    if (p->arch->qk_norm_wide) {
        backend_rmsnorm(m->be, m->q, l->q_norm, p->norm_eps, n_rows, p->n_head * hd, m->q);
        backend_rmsnorm(m->be, m->k, l->k_norm, p->norm_eps, n_rows, p->n_kv_head * hd, m->k);
        return;
    }
    backend_rmsnorm(m->be, m->q, l->q_norm, p->norm_eps, n_rows * p->n_head, hd, m->q);
    backend_rmsnorm(m->be, m->k, l->k_norm, p->norm_eps, n_rows * p->n_kv_head, hd, m->k);
}

void model_sum_ranks(struct model *m, float *x, int n_rows)
{
    if (m->group) backend_all_reduce(m->be, x, (size_t)n_rows * (size_t)m->plan.n_embd);
}

/* The way back into the residual stream: x += P(W x'), with P = identity where post_norm is NULL. Of several ranks each has some columns of
 * W: they sum what they give, to which the first adds x. */
static void project_back(struct model *m, struct linear *l, int layer, enum lora_target target,
                         const float *post_norm)
{
    l->n_weights = 1;
    l->out[0] = post_norm ? m->back : m->x;
    l->accumulate = !post_norm && !m->rank;
    linear(m, l, layer, target);
    model_sum_ranks(m, l->out[0], l->n_rows);
    if (!post_norm) return;
    int n = m->plan.n_embd;
    backend_rmsnorm(m->be, m->back, post_norm, m->plan.norm_eps, l->n_rows, n, m->back);
    backend_add(m->be, m->back, (size_t)l->n_rows * (size_t)n, m->x);
}

static void attend(struct model *m, int layer, const struct kv_rows *rows)
{
    const struct layer *l = &m->layers[layer];
    struct attention a = {
        .layer = layer,
        .n_heads = m->plan.n_head,
        .q = m->q,
        .scale = m->plan.attention_scale,
        .window = m->plan.layers[layer].window,
        .softcap = m->plan.attn_softcap,
        .out = m->att,
    };
    backend_attention(m->be, m->kv, rows, &a);
    struct linear out = {.weight = {l->attn_out.weight},
                         .bias = {l->attn_out.bias},
                         .x = m->att,
                         .n_rows = rows->n_rows};
    project_back(m, &out, layer, LORA_ATTN_OUT, l->attn_post_norm);
}

static void feed_forward(struct model *m, int layer, int n_rows)
{
    const struct layer *l = &m->layers[layer];
    if (l->mixture.router) {
        experts_forward(m, l, n_rows);
        return;
    }
    struct linear widen = {
        .n_weights = 2,
        .weight = {l->gate.weight, l->up.weight},
        .bias = {l->gate.bias, l->up.bias},
        .out = {m->gate, m->up},
        .in = LINEAR_RMSNORM,
        .x = m->x,
        .norm_weight = l->ffn_norm,
        .eps = m->plan.norm_eps,
        .n_rows = n_rows,
    };
    linear(m, &widen, layer, LORA_GATE);
    struct linear narrow = {.weight = {l->down.weight},
                            .bias = {l->down.bias},
                            .in = m->plan.arch->gelu ? LINEAR_GELU_MUL : LINEAR_SILU_MUL,
                            .x = m->gate,
                            .x2 = m->up,
                            .n_rows = n_rows};
    project_back(m, &narrow, layer, LORA_DOWN, l->ffn_post_norm);
}

/* Moves the wanted rows of x and q to the front; rows then describes only them. */
static void keep_wanted(struct model *m, const struct model_batch *b, struct kv_rows *rows)
{
    backend_take_rows(m->be, m->x, m->plan.n_embd, b->out_row, b->n_out);
    backend_take_rows(m->be, m->q, m->plan.n_head * m->plan.head_dim, b->out_row, b->n_out);
    for (int i = 0; i < b->n_out; i++) {
        m->out_pos[i] = b->pos[b->out_row[i]];
        m->out_seq[i] = b->seq[b->out_row[i]];
    }
    rows->n_rows = b->n_out;
    rows->pos = m->out_pos;
    rows->seq = m->out_seq;
    if (rows->tree) {
        for (int i = 0; i < b->n_out; i++) {
            m->out_slot[i] = b->slot[b->out_row[i]];
            m->out_from[i] = b->tree_from[b->out_row[i]];
            m->out_mask[i] = b->tree_mask[b->out_row[i]];
        }
        m->tree = (struct kv_tree){m->out_slot, m->out_from, m->out_mask};
    }
    lora_group(&m->lora_rows, rows->seq, rows->n_rows, b->adapter);
    if (b->n_out) backend_set_rows(m->be, m->kv, rows);
}

static void embed(struct model *m, const int32_t *token, int n_rows)
{
    size_t n = (size_t)n_rows * (size_t)m->plan.n_embd;
    backend_embed(m->be, m->token_embd, token, n_rows, false, m->x);
    model_sum_ranks(m, m->x, n_rows);
    if (m->plan.arch->embed_scaled) backend_scale(m->be, sqrtf((float)m->plan.n_embd), n, m->x);
}

/* f32[n_rows][n_vocab] into all, which is NULL where a rank has only to give its part. */
static void head_rows(struct model *m, int n_rows, float *all)
{
    struct linear head = {
        .n_weights = 1,
        .weight = {m->output ? m->output : m->token_embd},
        .out = {m->group ? m->logits_part : all},
        .in = LINEAR_RMSNORM,
        .x = m->x,
        .norm_weight = m->output_norm,
        .eps = m->plan.norm_eps,
        .n_rows = n_rows,
    };
    linear(m, &head, m->plan.n_layer, 0);
    if (m->group) backend_all_gather(m->be, m->logits_part, n_rows, m->plan.n_vocab, all);
}

static void output_head(struct model *m, int n_rows, float *logits)
{
    head_rows(m, n_rows, m->logits ? m->logits : logits);
    size_t n = (size_t)n_rows * (size_t)m->plan.n_vocab;
    struct errmsg e = {0};
    if (!logits) return; /* another rank's, or they stay for model_submit */
    if (m->logits && backend_read(m->be, logits, m->logits, n, &e))
        log_limited(LOG_ERROR, "model", "%s", e.text); /* the logits are NaNs: nothing is said */
    if (m->group && collective_failure(m->group)) memset(logits, 0xff, n * sizeof *logits);
    float cap = m->plan.final_softcap;
    if (!(cap > 0)) return;
    for (size_t i = 0; i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

/* All calls of a pass over n_rows rows; b says which of them want logits, or NULL: all do. */
static void compute(struct model *m, const struct model_batch *b, const int32_t *token,
                    struct kv_rows rows, float *logits)
{
    int n_rows = rows.n_rows;
    embed(m, token, n_rows);
    for (int i = 0; i < m->plan.n_layer; i++) {
        project_qkv(m, i, n_rows);
        norm_heads(m, &m->layers[i], n_rows);
        struct rope_store store = {.rope = m->plan.layers[i].local_rope ? m->rope_local : m->rope,
                                   .layer = i,
                                   .n_heads = m->plan.n_head,
                                   .q = m->q,
                                   .k = m->k,
                                   .v = m->v,
                                   .spread = m->layers[i].k_spread};
        backend_rope_store(m->be, m->kv, &rows, &store);
        if (b && i == m->plan.n_layer - 1) keep_wanted(m, b, &rows);
        if (rows.n_rows == 0) return;
        attend(m, i, &rows);
        feed_forward(m, i, rows.n_rows);
    }
    output_head(m, rows.n_rows, logits);
}

/* False: the layers have more different windows than a recorded pass can. */
static bool windows_of(const struct model *m, int window[BACKEND_WINDOWS_MAX], int *n)
{
    *n = 0;
    for (int i = 0; i < m->plan.n_layer; i++) {
        int k = 0;
        while (k < *n && window[k] != m->plan.layers[i].window)
            k++;
        if (k == BACKEND_WINDOWS_MAX) return false;
        if (k == *n) window[(*n)++] = m->plan.layers[i].window;
    }
    return true;
}

static struct sample sample_of(const struct model *m, const struct sample_row *row, int n)
{
    return (struct sample){.logits = m->logits,
                           .n_vocab = m->plan.n_vocab,
                           .softcap = m->plan.final_softcap,
                           .row = row,
                           .n_rows = n};
}

/* A pass on an accelerator whose every row wants logits, which stay there. False: the ordinary way is needed. */
static bool recorded(struct model *m, const struct kv_rows *rows, const int32_t *token,
                     const struct sample *sample)
{
    int window[BACKEND_WINDOWS_MAX], n_windows, n;
    if (!windows_of(m, window, &n_windows)) return false;
    struct backend_step s = {.rows = rows,
                             .token = token,
                             .sample = sample,
                             .window = window,
                             .n_windows = n_windows,
                             .group = m->plan.n_head / m->plan.n_kv_head,
                             .rows_max = m->max_rows};
    if (backend_step_begin(m->be, m->kv, &s, &n)) return true;
    struct kv_rows all = *rows;
    all.n_rows = n;
    do
        compute(m, NULL, token, all, NULL);
    while (!backend_step_end(m->be));
    return true;
}

/* The ids as rows of this rank's part of the embedding. */
static const int32_t *own_rows(struct model *m, const int32_t *token, int n)
{
    const struct plan_shard *s = &m->plan.shard;
    if (!m->group) return token;
    for (int i = 0; i < n; i++) {
        int32_t row = token[i] - s->vocab_first;
        m->vocab_row[i] = row >= 0 && row < s->n_vocab ? row : s->n_vocab;
    }
    return m->vocab_row;
}

void model_forward_rank(struct model *m, const struct model_batch *b, float *logits,
                        bool wants_rows)
{
    struct kv_rows rows = {
        .n_rows = b->n_rows, .pos = b->pos, .seq = b->seq, .block_table = b->block_table};
    const int32_t *token = own_rows(m, b->token, b->n_rows);
    m->tree = (struct kv_tree){b->slot, b->tree_from, b->tree_mask};
    if (b->slot) rows.tree = &m->tree;
    lora_group(&m->lora_rows, b->seq, b->n_rows, b->adapter);
    struct sample s = sample_of(m, b->pick, b->n_pick);
    const struct sample *known = b->pick && !m->group ? &s : NULL;
    if (!wants_rows && b->n_out == b->n_rows && recorded(m, &rows, token, known)) return;
    backend_set_rows(m->be, m->kv, &rows);
    compute(m, b, token, rows, logits);
}

void model_forward(struct model *m, const struct model_batch *b, float *logits)
{
    check_batch(m, b);
    if (m->ranks)
        model_ranks_forward(m, b, logits);
    else
        model_forward_rank(m, b, logits, logits != NULL);
}

void model_warm_rank(struct model *m)
{
    enum { WARM_ROWS_MAX = 64, TIMES = 2 };
    int32_t pos[WARM_ROWS_MAX], zero[WARM_ROWS_MAX] = {0};
    int most = m->max_seqs < WARM_ROWS_MAX ? m->max_seqs : WARM_ROWS_MAX;
    if (!backend_on_device(m->be)) return;
    for (int i = 0; i < WARM_ROWS_MAX; i++)
        pos[i] = -1;
    /* few rows need areas that many do not: one that grew later would drop what is recorded */
    struct kv_rows few = {.n_rows = most < 8 ? most : 8, .pos = pos, .seq = zero};
    (void)recorded(m, &few, zero, NULL);
    for (int n = most; n > 0; n = n > 8 ? n - 8 : n / 2)
        for (int k = 0; k < TIMES; k++) {
            struct kv_rows rows = {.n_rows = n, .pos = pos, .seq = zero};
            (void)recorded(m, &rows, zero, NULL);
        }
}

void model_warm(struct model *m)
{
    if (m->ranks)
        model_ranks_warm(m);
    else
        model_warm_rank(m);
}

bool model_samples(const struct model *m)
{
    return backend_on_device(m->be);
}

enum err model_submit(struct model *m, const struct sample_row *row, int n, struct errmsg *e)
{
    struct sample s = sample_of(m, row, n);
    return backend_submit(m->be, &s, e);
}

enum err model_wait(struct model *m, struct sampler_pick_out *out, struct errmsg *e)
{
    return backend_wait(m->be, out, e);
}

void model_kv_touch(struct model *m, int part, int n_parts)
{
    for (int i = 0; i < model_ranks_count(m->ranks); i++)
        kv_touch(model_ranks_at(m, i)->kv, part, n_parts);
}

const char *model_kv_format(const struct model *m)
{
    return m->kv_format;
}

size_t model_kv_block_bytes(const struct model *m)
{
    return m->ranks ? model_ranks_block_bytes(m) : kv_block_bytes(m->kv);
}

void model_kv_read(const struct model *m, int32_t block, void *to)
{
    if (m->ranks)
        model_ranks_kv_read(m, block, to);
    else
        kv_block_read(m->kv, block, to);
}

void model_kv_write(struct model *m, int32_t block, const void *from)
{
    if (m->ranks)
        model_ranks_kv_write(m, block, from);
    else
        kv_block_write(m->kv, block, from);
}

void model_kv_move(struct model *m, const struct kv_move *moves, int n)
{
    for (int i = 0; i < model_ranks_count(m->ranks); i++)
        kv_move_tokens(model_ranks_at(m, i)->kv, moves, n);
}

void model_kv_copy(struct model *m, int32_t dst_block, int32_t src_block, int n_tokens)
{
    ASSERT(dst_block >= 0 && dst_block < m->n_blocks && src_block >= 0 && src_block < m->n_blocks);
    ASSERT(dst_block != src_block && n_tokens >= 0 && n_tokens <= m->block_tokens);
    for (int i = 0; i < model_ranks_count(m->ranks); i++)
        kv_copy(model_ranks_at(m, i)->kv, dst_block, src_block, n_tokens);
}
