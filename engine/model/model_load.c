/* model_load.c - opens a decoder: checks the file (model_plan), repacks its weights into the backend, allocates KV and
 * activations once. Nothing is allocated per pass. See model.h. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/model/model_private.h"
#include "engine/model/shard.h"

enum {
    THREADS_MAX = 64,
    BLOCKS_MAX = 1 << 24,
    ROWS_MAX = 1 << 16,
    SEQS_MAX = 1 << 14,
};

static enum err check_options(const struct model_options *o, struct errmsg *e)
{
    bool block_ok = o->block_tokens == 8 || o->block_tokens == 16 || o->block_tokens == 32 ||
                    o->block_tokens == 64;
#ifdef DEJA_RARE
    block_ok = block_ok || o->block_tokens == 2 || o->block_tokens == 4;
#endif
    if (!block_ok)
        return err_set(e, ERR_RANGE, "block_tokens: %d must be 8, 16, 32 or 64", o->block_tokens);
    if (o->n_threads < 0 || o->n_threads > THREADS_MAX)
        return err_set(e, ERR_RANGE, "n_threads: %d must be 0 to %d", o->n_threads, THREADS_MAX);
    if (o->n_blocks < 1 || o->n_blocks > BLOCKS_MAX)
        return err_set(e, ERR_RANGE, "n_blocks: %d must be 1 to %d", o->n_blocks, BLOCKS_MAX);
    if (o->max_batch_tokens < 1 || o->max_batch_tokens > ROWS_MAX)
        return err_set(e, ERR_RANGE, "max_batch_tokens: %d must be 1 to %d", o->max_batch_tokens,
                       ROWS_MAX);
    if (o->max_seqs < 1 || o->max_seqs > SEQS_MAX)
        return err_set(e, ERR_RANGE, "max_seqs: %d must be 1 to %d", o->max_seqs, SEQS_MAX);
    if (o->context_max < 0)
        return err_set(e, ERR_RANGE, "context_max: %d must be 0 or more", o->context_max);
    if (o->calibration && o->n_ranks > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "gpu_calibration: its channels are of whole inputs, of which each of %d "
                       "ranks has a part",
                       o->n_ranks);
    return OK;
}

enum err model_load_weight(struct model *m, struct weight **out, const struct gguf_tensor *t,
                           struct errmsg *e)
{
    struct weight_shape s = {t->type, (int)t->dims[2], (int)t->dims[1], (int)t->dims[0]};
    void *temp;
    const void *bytes = tensor_rows(t, &temp);
    enum err code = bytes ? weight_new_stack(out, m->be, &s, bytes, e)
                          : err_set(e, ERR_FULL, "no memory for a part of %zu bytes", t->n_bytes);
    mem_free(temp);
    return code ? err_prefix(e, code, "tensor " STR_FMT, STR_ARG(t->name)) : OK;
}

/* Takes n values (or NULL) to where the backend computes; NULL when the device has no memory (m->no_memory then). */
static float *moved(struct model *m, float *host, size_t n)
{
    if (!host || !backend_on_device(m->be)) return host;
    float *v = backend_floats(m->be, n);
    if (v)
        backend_write(m->be, v, host, n);
    else
        m->no_memory = true;
    mem_free(host);
    return v;
}

static float *vector_of(struct model *m, const struct gguf_tensor *t)
{
    return t ? moved(m, tensor_to_f32(t), (size_t)t->dims[0]) : NULL;
}

/* Told from all KV heads also where only some are here: blocks are the same whoever computes them. */
static float *spread_of(struct model *m, const struct plan_layer *p)
{
    struct model_plan plan = m->plan;
    struct plan_layer whole = *p;
    size_t n = (size_t)plan.n_kv_head * (size_t)plan.head_dim,
           first = (size_t)plan.shard.kv_first * (size_t)plan.head_dim;
    if (plan.shard.n_ranks) {
        plan.n_kv_head = plan.shard.n_kv_head_whole;
        whole.k.weight = p->k.weight->cut->whole;
        whole.k.bias = p->k.bias ? p->k.bias->cut->whole : NULL;
    }
    float *norm = tensor_to_f32(p->attn_norm),
          *k_norm = p->k_norm ? tensor_to_f32(p->k_norm) : NULL,
          *bias = whole.k.bias ? tensor_to_f32(whole.k.bias) : NULL,
          *spread = kv_spread_new(&plan, &whole, norm, k_norm, bias);
    mem_free(norm);
    mem_free(k_norm);
    mem_free(bias);
    memmove(spread, spread + first, n * sizeof *spread);
    return moved(m, spread, n);
}

