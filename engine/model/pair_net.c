/* pair_net.c - projects the tokens of texts on their way through the encoder, and aligns those of two texts. See pair_net.h; the numbers
 * SHARP and LEFT are also the trainer's (train/features.py). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/pair_net_private.h"

static const float SHARP = 12, LEFT = 10;

bool pair_net_is_joint(const struct pair_net *net)
{
    return net->joint.w1 != NULL;
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

/* ---- as bytes: version, tokens, inner (u16), scales, tokens, sketch ---- */

enum { PACKED_VERSION = 1, PACKED_HEAD = 4 };

static size_t packed_bytes(size_t n, size_t inner, size_t sketch)
{
    return PACKED_HEAD + n * sizeof(float) + n * inner + sketch;
}

size_t pair_tokens_pack(const struct pair_tokens *t, uint8_t out[PAIR_PACKED_MAX])
{
    size_t n = (size_t)t->n, inner = (size_t)t->inner;
    size_t bytes = packed_bytes(n, inner, t->sketch_bytes);
    ASSERT(bytes <= PAIR_PACKED_MAX);
    out[0] = PACKED_VERSION;
    out[1] = (uint8_t)n;
    out[2] = (uint8_t)inner;
    out[3] = (uint8_t)(inner >> 8);
    memcpy(out + PACKED_HEAD, t->scale, n * sizeof(float));
    memcpy(out + PACKED_HEAD + n * sizeof(float), t->q, n * inner + t->sketch_bytes);
    return bytes;
}

struct pair_tokens *pair_tokens_unpack(const struct pair_net *net, struct str bytes)
{
    const uint8_t *p = (const uint8_t *)bytes.p;
    size_t inner = (size_t)net->inner, sketch = pair_net_sketch_bytes(net);
    struct pair_view view;
    if (bytes.n < PACKED_HEAD || p[0] != PACKED_VERSION || p[2] + 256u * p[3] != inner) return NULL;
    size_t n = p[1], scales = n * sizeof(float);
    if (n < 1 || n > PAIR_TOKENS_MAX || bytes.n != packed_bytes(n, inner, sketch)) return NULL;
    struct pair_tokens *t = xcalloc(1, sizeof *t + n * inner + sketch);
    t->n = (int)n, t->inner = net->inner, t->sketch_bytes = sketch;
    memcpy(t->scale, p + PACKED_HEAD, scales);
    memcpy(t->q, p + PACKED_HEAD + scales, n * inner + sketch);
    bool good = pair_sketch_read(net, pair_tokens_sketch(t), &view);
    for (size_t i = 0; i < n; i++)
        good = good && isfinite(t->scale[i]);
    if (good) return t;
    pair_tokens_free(t);
    return NULL;
}

/* ---- each text alone ---- */

/* rows f32[n][inner] -> mean and maximum, f32[2 * inner] */
static void pool(const float *rows, int n, int inner, float *pooled)
{
    float *mean = pooled, *max = pooled + inner;
    memcpy(mean, rows, (size_t)inner * sizeof *mean);
    memcpy(max, rows, (size_t)inner * sizeof *max);
    for (int r = 1; r < n; r++) {
        const float *x = rows + (size_t)r * (size_t)inner;
        for (int i = 0; i < inner; i++) {
            mean[i] += x[i];
            max[i] = x[i] > max[i] ? x[i] : max[i];
        }
    }
    for (int i = 0; i < inner; i++)
        mean[i] /= (float)n;
}

