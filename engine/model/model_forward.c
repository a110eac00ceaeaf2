/* model_forward.c - one pass of a llama or qwen2 decoder over a flattened batch. See model.h.
 * Each layer: x += Wo attention(rope(Wq n), rope(Wk n), Wv n) with n = rmsnorm(x), then x += Wdown(silu(Wgate n) * Wup n)
 * (Touvron et al. 2023, section 2.2). The last layer runs its second half for the wanted rows only: the others were only
 * needed for their K and V. */
#include <string.h>

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
    for (int i = 0; i < b->n_out; i++)
        ASSERT(b->out_row[i] < b->n_rows && b->out_row[i] > (i ? b->out_row[i - 1] : -1));
}

static void project_qkv(struct model *m, const struct layer *l, int n_rows)
{
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
    backend_linear(m->be, &qkv);
}

static void attend(struct model *m, int layer, const struct kv_rows *rows)
{
    const struct matrix *w = &m->layers[layer].attn_out;
    struct attention a = {
        .layer = layer,
        .n_heads = m->plan.n_head,
        .q = m->q,
        .scale = m->plan.attention_scale,
        .window = m->plan.window,
        .out = m->att,
    };
    backend_attention(m->be, m->kv, rows, &a);
    struct linear out = {
        .n_weights = 1,
        .weight = {w->weight},
        .bias = {w->bias},
        .out = {m->x},
        .accumulate = true,
        .x = m->att,
        .n_rows = rows->n_rows,
    };
    backend_linear(m->be, &out);
}

static void feed_forward(struct model *m, const struct layer *l, int n_rows)
{
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
    backend_linear(m->be, &widen);
    struct linear narrow = {
        .n_weights = 1,
        .weight = {l->down.weight},
        .bias = {l->down.bias},
        .out = {m->x},
        .accumulate = true,
        .in = LINEAR_SILU_MUL,
        .x = m->gate,
        .x2 = m->up,
        .n_rows = n_rows,
    };
    backend_linear(m->be, &narrow);
}

/* Moves the wanted rows of x and q to the front; rows then describes only them. */
static void keep_wanted(struct model *m, const struct model_batch *b, struct kv_rows *rows)
{
    size_t n_embd = (size_t)m->plan.n_embd, n_q = (size_t)m->plan.n_head * (size_t)m->plan.head_dim;
    for (int i = 0; i < b->n_out; i++) {
        size_t from = (size_t)b->out_row[i],
               to = (size_t)i; /* ascending, so from >= to: nothing is lost */
        if (from != to) {
            memcpy(m->x + to * n_embd, m->x + from * n_embd, n_embd * sizeof *m->x);
            memcpy(m->q + to * n_q, m->q + from * n_q, n_q * sizeof *m->q);
        }
        m->out_pos[i] = b->pos[from];
        m->out_seq[i] = b->seq[from];
    }
    rows->n_rows = b->n_out;
    rows->pos = m->out_pos;
    rows->seq = m->out_seq;
}

void model_forward(struct model *m, const struct model_batch *b, float *logits)
{
    check_batch(m, b);
    struct kv_rows rows = {
        .n_rows = b->n_rows, .pos = b->pos, .seq = b->seq, .block_table = b->block_table};
    backend_embed(m->be, m->token_embd, b->token, b->n_rows, false, m->x);
    for (int i = 0; i < m->plan.n_layer; i++) {
        project_qkv(m, &m->layers[i], b->n_rows);
        struct rope_store store = {.rope = m->rope,
                                   .layer = i,
                                   .n_heads = m->plan.n_head,
                                   .q = m->q,
                                   .k = m->k,
                                   .v = m->v};
        backend_rope_store(m->be, m->kv, &rows, &store);
        if (i == m->plan.n_layer - 1) keep_wanted(m, b, &rows);
        if (rows.n_rows == 0) return;
        attend(m, i, &rows);
        feed_forward(m, &m->layers[i], rows.n_rows);
    }
    struct linear head = {
        .n_weights = 1,
        .weight = {m->output ? m->output : m->token_embd},
        .out = {logits},
        .in = LINEAR_RMSNORM,
        .x = m->x,
        .norm_weight = m->output_norm,
        .eps = m->plan.norm_eps,
        .n_rows = rows.n_rows,
    };
    backend_linear(m->be, &head);
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
