/* shard.c - see shard.h. */
#include "engine/model/shard.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/backend/collective.h"

enum {
    CUTS_A_LAYER = 20,  /* 10 matrices, their biases */
    PLAIN_COLUMNS = 16, /* of a type without blocks: what kernels like */
};

struct shard_tensors { /* one allocation */
    int n, room;
    struct cut_tensor {
        struct gguf_tensor t;
        struct tensor_cut cut;
    } at[];
};

struct span {
    int64_t first, n;
};

struct cutting {
    struct model_plan *plan;
    struct plan_shard *shard;
    struct span heads, kv, ff, expert_ff, shared_ff, vocab; /* of heads: of their elements */
};

/* ---- parts of tensors ---- */
static const struct gguf_tensor *part(struct cutting *c, const struct gguf_tensor *whole,
                                      struct span cols, struct span rows)
{
    struct shard_tensors *all = c->shard->tensors;
    ASSERT(all->n < all->room);
    struct cut_tensor *p = &all->at[all->n++];
    p->t = *whole;
    p->cut = (struct tensor_cut){whole, cols.first, rows.first};
    p->t.cut = &p->cut;
    p->t.dims[0] = cols.n;
    p->t.dims[1] = rows.n;
    int block = tensor_type_block(whole->type);
    if (cols.first % block || cols.n % block) {
        p->t.type = TENSOR_F32;
        c->shard->n_widened++;
    }
    p->t.n_bytes = tensor_row_bytes(p->t.type, (int)cols.n) * (size_t)(rows.n * p->t.dims[2]);
    /* rows of one matrix lie together */
    p->t.bytes = cols.n == whole->dims[0] && whole->dims[2] == 1
                     ? (const char *)whole->bytes +
                           tensor_row_bytes(whole->type, (int)cols.n) * (size_t)rows.first
                     : NULL;
    return &p->t;
}

static void cut_rows(struct cutting *c, const struct gguf_tensor **t, struct span rows)
{
    if (*t) *t = part(c, *t, (struct span){0, (*t)->dims[0]}, rows);
}
static void cut_cols(struct cutting *c, const struct gguf_tensor **t, struct span cols)
{
    if (*t) *t = part(c, *t, cols, (struct span){0, (*t)->dims[1]});
}

/* A vector is one row of its elements. */
static void cut_bias(struct cutting *c, const struct gguf_tensor **t, struct span n)
{
    if (!*t) return;
    struct gguf_tensor *p = (struct gguf_tensor *)part(c, *t, n, (struct span){0, 1});
    p->bytes = (const char *)(*t)->bytes + tensor_row_bytes((*t)->type, (int)n.first);
    *t = p;
}

static void cut_out(struct cutting *c, struct plan_linear *l, struct span n)
{
    cut_rows(c, &l->weight, n);
    cut_bias(c, &l->bias, n);
}
/* What the ranks give is summed: one of them adds the bias. */
static void cut_in(struct cutting *c, struct plan_linear *l, struct span n)
{
    cut_cols(c, &l->weight, n);
    if (c->shard->rank) l->bias = NULL;
}

static void cut_layer(struct cutting *c, struct plan_layer *l)
{
    struct plan_mixture *x = &l->mixture;
    cut_out(c, &l->q, c->heads);
    cut_out(c, &l->k, c->kv);
    cut_out(c, &l->v, c->kv);
    cut_in(c, &l->attn_out, c->heads);
    cut_out(c, &l->gate, c->ff);
    cut_out(c, &l->up, c->ff);
    cut_in(c, &l->down, c->ff);
    cut_rows(c, &x->gate, c->expert_ff);
    cut_rows(c, &x->up, c->expert_ff);
    cut_cols(c, &x->down, c->expert_ff);
    cut_out(c, &x->shared_gate, c->shared_ff);
    cut_out(c, &x->shared_up, c->shared_ff);
    cut_in(c, &x->shared_down, c->shared_ff);
}

const void *tensor_rows(const struct gguf_tensor *t, void **temp)
{
    *temp = NULL;
    if (t->bytes || !t->cut) return t->bytes;
    const struct gguf_tensor *whole = t->cut->whole;
    int n_in = (int)whole->dims[0], n = (int)t->dims[0];
    size_t from_bytes = tensor_row_bytes(whole->type, n_in),
           row_bytes = tensor_row_bytes(t->type, n), rows = (size_t)t->dims[1],
           skip = t->type == whole->type ? tensor_row_bytes(t->type, (int)t->cut->col_first) : 0;
    float *wide = t->type == whole->type ? NULL : try_malloc((size_t)n_in * sizeof *wide);
    char *out = try_malloc(t->n_bytes);
    if (!out || (!wide && t->type != whole->type)) {
        mem_free(wide);
        mem_free(out);
        return NULL;
    }
    for (size_t i = 0; i < rows * (size_t)t->dims[2]; i++) {
        size_t row = i / rows * (size_t)whole->dims[1] + (size_t)t->cut->row_first + i % rows;
        const char *from = (const char *)whole->bytes + row * from_bytes;
        if (wide) {
            dequantise_row(whole->type, from, wide, n_in);
            memcpy(out + i * row_bytes, wide + t->cut->col_first, row_bytes);
        } else {
            memcpy(out + i * row_bytes, from + skip, row_bytes);
        }
    }
    mem_free(wide);
    return *temp = out;
}