static struct pair_tokens *keep_tokens(const struct pair_net *net, const float *x, int n)
{
    size_t inner = (size_t)net->inner, bytes = pair_net_sketch_bytes(net);
    struct pair_tokens *t = xcalloc(1, sizeof *t + (size_t)n * inner + bytes);
    t->n = n, t->inner = net->inner, t->sketch_bytes = bytes;
    for (int r = 0; r < n; r++, x += inner) {
        float max = 1e-9f;
        for (size_t i = 0; i < inner; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        t->scale[r] = max / 127;
        for (size_t i = 0; i < inner; i++)
            t->q[(size_t)r * inner + i] = (int8_t)lrintf(x[i] / t->scale[r]);
    }
    return t;
}

static void on_pass(void *arg, const struct encoder_pass *p)
{
    struct pair_net *net = arg;
    size_t dim = (size_t)net->enc->dims.n_embd, inner = (size_t)net->inner;
    const float *rows = p->rows;
    for (int s = 0; s < p->n_texts; s++) {
        int n =
            p->length[s] - net->skip - 1; /* without the prefix but its last token, and the end */
        size_t at = (size_t)p->text_i[s];
        if (n >= 1 && n <= PAIR_TOKENS_MAX) {
            struct linear l = {.n_weights = 1,
                               .weight = {net->in.weight},
                               .bias = {net->in.bias},
                               .out = {net->x},
                               .x = rows + (size_t)net->skip * dim,
                               .n_rows = n};
            backend_linear(net->enc->be, &l);
            pool(net->x, n, net->inner, net->want.pooled + at * 2 * inner);
            net->want.taken[at] = true;
            if (net->want.tokens) net->want.tokens[at] = keep_tokens(net, net->x, n);
        }
        rows += (size_t)p->length[s] * dim;
    }
}

void pair_net_embed(struct pair_net *net, const struct str *texts, int n, float *vectors,
                    enum err *status, uint8_t *sketches, struct pair_tokens **tokens)
{
    size_t bytes = pair_net_sketch_bytes(net), count = (size_t)n, pooled = 2 * (size_t)net->inner;
    memset(sketches, 0, count * bytes);
    for (int i = 0; tokens && i < n; i++)
        tokens[i] = NULL;
    net->want.tokens = pair_net_is_joint(net) ? tokens : NULL;
    net->want.pooled = xcalloc(count * pooled + 1, sizeof *net->want.pooled);
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
        pair_sketch_write(net, vectors + i * (size_t)net->enc->dims.n_embd,
                          net->want.pooled + i * pooled, sketches + i * bytes);
        if (t) memcpy(t->q + (size_t)t->n * (size_t)t->inner, sketches + i * bytes, bytes);
    }
    mem_free(net->want.pooled);
    mem_free(net->want.taken);
}

/* ---- both texts together ---- */

struct side {
    int n, inner;
    pair_dot *dot;
    float x[PAIR_TOKENS_MAX][PAIR_INNER_MAX];
    float length[PAIR_TOKENS_MAX];
    float mean[PAIR_INNER_MAX], max[PAIR_INNER_MAX]; /* of what the alignment leaves over */
    float worst[PAIR_INNER_MAX];                     /* content of the tokens explained worst */
    float numbers[3]; /* largest, mean, sum of 1 - cosine to the best match */
};

static void open_tokens(const struct pair_net *net, const struct pair_tokens *t, struct side *s)
{
    s->dot = net->dot;
    s->n = t->n;
    s->inner = t->inner;
    for (int r = 0; r < t->n; r++) {
        for (int i = 0; i < t->inner; i++)
            s->x[r][i] = (float)t->q[(size_t)r * (size_t)t->inner + (size_t)i] * t->scale[r];
        s->length[r] = sqrtf(s->dot(s->x[r], s->x[r], t->inner) + 1e-6f);
    }
}

/* left f32[inner] = |x - what the other side's tokens, weighted by how much they resemble it, are on average|. Returns the cosine of the
 * one that resembles it most. */
static float explain(const float *x, float length, const struct side *by, float *left)
{
    float cosine[PAIR_TOKENS_MAX], best = -1, sum = 0;
    for (int j = 0; j < by->n; j++) {
        cosine[j] = by->dot(x, by->x[j], by->inner) / (length * by->length[j]);
        best = cosine[j] > best ? cosine[j] : best;
    }
    memcpy(left, x, (size_t)by->inner * sizeof *left);
    for (int j = 0; j < by->n; j++)
        sum += cosine[j] = expf(SHARP * (cosine[j] - best));
    for (int j = 0; j < by->n; j++)
        for (int i = 0; i < by->inner; i++)
            left[i] -= cosine[j] / sum * by->x[j][i];
    for (int i = 0; i < by->inner; i++)
        left[i] = fabsf(left[i]);
    return best;
}

