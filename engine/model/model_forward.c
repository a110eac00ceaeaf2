/* model_forward.c - one pass of a decoder over a flattened batch. See model.h; what differs between architectures: arch.h.
 * Each layer: x += P(Wo attention(rope(N(Wq n)), rope(N(Wk n)), Wv n)) with n = rmsnorm(x), then x += P(Wdown(act(Wgate n) * Wup n))
 * (Touvron et al. 2023, section 2.2); N: norm of each head, P: norm of the result, where the architecture has them. The
 * last layer runs its second half for the wanted rows only: the others were only needed for their K and V. */
#include <math.h>

#include "base/log.h"
#include "engine/model/model_private.h"

static void check_batch(const struct model *m, const struct model_batch *b)
{
    ASSERT(b->n_rows >= 1 && b->n_rows <= m->max_rows);
    ASSERT(b->n_seqs >= 1 && b->n_seqs <= m->max_seqs);
    ASSERT(b->n_out >= 0 && b->n_out <= b->n_rows);
    for (int i = 0; i < b->n_rows; i++) {
        ASSERT(b->token[i] >= 0 && b->token[i] < m->plan.n_vocab);
        ASSERT(b->pos[i] >= 0 && b->pos[i] < m->context_max);
        ASSERT(b->seq[i] >= 0 && b->seq[i] < b->n_seqs);
        ASSERT(i == 0 || b->seq[i] != b->seq[i - 1] || b->pos[i] == b->pos[i - 1] + 1);
        int32_t block = b->block_table[b->seq[i]][b->pos[i] / m->block_tokens];
        ASSERT(block >= 0 && block < m->n_blocks);
    }
    for (int i = 0; b->adapter && i < b->n_seqs; i++)
        ASSERT(b->adapter[i] >= -1 && b->adapter[i] < m->n_adapters);
    for (int i = 0; i < b->n_out; i++)
        ASSERT(b->out_row[i] < b->n_rows && b->out_row[i] > (i ? b->out_row[i - 1] : -1));
}

/* A linear layer and what adapters add to it. */
static void linear(struct model *m, const struct linear *l, int layer, enum lora_target first)
{
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
    backend_rmsnorm(m->be, m->q, l->q_norm, p->norm_eps, n_rows * p->n_head, p->head_dim, m->q);
    backend_rmsnorm(m->be, m->k, l->k_norm, p->norm_eps, n_rows * p->n_kv_head, p->head_dim, m->k);
}

/* The way back into the residual stream: x += P(W x'), with P = identity where post_norm is NULL. */
static void project_back(struct model *m, struct linear *l, int layer, enum lora_target target,
                         const float *post_norm)
{
    l->n_weights = 1;
    l->out[0] = post_norm ? m->back : m->x;
    l->accumulate = !post_norm;
    linear(m, l, layer, target);
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
    lora_group(&m->lora_rows, rows->seq, rows->n_rows, b->adapter);
    if (b->n_out) backend_set_rows(m->be, m->kv, rows);
}

static void embed(struct model *m, const struct model_batch *b)
{
    size_t n = (size_t)b->n_rows * (size_t)m->plan.n_embd;
    backend_embed(m->be, m->token_embd, b->token, b->n_rows, false, m->x);
    if (m->plan.arch->embed_scaled) backend_scale(m->be, sqrtf((float)m->plan.n_embd), n, m->x);
}

static void output_head(struct model *m, int n_rows, float *logits)
{
    struct linear head = {
        .n_weights = 1,
        .weight = {m->output ? m->output : m->token_embd},
        .out = {m->logits ? m->logits : logits},
        .in = LINEAR_RMSNORM,
        .x = m->x,
        .norm_weight = m->output_norm,
        .eps = m->plan.norm_eps,
        .n_rows = n_rows,
    };
    linear(m, &head, m->plan.n_layer, 0);
    size_t n = (size_t)n_rows * (size_t)m->plan.n_vocab;
    struct errmsg e = {0};
    if (m->logits && backend_read(m->be, logits, m->logits, n, &e))
        log_limited(LOG_ERROR, "model", "%s", e.text); /* the logits are NaNs: nothing is said */
    float cap = m->plan.final_softcap;
    if (!(cap > 0)) return;
    for (size_t i = 0; i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

void model_forward(struct model *m, const struct model_batch *b, float *logits)
{
    check_batch(m, b);
    struct kv_rows rows = {
        .n_rows = b->n_rows, .pos = b->pos, .seq = b->seq, .block_table = b->block_table};
    lora_group(&m->lora_rows, b->seq, b->n_rows, b->adapter);
    backend_set_rows(m->be, m->kv, &rows);
    embed(m, b);
    for (int i = 0; i < m->plan.n_layer; i++) {
        project_qkv(m, i, b->n_rows);
        norm_heads(m, &m->layers[i], b->n_rows);
        struct rope_store store = {.rope = m->plan.layers[i].local_rope ? m->rope_local : m->rope,
                                   .layer = i,
                                   .n_heads = m->plan.n_head,
                                   .q = m->q,
                                   .k = m->k,
                                   .v = m->v,
                                   .spread = m->layers[i].k_spread};
        backend_rope_store(m->be, m->kv, &rows, &store);
        if (i == m->plan.n_layer - 1) keep_wanted(m, b, &rows);
        if (rows.n_rows == 0) return;
        attend(m, i, &rows);
        feed_forward(m, i, rows.n_rows);
    }
    output_head(m, rows.n_rows, logits);
}

void model_kv_touch(struct model *m, int part, int n_parts)
{
    kv_touch(m->kv, part, n_parts);
}

const char *model_kv_format(const struct model *m)
{
    return m->kv_format;
}

size_t model_kv_block_bytes(const struct model *m)
{
    return kv_block_bytes(m->kv);
}

void model_kv_read(const struct model *m, int32_t block, void *to)
{
    kv_block_read(m->kv, block, to);
}

void model_kv_write(struct model *m, int32_t block, const void *from)
{
    kv_block_write(m->kv, block, from);
}

void model_kv_copy(struct model *m, int32_t dst_block, int32_t src_block, int n_tokens)
{
    ASSERT(dst_block >= 0 && dst_block < m->n_blocks && src_block >= 0 && src_block < m->n_blocks);
    ASSERT(dst_block != src_block && n_tokens >= 0 && n_tokens <= m->block_tokens);
    kv_copy(m->kv, dst_block, src_block, n_tokens);
}
