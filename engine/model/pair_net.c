/* pair_net.c - runs the two towers over packed rows. See pair_net.h. The encoder's own layers (encoder.c) are run elsewhere: this file
 * goes on from their states, and differs from them in the attention between two texts. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/pair_net_private.h"

enum { HEAD_PAD = 8 }; /* columns a head gets beside its own for the bias between the texts */

size_t pair_net_sketch_bytes(const struct pair_net *net)
{
    return sizeof net->tag + tensor_row_bytes(TENSOR_Q8_0, 2 * net->enc->dims.n_embd);
}

bool pair_net_is_joint(const struct pair_net *net)
{
    return net->joint.n_layers > 0;
}

struct str pair_net_calibration(const struct pair_net *net)
{
    return str_of(net->calibration);
}

void pair_tokens_free(struct pair_tokens *t)
{
    mem_free(t);
}

size_t pair_tokens_bytes(const struct pair_tokens *t)
{
    return sizeof *t + (size_t)t->n * (size_t)t->dim;
}

/* ---- layers ---- */

static void linear(struct pair_net *net, const struct encoder_matrix *m, const float *x,
                   enum linear_in in, int n_rows, float *out)
{
    struct linear l = {.n_weights = 1,
                       .weight = {m->weight},
                       .bias = {m->bias},
                       .out = {out},
                       .in = in,
                       .x = x,
                       .n_rows = n_rows};
    backend_linear(net->enc->be, &l);
}

/* The heads of x moved apart by HEAD_PAD columns, the first of which holds side * gain[head]; the rest 0. In place, from the end. */
static void widen(float *x, int n_rows, int n_heads, int n, const float *side, const float *gain)
{
    int wide = n + HEAD_PAD;
    for (int r = n_rows - 1; r >= 0; r--)
        for (int h = n_heads - 1; h >= 0; h--) {
            float *to = x + ((size_t)r * (size_t)n_heads + (size_t)h) * (size_t)wide;
            memmove(to, x + ((size_t)r * (size_t)n_heads + (size_t)h) * (size_t)n,
                    (size_t)n * sizeof *x);
            memset(to + n, 0, HEAD_PAD * sizeof *x);
            to[n] = side ? side[r] * (gain ? gain[h] : 1) : 0;
        }
}

static void narrow(float *x, int n_rows, int n_heads, int n)
{
    for (int i = 1; i < n_rows * n_heads; i++)
        memmove(x + (size_t)i * (size_t)n, x + (size_t)i * (size_t)(n + HEAD_PAD),
                (size_t)n * sizeof *x);
}

/* A bias b between the two texts of a segment: with a further column s of +1 for one text and -1 for the other, q s' gives -b/2 s s',
 * which is b less across than inside: softmax does not see what all share. */
static void attend(struct pair_net *net, int n_segments, int n_rows, const float *cross,
                   const float *side)
{
    int n_heads = net->enc->dims.n_head, n = net->enc->dims.n_embd / n_heads;
    float scale = 1.0f / sqrtf((float)n), gain[256];
    if (cross) {
        for (int h = 0; h < n_heads; h++)
            gain[h] = -0.5f * cross[h] / scale;
        widen(net->q, n_rows, n_heads, n, side, gain);
        widen(net->k, n_rows, n_heads, n, side, NULL);
        widen(net->v, n_rows, n_heads, n, NULL, NULL);
    }
    struct attention_full a = {.q = net->q,
                               .k = net->k,
                               .v = net->v,
                               .length = net->length,
                               .n_segments = n_segments,
                               .n_heads = n_heads,
                               .head_dim = cross ? n + HEAD_PAD : n,
                               .scale = scale,
                               .out = net->att};
    backend_attention_full(net->enc->be, &a);
    if (cross) narrow(net->att, n_rows, n_heads, n);
}

/* x of the net through the layers. side f32[n_rows], for towers with a bias between texts. */
static void run_tower(struct pair_net *net, const struct pair_tower *t, int n_segments, int n_rows,
                      const float *side)
{
    int dim = net->enc->dims.n_embd;
    struct backend *be = net->enc->be;
    for (int i = 0; i < t->n_layers; i++) {
        const struct encoder_layer *l = &t->layers[i];
        struct linear qkv = {.n_weights = 3,
                             .weight = {l->q.weight, l->k.weight, l->v.weight},
                             .bias = {l->q.bias, l->k.bias, l->v.bias},
                             .out = {net->q, net->k, net->v},
                             .x = net->x,
                             .n_rows = n_rows};
        backend_linear(be, &qkv);
        attend(net, n_segments, n_rows, t->cross ? t->cross + i * net->enc->dims.n_head : NULL,
               side);
        struct layernorm first = {l->attn_norm.weight, l->attn_norm.bias, net->enc->dims.norm_eps,
                                  net->y};
        struct layernorm second = {l->out_norm.weight, l->out_norm.bias, net->enc->dims.norm_eps,
                                   net->y};
        linear(net, &l->attn_out, net->att, LINEAR_PLAIN, n_rows, net->y);
        backend_layernorm(be, net->x, &first, n_rows, dim, net->x);
        linear(net, &l->up, net->x, LINEAR_PLAIN, n_rows, net->up);
        linear(net, &l->down, net->up, LINEAR_GELU, n_rows, net->y);
        backend_layernorm(be, net->x, &second, n_rows, dim, net->x);
    }
}

/* ---- each text alone ---- */

