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

void linear_row_scalar(const struct linear *l, int weight_i, int row_i, const struct row_group *g,
                       const float *act, float *tmp)
{
    const struct weight *w = l->weight[weight_i];
    weight_row(w, g->mat, row_i, tmp);
    for (int c = g->first; c < g->first + g->n; c++) {
        const float *x = act + (size_t)c * (size_t)w->n_in;
        float *out = l->out[weight_i] + (size_t)c * (size_t)w->n_out + row_i;
        double sum = l->bias[weight_i] ? l->bias[weight_i][row_i] : 0;
        for (int i = 0; i < w->n_in; i++)
            sum += (double)tmp[i] * x[i];
        *out = (float)(l->accumulate ? sum + *out : sum);
    }
}

/* ---- attention ---- */
static double half_at(const void *head, size_t at, size_t i)
{
    return f16_to_f32(((const uint16_t *)(const void *)((const char *)head + at))[i]);
}

static void load_k(const struct kv_layout *l, const void *head, size_t token, double *out)
{
    size_t lanes = (size_t)l->lanes, n = (size_t)l->head_dim;
    double scale = kv_format_has_int8_k(l->format) ? half_at(head, l->k_scale_at, token) : 1;
    for (size_t d = 0; d < n; d++)
        switch (l->format) {
        case KV_FORMAT_F32:
            out[d] = ((const float *)head)[d * lanes + token];
            break;
        case KV_FORMAT_F16:
            out[d] = half_at(head, 0, d * lanes + token);
            break;
        case KV_FORMAT_INT8:
        case KV_FORMAT_K8V4:
            out[d] = ((const int8_t *)head)[(d / 4 * lanes + token) * 4 + d % 4] * scale;
            break;
        }
}

static void load_v(const struct kv_layout *l, const void *head, size_t token, double *out)
{
    size_t n = (size_t)l->head_dim, lanes = (size_t)l->lanes, at = token * n;
    const uint8_t *v = (const uint8_t *)head + l->v_at,
                  *pairs = v + token * kv_v4_row_bytes(l->head_dim);
    double scale = l->format == KV_FORMAT_INT8 ? half_at(head, l->v_scale_at, token) : 1;
    for (size_t d = 0; d < n; d++)
        switch (l->format) {
        case KV_FORMAT_F32:
            out[d] = ((const float *)(const void *)v)[at + d];
            break;
        case KV_FORMAT_F16:
            out[d] = half_at(head, l->v_at, at + d);
            break;
        case KV_FORMAT_INT8:
            out[d] = ((const int8_t *)v)[at + d] * scale;
            break;
        case KV_FORMAT_K8V4:;
            uint8_t pair = pairs[d / 16 * 8 + d % 8];
            size_t group = d / KV_V4_GROUP * lanes + token;
            out[d] = (d % 16 < 8 ? pair & 15 : pair >> 4) * half_at(head, l->v_scale_at, group) +
                     half_at(head, l->v_min_at, group);
            break;
        }
}

/* Where what query sees as pos lies, counted from first_pos. */
static int place_of(const struct attend *a, int query, int pos)
{
    int i = pos - a->first_pos;
    const struct attend_path *p = a->path ? a->path[query] : NULL;
    return p && i >= p->from && i < p->from + p->n ? p->slot[i - p->from] : i;
}

static double score(const struct attend *a, int query, int pos)
{
    int i = place_of(a, query, pos), n = a->kv->block_tokens;
    double sum = 0, k[ATTEND_HEAD_MAX];
    load_k(a->kv, a->block[i / n], (size_t)(i % n), k);
    for (int d = 0; d < a->kv->head_dim; d++)
        sum += (double)a->q[d * a->n_queries + query] * k[d];
    return a->softcap > 0 ? a->softcap * tanh(sum / a->softcap) : sum;
}

static void attend_scalar(const struct attend *a)
{
    int n = a->kv->block_tokens, head_dim = a->kv->head_dim;
    int end = a->first_pos + a->n_blocks * n;
    for (int query = 0; query < a->n_queries; query++) {
        int from = a->from[query] > a->first_pos ? a->from[query] : a->first_pos;
        int to = a->to[query] < end - 1 ? a->to[query] : end - 1;
        double acc[ATTEND_HEAD_MAX] = {0}, v[ATTEND_HEAD_MAX], p[ATTEND_PART], max = -INFINITY,
               sum = 0;
        for (int pos = from; pos <= to; pos++)
            max = fmax(max, p[pos - from] = score(a, query, pos));
        for (int pos = from; pos <= to; pos++) {
            double w = exp(p[pos - from] - max);
            int i = place_of(a, query, pos);
            load_v(a->kv, a->block[i / n], (size_t)(i % n), v);
            for (int d = 0; d < head_dim; d++)
                acc[d] += w * v[d];
            sum += w;
        }
        a->max[query] = (float)max;
        a->sum[query] = (float)sum;
        for (int d = 0; d < head_dim; d++)
            a->acc[query * head_dim + d] = (float)acc[d];
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

static float clamp(float x, float limit)
{
    return fminf(fmaxf(x, -limit), limit);
}

static uint16_t to_i8_scalar(const float *x, int8_t *out, int n)
{
    float peak = 0;
    for (int i = 0; i < n; i++)
        peak = fmaxf(peak, fabsf(x[i]));
    uint16_t scale = f32_to_f16(fminf(peak * (1.0f / 127.0f), 65504.0f));
    float step = f16_to_f32(scale), inverse = step > 0 ? 1.0f / step : 0.0f;
    for (int i = 0; i < n; i++)
        out[i] = (int8_t)rintf(clamp(x[i] * inverse, 127.0f));
    return scale;
}

static void to_u4_scalar(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min)
{
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    low = clamp(low, 65504.0f) + 0.0f; /* no negative zero */
    *min = f32_to_f16(low);
    low = f16_to_f32(*min);
    *scale = f32_to_f16((clamp(high, 65504.0f) - low) * (1.0f / 15.0f));
    float step = f16_to_f32(*scale), inverse = step > 0 ? 1.0f / step : 0.0f;
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)rintf(fminf(fmaxf((x[i] - low) * inverse, 0.0f), 15.0f));
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .panels = false,
    .tile_cols = 1,
    .other_cols = 1,
    .act = act_scalar,
    .rmsnorm = rmsnorm_scalar,
    .layernorm = layernorm_scalar,
    .attend = attend_scalar,
    .rope = rope_scalar,
    .to_f16 = to_f16_scalar,
    .to_i8 = to_i8_scalar,
    .to_u4 = to_u4_scalar,
};
