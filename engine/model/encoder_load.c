/* encoder_load.c - opens an encoder file: keys, tensor shapes, weights, tokenizer, scratch. See encoder.h. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/model/encoder_private.h"
#include "engine/model/model_plan.h"
#include "engine/model/tokenizer_load.h"

enum {
    EMBD_MAX = 1 << 14,
    VOCAB_MAX = 1 << 22,
    POSITIONS_MAX = 1 << 16,
    ROWS_DEFAULT = 1024, /* one pass of 64 short questions; 4 MiB of scratch at 384 dimensions */
    POOL_MEAN = 1,       /* bert.pooling_type as the format numbers it */
    POOL_CLS = 2,
};

static enum err read_window(struct encoder_dims *d, const struct gguf *g, struct errmsg *e)
{
    uint32_t max_tokens = (uint32_t)d->n_pos;
    enum err code = gguf_u32_opt(g, "deja.embed.max_tokens", &max_tokens, e);
    if (code) return code;
    if (max_tokens < 3 || max_tokens > (uint32_t)d->n_pos)
        return err_set(e, ERR_CORRUPT,
                       "deja.embed.max_tokens: %u must lie between 3 and %d, the positions",
                       max_tokens, d->n_pos);
    d->max_tokens = (int)max_tokens;
    return OK;
}

static enum err read_pooling(struct encoder_dims *d, const struct gguf *g, struct errmsg *e)
{
    uint32_t type = POOL_MEAN;
    struct str name = {NULL, 0};
    char shown[32];
    enum err code;
    if ((code = gguf_u32_opt(g, "bert.pooling_type", &type, e)) ||
        (code = gguf_str_opt(g, "deja.embed.pooling", &name, e)))
        return code;
    if (name.n) type = str_eqz(name, "mean") ? POOL_MEAN : str_eqz(name, "cls") ? POOL_CLS : 0;
    if (type != POOL_MEAN && type != POOL_CLS)
        return err_set(e, ERR_UNSUPPORTED,
                       "pooling: \"%s\" (type %u) is not supported; mean (1) and cls (2) are",
                       gguf_printable(name, shown, sizeof shown), type);
    d->pool_cls = type == POOL_CLS;
    return OK;
}

static enum err read_dims(struct encoder_dims *d, const struct gguf *g, struct errmsg *e)
{
    struct str arch, *tokens;
    char shown[40];
    size_t n;
    enum err code = gguf_str(g, "general.architecture", &arch, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eqz(arch, "bert"))
        return err_set(e, ERR_UNSUPPORTED,
                       "general.architecture: \"%s\" is no encoder we read; bert is",
                       gguf_printable(arch, shown, sizeof shown));
    memset(d, 0, sizeof *d);
    d->n_layer = d->n_embd = d->n_head = d->n_ff = d->n_pos = -1; /* needed; see plan_int */
    if ((code = plan_int(g, arch, "block_count", 1, MODEL_LAYERS_MAX, &d->n_layer, e)) ||
        (code = plan_int(g, arch, "embedding_length", 1, EMBD_MAX, &d->n_embd, e)) ||
        (code = plan_int(g, arch, "feed_forward_length", 1, EMBD_MAX * 4, &d->n_ff, e)) ||
        (code = plan_int(g, arch, "attention.head_count", 1, 1024, &d->n_head, e)) ||
        (code = plan_int(g, arch, "context_length", 3, POSITIONS_MAX, &d->n_pos, e)) ||
        (code =
             plan_float(g, arch, "attention.layer_norm_epsilon", 0, 1e-1f, &d->norm_eps, false, e)))
        return code;
    if (d->n_embd % d->n_head || d->n_embd / d->n_head % 8 || d->n_embd / d->n_head > 256)
        return err_set(
            e, ERR_UNSUPPORTED,
            "attention.head_count: %d heads of %d dimensions: each must get a multiple of 8, at "
            "most 256",
            d->n_head, d->n_embd);
    if ((code = gguf_str_array(g, "tokenizer.ggml.tokens", &tokens, &n, e)))
        return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    mem_free(tokens);
    if (n < 1 || n > VOCAB_MAX)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.tokens: %zu tokens, must be 1 to %d", n,
                       VOCAB_MAX);
    d->n_vocab = (int)n;
    if ((code = read_window(d, g, e))) return code;
    return read_pooling(d, g, e);
}

