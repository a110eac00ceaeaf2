/* model_plan.c - reads and checks the hyper-parameters and tensors of a decoder file. See model_plan.h. */
#include "engine/model/model_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    EMBD_MAX = 1 << 16,
    FF_MAX = 1 << 20,
    HEADS_MAX = 1024,
    HEAD_DIM_MAX = 256, /* what the backend's attention takes */
    VOCAB_MAX = 1 << 22,
};

static enum err read_arch(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    char shown[40];
    enum err code = gguf_str(g, "general.architecture", &p->name, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    p->arch = model_arch_find(p->name);
    if (!p->arch)
        return err_set(e, ERR_UNSUPPORTED, "general.architecture: \"%s\" is not supported; %s are",
                       gguf_printable(p->name, shown, sizeof shown), model_arch_names());
    uint32_t n_files = 1;
    if ((code = gguf_u32_opt(g, "split.count", &n_files, e))) return code;
    if (n_files > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "split.count: this is one of %u parts of a split model; merge them first",
                       n_files);
    return OK;
}

static enum err read_dims(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    enum err code;
    p->n_layer = p->n_embd = p->n_head = p->n_ff = p->context_length =
        -1; /* needed; see plan_int */
    if ((code = plan_int(g, p->name, "block_count", 1, MODEL_LAYERS_MAX, &p->n_layer, e)) ||
        (code = plan_int(g, p->name, "embedding_length", 1, EMBD_MAX, &p->n_embd, e)) ||
        (code = plan_int(g, p->name, "feed_forward_length", 1, FF_MAX, &p->n_ff, e)) ||
        (code = plan_int(g, p->name, "attention.head_count", 1, HEADS_MAX, &p->n_head, e)))
        return code;
    p->n_kv_head = p->n_head;
    if ((code = plan_int(g, p->name, "attention.head_count_kv", 1, p->n_head, &p->n_kv_head, e)))
        return code;
    if (p->n_head % p->n_kv_head)
        return err_set(e, ERR_CORRUPT,
                       "attention.head_count_kv: %d does not divide the %d query heads",
                       p->n_kv_head, p->n_head);
    int key_dim = 0, value_dim = 0;
    if ((code = plan_int(g, p->name, "attention.key_length", 1, HEAD_DIM_MAX, &key_dim, e)) ||
        (code = plan_int(g, p->name, "attention.value_length", 1, HEAD_DIM_MAX, &value_dim, e)))
        return code;
    if (!key_dim && p->n_embd % p->n_head)
        return err_set(e, ERR_CORRUPT,
                       "attention.head_count: %d does not divide embedding_length %d", p->n_head,
                       p->n_embd);
    p->head_dim = key_dim ? key_dim : p->n_embd / p->n_head;
    if (value_dim && value_dim != p->head_dim)
        return err_set(e, ERR_UNSUPPORTED, "attention.value_length: %d differs from key length %d",
                       value_dim, p->head_dim);
    if (p->head_dim % 8 || p->head_dim > HEAD_DIM_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "heads of %d numbers: must be a multiple of 8, at most %d", p->head_dim,
                       HEAD_DIM_MAX);
    char key[64];
    uint32_t context = 0; /* any u32 is a legal claim; what is allocated is the option's business */
    (void)snprintf(key, sizeof key, STR_FMT ".context_length", STR_ARG(p->name));
    if ((code = gguf_u32(g, key, &context, e))) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!context) return err_set(e, ERR_CORRUPT, "%s: must be at least 1", key);
    p->context_length = context > INT32_MAX ? INT32_MAX : (int)context;
    return OK;
}

/* Layer i sees the window unless it is the last of its period; an array says it layer by layer. */
static enum err read_windows(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    char key[80];
    struct str flags = {NULL, 0};
    int window = p->arch->window, period = p->arch->window_period;
    enum err code = plan_int(g, p->name, "attention.sliding_window", 0, INT32_MAX, &window, e);
    if (code) return code;
    (void)snprintf(key, sizeof key, STR_FMT ".attention.sliding_window_pattern", STR_ARG(p->name));
    if (period && gguf_has(g, key)) {
        if (!strncmp(gguf_type_name(g, key), "array", 5))
            code = gguf_bytes(g, key, &flags, e);
        else
            code = plan_int(g, p->name, "attention.sliding_window_pattern", 1, MODEL_LAYERS_MAX,
                            &period, e);
        if (code) return code;
        if (flags.p && flags.n < (size_t)p->n_layer)
            return err_set(e, ERR_CORRUPT, "%s: %zu entries for %d layers", key, flags.n,
                           p->n_layer);
    }
    for (int i = 0; i < p->n_layer; i++) {
        bool local = flags.p ? flags.p[i] : period && (i + 1) % period;
        if (!p->arch->window_period || local) p->layers[i].window = window;
        p->layers[i].local_rope = local && window && p->rope.local_base > 0;
    }
    return OK;
}