enum err model_load_matrix(struct model *m, struct matrix *out, const struct plan_linear *p,
                           struct errmsg *e)
{
    out->bias = vector_of(m, p->bias);
    return model_load_weight(m, &out->weight, p->weight, e);
}

static enum err load_layer(struct model *m, struct layer *l, const struct plan_layer *p,
                           struct errmsg *e)
{
    enum err code;
    l->attn_norm = vector_of(m, p->attn_norm);
    l->ffn_norm = vector_of(m, p->ffn_norm);
    l->attn_post_norm = vector_of(m, p->attn_post_norm);
    l->ffn_post_norm = vector_of(m, p->ffn_post_norm);
    l->q_norm = vector_of(m, p->q_norm);
    l->k_norm = vector_of(m, p->k_norm);
    if ((code = model_load_matrix(m, &l->q, &p->q, e)) ||
        (code = model_load_matrix(m, &l->k, &p->k, e)) ||
        (code = model_load_matrix(m, &l->v, &p->v, e)) ||
        (code = model_load_matrix(m, &l->attn_out, &p->attn_out, e)))
        return code;
    if (m->plan.experts.n)
        code = experts_load(m, &l->mixture, &p->mixture, e);
    else if (!(code = model_load_matrix(m, &l->gate, &p->gate, e)) &&
             !(code = model_load_matrix(m, &l->up, &p->up, e)))
        code = model_load_matrix(m, &l->down, &p->down, e);
    if (code) return code;
    if (m->kv_type != KV_F16) l->k_spread = spread_of(m, p);
    return OK;
}

static enum err load_weights(struct model *m, struct errmsg *e)
{
    const struct model_plan *p = &m->plan;
    enum err code = model_load_weight(m, &m->token_embd, p->token_embd, e);
    if (!code && p->output) code = model_load_weight(m, &m->output, p->output, e);
    if (code) return code;
    m->output_norm = vector_of(m, p->output_norm);
    m->layers = xcalloc((size_t)p->n_layer, sizeof *m->layers);
    for (int i = 0; i < p->n_layer && !code; i++)
        code = load_layer(m, &m->layers[i], &p->layers[i], e);
    if (!code && m->no_memory)
        code = err_set(e, ERR_FULL, "no memory on the device for norms and biases");
    return code;
}

float *model_rows(struct model *m, int n)
{
    return backend_floats(m->be, (size_t)m->max_rows * (size_t)n); /* both bounded: no overflow */
}

static enum err make_rope(struct model *m, struct errmsg *e)
{
    bool local = false;
    for (int i = 0; i < m->plan.n_layer; i++)
        local = local || m->plan.layers[i].local_rope;
    enum err code = model_rope_new(&m->rope, &m->plan, m->context_max, false, e);
    if (!code && local) code = model_rope_new(&m->rope_local, &m->plan, m->context_max, true, e);
    return code;
}

