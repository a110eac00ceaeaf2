/* model_load.c - opens a decoder: checks the file (model_plan), repacks its weights into the backend, allocates KV and
 * activations once. Nothing is allocated per pass. See model.h. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/model/model_private.h"

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
    return OK;
}

static enum err load_weight(struct model *m, struct weight **out, const struct gguf_tensor *t,
                            struct errmsg *e)
{
    enum err code = weight_new(out, m->be, t->type, (int)t->dims[1], (int)t->dims[0], t->bytes, e);
    return code ? err_prefix(e, code, "tensor " STR_FMT, STR_ARG(t->name)) : OK;
}

/* f32 values where the backend computes; NULL without a tensor, and when the device has no memory (m->no_memory then). */
static float *vector_of(struct model *m, const struct gguf_tensor *t)
{
    float *host = t ? tensor_to_f32(t) : NULL, *v;
    if (!host || !backend_on_device(m->be)) return host;
    v = backend_floats(m->be, (size_t)t->dims[0]);
    if (v)
        backend_write(m->be, v, host, (size_t)t->dims[0]);
    else
        m->no_memory = true;
    mem_free(host);
    return v;
}

static enum err load_matrix(struct model *m, struct matrix *out, const struct plan_linear *p,
                            struct errmsg *e)
{
    out->bias = vector_of(m, p->bias);
    return load_weight(m, &out->weight, p->weight, e);
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
    if ((code = load_matrix(m, &l->q, &p->q, e)) || (code = load_matrix(m, &l->k, &p->k, e)) ||
        (code = load_matrix(m, &l->v, &p->v, e)) ||
        (code = load_matrix(m, &l->attn_out, &p->attn_out, e)) ||
        (code = load_matrix(m, &l->gate, &p->gate, e)) ||
        (code = load_matrix(m, &l->up, &p->up, e)) ||
        (code = load_matrix(m, &l->down, &p->down, e)))
        return code;
    if (m->kv_type != KV_F16 && !backend_on_device(m->be))
        l->k_spread = kv_spread_new(&m->plan, p, l->attn_norm, l->k_norm, l->k.bias);
    return OK;
}

static enum err load_weights(struct model *m, struct errmsg *e)
{
    const struct model_plan *p = &m->plan;
    enum err code = load_weight(m, &m->token_embd, p->token_embd, e);
    if (!code && p->output) code = load_weight(m, &m->output, p->output, e);
    if (code) return code;
    m->output_norm = vector_of(m, p->output_norm);
    m->layers = xcalloc((size_t)p->n_layer, sizeof *m->layers);
    for (int i = 0; i < p->n_layer && !code; i++)
        code = load_layer(m, &m->layers[i], &p->layers[i], e);
    if (!code && m->no_memory)
        code = err_set(e, ERR_FULL, "no memory on the device for norms and biases");
    return code;
}

static float *try_rows(struct model *m, int n)
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
    m->x = try_rows(m, p->n_embd);
    m->q = try_rows(m, n_q);
    m->att = try_rows(m, n_q);
    m->k = try_rows(m, n_kv);
    m->v = try_rows(m, n_kv);
    m->gate = try_rows(m, p->n_ff);
    m->up = try_rows(m, p->n_ff);
    if (p->arch->post_norms) m->back = try_rows(m, p->n_embd);
    if (backend_on_device(m->be)) m->logits = try_rows(m, p->n_vocab);
    m->out_pos = try_calloc((size_t)rows, sizeof *m->out_pos);
    m->out_seq = try_calloc((size_t)rows, sizeof *m->out_seq);
    if (!m->x || !m->q || !m->att || !m->k || !m->v || !m->gate || !m->up || !m->out_pos ||
        !m->out_seq || (p->arch->post_norms && !m->back) ||
        (backend_on_device(m->be) && !m->logits))
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
        .n_head = p->n_head,
        .n_kv_head = p->n_kv_head,
        .head_dim = p->head_dim,
        .n_ff = p->n_ff,
        .n_vocab = p->n_vocab,
        .context_length = p->context_length,
        .weight_bytes = p->weight_bytes,
        .kv_bytes_per_token = kv_bytes_per_token(m->kv_type, backend_is_exact(m->be), p->n_layer,
                                                 p->n_kv_head, p->head_dim),
    };
    /* The prefix cache only has to tell files apart, and every page is read anyway to repack it: a fast hash will do. */
    hash_hex(hash_bytes(0, gguf_file_bytes(m->gguf)), m->info.file_hash);
}

static enum err open_all(struct model *m, const char *path, const struct model_options *o,
                         struct errmsg *e)
{
    struct backend_options be = {
        .n_threads = o->n_threads, .isa = o->isa, .exact = o->exact, .device = o->device};
    enum err code;
    if ((code = check_options(o, e)) || (code = gguf_open(&m->gguf, path, e))) return code;
    if ((code = model_plan_read(&m->plan, m->gguf, e))) return err_prefix(e, code, "%s", path);
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
    if ((code = load_weights(m, e)) || (code = make_memory(m, e)))
        return err_prefix(e, code, "%s", path);
    fill_info(m, path);
    gguf_release_pages(m->gguf);
    return OK;
}

enum err model_open(struct model **out, const char *path, const struct model_options *opt,
                    struct errmsg *e)
{
    *out = NULL;
    struct model *m = xcalloc(1, sizeof *m);
    enum err code = open_all(m, path, opt, e);
    if (code) {
        model_close(m);
        return code;
    }
    *out = m;
    return OK;
}

static void free_matrix(struct model *m, struct matrix *w)
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
            free_matrix(m, all[j]);
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
    free_layers(m);
    free_adapters(m);
    weight_free(m->token_embd);
    weight_free(m->output);
    float *arrays[] = {m->output_norm, m->x,    m->q,  m->att,  m->k,
                       m->v,           m->gate, m->up, m->back, m->logits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        backend_floats_free(m->be, arrays[i]);
    mem_free(m->out_pos);
    mem_free(m->out_seq);
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
           high = larger((size_t)rows * widest, (size_t)p->n_vocab);
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

enum err model_adapter_add(struct model *m, const char *path, float scale, int *number,
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
