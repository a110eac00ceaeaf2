/* model_plan.c - reads and checks the hyper-parameters and tensors of a llama or qwen2 file. See model_plan.h. */
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
    enum err code = gguf_str(g, "general.architecture", &p->arch, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eqz(p->arch, "llama") && !str_eqz(p->arch, "qwen2"))
        return err_set(e, ERR_UNSUPPORTED,
                       "general.architecture: \"%s\" is not supported; llama and qwen2 are",
                       gguf_printable(p->arch, shown, sizeof shown));
    p->rope_half_split = str_eqz(p->arch, "qwen2");
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
    int n_experts = 0;
    enum err code;
    p->n_layer = p->n_embd = p->n_head = p->n_ff = p->context_length =
        -1; /* needed; see plan_int */
    if ((code = plan_int(g, p->arch, "block_count", 1, MODEL_LAYERS_MAX, &p->n_layer, e)) ||
        (code = plan_int(g, p->arch, "embedding_length", 1, EMBD_MAX, &p->n_embd, e)) ||
        (code = plan_int(g, p->arch, "feed_forward_length", 1, FF_MAX, &p->n_ff, e)) ||
        (code = plan_int(g, p->arch, "attention.head_count", 1, HEADS_MAX, &p->n_head, e)))
        return code;
    p->n_kv_head = p->n_head;
    if ((code = plan_int(g, p->arch, "attention.head_count_kv", 1, p->n_head, &p->n_kv_head, e)))
        return code;
    if ((code = plan_int(g, p->arch, "expert_count", 0, 1 << 20, &n_experts, e))) return code;
    if (n_experts)
        return err_set(e, ERR_UNSUPPORTED,
                       "expert_count: mixture-of-experts models are not supported");
    if (p->n_head % p->n_kv_head)
        return err_set(e, ERR_CORRUPT,
                       "attention.head_count_kv: %d does not divide the %d query heads",
                       p->n_kv_head, p->n_head);
    int key_dim = 0, value_dim = 0;
    if ((code = plan_int(g, p->arch, "attention.key_length", 1, HEAD_DIM_MAX, &key_dim, e)) ||
        (code = plan_int(g, p->arch, "attention.value_length", 1, HEAD_DIM_MAX, &value_dim, e)))
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
    (void)snprintf(key, sizeof key, STR_FMT ".context_length", STR_ARG(p->arch));
    if ((code = gguf_u32(g, key, &context, e))) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!context) return err_set(e, ERR_CORRUPT, "%s: must be at least 1", key);
    p->context_length = context > INT32_MAX ? INT32_MAX : (int)context;
    return OK;
}

static enum err read_scaling(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    char key[64], shown[40];
    struct str kind = STR("none");
    float factor = 1;
    enum err code;
    (void)snprintf(key, sizeof key, STR_FMT ".rope.scaling.type", STR_ARG(p->arch));
    if ((code = gguf_str_opt(g, key, &kind, e))) return code;
    if ((code = plan_float(g, p->arch, "rope.scale_linear", 1e-3f, 1e6f, &factor, true,
                           e)) || /* older name */
        (code = plan_float(g, p->arch, "rope.scaling.factor", 1e-3f, 1e6f, &factor, true, e)))
        return code;
    if (str_eqz(kind, "none"))
        factor = 1;
    else if (!str_eqz(kind, "linear"))
        return err_set(e, ERR_UNSUPPORTED, "%s: \"%s\" is not supported; none and linear are", key,
                       gguf_printable(kind, shown, sizeof shown));
    p->rope_linear_scale = (double)factor;
    return OK;
}

static enum err read_floats(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    float base = 10000;
    enum err code;
    if ((code = plan_float(g, p->arch, "attention.layer_norm_rms_epsilon", 0, 1e-1f, &p->norm_eps,
                           false, e)) ||
        (code = plan_float(g, p->arch, "rope.freq_base", 1, 1e12f, &base, true, e)))
        return code;
    p->rope_base = (double)base;
    p->attention_scale = 1.0f / sqrtf((float)p->head_dim);
    p->rope_dims = p->head_dim;
    p->window = 0;
    if ((code = plan_float(g, p->arch, "attention.scale", 1e-6f, 1e3f, &p->attention_scale, true,
                           e)) ||
        (code = plan_int(g, p->arch, "rope.dimension_count", 2, p->head_dim, &p->rope_dims, e)) ||
        (code = plan_int(g, p->arch, "attention.sliding_window", 0, INT32_MAX, &p->window, e)))
        return code;
    if (p->rope_dims % 2)
        return err_set(e, ERR_CORRUPT, "rope.dimension_count: %d must be even", p->rope_dims);
    return read_scaling(p, g, e);
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
    if ((code = plan_int(g, p->arch, "vocab_size", 1, VOCAB_MAX, &stated, e))) return code;
    if (stated != p->n_vocab)
        return err_set(e, ERR_CORRUPT, "vocab_size: %d, but tokenizer.ggml.tokens has %d", stated,
                       p->n_vocab);
    return OK;
}