static void hold_against(struct side *s, const struct side *by)
{
    float left[PAIR_INNER_MAX], total = 0;
    size_t bytes = (size_t)s->inner * sizeof(float);
    memset(s->mean, 0, bytes);
    memset(s->max, 0, bytes);
    memset(s->worst, 0, bytes);
    memset(s->numbers, 0, sizeof s->numbers);
    for (int r = 0; r < s->n; r++) {
        float missing = 1 - explain(s->x[r], s->length[r], by, left), weight = expf(LEFT * missing);
        total += weight;
        for (int i = 0; i < s->inner; i++) {
            s->mean[i] += left[i] / (float)s->n;
            s->max[i] = left[i] > s->max[i] ? left[i] : s->max[i];
            s->worst[i] += weight * s->x[r][i];
        }
        s->numbers[0] = missing > s->numbers[0] ? missing : s->numbers[0];
        s->numbers[1] += missing / (float)s->n;
        s->numbers[2] += missing;
    }
    for (int i = 0; i < s->inner; i++)
        s->worst[i] /= total;
}

static void joint_features(const struct pair_net *net, const struct side *a, const struct side *b,
                           const struct pair_view *va, const struct pair_view *vb, double cosine,
                           float *z)
{
    int inner = net->inner, dim = net->enc->dims.n_embd;
    for (int i = 0; i < inner; i++) {
        z[i] = a->mean[i] + b->mean[i];
        z[inner + i] = a->max[i] > b->max[i] ? a->max[i] : b->max[i];
        z[2 * inner + i] = a->worst[i] + b->worst[i];
        z[3 * inner + i] = fabsf(a->worst[i] - b->worst[i]);
        z[4 * inner + i] = a->worst[i] * b->worst[i];
    }
    pair_vectors_apart(va->vector, vb->vector, dim, z + 5 * inner);
    float *rest = z + 5 * inner + 2 * dim;
    for (int i = 0; i < 3; i++) {
        rest[i] = a->numbers[i] + b->numbers[i];
        rest[3 + i] = fabsf(a->numbers[i] - b->numbers[i]);
    }
    rest[PAIR_NUMBERS] = (float)cosine;
}

void pair_net_compare(const struct pair_net *net, const struct pair_tokens *a,
                      const struct pair_tokens *const *b, const double *cosines, int n,
                      float *alone, float *joint)
{
    struct side x, y;
    struct pair_view va, vb;
    float z[PAIR_COMPARE_MAX][PAIR_FEATURES_MAX], first[PAIR_COMPARE_MAX][PAIR_FEATURES_MAX];
    float logits[2][PAIR_COMPARE_MAX];
    int at[PAIR_COMPARE_MAX], n_good = 0;
    ASSERT(pair_net_is_joint(net) && n >= 0 && n <= PAIR_COMPARE_MAX);
    bool good = a && pair_sketch_read(net, pair_tokens_sketch(a), &va);
    if (good) open_tokens(net, a, &x);
    for (int i = 0; i < n; i++) {
        alone[i] = joint[i] = NAN;
        if (!good || !b[i] || !pair_sketch_read(net, pair_tokens_sketch(b[i]), &vb) ||
            !isfinite(cosines[i]))
            continue;
        open_tokens(net, b[i], &y);
        hold_against(&x, &y);
        hold_against(&y, &x);
        pair_alone_features(net, &va, &vb, cosines[i], first[n_good]);
        joint_features(net, &x, &y, &va, &vb, cosines[i], z[n_good]);
        at[n_good++] = i;
    }
    pair_head_logits(&net->alone, first[0], n_good, logits[0]);
    pair_head_logits(&net->joint, z[0], n_good, logits[1]);
    for (int i = 0; i < n_good; i++) {
        if (!isfinite(logits[0][i])) continue;
        alone[at[i]] = logits[0][i];
        joint[at[i]] = logits[1][i];
    }
}