/* ---- weights ---- enc NULL: only looks, for encoder_check */
struct loader {
    struct encoder *enc;
    struct tensor_finder find;
    bool keep_f32;
};

static float *load_vector(struct loader *l, const char *name, int n)
{
    const struct gguf_tensor *t = finder_need(&l->find, name, n, 0);
    return t && l->enc ? tensor_to_f32(t) : NULL;
}

/* Float weights are rounded to 8 bit (blocks of 32, own scale) unless asked otherwise: cosine to the float32 vector stays
 * above 0.999 (test_encoder) at a quarter of the memory. */
static struct weight *load_weight(struct loader *l, const char *name, int n_in, int n_out)
{
    const struct gguf_tensor *t = finder_need(&l->find, name, n_in, n_out);
    struct weight *w = NULL;
    if (!t || !l->enc) return NULL;
    bool is_float = t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16;
    if (!is_float || l->keep_f32 || n_in % 32) {
        l->find.code = weight_new(&w, l->enc->be, t->type, n_out, n_in, t->bytes, l->find.e);
    } else {
        size_t row_bytes = tensor_row_bytes(TENSOR_Q8_0, n_in);
        char *rounded = try_malloc(row_bytes * (size_t)n_out);
        if (!rounded) {
            l->find.code = err_set(l->find.e, ERR_FULL, "no memory");
        } else {
            float *row = xcalloc((size_t)n_in, sizeof *row);
            for (int r = 0; r < n_out; r++) {
                dequantise_row(t->type,
                               (const char *)t->bytes + (size_t)r * tensor_row_bytes(t->type, n_in),
                               row, n_in);
                quantise_row(TENSOR_Q8_0, row, rounded + (size_t)r * row_bytes, n_in);
            }
            mem_free(row);
            l->find.code = weight_new(&w, l->enc->be, TENSOR_Q8_0, n_out, n_in, rounded, l->find.e);
        }
        mem_free(rounded);
    }
    if (l->find.code) (void)err_prefix(l->find.e, l->find.code, "tensor %s", name);
    return w;
}

static struct encoder_matrix load_matrix(struct loader *l, int layer, const char *what, int n_in,
                                         int n_out)
{
    char name[64];
    struct encoder_matrix m;
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    m.weight = load_weight(l, name, n_in, n_out);
    (void)snprintf(name, sizeof name, "blk.%d.%s.bias", layer, what);
    m.bias = load_vector(l, name, n_out);
    return m;
}

static struct encoder_norm load_norm(struct loader *l, const char *what, int n)
{
    char name[64];
    struct encoder_norm norm;
    (void)snprintf(name, sizeof name, "%s.weight", what);
    norm.weight = load_vector(l, name, n);
    (void)snprintf(name, sizeof name, "%s.bias", what);
    norm.bias = load_vector(l, name, n);
    return norm;
}

/* Position rows with the type embedding added: every text here is of type 0, so one table does. */
static struct weight *load_positions(struct loader *l, const struct encoder_dims *d)
{
    const struct gguf_tensor *pos =
        finder_need(&l->find, "position_embd.weight", d->n_embd, d->n_pos);
    const struct gguf_tensor *types = gguf_tensor(l->find.g, "token_types.weight");
    struct weight *w = NULL;
    if (types) types = finder_need(&l->find, "token_types.weight", d->n_embd, types->dims[1]);
    if (!pos || l->find.code || !l->enc) return NULL;
    float *table = tensor_to_f32(pos), *type = types ? tensor_to_f32(types) : NULL;
    for (int i = 0; type && i < d->n_pos * d->n_embd; i++)
        table[i] += type[i % d->n_embd];
    l->find.code = weight_new(&w, l->enc->be, TENSOR_F32, d->n_pos, d->n_embd, table, l->find.e);
    mem_free(table);
    mem_free(type);
    return w;
}

