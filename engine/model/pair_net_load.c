/* pair_net_load.c - opens the weights of a pair net: keys, tensor shapes, scratch. See pair_net.h.
 * Keys: general.architecture "deja-pair"; deja-pair.encoder (the encoder's name without its hash), .layer (of the encoder, whose states
 * go in), .inner (width of a projected token), .alone_hidden, .joint_hidden (0 = no joint head), .calibration (optional).
 * Tensors: in.weight [inner][width], in.bias; and for each head, "alone." or "joint." before the name: w1 [hidden][features],
 * b1 [hidden], w2 [hidden], w3 [features], b2 [1]. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/model/model_plan.h"
#include "engine/model/pair_net_private.h"

enum { HIDDEN_MAX = 1024 };

static float *load_floats(struct tensor_finder *f, const char *head, const char *what, int cols,
                          int rows)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", head, what);
    const struct gguf_tensor *t = finder_need(f, name, cols, rows);
    return t ? tensor_to_f32(t) : NULL;
}

static void load_head(struct tensor_finder *f, struct pair_head *h, const char *name, int n_in,
                      int n_hidden)
{
    h->n_in = n_in;
    h->n_hidden = n_hidden;
    h->w1 = load_floats(f, name, "w1", n_in, n_hidden);
    h->b1 = load_floats(f, name, "b1", n_hidden, 0);
    h->w2 = load_floats(f, name, "w2", n_hidden, 0);
    h->w3 = load_floats(f, name, "w3", n_in, 0);
    h->b2 = load_floats(f, name, "b2", 1, 0);
}

static void load_projection(struct tensor_finder *f, struct pair_net *net)
{
    int dim = net->enc->dims.n_embd;
    const struct gguf_tensor *t = finder_need(f, "in.weight", dim, net->inner);
    if (t)
        f->code =
            weight_new(&net->in.weight, net->enc->be, t->type, net->inner, dim, t->bytes, f->e);
    net->in.bias = load_floats(f, "in", "bias", net->inner, 0);
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
    int dim = d->n_embd, alone = -1, joint = -1;
    struct tensor_finder f = {.g = g, .e = e};
    net->layer = net->inner = -1;
    enum err code = gguf_str(g, "general.architecture", &is, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (!str_eq(is, arch)) return err_set(e, ERR_UNSUPPORTED, "no weights of a pair net");
    if ((code = check_encoder(net, g, e)) ||
        (code = gguf_str_opt(g, "deja-pair.calibration", &calibration, e)) ||
        (code = plan_int(g, arch, "layer", 1, d->n_layer, &net->layer, e)) ||
        (code = plan_int(g, arch, "inner", 16, PAIR_INNER_MAX, &net->inner, e)) ||
        (code = plan_int(g, arch, "alone_hidden", 1, HIDDEN_MAX, &alone, e)) ||
        (code = plan_int(g, arch, "joint_hidden", 0, HIDDEN_MAX, &joint, e)))
        return code;
    if (dim % 32 || net->inner % 16)
        return err_set(e, ERR_CORRUPT, "deja-pair.inner: %d must be a multiple of 16", net->inner);
    if (dim > PAIR_DIM_MAX || pair_net_sketch_bytes(net) > PAIR_SKETCH_MAX)
        return err_set(e, ERR_UNSUPPORTED, "an encoder of width %d is too large", dim);
    net->calibration = xstrndup(calibration.p, calibration.n);
    load_projection(&f, net);
    load_head(&f, &net->alone, "alone", 4 * net->inner + 2 * dim + 1, alone);
    if (joint)
        load_head(&f, &net->joint, "joint", 5 * net->inner + 2 * dim + PAIR_NUMBERS + 1, joint);
    finder_no_strangers(&f, "pair net");
    return f.code;
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
    net->dot = net->alone.dot = net->joint.dot = pair_dot_for(backend_isa_name(enc->be));
    net->skip = rows_to_skip(enc);
    net->tag = (uint32_t)hash_bytes(0, gguf_file_bytes(weights)).lo | 1; /* zeros are no sketch */
    enum err code = read_all(net, weights, e);
    if (code) {
        pair_net_close(net);
        return code;
    }
    net->x = xcalloc((size_t)(PAIR_TOKENS_MAX * net->inner), sizeof *net->x);
    *out = net;
    return OK;
}

static void free_head(struct pair_head *h)
{
    mem_free(h->w1);
    mem_free(h->b1);
    mem_free(h->w2);
    mem_free(h->w3);
    mem_free(h->b2);
}

void pair_net_close(struct pair_net *net)
{
    if (!net) return;
    weight_free(net->in.weight);
    mem_free(net->in.bias);
    free_head(&net->alone);
    free_head(&net->joint);
    mem_free(net->x);
    mem_free(net->calibration);
    mem_free(net);
}
