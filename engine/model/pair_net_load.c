/* pair_net_load.c - opens the weights of a pair net: keys, tensor shapes, scratch. See pair_net.h. Keys: general.architecture "deja-
 * pair"; deja-pair.encoder (the encoder's name without its hash), .layer (of the encoder, whose states go in), .calibration (optional),
 * .alone_layers, .joint_layers (0 = none), .hidden. Tensors: alone.N.*, joint.N.* named as an encoder's, TOWER.head1.weight, .bias,
 * TOWER.head2.weight, TOWER.scalars[4], joint.cross [layers][heads], joint.marks [2][width]. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/model/model_plan.h"
#include "engine/model/pair_net_private.h"

enum { ROWS_MAX = PAIR_JOINT_MAX * 2 * PAIR_TOKENS_MAX, HIDDEN_MAX = 1024, SCALARS = 4 };

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

static struct encoder_matrix load_matrix(struct loader *l, int layer, const char *what, int n_in,
                                         int n_out)
{
    char name[64];
    struct encoder_matrix m = {NULL, NULL};
    (void)snprintf(name, sizeof name, "%d.%s.weight", layer, what);
    const struct gguf_tensor *t = need(l, name, n_in, n_out);
    if (t)
        l->find.code =
            weight_new(&m.weight, l->net->enc->be, t->type, n_out, n_in, t->bytes, l->find.e);
    (void)snprintf(name, sizeof name, "%d.%s.bias", layer, what);
    m.bias = load_floats(l, name, n_out, 0);
    return m;
}

static struct encoder_norm load_norm(struct loader *l, int layer, const char *what)
{
    char name[64];
    struct encoder_norm n;
    int dim = l->net->enc->dims.n_embd;
    (void)snprintf(name, sizeof name, "%d.%s.weight", layer, what);
    n.weight = load_floats(l, name, dim, 0);
    (void)snprintf(name, sizeof name, "%d.%s.bias", layer, what);
    n.bias = load_floats(l, name, dim, 0);
    return n;
}

static void load_tower(struct loader *l, struct pair_tower *t, const char *name, int n_layers,
                       int n_hidden)
{
    const struct encoder_dims *d = &l->net->enc->dims;
    l->tower = name;
    t->n_layers = n_layers;
    for (int i = 0; i < n_layers && !l->find.code; i++) {
        struct encoder_layer *y = &t->layers[i];
        y->q = load_matrix(l, i, "attn_q", d->n_embd, d->n_embd);
        y->k = load_matrix(l, i, "attn_k", d->n_embd, d->n_embd);
        y->v = load_matrix(l, i, "attn_v", d->n_embd, d->n_embd);
        y->attn_out = load_matrix(l, i, "attn_output", d->n_embd, d->n_embd);
        y->up = load_matrix(l, i, "ffn_up", d->n_embd, d->n_ff);
        y->down = load_matrix(l, i, "ffn_down", d->n_ff, d->n_embd);
        y->attn_norm = load_norm(l, i, "attn_output_norm");
        y->out_norm = load_norm(l, i, "layer_output_norm");
    }
    t->head.n_hidden = n_hidden;
    t->head.w1 = load_floats(l, "head1.weight", PAIR_PARTS * d->n_embd, n_hidden);
    t->head.b1 = load_floats(l, "head1.bias", n_hidden, 0);
    t->head.w2 = load_floats(l, "head2.weight", n_hidden, 0);
    t->head.scalars = load_floats(l, "scalars", SCALARS, 0);
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
    int alone = -1, joint = -1, hidden = -1;
    struct loader l = {.net = net, .find = {.g = g, .e = e}};
    net->layer = -1;
    enum err code = gguf_str(g, "general.architecture", &is, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eq(is, arch)) return err_set(e, ERR_UNSUPPORTED, "no weights of a pair net");
    if ((code = check_encoder(net, g, e)) ||
        (code = gguf_str_opt(g, "deja-pair.calibration", &calibration, e)) ||
        (code = plan_int(g, arch, "layer", 1, d->n_layer, &net->layer, e)) ||
        (code = plan_int(g, arch, "alone_layers", 1, PAIR_LAYERS_MAX, &alone, e)) ||
        (code = plan_int(g, arch, "joint_layers", 0, PAIR_LAYERS_MAX, &joint, e)) ||
        (code = plan_int(g, arch, "hidden", 1, HIDDEN_MAX, &hidden, e)))
        return code;
    if (d->n_embd % 32 || d->n_head > 256 || pair_net_sketch_bytes(net) > PAIR_SKETCH_MAX)
        return err_set(e, ERR_UNSUPPORTED, "an encoder of width %d with %d heads is too large",
                       d->n_embd, d->n_head);
    net->calibration = xstrndup(calibration.p, calibration.n);
    load_tower(&l, &net->alone, "alone", alone, hidden);
    if (joint && !l.find.code) {
        load_tower(&l, &net->joint, "joint", joint, hidden);
        net->joint.cross = load_floats(&l, "cross", d->n_head, joint);
        net->joint.marks = load_floats(&l, "marks", d->n_embd, 2);
    }
    finder_no_strangers(&l.find, "pair net");
    return l.find.code;
}

static enum err make_scratch(struct pair_net *net, struct errmsg *e)
{
    size_t rows = ROWS_MAX, dim = (size_t)net->enc->dims.n_embd;
    size_t wide = dim + (size_t)net->enc->dims.n_head * 8; /* HEAD_PAD of pair_net.c */
    net->rows_max = ROWS_MAX;
    net->length = xcalloc(rows, sizeof *net->length);
    net->x = try_calloc(rows * dim, sizeof(float));
    net->y = try_calloc(rows * dim, sizeof(float));
    net->q = try_calloc(rows * wide, sizeof(float));
    net->k = try_calloc(rows * wide, sizeof(float));
    net->v = try_calloc(rows * wide, sizeof(float));
    net->att = try_calloc(rows * wide, sizeof(float));
    net->up = try_calloc(rows * (size_t)net->enc->dims.n_ff, sizeof(float));
    if (net->x && net->y && net->q && net->k && net->v && net->att && net->up) return OK;
    return err_set(e, ERR_FULL, "no memory for a pair net's scratch");
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
    for (int i = 0; i < t->n_layers; i++) {
        struct encoder_layer *l = &t->layers[i];
        struct encoder_matrix *all[] = {&l->q, &l->k, &l->v, &l->attn_out, &l->up, &l->down};
        for (size_t m = 0; m < sizeof all / sizeof *all; m++) {
            weight_free(all[m]->weight);
            mem_free(all[m]->bias);
        }
        mem_free(l->attn_norm.weight);
        mem_free(l->attn_norm.bias);
        mem_free(l->out_norm.weight);
        mem_free(l->out_norm.bias);
    }
    float *floats[] = {t->cross, t->marks, t->head.w1, t->head.b1, t->head.w2, t->head.scalars};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        mem_free(floats[i]);
}

void pair_net_close(struct pair_net *net)
{
    if (!net) return;
    free_tower(&net->alone);
    free_tower(&net->joint);
    float *scratch[] = {net->x, net->y, net->q, net->k, net->v, net->att, net->up};
    for (size_t i = 0; i < sizeof scratch / sizeof *scratch; i++)
        mem_free(scratch[i]);
    mem_free(net->length);
    mem_free(net->calibration);
    mem_free(net);
}
