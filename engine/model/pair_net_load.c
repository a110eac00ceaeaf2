/* pair_net_load.c - opens the weights of a pair net: keys, tensor shapes, scratch. See pair_net.h.
 * Keys: general.architecture "deja-pair"; deja-pair.encoder (the encoder's name without its hash), .layer (of the encoder, whose states
 * go in), .inner, .heads, .hidden, .calibration (optional). Tensors of each tower, "alone." or "joint." before the name: in, attn_q,
 * attn_k, attn_v, attn_output (alone), ffn_up, ffn_down, head1 with .weight and .bias, in_norm, attn_norm (alone), out_norm with both,
 * head2.weight, scalars [2], marks [2][inner] (joint). A file without joint tensors is fine. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/model/model_plan.h"
#include "engine/model/pair_net_private.h"

enum { ROWS_MAX = PAIR_JOINT_MAX * 2 * PAIR_TOKENS_MAX, HIDDEN_MAX = 1024, SCALARS = 2 };

struct loader {
    struct pair_net *net;
    struct tensor_finder find;
    const char *tower;
};

static const struct gguf_tensor *need(struct loader *l, const char *what, int cols, int rows)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s.%s", l->tower, what);
    return finder_need(&l->find, name, cols, rows);
}

static float *load_floats(struct loader *l, const char *what, int cols, int rows)
{
    const struct gguf_tensor *t = need(l, what, cols, rows);
    return t ? tensor_to_f32(t) : NULL;
}

static struct encoder_matrix load_matrix(struct loader *l, const char *what, int n_in, int n_out)
{
    char name[64];
    struct encoder_matrix m = {NULL, NULL};
    (void)snprintf(name, sizeof name, "%s.weight", what);
    const struct gguf_tensor *t = need(l, name, n_in, n_out);
    if (t)
        l->find.code =
            weight_new(&m.weight, l->net->enc->be, t->type, n_out, n_in, t->bytes, l->find.e);
    (void)snprintf(name, sizeof name, "%s.bias", what);
    m.bias = load_floats(l, name, n_out, 0);
    return m;
}

static struct encoder_norm load_norm(struct loader *l, const char *what)
{
    char name[64];
    struct encoder_norm n;
    (void)snprintf(name, sizeof name, "%s.weight", what);
    n.weight = load_floats(l, name, l->net->inner, 0);
    (void)snprintf(name, sizeof name, "%s.bias", what);
    n.bias = load_floats(l, name, l->net->inner, 0);
    return n;
}

static void load_tower(struct loader *l, struct pair_tower *t, const char *name, bool joint,
                       int n_hidden)
{
    int dim = l->net->enc->dims.n_embd, inner = l->net->inner;
    l->tower = name;
    t->in = load_matrix(l, "in", dim, inner);
    t->in_norm = load_norm(l, "in_norm");
    t->q = load_matrix(l, "attn_q", inner, inner);
    t->k = load_matrix(l, "attn_k", inner, inner);
    t->v = load_matrix(l, "attn_v", inner, inner);
    if (!joint) {
        t->attn_out = load_matrix(l, "attn_output", inner, inner);
        t->attn_norm = load_norm(l, "attn_norm");
    }
    t->up = load_matrix(l, "ffn_up", joint ? 4 * inner : inner, inner);
    t->down = load_matrix(l, "ffn_down", inner, inner);
    t->out_norm = load_norm(l, "out_norm");
    t->head.n_hidden = n_hidden;
    t->head.w1 = load_floats(l, "head1.weight", 4 * inner + 2 * dim, n_hidden);
    t->head.b1 = load_floats(l, "head1.bias", n_hidden, 0);
    t->head.w2 = load_floats(l, "head2.weight", n_hidden, 0);
    t->head.scalars = load_floats(l, "scalars", SCALARS, 0);
    if (joint) t->marks = load_floats(l, "marks", inner, 2);
}

/* The encoder's id is NAME-HASH; other roundings of the same model keep the name. */
static enum err check_encoder(const struct pair_net *net, const struct gguf *g, struct errmsg *e)
{
    struct str name, id = str_of(net->enc->id);
    char shown[72];
    enum err code = gguf_str(g, "deja-pair.encoder", &name, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (id.n == name.n + 17 && str_starts(id, name) && id.p[name.n] == '-') return OK;
    return err_set(e, ERR_UNSUPPORTED, "these weights are for the encoder %s, not for %s",
                   gguf_printable(name, shown, sizeof shown), net->enc->id);
}

static enum err read_all(struct pair_net *net, const struct gguf *g, struct errmsg *e)
{
    const struct encoder_dims *d = &net->enc->dims;
    struct str arch = STR("deja-pair"), is, calibration = {"", 0};
    int hidden = -1;
    struct loader l = {.net = net, .find = {.g = g, .e = e}};
    net->layer = net->inner = net->n_heads = -1;
    enum err code = gguf_str(g, "general.architecture", &is, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eq(is, arch)) return err_set(e, ERR_UNSUPPORTED, "no weights of a pair net");
    if ((code = check_encoder(net, g, e)) ||
        (code = gguf_str_opt(g, "deja-pair.calibration", &calibration, e)) ||
        (code = plan_int(g, arch, "layer", 1, d->n_layer, &net->layer, e)) ||
        (code = plan_int(g, arch, "inner", 32, PAIR_INNER_MAX, &net->inner, e)) ||
        (code = plan_int(g, arch, "heads", 1, PAIR_HEADS_MAX, &net->n_heads, e)) ||
        (code = plan_int(g, arch, "hidden", 1, HIDDEN_MAX, &hidden, e)))
        return code;
    if (net->inner % 32 || net->inner % net->n_heads || net->inner / net->n_heads % 8)
        return err_set(e, ERR_CORRUPT,
                       "deja-pair.inner: %d is no multiple of 32, or of 8 x %d heads", net->inner,
                       net->n_heads);
    if (d->n_embd % 32 || d->n_embd > PAIR_DIM_MAX || pair_net_sketch_bytes(net) > PAIR_SKETCH_MAX)
        return err_set(e, ERR_UNSUPPORTED, "an encoder of width %d is too large", d->n_embd);
    net->calibration = xstrndup(calibration.p, calibration.n);
    load_tower(&l, &net->alone, "alone", false, hidden);
    if (gguf_tensor(g, "joint.scalars")) load_tower(&l, &net->joint, "joint", true, hidden);
    finder_no_strangers(&l.find, "pair net");
    return l.find.code;
}

static enum err make_scratch(struct pair_net *net, struct errmsg *e)
{
    size_t rows = ROWS_MAX, inner = (size_t)net->inner;
    size_t padded = inner + (size_t)(net->n_heads * PAIR_HEAD_PAD);
    struct {
        float **at;
        size_t columns;
    } all[] = {{&net->states, (size_t)net->enc->dims.n_embd},
               {&net->x, inner},
               {&net->y, inner},
               {&net->q, padded},
               {&net->k, padded},
               {&net->v, padded},
               {&net->att, padded},
               {&net->wide, 4 * inner},
               {&net->up, inner}};
    net->rows_max = ROWS_MAX;
    net->length = xcalloc(rows, sizeof *net->length);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i].at = try_calloc(rows * all[i].columns, sizeof(float))))
            return err_set(e, ERR_FULL, "no memory for a pair net's scratch");
    return OK;
}