static enum err make_memory(struct model *m, struct errmsg *e)
{
    const struct model_plan *p = &m->plan;
    struct kv_options o = {
        .n_layers = p->n_layer,
        .n_kv_heads = p->n_kv_head,
        .head_dim = p->head_dim,
        .n_blocks = m->n_blocks,
        .block_tokens = m->block_tokens,
        .type = m->kv_type,
    };
    enum err code = kv_new(&m->kv, m->be, &o, e);
    if (code)
        return err_prefix(e, code, "KV cache of %d blocks of %d tokens", m->n_blocks,
                          m->block_tokens);
    if ((code = make_rope(m, e))) return code;
    int n_q = p->n_head * p->head_dim, n_kv = p->n_kv_head * p->head_dim, rows = m->max_rows;
    m->x = model_rows(m, p->n_embd);
    m->q = model_rows(m, n_q);
    m->att = model_rows(m, n_q);
    m->k = model_rows(m, n_kv);
    m->v = model_rows(m, n_kv);
    bool moe_ok = true;
    if (p->experts.n) {
        moe_ok = experts_make_memory(m);
    } else {
        m->gate = model_rows(m, p->n_ff);
        m->up = model_rows(m, p->n_ff);
    }
    if (p->arch->post_norms) m->back = model_rows(m, p->n_embd);
    bool wants_logits = backend_on_device(m->be) && !m->rank;
    if (wants_logits) m->logits = model_rows(m, p->n_vocab);
    if (m->group) {
        m->logits_part = model_rows(m, collective_most(p->n_vocab, p->shard.n_ranks));
        m->vocab_row = try_calloc((size_t)rows, sizeof *m->vocab_row);
    }
    m->out_pos = try_calloc((size_t)rows, sizeof *m->out_pos);
    m->out_seq = try_calloc((size_t)rows, sizeof *m->out_seq);
    m->out_slot = try_calloc((size_t)rows, sizeof *m->out_slot);
    m->out_from = try_calloc((size_t)rows, sizeof *m->out_from);
    m->out_mask = try_calloc((size_t)rows, sizeof *m->out_mask);
    if (!moe_ok || !m->x || !m->q || !m->att || !m->k || !m->v || !m->gate || !m->up ||
        !m->out_pos || !m->out_seq || !m->out_slot || !m->out_from || !m->out_mask ||
        (p->arch->post_norms && !m->back) || (wants_logits && !m->logits) ||
        (m->group && (!m->logits_part || !m->vocab_row)))
        return err_set(e, ERR_FULL, "no memory for batches of %d tokens: lower max_batch_tokens",
                       rows);
    return OK;
}

/* general.name, or the file's stem. */
static char *display_name(const struct gguf *g, const char *path)
{
    struct str name = {NULL, 0};
    if (gguf_str_opt(g, "general.name", &name, NULL) || name.n == 0 || name.n > 200 ||
        !utf8_valid(name)) {
        name = str_of(path);
        for (ptrdiff_t at; (at = str_find_char(name, '/')) >= 0;)
            name = str_sub(name, (size_t)at + 1, name.n);
        if (str_ends(name, STR(".gguf"))) name.n -= 5;
    }
    return xstrndup(name.p, name.n);
}

static void fill_info(struct model *m, const char *path)
{
    const struct model_plan *p = &m->plan;
    snprintf(m->kv_format, sizeof m->kv_format, "%s %s", kv_layout_name(m->kv),
             backend_isa_name(m->be));
    m->arch = xstrndup(p->name.p, p->name.n);
    m->name = display_name(m->gguf, path);
    m->info = (struct model_info){
        .arch = m->arch,
        .name = m->name,
        .n_layer = p->n_layer,
        .n_embd = p->n_embd,
        .n_head = p->shard.n_ranks ? p->shard.n_head_whole : p->n_head,
        .n_kv_head = p->shard.n_ranks ? p->shard.n_kv_head_whole : p->n_kv_head,
        .head_dim = p->head_dim,
        .n_ff = p->shard.n_ranks ? p->shard.n_ff_whole : p->n_ff,
        .n_vocab = p->n_vocab,
        .context_length = p->context_length,
        .weight_bytes = p->weight_bytes,
    };
    m->info.kv_bytes_per_token = kv_bytes_per_token(m->kv_type, backend_is_exact(m->be), p->n_layer,
                                                    m->info.n_kv_head, p->head_dim);
    hash_hex(m->file_hash, m->info.file_hash);
}

/* The file as it is, or this rank's part of it. */
static enum err read_plan(struct model *m, const char *path, const struct model_options *o,
                          struct errmsg *e)
{
    enum err code = gguf_open(&m->gguf, path, e);
    if (code) return code;
    code = model_plan_read(&m->plan, m->gguf, e);
    if (!code && o->n_ranks > 1) code = model_plan_shard(&m->plan, m->rank, o->n_ranks, e);
    if (code) return err_prefix(e, code, "%s", path);
    if (m->plan.shard.n_widened && !m->rank)
        log_info("model",
                 "tensor_parallel_size=%d: cuts inside the blocks of %d matrices, which are kept "
                 "in float32",
                 o->n_ranks, m->plan.shard.n_widened);
    return OK;
}

