/* kv_spread.c - how large each channel of a layer's K will be, told from the weights alone. Some models (qwen2 with its biases) have a
 * few channels of K a hundred times larger than the rest; with one scale a token and head they would leave no bits for the
 * others. K is therefore stored divided by these sizes and queries are multiplied by them (backend.h, struct rope_store).
 * A normalised input has unit mean square, so channel d has about sqrt(bias_d^2 + sum_j (W_dj g_j)^2), g the norm's
 * weight; a norm per head says it directly, a norm over all heads says their mean.
 * Source of the idea: Xiao et al. 2022, arXiv:2211.10438 (moving scales across). */
#include <math.h>

#include "base/mem.h"
#include "engine/model/model_private.h"

static void add_projection(const struct plan_linear *k, const float *norm, float *square)
{
    int n = (int)k->weight->dims[0], rows = (int)k->weight->dims[1];
    size_t row_bytes = tensor_row_bytes(k->weight->type, n);
    float *w = xmalloc((size_t)n * sizeof *w);
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        dequantise_row(k->weight->type, (const char *)k->weight->bytes + (size_t)r * row_bytes, w,
                       n);
        for (int j = 0; j < n; j++)
            sum += (double)w[j] * w[j] * norm[j] * norm[j];
        square[r] += (float)sum;
    }
    mem_free(w);
}

/* Both of a pair that rotates together get the same. */
static void even_out_pairs(const struct model_plan *p, float *square)
{
    int half = p->rope.dims / 2;
    for (int i = 0; i < half; i++) {
        float *a = square + (p->arch->half_split ? i : 2 * i),
              *b = p->arch->half_split ? a + half : a + 1;
        *a = *b = (*a + *b) / 2;
    }
}

/* A norm over all channels: their sizes stay apart, their mean becomes 1, then each has its weight. */
static void norm_together(int n, const float *weight, float *square)
{
    double mean = 0;
    for (int i = 0; i < n; i++)
        mean += (double)square[i] / n;
    for (int i = 0; i < n; i++)
        square[i] = mean > 0 ? (float)(square[i] / mean) * weight[i] * weight[i] : 0;
}

float *kv_spread_new(const struct model_plan *p, const struct plan_layer *l, const float *attn_norm,
                     const float *k_norm, const float *k_bias)
{
    int n = p->n_kv_head * p->head_dim;
    float *spread = xcalloc((size_t)n, sizeof *spread), top = 0;
    bool wide = p->arch->qk_norm_wide;
    if (!k_norm || wide) add_projection(&l->k, attn_norm, spread);
    for (int i = 0; i < n; i++)
        if (k_bias && (!k_norm || wide)) spread[i] += k_bias[i] * k_bias[i];
    if (k_norm && wide) norm_together(n, k_norm, spread);
    for (int i = 0; i < n; i++)
        if (k_norm && !wide) spread[i] = k_norm[i % p->head_dim] * k_norm[i % p->head_dim];
    for (int h = 0; h < p->n_kv_head; h++)
        even_out_pairs(p, spread + h * p->head_dim);
    for (int i = 0; i < n; i++)
        top = fmaxf(top, spread[i] = sqrtf(spread[i]));
    for (int i = 0; i < n; i++) /* dead channels; and all of them in a file of zeros */
        spread[i] = top > 0 && isfinite(top) ? fmaxf(spread[i], top * 1e-4f) : 1.0f;
    return spread;
}