/* Rows of "<s> prefix </s>" but the prefix' last token, which stays as an anchor. */
static int rows_to_skip(struct encoder *enc)
{
    int n_unknown, n = encoder_count_tokens(enc, STR(""), &n_unknown);
    return n > 2 ? n - 2 : 0;
}

enum err pair_net_open(struct pair_net **out, struct encoder *enc, const struct gguf *weights,
                       struct errmsg *e)
{
    *out = NULL;
    struct pair_net *net = xcalloc(1, sizeof *net);
    net->enc = enc;
    net->skip = rows_to_skip(enc);
    net->tag = (uint32_t)hash_bytes(0, gguf_file_bytes(weights)).lo | 1; /* zeros are no sketch */
    enum err code = read_all(net, weights, e);
    if (!code) code = make_scratch(net, e);
    if (code)
        pair_net_close(net);
    else
        *out = net;
    return code;
}

static void free_tower(struct pair_tower *t)
{
    struct encoder_matrix *all[] = {&t->in, &t->q, &t->k, &t->v, &t->attn_out, &t->up, &t->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weight_free(all[i]->weight);
        mem_free(all[i]->bias);
    }
    float *floats[] = {t->in_norm.weight, t->in_norm.bias,    t->attn_norm.weight,
                       t->attn_norm.bias, t->out_norm.weight, t->out_norm.bias,
                       t->marks,          t->head.w1,         t->head.b1,
                       t->head.w2,        t->head.scalars};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        mem_free(floats[i]);
}

void pair_net_close(struct pair_net *net)
{
    if (!net) return;
    free_tower(&net->alone);
    free_tower(&net->joint);
    float *scratch[] = {net->states, net->x,   net->y,    net->q, net->k,
                        net->v,      net->att, net->wide, net->up};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        mem_free(scratch[i]);
    mem_free(net->length);
    mem_free(net->calibration);
    mem_free(net);
}
