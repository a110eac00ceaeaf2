/* pair_net_head.c - sketches, and the logit of two of them: plain loops over plain arrays, pure. A sketch is the net's tag, then the
 * encoder's vector and the pooled tokens as blocks of 32 8-bit numbers with a float16 scale each. */
#include <math.h>
#include <string.h>

#include "engine/model/pair_net_private.h"

size_t pair_net_sketch_bytes(const struct pair_net *net)
{
    return sizeof net->tag + tensor_row_bytes(TENSOR_Q8_0, net->enc->dims.n_embd + 2 * net->inner);
}

void pair_head_logits(const struct pair_head *h, const float *z, int n, float *logits)
{
    for (int p = 0; p < n; p++)
        logits[p] = h->b2[0] + h->dot(h->w3, z + (size_t)p * PAIR_FEATURES_MAX, h->n_in);
    for (int j = 0; j < h->n_hidden; j++) {
        const float *row = h->w1 + (size_t)j * (size_t)h->n_in;
        for (int p = 0; p < n; p++) { /* all of them while the row is at hand */
            float s = h->dot(row, z + (size_t)p * PAIR_FEATURES_MAX, h->n_in) + h->b1[j];
            if (s > 0) logits[p] += s * h->w2[j];
        }
    }
}

void pair_vectors_apart(const float *a, const float *b, int dim, float *z)
{
    for (int i = 0; i < dim; i++) {
        z[i] = fabsf(a[i] - b[i]);
        z[dim + i] = a[i] * b[i];
    }
}

void pair_sketch_write(const struct pair_net *net, const float *vector, const float *pooled,
                       uint8_t *out)
{
    float all[PAIR_DIM_MAX + 2 * PAIR_INNER_MAX];
    int dim = net->enc->dims.n_embd;
    for (int i = 0; i < dim; i++)
        all[i] = vector[i] * sqrtf((float)dim);
    memcpy(all + dim, pooled, (size_t)(2 * net->inner) * sizeof *all);
    memcpy(out, &net->tag, sizeof net->tag);
    quantise_row(TENSOR_Q8_0, all, out + sizeof net->tag, dim + 2 * net->inner);
}

bool pair_sketch_read(const struct pair_net *net, const void *sketch, struct pair_view *out)
{
    float all[PAIR_DIM_MAX + 2 * PAIR_INNER_MAX];
    int dim = net->enc->dims.n_embd, n = dim + 2 * net->inner;
    if (memcmp(sketch, &net->tag, sizeof net->tag) != 0) return false;
    dequantise_row(TENSOR_Q8_0, (const uint8_t *)sketch + sizeof net->tag, all, n);
    for (int i = 0; i < n; i++)
        if (!(fabsf(all[i]) < 1e4f)) return false; /* real ones lie within 100 */
    memcpy(out->vector, all, (size_t)dim * sizeof *all);
    memcpy(out->pooled, all + dim, (size_t)(2 * net->inner) * sizeof *all);
    return true;
}

void pair_alone_features(const struct pair_net *net, const struct pair_view *a,
                         const struct pair_view *b, double cosine, float *z)
{
    int inner = net->inner, dim = net->enc->dims.n_embd;
    for (int i = 0; i < 2 * inner; i++) {
        z[i] = fabsf(a->pooled[i] - b->pooled[i]);
        z[2 * inner + i] = a->pooled[i] * b->pooled[i];
    }
    pair_vectors_apart(a->vector, b->vector, dim, z + 4 * inner);
    z[4 * inner + 2 * dim] = (float)cosine;
}

enum err pair_net_score(const struct pair_net *net, const void *sketch_a, const void *sketch_b,
                        double cosine, float *logit)
{
    struct pair_view a, b;
    float z[PAIR_FEATURES_MAX];
    if (!pair_sketch_read(net, sketch_a, &a) || !pair_sketch_read(net, sketch_b, &b) ||
        !isfinite(cosine))
        return ERR_CORRUPT;
    pair_alone_features(net, &a, &b, cosine, z);
    pair_head_logits(&net->alone, z, 1, logit);
    return isfinite(*logit) ? OK : ERR_CORRUPT;
}
