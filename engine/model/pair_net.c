/* pair_net.c - runs the two towers over packed rows. See pair_net.h; the arithmetic stands in pair_net_private.h. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/pair_net_private.h"

enum { APART = 200 }; /* attention logits lie within 30: what stands this far below is not seen */

bool pair_net_is_joint(const struct pair_net *net)
{
    return net->joint.head.w1 != NULL;
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
    return sizeof *t + (size_t)t->n * (size_t)t->inner + t->sketch_bytes;
}

const void *pair_tokens_sketch(const struct pair_tokens *t)
{
    return t->q + (size_t)t->n * (size_t)t->inner;
}

/* ---- pieces ---- */

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

/* out = norm(x + add); add may be NULL. */
static void normalise(struct pair_net *net, const float *x, const float *add,
                      const struct encoder_norm *norm, int n_rows, float *out)
{
    struct layernorm n = {norm->weight, norm->bias, 1e-6f, add};
    backend_layernorm(net->enc->be, x, &n, n_rows, net->inner, out);
}

/* Token states in net->states to the tower's x. */
static void enter(struct pair_net *net, const struct pair_tower *t, int n_rows, float *x)
{
    linear(net, &t->in, net->states, LINEAR_PLAIN, n_rows, x);
    normalise(net, x, NULL, &t->in_norm, n_rows, x);
}

/* The heads of x moved apart by PAIR_HEAD_PAD columns, the first of which holds side * gain; the rest 0. In place, from the end. */
static void widen(float *x, int n_rows, int n_heads, int n, const float *side, float gain)
{
    size_t wide = (size_t)(n + PAIR_HEAD_PAD);
    for (int i = n_rows * n_heads - 1; i >= 0; i--) {
        float *to = x + (size_t)i * wide;
        memmove(to, x + (size_t)i * (size_t)n, (size_t)n * sizeof *x);
        memset(to + n, 0, PAIR_HEAD_PAD * sizeof *x);
        to[n] = side[i / n_heads] * gain;
    }
}

static void narrow(float *x, int n_rows, int n_heads, int n)
{
    for (int i = 1; i < n_rows * n_heads; i++)
        memmove(x + (size_t)i * (size_t)n, x + (size_t)i * (size_t)(n + PAIR_HEAD_PAD),
                (size_t)n * sizeof *x);
}

/* net->att = attention of net->x inside each segment of net->length. With side f32[n_rows] of +1 and -1 a token sees only those of the
 * other sign: a further column s gives q s' = -APART s s', far below for equal signs. */
static void attend(struct pair_net *net, const struct pair_tower *t, int n_segments, int n_rows,
                   const float *side)
{
    int n_heads = net->n_heads, n = net->inner / n_heads;
    float scale = 1.0f / sqrtf((float)n);
    struct linear qkv = {.n_weights = 3,
                         .weight = {t->q.weight, t->k.weight, t->v.weight},
                         .bias = {t->q.bias, t->k.bias, t->v.bias},
                         .out = {net->q, net->k, net->v},
                         .x = net->x,
                         .n_rows = n_rows};
    backend_linear(net->enc->be, &qkv);
    if (side) {
        widen(net->q, n_rows, n_heads, n, side, -APART / scale);
        widen(net->k, n_rows, n_heads, n, side, 1);
        widen(net->v, n_rows, n_heads, n, side, 0);
    }
    struct attention_full a = {.q = net->q,
                               .k = net->k,
                               .v = net->v,
                               .length = net->length,
                               .n_segments = n_segments,
                               .n_heads = n_heads,
                               .head_dim = side ? n + PAIR_HEAD_PAD : n,
                               .scale = scale,
                               .out = net->att};
    backend_attention_full(net->enc->be, &a);
    if (side) narrow(net->att, n_rows, n_heads, n);
}

/* ---- each text alone ---- */

static int rows_of(const struct pair_net *net, const struct encoder_pass *p, int s)
{
    int n = p->length[s] - net->skip - 1; /* without the prefix but its last token, and the end */
    return n >= 1 && n <= PAIR_TOKENS_MAX ? n : 0;
}