enum err model_open_rank(struct model *m, const char *path, const struct model_options *o,
                         struct errmsg *e)
{
    struct backend_options be = {.n_threads = o->n_threads,
                                 .isa = o->isa,
                                 .exact = o->exact,
                                 .device = o->device,
                                 .products = o->products};
    enum err code;
    if ((code = check_options(o, e)) || (code = read_plan(m, path, o, e))) return code;
    m->n_blocks = o->n_blocks;
    m->block_tokens = o->block_tokens;
    m->kv_type = o->kv_type;
    m->max_rows = o->max_batch_tokens;
    m->max_seqs = o->max_seqs;
    /* A sequence can neither pass what the operator allows nor what the KV cache holds. */
    int64_t kv_tokens = (int64_t)o->n_blocks * o->block_tokens;
    m->context_max = o->context_max ? o->context_max : m->plan.context_length;
    if (m->context_max > kv_tokens) m->context_max = (int)kv_tokens;
    if ((code = backend_open(&m->be, &be, e))) return code;
    if (m->group && (code = backend_join(m->be, m->group, m->rank, e))) return code;
    /* The prefix cache only has to tell files apart, and every page is read anyway to repack it: a fast hash will do. */
    if (!m->rank) m->file_hash = hash_bytes(0, gguf_file_bytes(m->gguf));
    if (o->calibration && (code = spreads_load(m, o->calibration, e))) return code;
    if ((code = load_weights(m, e)) || (code = make_memory(m, e)))
        return err_prefix(e, code, "%s", path);
    fill_info(m, path);
    gguf_release_pages(m->gguf);
    const char *failure = backend_failure(m->be); /* uploads only enqueue */
    return failure ? err_set(e, ERR_UNAVAILABLE, "%s: %s", path, failure) : OK;
}

enum err model_open(struct model **out, const char *path, const struct model_options *opt,
                    struct errmsg *e)
{
    *out = NULL;
    struct model *m = xcalloc(1, sizeof *m);
    enum err code = opt->n_ranks > 1 ? model_ranks_open(&m->ranks, m, path, opt, e)
                                     : model_open_rank(m, path, opt, e);
    if (code) {
        model_close(m);
        return code;
    }
    *out = m;
    return OK;
}

void model_free_matrix(struct model *m, struct matrix *w)
{
    weight_free(w->weight);
    backend_floats_free(m->be, w->bias);
}