/* ---- who has what ---- */
/* A rank's part of n columns in whole blocks of `block`; in smaller pieces where there are too few blocks for all. n 0: nothing. */
static struct span blocks_of(const struct plan_shard *s, int n, int block)
{
    while (n / block < s->n_ranks && block > 1)
        block = block > PLAIN_COLUMNS ? PLAIN_COLUMNS : 1;
    int64_t from = (int64_t)collective_first(n / block, s->n_ranks, s->rank) * block,
            to = (int64_t)collective_first(n / block, s->n_ranks, s->rank + 1) * block;
    if (s->rank == s->n_ranks - 1) to = n;
    return (struct span){from, to - from};
}

static void note_block(const struct gguf_tensor *t, int *most)
{
    if (t && tensor_type_block(t->type) > *most) *most = tensor_type_block(t->type);
}

/* The blocks that all layers can be cut between: types have blocks of 1, 32 or 256. */
static void share(struct cutting *c)
{
    struct model_plan *p = c->plan;
    struct plan_shard *s = c->shard;
    int dense = PLAIN_COLUMNS, expert = PLAIN_COLUMNS, shared = PLAIN_COLUMNS;
    for (int i = 0; i < p->n_layer; i++) {
        note_block(p->layers[i].down.weight, &dense);
        note_block(p->layers[i].mixture.down, &expert);
        note_block(p->layers[i].mixture.shared_down.weight, &shared);
    }
    c->ff = blocks_of(s, p->experts.n ? 0 : p->n_ff, dense);
    c->expert_ff = blocks_of(s, p->experts.n ? p->experts.n_ff : 0, expert);
    c->shared_ff = blocks_of(s, p->experts.n_ff_shared, shared);
    s->ff_first = (int)c->ff.first;
    s->expert_ff_first = (int)c->expert_ff.first;
    s->shared_ff_first = (int)c->shared_ff.first;
    s->head_first = p->n_head / s->n_ranks * s->rank;
    s->kv_first = p->n_kv_head * s->rank / s->n_ranks;
    s->vocab_first = collective_first(p->n_vocab, s->n_ranks, s->rank);
    s->n_vocab = collective_first(p->n_vocab, s->n_ranks, s->rank + 1) - s->vocab_first;
    s->n_head_whole = p->n_head;
    s->n_kv_head_whole = p->n_kv_head;
    s->n_ff_whole = p->n_ff;
    p->n_head /= s->n_ranks;
    p->n_kv_head = p->n_kv_head < s->n_ranks ? 1 : p->n_kv_head / s->n_ranks;
    if (!p->experts.n) p->n_ff = (int)c->ff.n;
    p->experts.n_ff = p->experts.n ? (int)c->expert_ff.n : p->experts.n_ff;
    if (p->experts.n_ff_shared) p->experts.n_ff_shared = (int)c->shared_ff.n;
    c->heads =
        (struct span){(int64_t)s->head_first * p->head_dim, (int64_t)p->n_head * p->head_dim};
    c->kv = (struct span){(int64_t)s->kv_first * p->head_dim, (int64_t)p->n_kv_head * p->head_dim};
    c->vocab = (struct span){s->vocab_first, s->n_vocab};
}

/* ---- what goes ---- */
static bool goes(const struct model_plan *p, int n)
{
    return p->n_head % n == 0 && (p->n_kv_head % n == 0 || n % p->n_kv_head == 0);
}

static int narrowest(const struct model_plan *p)
{
    int n = p->experts.n ? p->experts.n_ff : p->n_ff;
    if (p->experts.n_ff_shared && p->experts.n_ff_shared < n) n = p->experts.n_ff_shared;
    return n < p->n_vocab ? n : p->n_vocab;
}

static enum err check(const struct model_plan *p, int n_ranks, struct errmsg *e)
{
    char sizes[80] = "";
    if (n_ranks < 1 || n_ranks > SHARD_RANKS_MAX)
        return err_set(e, ERR_RANGE, "tensor_parallel_size: %d must be 1 to %d", n_ranks,
                       SHARD_RANKS_MAX);
    if (p->arch->qk_norm_wide && n_ranks > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor_parallel_size: %s norms queries over all heads at once, which no "
                       "rank of several has; 1 goes",
                       p->arch->name);
    if (!goes(p, n_ranks)) {
        for (int n = 1, at = 0; n <= SHARD_RANKS_MAX; n++)
            if (goes(p, n))
                at += snprintf(sizes + at, sizeof sizes - (size_t)at, "%s%d", at ? ", " : "", n);
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor_parallel_size: %d heads and %d KV heads do not go into %d ranks; "
                       "into %s they do",
                       p->n_head, p->n_kv_head, n_ranks, sizes);
    }
    if (narrowest(p) < n_ranks)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor_parallel_size: a width of %d does not go into %d ranks",
                       narrowest(p), n_ranks);
    return OK;
}

enum err model_plan_shard(struct model_plan *p, int rank, int n_ranks, struct errmsg *e)
{
    enum err code = check(p, n_ranks, e);
    if (code || n_ranks == 1) return code;
    ASSERT(rank >= 0 && rank < n_ranks && !p->shard.n_ranks);
    struct cutting c = {.plan = p, .shard = &p->shard};
    int room = p->n_layer * CUTS_A_LAYER + 2;
    p->shard = (struct plan_shard){.rank = rank, .n_ranks = n_ranks};
    p->shard.tensors =
        xcalloc(1, sizeof *p->shard.tensors + (size_t)room * sizeof p->shard.tensors->at[0]);
    p->shard.tensors->room = room;
    share(&c);
    for (int i = 0; i < p->n_layer; i++)
        cut_layer(&c, &p->layers[i]);
    cut_rows(&c, &p->token_embd, c.vocab);
    cut_rows(&c, &p->output, c.vocab);
    return OK;
}
