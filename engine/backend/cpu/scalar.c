/* scalar.c - the oracle's linear layer and row operations: plain loops, double accumulation, exact weights, float32
 * activations. Slow on purpose: nothing here is clever, so it can be believed. Pure functions, any thread.
 * Formulas: RMSNorm, Zhang & Sennrich 2019 eq. 4; SwiGLU, Shazeer 2020; GELU, Hendrycks & Gimpel 2016. */
#include <math.h>

#include "engine/backend/room.h"

static double inverse_rms(const float *x, int n, float eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum / n + eps);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}
static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}

static void act_scalar(const struct act_in *in, const struct act_row *out, float *tmp)
{
    (void)tmp;
    double scale = in->in == LINEAR_RMSNORM ? inverse_rms(in->x, in->n, in->eps) : 1;
    for (int i = 0; i < in->n; i++) {
        double v = in->x[i];
        switch (in->in) {
        case LINEAR_PLAIN:
            break;
        case LINEAR_RMSNORM:
            v = v * scale * in->norm_weight[i];
            break;
        case LINEAR_SILU_MUL:
            v = silu(v) * in->x2[i];
            break;
        case LINEAR_GELU_MUL:
            v = gelu_tanh(v) * in->x2[i];
            break;
        case LINEAR_GELU:
            v = gelu_erf(v);
            break;
        }
        out->f[i * out->width] = (float)v;
    }
}

static void rmsnorm_scalar(const float *x, const float *weight, float eps, int n, float *out)
{
    double scale = inverse_rms(x, n, eps);
    for (int i = 0; i < n; i++)
        out[i] = (float)(x[i] * scale * weight[i]);
}

static void layernorm_scalar(const float *x, const float *add, const struct layernorm *p, int n,
                             float *out)
{
    double mean = 0, var = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i] + (add ? add[i] : 0);
    mean /= n;
    for (int i = 0; i < n; i++) {
        double c = (double)x[i] + (add ? add[i] : 0) - mean;
        var += c * c;
    }
    double scale = 1 / sqrt(var / n + p->eps);
    for (int i = 0; i < n; i++) {
        double c = (double)x[i] + (add ? add[i] : 0) - mean;
        out[i] = (float)(c * scale * p->weight[i] + p->bias[i]);
    }
}

void linear_row_scalar(const struct linear *l, int weight_i, int row_i, const float *act,
                       float *tmp)
{
    const struct weight *w = l->weight[weight_i];
    weight_row(w, row_i, tmp);
    for (int c = 0; c < l->n_rows; c++) {
        const float *x = act + (size_t)c * (size_t)w->n_in;
        float *out = l->out[weight_i] + (size_t)c * (size_t)w->n_out + row_i;
        double sum = l->bias[weight_i] ? l->bias[weight_i][row_i] : 0;
        for (int i = 0; i < w->n_in; i++)
            sum += (double)tmp[i] * x[i];
        *out = (float)(l->accumulate ? sum + *out : sum);
    }
}

/* ---- attention ---- */
static double load(const struct attend *a, const void *base, size_t i)
{
    return a->f32 ? (double)((const float *)base)[i]
                  : (double)f16_to_f32(((const uint16_t *)base)[i]);
}

static double score(const struct attend *a, int query, int pos)
{
    int i = pos - a->first_pos;
    const void *k = a->block[i / a->block_tokens];
    size_t token = (size_t)(i % a->block_tokens);
    double sum = 0;
    for (int d = 0; d < a->head_dim; d++)
        sum += (double)a->q[d * a->n_queries + query] *
               load(a, k, (size_t)d * (size_t)a->lanes + token);
    return a->softcap > 0 ? a->softcap * tanh(sum / a->softcap) : sum;
}

static void attend_scalar(const struct attend *a)
{
    int end = a->first_pos + a->n_blocks * a->block_tokens;
    for (int query = 0; query < a->n_queries; query++) {
        int from = a->from[query] > a->first_pos ? a->from[query] : a->first_pos;
        int to = a->to[query] < end - 1 ? a->to[query] : end - 1;
        double acc[ATTEND_HEAD_MAX] = {0}, max = -INFINITY, sum = 0;
        for (int pos = from; pos <= to; pos++)
            max = fmax(max, score(a, query, pos));
        for (int pos = from; pos <= to; pos++) {
            double p = exp(score(a, query, pos) - max);
            int i = pos - a->first_pos;
            size_t at = a->v_offset + (size_t)(i % a->block_tokens) * (size_t)a->head_dim;
            for (int d = 0; d < a->head_dim; d++)
                acc[d] += p * load(a, a->block[i / a->block_tokens], at + (size_t)d);
            sum += p;
        }
        a->max[query] = (float)max;
        a->sum[query] = (float)sum;
        for (int d = 0; d < a->head_dim; d++)
            a->acc[query * a->head_dim + d] = (float)acc[d];
    }
}

static void rope_scalar(const struct rope_row *r, const float *x, float *out)
{
    int half = r->dims / 2;
    for (int i = 0; i < half; i++) {
        int a = r->half_split ? i : 2 * i, b = r->half_split ? i + half : 2 * i + 1;
        double c = r->cos_sin[2 * i], s = r->cos_sin[2 * i + 1], xa = x[a], xb = x[b];
        out[a] = (float)(xa * c - xb * s);
        out[b] = (float)(xa * s + xb * c);
    }
    for (int i = r->dims; i < r->head_dim; i++)
        out[i] = x[i];
}

static void to_f16_scalar(const float *x, uint16_t *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = f32_to_f16(
            fminf(fmaxf(x[i], -65504.0f), 65504.0f)); /* finite: 0 times it must stay 0 */
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .panel_rows = 0,
    .tile_cols = 1,
    .act = act_scalar,
    .rmsnorm = rmsnorm_scalar,
    .layernorm = layernorm_scalar,
    .attend = attend_scalar,
    .rope = rope_scalar,
    .to_f16 = to_f16_scalar,
};