static struct pair_tokens *keep_tokens(const float *rows, const int32_t *ids, int n, int dim)
{
    struct pair_tokens *t = xcalloc(1, sizeof *t + (size_t)n * (size_t)dim);
    t->n = n;
    t->dim = dim;
    memcpy(t->ids, ids, (size_t)n * sizeof *ids);
    for (int r = 0; r < n; r++) {
        const float *x = rows + (size_t)r * (size_t)dim;
        float max = 1e-9f;
        for (int i = 0; i < dim; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        t->scale[r] = max / 127;
        for (int i = 0; i < dim; i++)
            t->q[(size_t)r * (size_t)dim + (size_t)i] = (int8_t)lrintf(x[i] / t->scale[r]);
    }
    return t;
}

/* Text s of the pass: where its rows begin and how many count; 0 when the net does not take it. */
static int own_rows(const struct pair_net *net, const struct encoder_pass *p, int s, int *at)
{
    int n = p->length[s] - net->skip - 1; /* without the prefix but its last token, and the end */
    *at += net->skip;
    return n >= 1 && n <= PAIR_TOKENS_MAX ? n : 0;
}

/* The tower over the texts from..to-1 of the pass, packed. */
static void sketch_some(struct pair_net *net, const struct encoder_pass *p, int from, int to,
                        int n_rows)
{
    float pooled[PAIR_SKETCH_MAX];
    int n_texts = 0, at = 0, dim = net->enc->dims.n_embd;
    size_t bytes = pair_net_sketch_bytes(net);
    if (!n_rows) return;
    for (int s = from; s < to; s++) {
        int n = p->length[s] - net->skip - 1;
        if (n >= 1 && n <= PAIR_TOKENS_MAX) net->length[n_texts++] = n;
    }
    run_tower(net, &net->alone, n_texts, n_rows, NULL);
    for (int s = from; s < to; s++) {
        int n = p->length[s] - net->skip - 1;
        if (n < 1 || n > PAIR_TOKENS_MAX) continue;
        pair_pool(net->x + (size_t)at * (size_t)dim, n, dim, pooled);
        pair_sketch_write(net, pooled, net->sketches + (size_t)p->text_i[s] * bytes);
        at += n;
    }
}

static void on_pass(void *arg, const struct encoder_pass *p)
{
    struct pair_net *net = arg;
    size_t dim = (size_t)net->enc->dims.n_embd;
    int at = 0, from = 0, n_rows = 0;
    for (int s = 0; s < p->n_texts; s++) {
        int begin = at, n = own_rows(net, p, s, &begin);
        if (net->sketches && n_rows + n > net->rows_max) {
            sketch_some(net, p, from, s, n_rows);
            from = s, n_rows = 0;
        }
        if (n && net->tokens)
            net->tokens[p->text_i[s]] =
                keep_tokens(p->rows + (size_t)begin * dim, p->ids + begin, n, (int)dim);
        if (n && net->sketches)
            memcpy(net->x + (size_t)n_rows * dim, p->rows + (size_t)begin * dim,
                   (size_t)n * dim * sizeof(float));
        n_rows += n;
        at += p->length[s];
    }
    if (net->sketches) sketch_some(net, p, from, p->n_texts, n_rows);
}

void pair_net_embed(struct pair_net *net, const struct str *texts, int n, float *vectors,
                    enum err *status, uint8_t *sketches, struct pair_tokens **tokens)
{
    if (sketches) memset(sketches, 0, (size_t)n * pair_net_sketch_bytes(net));
    for (int i = 0; tokens && i < n; i++)
        tokens[i] = NULL;
    net->sketches = sketches;
    net->tokens = tokens;
    encoder_tap_set(net->enc, net->layer, on_pass, net);
    encoder_embed(net->enc, texts, n, vectors, status);
    encoder_tap_set(net->enc, net->layer, NULL, NULL);
}

/* ---- both texts together ---- */

static bool has_id(const struct pair_tokens *t, int32_t id)
{
    for (int i = 0; i < t->n; i++)
        if (t->ids[i] == id) return true;
    return false;
}

static void place(const struct pair_net *net, const struct pair_tokens *t,
                  const struct pair_tokens *other, float *x)
{
    int dim = net->enc->dims.n_embd;
    for (int r = 0; r < t->n; r++) {
        const int8_t *q = t->q + (size_t)r * (size_t)dim;
        const float *mark = net->joint.marks + (has_id(other, t->ids[r]) ? dim : 0);
        for (int i = 0; i < dim; i++)
            x[(size_t)r * (size_t)dim + (size_t)i] = (float)q[i] * t->scale[r] + mark[i];
    }
}

void pair_net_joint(struct pair_net *net, const struct pair_tokens *a,
                    const struct pair_tokens *const *b, int n, const double *cosines, float *logits)
{
    float side[PAIR_JOINT_MAX * 2 * PAIR_TOKENS_MAX], u[PAIR_SKETCH_MAX], v[PAIR_SKETCH_MAX];
    size_t dim = (size_t)net->enc->dims.n_embd;
    int n_rows = 0;
    ASSERT(n >= 1 && n <= PAIR_JOINT_MAX && pair_net_is_joint(net));
    for (int i = 0; i < n; i++) {
        place(net, a, b[i], net->x + (size_t)n_rows * dim);
        place(net, b[i], a, net->x + (size_t)(n_rows + a->n) * dim);
        net->length[i] = a->n + b[i]->n;
        for (int r = 0; r < net->length[i]; r++)
            side[n_rows + r] = r < a->n ? 1 : -1;
        n_rows += net->length[i];
    }
    run_tower(net, &net->joint, n, n_rows, side);
    n_rows = 0;
    for (int i = 0; i < n; i++) {
        const float *x = net->x + (size_t)n_rows * dim;
        pair_pool(x, a->n, (int)dim, u);
        pair_pool(x + (size_t)a->n * dim, b[i]->n, (int)dim, v);
        logits[i] = pair_head_logit(&net->joint.head, (int)dim, u, v, cosines[i]);
        n_rows += net->length[i];
    }
}