static void keep_tokens(const struct pair_net *net, struct pair_tokens *t, const float *x)
{
    size_t inner = (size_t)net->inner;
    for (int r = 0; r < t->n; r++, x += inner) {
        float max = 1e-9f;
        for (size_t i = 0; i < inner; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        t->scale[r] = max / 127;
        for (size_t i = 0; i < inner; i++)
            t->q[(size_t)r * inner + i] = (int8_t)lrintf(x[i] / t->scale[r]);
    }
}

/* The texts from..to-1 of the pass, whose states lie packed in net->states: pooled tokens (the vector comes later) into sketches, x of
 * the joint tower into tokens. */
static void take_some(struct pair_net *net, const struct encoder_pass *p, int from, int to,
                      int n_rows)
{
    int n_texts = 0;
    size_t inner = (size_t)net->inner, bytes = pair_net_sketch_bytes(net);
    float pooled[2 * PAIR_INNER_MAX];
    const struct pair_tower *t = &net->alone;
    if (!n_rows) return;
    for (int s = from; s < to; s++)
        if (rows_of(net, p, s)) net->length[n_texts++] = rows_of(net, p, s);
    enter(net, t, n_rows, net->x);
    attend(net, t, n_texts, n_rows, NULL);
    linear(net, &t->attn_out, net->att, LINEAR_PLAIN, n_rows, net->y);
    normalise(net, net->x, net->y, &t->attn_norm, n_rows, net->x);
    linear(net, &t->up, net->x, LINEAR_PLAIN, n_rows, net->up);
    linear(net, &t->down, net->up, LINEAR_GELU, n_rows, net->y);
    normalise(net, net->x, net->y, &t->out_norm, n_rows, net->x);
    if (net->want.tokens) enter(net, &net->joint, n_rows, net->y);
    for (int s = from, at = 0; s < to; s++) {
        int n = rows_of(net, p, s);
        if (!n) continue;
        pair_pool(net->x + (size_t)at * inner, n, net->inner, pooled);
        memcpy(net->want.pooled + (size_t)p->text_i[s] * 2 * inner, pooled,
               2 * inner * sizeof *pooled);
        net->want.taken[p->text_i[s]] = true;
        if (net->want.tokens) {
            struct pair_tokens *k = xcalloc(1, sizeof *k + (size_t)n * inner + bytes);
            size_t first = 0;
            for (int i = 0; i < s; i++)
                first += (size_t)p->length[i];
            k->n = n, k->inner = net->inner, k->sketch_bytes = bytes;
            memcpy(k->ids, p->ids + first + net->skip, (size_t)n * sizeof *k->ids);
            keep_tokens(net, k, net->y + (size_t)at * inner);
            net->want.tokens[p->text_i[s]] = k;
        }
        at += n;
    }
}

static void on_pass(void *arg, const struct encoder_pass *p)
{
    struct pair_net *net = arg;
    size_t dim = (size_t)net->enc->dims.n_embd, at = 0;
    int from = 0, n_rows = 0;
    for (int s = 0; s < p->n_texts; s++) {
        int n = rows_of(net, p, s);
        if (n_rows + n > net->rows_max) {
            take_some(net, p, from, s, n_rows);
            from = s, n_rows = 0;
        }
        memcpy(net->states + (size_t)n_rows * dim, p->rows + (at + (size_t)net->skip) * dim,
               (size_t)n * dim * sizeof(float));
        n_rows += n;
        at += (size_t)p->length[s];
    }
    take_some(net, p, from, p->n_texts, n_rows);
}

void pair_net_embed(struct pair_net *net, const struct str *texts, int n, float *vectors,
                    enum err *status, uint8_t *sketches, struct pair_tokens **tokens)
{
    size_t bytes = pair_net_sketch_bytes(net), count = (size_t)n,
           dim = (size_t)net->enc->dims.n_embd;
    memset(sketches, 0, count * bytes);
    for (int i = 0; tokens && i < n; i++)
        tokens[i] = NULL;
    net->want.tokens = pair_net_is_joint(net) ? tokens : NULL;
    net->want.pooled = xcalloc(count * 2 * (size_t)net->inner + 1, sizeof *net->want.pooled);
    net->want.taken = xcalloc(count + 1, sizeof *net->want.taken);
    encoder_tap_set(net->enc, net->layer, on_pass, net);
    encoder_embed(net->enc, texts, n, vectors, status);
    encoder_tap_set(net->enc, net->layer, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        struct pair_tokens *t = tokens ? tokens[i] : NULL;
        if (!net->want.taken[i] || status[i]) {
            pair_tokens_free(t);
            if (tokens) tokens[i] = NULL;
            continue;
        }
        pair_sketch_write(net, vectors + i * dim, net->want.pooled + i * 2 * (size_t)net->inner,
                          sketches + i * bytes);
        if (t) memcpy(t->q + (size_t)t->n * (size_t)t->inner, sketches + i * bytes, bytes);
    }
    mem_free(net->want.pooled);
    mem_free(net->want.taken);
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
    size_t inner = (size_t)net->inner;
    for (int r = 0; r < t->n; r++) {
        const int8_t *q = t->q + (size_t)r * inner;
        const float *mark = net->joint.marks + (has_id(other, t->ids[r]) ? inner : 0);
        for (size_t i = 0; i < inner; i++)
            x[(size_t)r * inner + i] = (float)q[i] * t->scale[r] + mark[i];
    }
}

/* net->wide = [x, c, |x - c|, x * c] of each row, c in net->att */
static void lay_side_by_side(struct pair_net *net, int n_rows)
{
    int inner = net->inner;
    for (int r = 0; r < n_rows; r++) {
        const float *x = net->x + (size_t)r * (size_t)inner,
                    *c = net->att + (size_t)r * (size_t)inner;
        float *w = net->wide + (size_t)r * (size_t)(4 * inner);
        for (int i = 0; i < inner; i++) {
            w[i] = x[i];
            w[inner + i] = c[i];
            w[2 * inner + i] = fabsf(x[i] - c[i]);
            w[3 * inner + i] = x[i] * c[i];
        }
    }
}

static float logit_of(const struct pair_net *net, const struct pair_tokens *a,
                      const struct pair_tokens *b, const float *x, double cosine)
{
    struct pair_view va, vb;
    float u[2 * PAIR_INNER_MAX], v[2 * PAIR_INNER_MAX], sum[2 * PAIR_INNER_MAX],
        difference[2 * PAIR_INNER_MAX];
    if (!pair_sketch_read(net, pair_tokens_sketch(a), &va) ||
        !pair_sketch_read(net, pair_tokens_sketch(b), &vb))
        return NAN;
    pair_pool(x, a->n, net->inner, u);
    pair_pool(x + (size_t)a->n * (size_t)net->inner, b->n, net->inner, v);
    for (int i = 0; i < 2 * net->inner; i++) {
        sum[i] = u[i] + v[i];
        difference[i] = fabsf(u[i] - v[i]);
    }
    return pair_head_logit(net, &net->joint.head, sum, difference, va.vector, vb.vector, cosine);
}

void pair_net_joint(struct pair_net *net, const struct pair_tokens *a,
                    const struct pair_tokens *const *b, int n, const double *cosines, float *logits)
{
    float side[PAIR_JOINT_MAX * 2 * PAIR_TOKENS_MAX];
    size_t inner = (size_t)net->inner;
    int n_rows = 0;
    ASSERT(n >= 1 && n <= PAIR_JOINT_MAX && pair_net_is_joint(net));
    for (int i = 0; i < n; i++) {
        place(net, a, b[i], net->x + (size_t)n_rows * inner);
        place(net, b[i], a, net->x + (size_t)(n_rows + a->n) * inner);
        net->length[i] = a->n + b[i]->n;
        for (int r = 0; r < net->length[i]; r++)
            side[n_rows + r] = r < a->n ? 1 : -1;
        n_rows += net->length[i];
    }
    attend(net, &net->joint, n, n_rows, side);
    lay_side_by_side(net, n_rows);
    linear(net, &net->joint.up, net->wide, LINEAR_PLAIN, n_rows, net->up);
    linear(net, &net->joint.down, net->up, LINEAR_GELU, n_rows, net->y);
    normalise(net, net->x, net->y, &net->joint.out_norm, n_rows, net->x);
    n_rows = 0;
    for (int i = 0; i < n; i++) {
        logits[i] = logit_of(net, a, b[i], net->x + (size_t)n_rows * inner, cosines[i]);
        n_rows += net->length[i];
    }
}
