/* pair_net_head.c - from pooled token states to a sketch and from two of them to a logit: plain loops over plain arrays, pure. A sketch
 * is the net's tag, then mean and maximum as blocks of 32 8-bit numbers with a float16 scale each: a few dimensions of the encoder
 * are ten times larger than the rest, one scale for all would drown the others. */
#include <math.h>
#include <string.h>

#include "engine/model/pair_net_private.h"

enum { SCALARS_B2, SCALARS_COS_GAIN, SCALARS_COS_ZERO, SCALARS_COSINE_GAIN };

void pair_pool(const float *rows, int n, int dim, float *mean_max)
{
    float *mean = mean_max, *max = mean_max + dim;
    memcpy(mean, rows, (size_t)dim * sizeof *mean);
    memcpy(max, rows, (size_t)dim * sizeof *max);
    for (int r = 1; r < n; r++) {
        const float *x = rows + (size_t)r * (size_t)dim;
        for (int i = 0; i < dim; i++) {
            mean[i] += x[i];
            max[i] = x[i] > max[i] ? x[i] : max[i];
        }
    }
    for (int i = 0; i < dim; i++)
        mean[i] /= (float)n;
}

static float dot(const float *a, const float *b, int n)
{
    float sum[16] = {0}; /* lanes, so that the compiler may use vectors without reordering a sum */
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++)
            sum[l] += a[i + l] * b[i + l];
    float total = 0;
    for (int l = 0; l < 16; l++)
        total += sum[l];
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

float pair_head_logit(const struct pair_head *h, int dim, const float *u, const float *v,
                      double cosine)
{
    float z[PAIR_PARTS * PAIR_SKETCH_MAX / 2];
    for (int i = 0; i < dim; i++) {
        z[i] = fabsf(u[i] - v[i]);
        z[dim + i] = u[i] * v[i];
        z[2 * dim + i] = u[i] + v[i];
        z[3 * dim + i] = fabsf(u[dim + i] - v[dim + i]);
    }
    float logit = h->scalars[SCALARS_B2];
    for (int j = 0; j < h->n_hidden; j++) {
        float s = dot(h->w1 + (size_t)j * (size_t)(PAIR_PARTS * dim), z, PAIR_PARTS * dim);
        s += h->b1[j];
        if (s > 0) logit += s * h->w2[j];
    }
    float cos_uv = dot(u, v, dim) / sqrtf(dot(u, u, dim) * dot(v, v, dim) + 1e-9f);
    logit += h->scalars[SCALARS_COS_GAIN] * (cos_uv - h->scalars[SCALARS_COS_ZERO]);
    return logit + h->scalars[SCALARS_COSINE_GAIN] * ((float)cosine - 0.9f);
}

void pair_sketch_write(const struct pair_net *net, const float *mean_max, uint8_t *out)
{
    memcpy(out, &net->tag, sizeof net->tag);
    quantise_row(TENSOR_Q8_0, mean_max, out + sizeof net->tag, 2 * net->enc->dims.n_embd);
}

bool pair_sketch_read(const struct pair_net *net, const void *sketch, float *mean_max)
{
    int n = 2 * net->enc->dims.n_embd;
    if (memcmp(sketch, &net->tag, sizeof net->tag) != 0) return false;
    dequantise_row(TENSOR_Q8_0, (const uint8_t *)sketch + sizeof net->tag, mean_max, n);
    for (int i = 0; i < n; i++)
        if (!(fabsf(mean_max[i]) < 1e4f)) return false; /* the token states lie within 100 */
    return true;
}

enum err pair_net_score(const struct pair_net *net, const void *sketch_a, const void *sketch_b,
                        double cosine, float *logit)
{
    float u[PAIR_SKETCH_MAX], v[PAIR_SKETCH_MAX];
    if (!pair_sketch_read(net, sketch_a, u) || !pair_sketch_read(net, sketch_b, v) ||
        !isfinite(cosine))
        return ERR_CORRUPT;
    *logit = pair_head_logit(&net->alone.head, net->enc->dims.n_embd, u, v, cosine);
    return isfinite(*logit) ? OK : ERR_CORRUPT;
}