static struct encoder_layer load_layer(struct loader *l, int i, const struct encoder_dims *d)
{
    char name[64];
    struct encoder_layer layer;
    layer.q = load_matrix(l, i, "attn_q", d->n_embd, d->n_embd);
    layer.k = load_matrix(l, i, "attn_k", d->n_embd, d->n_embd);
    layer.v = load_matrix(l, i, "attn_v", d->n_embd, d->n_embd);
    layer.attn_out = load_matrix(l, i, "attn_output", d->n_embd, d->n_embd);
    layer.up = load_matrix(l, i, "ffn_up", d->n_embd, d->n_ff);
    layer.down = load_matrix(l, i, "ffn_down", d->n_ff, d->n_embd);
    (void)snprintf(name, sizeof name, "blk.%d.attn_output_norm", i);
    layer.attn_norm = load_norm(l, name, d->n_embd);
    (void)snprintf(name, sizeof name, "blk.%d.layer_output_norm", i);
    layer.out_norm = load_norm(l, name, d->n_embd);
    return layer;
}

static enum err load_all(struct loader *l, const struct encoder_dims *d)
{
    struct encoder *enc = l->enc;
    struct weight *token_embd = load_weight(l, "token_embd.weight", d->n_embd, d->n_vocab);
    struct weight *pos_embd = load_positions(l, d);
    struct encoder_norm norm = load_norm(l, "token_embd_norm", d->n_embd);
    if (enc) {
        enc->token_embd = token_embd;
        enc->pos_embd = pos_embd;
        enc->embd_norm = norm;
        enc->layers = xcalloc((size_t)d->n_layer, sizeof *enc->layers);
    }
    for (int i = 0; i < d->n_layer && !l->find.code; i++) {
        struct encoder_layer layer = load_layer(l, i, d);
        if (enc) enc->layers[i] = layer;
    }
    finder_no_strangers(&l->find, "bert");
    return l->find.code;
}

enum err encoder_check(const struct gguf *g, struct buf *summary, struct errmsg *e)
{
    struct encoder_dims d;
    struct loader l = {.find = {.g = g, .e = e}};
    enum err code = read_dims(&d, g, e);
    if (!code) code = load_all(&l, &d);
    if (!code && summary)
        buf_printf(summary,
                   "bert encoder: %d layers, width %d, %d heads, feed-forward %d, vocabulary %d, "
                   "texts up to %d tokens, %s "
                   "pooling, %.1f MB of weights",
                   d.n_layer, d.n_embd, d.n_head, d.n_ff, d.n_vocab, d.max_tokens,
                   d.pool_cls ? "cls" : "mean", (double)l.find.n_bytes / 1e6);
    return code;
}

static enum err make_scratch(struct encoder *enc, int batch_tokens_max, struct errmsg *e)
{
    const struct encoder_dims *d = &enc->dims;
    int rows = batch_tokens_max ? batch_tokens_max : ROWS_DEFAULT;
    if (rows < d->max_tokens) rows = d->max_tokens;
    if (rows > POSITIONS_MAX)
        return err_set(e, ERR_RANGE, "batch_tokens_max: %d must be at most %d", rows,
                       POSITIONS_MAX);
    size_t n = (size_t)rows, wide = n * (size_t)d->n_embd;
    enc->rows_max = rows;
    enc->segments_max = rows / 2; /* no text is shorter than [CLS] [SEP] */
    enc->ids = xcalloc(n, sizeof *enc->ids);
    enc->pos = xcalloc(n, sizeof *enc->pos);
    enc->length = xcalloc(n, sizeof *enc->length);
    enc->text_i = xcalloc(n, sizeof *enc->text_i);
    float **arrays[] = {&enc->x, &enc->y, &enc->q, &enc->k, &enc->v, &enc->att};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!(*arrays[i] = try_calloc(wide, sizeof(float))))
            return err_set(e, ERR_FULL, "no memory for %d tokens", rows);
    if (!(enc->up = try_calloc(n * (size_t)d->n_ff, sizeof(float))))
        return err_set(e, ERR_FULL, "no memory for %d tokens", rows);
    token_list_init(&enc->tokens, (size_t)d->max_tokens + 1);
    return OK;
}