static void free_layers(struct model *m)
{
    if (!m->layers) return;
    for (int i = 0; i < m->plan.n_layer; i++) {
        struct layer *l = &m->layers[i];
        struct matrix *all[] = {&l->q, &l->k, &l->v, &l->attn_out, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            model_free_matrix(m, all[j]);
        experts_free(m, &l->mixture);
        float *norms[] = {l->attn_norm, l->ffn_norm, l->attn_post_norm, l->ffn_post_norm,
                          l->q_norm,    l->k_norm,   l->k_spread};
        for (size_t j = 0; j < sizeof norms / sizeof *norms; j++)
            backend_floats_free(m->be, norms[j]);
    }
    mem_free(m->layers);
}

static void free_adapters(struct model *m)
{
    for (int i = 0; i < m->n_adapters; i++)
        lora_free(m->adapters[i]);
    mem_free(m->lora_scratch.low);
    mem_free(m->lora_scratch.high);
    mem_free(m->lora_rows.row);
}

void model_close(struct model *m)
{
    if (!m) return;
    struct model_ranks *ranks = m->ranks;
    model_ranks_stop(ranks);
    model_close_rank(m);
    model_ranks_free(ranks);
}

void model_close_rank(struct model *m)
{
    free_layers(m);
    free_adapters(m);
    spreads_free(m);
    weight_free(m->token_embd);
    weight_free(m->output);
    float *arrays[] = {m->output_norm, m->x,  m->q,    m->att,    m->k,          m->v,
                       m->gate,        m->up, m->back, m->logits, m->logits_part};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        backend_floats_free(m->be, arrays[i]);
    experts_free_memory(m);
    mem_free(m->out_pos);
    mem_free(m->out_seq);
    mem_free(m->out_slot);
    mem_free(m->out_from);
    mem_free(m->out_mask);
    mem_free(m->vocab_row);
    if (m->kv) kv_free(m->kv);
    rope_free(m->rope);
    rope_free(m->rope_local);
    backend_close(m->be);
    model_plan_fini(&m->plan);
    gguf_close(m->gguf);
    mem_free(m->arch);
    mem_free(m->name);
    mem_free(m);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Room for adapters of this rank; what is there already stays when it is enough. */
static enum err grow_lora_scratch(struct model *m, int rank, struct errmsg *e)
{
    const struct model_plan *p = &m->plan;
    struct lora_scratch *s = &m->lora_scratch;
    int rows = m->max_rows;
    size_t n_q = (size_t)p->n_head * (size_t)p->head_dim,
           widest = larger(larger((size_t)p->n_ff, (size_t)p->n_embd), n_q),
           high = larger((size_t)rows * widest, (size_t)p->n_vocab); /* a row at least */
    if (!s->high) s->high = try_calloc(high, sizeof *s->high);
    if (!m->lora_rows.row) m->lora_rows.row = try_calloc((size_t)rows, sizeof *m->lora_rows.row);
    if (rank > s->rank_max) {
        mem_free(s->low);
        s->low =
            try_calloc((size_t)LINEAR_WEIGHTS_MAX * (size_t)rows * (size_t)rank, sizeof *s->low);
        s->rank_max = s->low ? rank : 0;
    }
    s->high_floats = high;
    s->rows = rows;
    return s->high && s->low && m->lora_rows.row
               ? OK
               : err_set(e, ERR_FULL, "no memory for adapters of rank %d", rank);
}

static void drop_adapter(struct model *m)
{
    lora_free(m->adapters[--m->n_adapters]);
    m->adapters[m->n_adapters] = NULL;
}

static enum err add_adapter(struct model *m, const char *path, float scale, int *number,
                            struct errmsg *e)
{
    struct lora *l;
    if (m->n_adapters == MODEL_ADAPTERS_MAX)
        return err_set(e, ERR_FULL, "%s: a model takes %d adapters", path, MODEL_ADAPTERS_MAX);
    if (backend_on_device(m->be))
        return err_set(e, ERR_UNSUPPORTED, "%s: adapters run on the CPU only", path);
    enum err code = lora_open(&l, m->be, &m->plan, path, scale, e);
    if (code) return code;
    if ((code = grow_lora_scratch(m, lora_rank_max(l), e))) {
        lora_free(l);
        return code;
    }
    *number = m->n_adapters;
    m->adapters[m->n_adapters++] = l;
    return OK;
}

enum err model_adapter_add(struct model *m, const char *path, float scale, int *number,
                           struct errmsg *e)
{
    int n = model_ranks_count(m->ranks);
    for (int i = 0; i < n; i++) {
        enum err code = add_adapter(model_ranks_at(m, i), path, scale, number, e);
        if (!code) continue;
        while (i--)
            drop_adapter(model_ranks_at(m, i));
        return code;
    }
    return OK;
}

struct hash128 model_adapter_id(const struct model *m, int number)
{
    ASSERT(number >= 0 && number < m->n_adapters);
    return lora_id(m->adapters[number]);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

const struct gguf *model_gguf(const struct model *m)
{
    return m->gguf;
}

const char *model_device(const struct model *m)
{
    return m->ranks ? model_ranks_device(m->ranks) : backend_device_name(m->be);
}

const char *model_device_model(const struct model *m)
{
    return backend_device_model(m->be);
}

const char *model_failure(const struct model *m)
{
    const char *failure = m->group ? collective_failure(m->group) : NULL;
    return failure ? failure : backend_failure(m->be);
}