static enum err read_floats(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    enum err code;
    bool wide = p->arch->wide_scale_layers && p->n_layer == p->arch->wide_scale_layers;
    p->attention_scale =
        1.0f / sqrtf(wide ? (float)p->n_embd / (float)p->n_head : (float)p->head_dim);
    p->attn_softcap = p->arch->attn_softcap;
    p->final_softcap = p->arch->final_softcap;
    if ((code = plan_float(g, p->name, "attention.layer_norm_rms_epsilon", 0, 1e-1f, &p->norm_eps,
                           false, e)) ||
        (code =
             plan_float(g, p->name, "attention.scale", 1e-6f, 1e3f, &p->attention_scale, true, e)))
        return code;
    if (!p->arch->has_softcaps) return OK;
    code = plan_float(g, p->name, "attn_logit_softcapping", 0, 1e6f, &p->attn_softcap, true, e);
    if (code) return code;
    return plan_float(g, p->name, "final_logit_softcapping", 0, 1e6f, &p->final_softcap, true, e);
}

static enum err read_vocab(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct str *tokens;
    size_t n;
    enum err code = gguf_str_array(g, "tokenizer.ggml.tokens", &tokens, &n, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    mem_free(tokens);
    if (n < 1 || n > VOCAB_MAX)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.tokens: %zu tokens, must be 1 to %d", n,
                       VOCAB_MAX);
    p->n_vocab = (int)n;
    int stated = p->n_vocab;
    if ((code = plan_int(g, p->name, "vocab_size", 1, VOCAB_MAX, &stated, e))) return code;
    if (stated != p->n_vocab)
        return err_set(e, ERR_CORRUPT, "vocab_size: %d, but tokenizer.ggml.tokens has %d", stated,
                       p->n_vocab);
    return OK;
}

static const struct gguf_tensor *layer_norm(struct tensor_finder *f, int layer, const char *what,
                                            int n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    return finder_need(f, name, n, 0);
}

static void find_layer(struct model_plan *p, struct tensor_finder *f, int i)
{
    const struct model_arch *arch = p->arch;
    struct plan_layer *l = &p->layers[i];
    int n_q = p->n_head * p->head_dim, n_kv = p->n_kv_head * p->head_dim;
    l->attn_norm = layer_norm(f, i, "attn_norm", p->n_embd);
    l->ffn_norm = layer_norm(f, i, "ffn_norm", p->n_embd);
    l->q = plan_find_linear(f, i, "attn_q", p->n_embd, n_q);
    l->k = plan_find_linear(f, i, "attn_k", p->n_embd, n_kv);
    l->v = plan_find_linear(f, i, "attn_v", p->n_embd, n_kv);
    l->attn_out = plan_find_linear(f, i, "attn_output", n_q, p->n_embd);
    if (p->experts.n) {
        experts_plan_find(p, f, i);
    } else {
        l->gate = plan_find_linear(f, i, "ffn_gate", p->n_embd, p->n_ff);
        l->up = plan_find_linear(f, i, "ffn_up", p->n_embd, p->n_ff);
        l->down = plan_find_linear(f, i, "ffn_down", p->n_ff, p->n_embd);
    }
    if (arch->qk_norm || arch->qk_norm_wide) {
        l->q_norm = layer_norm(f, i, "attn_q_norm", arch->qk_norm ? p->head_dim : n_q);
        l->k_norm = layer_norm(f, i, "attn_k_norm", arch->qk_norm ? p->head_dim : n_kv);
    }
    if (arch->post_norms) {
        l->attn_post_norm = layer_norm(f, i, "post_attention_norm", p->n_embd);
        l->ffn_post_norm = layer_norm(f, i, "post_ffw_norm", p->n_embd);
    }
    if (!f->code && arch->qkv_bias && (!l->q.bias || !l->k.bias || !l->v.bias))
        f->code = err_set(f->e, ERR_CORRUPT, "tensor blk.%d.attn_%c.bias is missing", i,
                          !l->q.bias   ? 'q'
                          : !l->k.bias ? 'k'
                                       : 'v');
}

static enum err find_tensors(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct tensor_finder f = {.g = g, .e = e};
    p->token_embd = finder_need(&f, "token_embd.weight", p->n_embd, p->n_vocab);
    p->output = finder_want(&f, "output.weight", p->n_embd, p->n_vocab);
    p->output_norm = finder_need(&f, "output_norm.weight", p->n_embd, 0);
    for (int i = 0; i < p->n_layer && !f.code; i++)
        find_layer(p, &f, i);
    if (!f.code) f.code = rope_plan_find(p, &f);
    finder_no_strangers(&f, p->arch->name);
    p->weight_bytes = f.n_bytes;
    return f.code;
}

enum err model_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    enum err code;
    memset(p, 0, sizeof *p);
    if ((code = read_arch(p, g, e)) || (code = read_dims(p, g, e)) ||
        (code = experts_plan_read(p, g, e)) || (code = rope_plan_read(p, g, e)) ||
        (code = read_floats(p, g, e)) || (code = read_vocab(p, g, e)))
        return code;
    p->layers = xcalloc((size_t)p->n_layer, sizeof *p->layers);
    if ((code = read_windows(p, g, e)) || (code = find_tensors(p, g, e))) model_plan_fini(p);
    return code;
}

void model_plan_fini(struct model_plan *p)
{
    mem_free(p->layers);
    mem_free(p->shard.tensors);
    p->layers = NULL;
    p->shard = (struct plan_shard){0};
}