static struct plan_linear layer_linear(struct tensor_finder *f, int layer, const char *what,
                                       int n_in, int n_out)
{
    char name[64];
    struct plan_linear l;
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    l.weight = finder_need(f, name, n_in, n_out);
    (void)snprintf(name, sizeof name, "blk.%d.%s.bias", layer, what);
    l.bias = finder_want(f, name, n_out, 0);
    return l;
}

static const struct gguf_tensor *layer_norm(struct tensor_finder *f, int layer, const char *what,
                                            int n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    return finder_need(f, name, n, 0);
}

static enum err find_tensors(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct tensor_finder f = {.g = g, .e = e};
    int n_q = p->n_head * p->head_dim, n_kv = p->n_kv_head * p->head_dim;
    p->token_embd = finder_need(&f, "token_embd.weight", p->n_embd, p->n_vocab);
    p->output = finder_want(&f, "output.weight", p->n_embd, p->n_vocab);
    p->output_norm = finder_need(&f, "output_norm.weight", p->n_embd, 0);
    p->rope_freqs = finder_want(&f, "rope_freqs.weight", p->rope_dims / 2, 0);
    for (int i = 0; i < p->n_layer && !f.code; i++) {
        struct plan_layer *l = &p->layers[i];
        l->attn_norm = layer_norm(&f, i, "attn_norm", p->n_embd);
        l->ffn_norm = layer_norm(&f, i, "ffn_norm", p->n_embd);
        l->q = layer_linear(&f, i, "attn_q", p->n_embd, n_q);
        l->k = layer_linear(&f, i, "attn_k", p->n_embd, n_kv);
        l->v = layer_linear(&f, i, "attn_v", p->n_embd, n_kv);
        l->attn_out = layer_linear(&f, i, "attn_output", n_q, p->n_embd);
        l->gate = layer_linear(&f, i, "ffn_gate", p->n_embd, p->n_ff);
        l->up = layer_linear(&f, i, "ffn_up", p->n_embd, p->n_ff);
        l->down = layer_linear(&f, i, "ffn_down", p->n_ff, p->n_embd);
        if (!f.code && str_eqz(p->arch, "qwen2") && (!l->q.bias || !l->k.bias || !l->v.bias))
            f.code = err_set(e, ERR_CORRUPT, "tensor blk.%d.attn_%c.bias is missing", i,
                             !l->q.bias   ? 'q'
                             : !l->k.bias ? 'k'
                                          : 'v');
    }
    finder_no_strangers(&f, str_eqz(p->arch, "qwen2") ? "qwen2" : "llama");
    p->weight_bytes = f.n_bytes;
    return f.code;
}

/* A frequency factor divides: 0, negative or not finite would poison every position silently. */
static enum err check_rope_freqs(const struct model_plan *p, struct errmsg *e)
{
    if (!p->rope_freqs) return OK;
    float *factors = tensor_to_f32(p->rope_freqs);
    enum err code = OK;
    for (int i = 0; i < p->rope_dims / 2 && !code; i++)
        if (!isfinite(factors[i]) || factors[i] <= 0)
            code = err_set(e, ERR_CORRUPT, "tensor rope_freqs.weight[%d]: must be above 0", i);
    mem_free(factors);
    return code;
}

enum err model_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    enum err code;
    memset(p, 0, sizeof *p);
    if ((code = read_arch(p, g, e)) || (code = read_dims(p, g, e)) ||
        (code = read_floats(p, g, e)) || (code = read_vocab(p, g, e)))
        return code;
    p->layers = xcalloc((size_t)p->n_layer, sizeof *p->layers);
    if ((code = find_tensors(p, g, e)) || (code = check_rope_freqs(p, e))) model_plan_fini(p);
    return code;
}

void model_plan_fini(struct model_plan *p)
{
    mem_free(p->layers);
    p->layers = NULL;
}