static enum err read_identity(struct encoder *enc, const struct gguf *g, struct errmsg *e)
{
    struct str name = STR("bert"), prefix = {NULL, 0};
    char hash[33], id[128];
    enum err code;
    if ((code = gguf_str_opt(g, "general.name", &name, e)) ||
        (code = gguf_str_opt(g, "deja.embed.id", &name, e)) ||
        (code = gguf_str_opt(g, "deja.embed.prefix", &prefix, e)))
        return code;
    if (name.n < 1 || name.n > 64 || !utf8_valid(name))
        return err_set(e, ERR_CORRUPT, "deja.embed.id: must be 1 to 64 bytes of text");
    if (prefix.n > 64 || !utf8_valid(prefix))
        return err_set(e, ERR_CORRUPT, "deja.embed.prefix: must be at most 64 bytes of text");
    hash_hex(hash_bytes(0, gguf_file_bytes(g)), hash);
    (void)snprintf(id, sizeof id, STR_FMT "-%.16s", STR_ARG(name), hash);
    for (char *c = id; *c; c++)
        if ((unsigned char)*c <= ' ') *c = '-'; /* ids go into keys and logs */
    enc->id = xstrdup(id);
    enc->prefix = xstrndup(prefix.p ? prefix.p : "", prefix.n);
    return OK;
}

static enum err open_all(struct encoder *enc, const struct gguf *g, const struct encoder_options *o,
                         struct errmsg *e)
{
    struct backend_options be = {.n_threads = o->n_threads, .isa = o->isa, .exact = o->exact};
    struct loader l = {.enc = enc, .find = {.g = g, .e = e}, .keep_f32 = o->keep_f32 || o->exact};
    enum err code;
    if ((code = read_dims(&enc->dims, g, e)) || (code = read_identity(enc, g, e)) ||
        (code = tokenizer_from_gguf(&enc->tokenizer, g, e)) ||
        (code = backend_open(&enc->be, &be, e)) || (code = load_all(&l, &enc->dims)))
        return code;
    enc->unknown_share_max = o->unknown_share_max > 0 ? o->unknown_share_max : 0.3f;
    return make_scratch(enc, o->batch_tokens_max, e);
}

enum err encoder_open(struct encoder **out, const char *path, const struct encoder_options *opt,
                      struct errmsg *e)
{
    struct gguf *g;
    *out = NULL;
    if (opt->batch_tokens_max < 0)
        return err_set(e, ERR_RANGE, "batch_tokens_max: must be 0 or more");
    enum err code = gguf_open(&g, path, e);
    if (code) return code;
    struct encoder *enc = xcalloc(1, sizeof *enc);
    code = open_all(enc, g, opt, e);
    gguf_close(g); /* tokenizer and weights are copies */
    if (code) {
        encoder_close(enc);
        return err_prefix(e, code, "%s", path);
    }
    *out = enc;
    return OK;
}

static void free_norm(struct encoder_norm *n)
{
    mem_free(n->weight);
    mem_free(n->bias);
}

static void free_layer(struct encoder_layer *l)
{
    struct encoder_matrix *all[] = {&l->q, &l->k, &l->v, &l->attn_out, &l->up, &l->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weight_free(all[i]->weight);
        mem_free(all[i]->bias);
    }
    free_norm(&l->attn_norm);
    free_norm(&l->out_norm);
}

void encoder_close(struct encoder *enc)
{
    if (!enc) return;
    for (int i = 0; enc->layers && i < enc->dims.n_layer; i++)
        free_layer(&enc->layers[i]);
    mem_free(enc->layers);
    weight_free(enc->token_embd);
    weight_free(enc->pos_embd);
    free_norm(&enc->embd_norm);
    backend_close(enc->be);
    tokenizer_free(enc->tokenizer);
    token_list_fini(&enc->tokens);
    float *arrays[] = {enc->x, enc->y, enc->q, enc->k, enc->v, enc->att, enc->up};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        mem_free(arrays[i]);
    mem_free(enc->ids);
    mem_free(enc->pos);
    mem_free(enc->length);
    mem_free(enc->text_i);
    mem_free(enc->id);
    mem_free(enc->prefix);
    mem_free(enc);
}
