/* rows_body.h - row-wise arithmetic over the lanes of simd_*.h: norms, activations, rounding of a row to int8, rope. Included
 * with ROWS_BODY by one file of each instruction set, for the functions of cpu.h. Lengths that are no multiple of the lanes end in a
 * scalar tail of the same formula.
 * Sources: RMSNorm, Zhang & Sennrich 2019 eq. 4; SwiGLU, Shazeer 2020; GELU, Hendrycks & Gimpel 2016; erf by Abramowitz &
 * Stegun 7.1.26 (|error| <= 1.5e-7). exp: 2^n times a Taylor polynomial of degree 7 on |r| <= ln2/2 (relative error 6e-9). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/backend/room.h"

#define INLINE static inline __attribute__((always_inline))

INLINE vf vf_exp(vf x)
{
    vf lo = vf_max(x, vf_set1(-87.0f)), c = vf_min(lo, vf_set1(88.0f));
    vf n = vf_round(vf_mul(c, vf_set1(1.44269504f)));
    vf r = vf_fma(n, vf_set1(-0.693359375f), c); /* ln 2 in two parts: the first has few bits */
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_keep_from(vf_mul(p, vf_pow2(n)), x,
                        -87.0f); /* below: exactly 0, so that -inf masks */
}

INLINE vf vf_sigmoid(vf x)
{
    return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}
INLINE vf vf_tanh(vf x)
{
    return vf_sub(vf_mul(vf_set1(2.0f), vf_sigmoid(vf_add(x, x))), vf_set1(1.0f));
}

#ifdef ROWS_BODY
INLINE vf vf_silu(vf x)
{
    return vf_mul(x, vf_sigmoid(x));
}

/* 0.5 (1 + tanh u) = sigmoid(2u) */
INLINE vf vf_gelu_tanh(vf x)
{
    vf u = vf_mul(x, vf_fma(vf_mul(x, x), vf_set1(0.79788456f * 0.044715f), vf_set1(0.79788456f)));
    return vf_mul(x, vf_sigmoid(vf_add(u, u)));
}

INLINE vf vf_gelu_erf(vf x)
{
    vf a = vf_mul(vf_abs(x), vf_set1(0.70710678f));
    vf t = vf_div(vf_set1(1.0f), vf_fma(a, vf_set1(0.3275911f), vf_set1(1.0f)));
    vf p = vf_fma(t, vf_set1(1.061405429f), vf_set1(-1.453152027f));
    p = vf_fma(t, p, vf_set1(1.421413741f));
    p = vf_fma(t, p, vf_set1(-0.284496736f));
    p = vf_fma(t, p, vf_set1(0.254829592f));
    p = vf_mul(p, vf_mul(t, vf_exp(vf_sub(vf_zero(), vf_mul(a, a))))); /* 1 - erf(a) */
    vf erf = vf_sign_of(vf_sub(vf_set1(1.0f), p), x);
    return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(vf_set1(1.0f), erf));
}

/* ---- norms ---- */
/* Four partial sums; the order depends on n alone. */
static float inverse_rms(const float *x, int n, float eps)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int i = 0;
    for (; i + 4 * VF_LANES <= n; i += 4 * VF_LANES)
        for (int j = 0; j < 4; j++) {
            vf v = vf_load(x + i + j * VF_LANES);
            sum[j] = vf_fma(v, v, sum[j]);
        }
    float total = vf_hsum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    for (; i < n; i++)
        total = fmaf(x[i], x[i], total);
    return 1.0f / sqrtf(total / (float)n + eps);
}

void ISA(rmsnorm)(const float *x, const float *weight, float eps, int n, float *out)
{
    float scale = inverse_rms(x, n, eps);
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), vf_set1(scale)), vf_load(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static float plus(const float *x, const float *add, int i)
{
    return add ? x[i] + add[i] : x[i];
}
INLINE vf vf_plus(const float *x, const float *add, int i)
{
    vf v = vf_load(x + i);
    return add ? vf_add(v, vf_load(add + i)) : v;
}

void ISA(layernorm)(const float *x, const float *add, const struct layernorm *p, int n, float *out)
{
    vf acc = vf_zero();
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        acc = vf_add(acc, vf_plus(x, add, i));
    float mean = vf_hsum(acc);
    for (; i < n; i++)
        mean += plus(x, add, i);
    mean /= (float)n;
    acc = vf_zero();
    for (i = 0; i + VF_LANES <= n; i += VF_LANES) {
        vf c = vf_sub(vf_plus(x, add, i), vf_set1(mean));
        acc = vf_fma(c, c, acc);
    }
    float var = vf_hsum(acc);
    for (; i < n; i++)
        var = fmaf(plus(x, add, i) - mean, plus(x, add, i) - mean, var);
    float scale = 1.0f / sqrtf(var / (float)n + p->eps);
    for (i = 0; i + VF_LANES <= n; i += VF_LANES) {
        vf c = vf_mul(vf_sub(vf_plus(x, add, i), vf_set1(mean)), vf_set1(scale));
        vf_store(out + i, vf_fma(c, vf_load(p->weight + i), vf_load(p->bias + i)));
    }
    for (; i < n; i++)
        out[i] = fmaf((plus(x, add, i) - mean) * scale, p->weight[i], p->bias[i]);
}

/* ---- the way into a linear layer ---- */
INLINE vf transform(enum linear_in in, vf x, vf x2)
{
    switch (in) {
    case LINEAR_SILU_MUL:
        return vf_mul(vf_silu(x), x2);
    case LINEAR_GELU_MUL:
        return vf_mul(vf_gelu_tanh(x), x2);
    case LINEAR_GELU:
        return vf_gelu_erf(x);
    default:
        return x;
    }
}

INLINE void transform_row(const enum linear_in kind, const struct act_in *in, float *out)
{
    int i = 0, n = in->n;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(out + i,
                 transform(kind, vf_load(in->x + i), in->x2 ? vf_load(in->x2 + i) : vf_zero()));
    if (i == n) return;
    float x[VF_LANES] = {0}, x2[VF_LANES] = {0};
    for (int j = i; j < n; j++) {
        x[j - i] = in->x[j];
        if (in->x2) x2[j - i] = in->x2[j];
    }
    vf_store(x, transform(kind, vf_load(x), vf_load(x2)));
    for (int j = i; j < n; j++)
        out[j] = x[j - i];
}

/* ---- rounding to int8 ---- */
#ifdef WHOLE_SCALES
/* Group 2 * run + h: the even (h = 0) or odd pairs of a run's elements. */
static int group_element(int g, int i)
{
    return g / 2 * QUANT_RUN + i / 2 * 4 + g % 2 * 2 + i % 2;
}

INLINE void run_peaks(const float *x, float peak[2])
{
    vf top = vf_zero();
    for (int i = 0; i < QUANT_RUN; i += VF_LANES)
        top = vf_peak(top, vf_abs(vf_load(x + i)));
    vf_hpeak_pairs(top, peak);
}

/* 32 values -> int8 with a scale for each group; sum: of k * q over each half. Rounds to nearest even. */
INLINE void round_groups(const float *x, const float inverse[2], int32_t k, int8_t *q,
                         int32_t sum[2])
{
    enum { V = QUANT_RUN / VF_LANES };
    vf v[V], scale = vf_set_pairs(inverse[0], inverse[1]);
    for (int i = 0; i < V; i++)
        v[i] = vf_mul(vf_load(x + i * VF_LANES), scale);
    store_q(v, k, q, sum);
}

/* A row's groups are divided by whole multiples of its step, so that peaks become 127 or a little less. inverse and k are scratch
 * of 2 * n_runs values. */
static void round_runs(const float *x, const float *peak, int n_runs, const struct act_row *out,
                       float *inverse, int32_t *k)
{
    float top = 0;
    for (int i = 0; i < 2 * n_runs; i++)
        top = peak[i] > top ? peak[i] : top;
    float step = top * (1.0f / (127.0f * SCALE_MAX)), steps = 1.0f / (127.0f * step);
    bool sound = step > 0 && steps > 0 && steps <= FLT_MAX;
    for (int i = 0; i < 2 * n_runs; i++) {
        float p = sound && peak[i] <= top ? peak[i] : 0.0f; /* not of a NaN */
        float whole = ceilf(p * (sound ? steps : 0.0f));
        k[i] = (int32_t)whole;
        inverse[i] = whole > 0 ? 1.0f / (whole * step) : 0.0f;
    }
    for (int run = 0; run < n_runs; run++) {
        int32_t sum[2], both = k[2 * run + 1] << 16 | k[2 * run];
        size_t at = (size_t)run * (size_t)out->width;
        round_groups(x + run * QUANT_RUN, inverse + 2 * run, both, out->q + at * QUANT_RUN, sum);
        out->k[at] = both;
        out->neg[2 * at] = -(sum[0] + sum[1]);
        out->neg[2 * at + 1] = -sum[1];
        out->s[at] = (float)(sum[0] + sum[1]);
    }
    *out->step = step;
}

/* The same with 16 bits and one scale for the row. */
static void round_16(const float *x, const float *peak, int n_runs, const struct act_row *out)
{
    enum { LIMIT = 127 * 258 };
    float top = 0;
    for (int i = 0; i < 2 * n_runs; i++)
        top = peak[i] > top ? peak[i] : top;
    float inverse = (float)LIMIT / top;
    if (!(inverse <= FLT_MAX)) inverse = 0; /* nothing but zeros, or next to it */
    for (int run = 0; run < n_runs; run++) {
        size_t at = (size_t)run * (size_t)out->width;
        out->neg16[at] = -128 * store_q16(x + run * QUANT_RUN, inverse, out->q16 + at * QUANT_RUN);
    }
    *out->step16 = top * (1.0f / (float)LIMIT);
}
#else
static int group_element(int g, int i)
{
    return g * ACT_GROUP + i;
}

INLINE vf group_peak(const float *x)
{
    vf peak = vf_zero();
    for (int i = 0; i < ACT_GROUP; i += VF_LANES)
        peak = vf_peak(peak, vf_abs(vf_load(x + i)));
    return peak;
}
INLINE void run_peaks(const float *x, float peak[2])
{
    for (int h = 0; h < 2; h++)
        peak[h] = vf_hpeak(group_peak(x + h * ACT_GROUP));
}

/* 32 values -> int8 with a scale for each half. Rounds to nearest even. */
INLINE void round_groups(const float *x, const float inverse[2], int8_t *q, int32_t sum[2])
{
    enum { V = QUANT_RUN / VF_LANES };
    vf v[V];
    for (int i = 0; i < V; i++)
        v[i] = vf_mul(vf_load(x + i * VF_LANES), vf_set1(inverse[i / (V / 2)]));
    store_q(v, q, sum);
}

static void round_runs(const float *x, const float *peak, int n_runs, const struct act_row *out)
{
    for (int run = 0; run < n_runs; run++) {
        float inverse[2], d[2];
        int32_t sum[2];
        for (int h = 0; h < 2; h++) {
            float top = peak[2 * run + h];
            inverse[h] = top > 0 ? 127.0f / top : 0.0f;
            d[h] = top * (1.0f / 127.0f);
        }
        size_t at = (size_t)run * (size_t)out->width;
        round_groups(x + run * QUANT_RUN, inverse, out->q + at * QUANT_RUN, sum);
        for (int h = 0; h < 2; h++) {
            out->d[2 * at + (size_t)h] = d[h];
            out->neg[2 * at + (size_t)h] = -sum[h];
        }
        out->s[at] = fmaf(d[0], (float)sum[0], d[1] * (float)sum[1]);
    }
}
#endif

/* The group of greatest peak among those not yet tried (tried ones are negative); -1 when none is left or a peak is NaN. */
static int highest(const float *peak, int n)
{
    int best = -1;
    float top = 0;
    for (int i = 0; i < n; i++)
        if (peak[i] > top) {
            top = peak[i];
            best = i;
        }
    return best;
}

/* The element of greatest magnitude of group g of a row, and the second greatest magnitude. */
static int two_greatest(const float *x, int g, float *second)
{
    float first = -1;
    int at = 0;
    *second = 0;
    for (int i = 0; i < ACT_GROUP; i++) {
        int e = group_element(g, i);
        float m = fabsf(x[e]);
        if (m > first) {
            if (first > *second) *second = first;
            first = m;
            at = e;
        } else if (m > *second) {
            *second = m;
        }
    }
    return at;
}

/* Rounding noise of a group goes with the square of its peak. Takes out elements (set to 0 in x) while one of them makes up
 * OUTLIER_SHARE of the row's noise. A group is looked at once more after its outlier is gone. */
#define OUTLIER_SHARE 0.2f
static void take_outliers(float *x, float *peak, int n_groups, struct outliers *o)
{
    float noise = 0;
    o->n = 0;
    for (int i = 0; i < n_groups; i++)
        noise = fmaf(peak[i], peak[i], noise);
    for (int looks = 0; looks < 3 * OUTLIERS_MAX && o->n < OUTLIERS_MAX; looks++) {
        int g = highest(peak, n_groups);
        if (g < 0 || !(peak[g] * peak[g] >= OUTLIER_SHARE * noise)) break;
        float second, first = peak[g];
        int at = two_greatest(x, g, &second);
        float gain = first * first - second * second;
        if (gain >= OUTLIER_SHARE * noise) {
            o->at[o->n] = at;
            o->x[o->n++] = x[at];
            x[at] = 0;
            peak[g] = second;
            noise -= gain;
        } else {
            peak[g] = -first; /* no single element stands out */
        }
    }
    for (int i = 0; i < n_groups; i++)
        peak[i] = fabsf(peak[i]);
}

/* x may be tmp; peaks lie behind tmp's n values. */
static void round_row(const float *x, float *tmp, int n, const struct act_row *out)
{
    int n_groups = n / ACT_GROUP;
    float *peak = tmp + n, top = 0, noise = 0;
    for (int i = 0; i < n_groups; i += 2)
        run_peaks(x + i * ACT_GROUP, peak + i);
    for (int i = 0; i < n_groups; i++) {
        noise = fmaf(peak[i], peak[i], noise);
        top = peak[i] > top ? peak[i] : top;
    }
    out->outliers->n = 0;
    if (top * top >= OUTLIER_SHARE * noise && top > 0) {
        if (x != tmp) memcpy(tmp, x, (size_t)n * sizeof *x);
        x = tmp;
        take_outliers(tmp, peak, n_groups, out->outliers);
    }
#ifdef WHOLE_SCALES
    bool number = noise == noise; /* a NaN makes the whole row one */
    if (out->q) {
        round_runs(x, peak, n / QUANT_RUN, out, peak + n_groups,
                   (int32_t *)(void *)(peak + 2 * n_groups));
        if (!number) *out->step = noise;
    }
    if (out->q16) {
        round_16(x, peak, n / QUANT_RUN, out);
        if (!number) *out->step16 = noise;
    }
#else
    round_runs(x, peak, n / QUANT_RUN, out);
#endif
}

void ISA(act)(const struct act_in *in, const struct act_row *out, float *tmp)
{
    const float *x = tmp;
    switch (in->in) {
    case LINEAR_PLAIN:
        x = in->x;
        break;
    case LINEAR_RMSNORM:
        ISA(rmsnorm)(in->x, in->norm_weight, in->eps, in->n, tmp);
        break;
    case LINEAR_SILU_MUL:
        transform_row(LINEAR_SILU_MUL, in, tmp);
        break;
    case LINEAR_GELU_MUL:
        transform_row(LINEAR_GELU_MUL, in, tmp);
        break;
    case LINEAR_GELU:
        transform_row(LINEAR_GELU, in, tmp);
        break;
    }
    if (out->f)
        for (int i = 0; i < in->n; i++)
            out->f[(size_t)i * (size_t)out->width] = x[i];
    if (out->outliers) round_row(x, tmp, in->n, out); /* last: may take elements out of tmp */
}

/* ---- rope and storing ---- */
void ISA(rope)(const struct rope_row *r, const float *x, float *out)
{
    int half = r->dims / 2;
    for (int i = 0; i < half; i++) {
        int a = r->half_split ? i : 2 * i, b = r->half_split ? i + half : 2 * i + 1;
        float c = r->cos_sin[2 * i], s = r->cos_sin[2 * i + 1], xa = x[a], xb = x[b];
        out[a] = fmaf(xa, c, -(xb * s));
        out[b] = fmaf(xa, s, xb * c);
    }
    for (int i = r->dims; i < r->head_dim; i++)
        out[i] = x[i];
}

/* Clamped to the largest finite float16: a masked position is multiplied by 0, which must stay 0. */
void ISA(to_f16)(const float *x, uint16_t *out, int n)
{
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store_f16(out + i,
                     vf_min(vf_max(vf_load(x + i), vf_set1(-65504.0f)), vf_set1(65504.0f)));
    for (; i < n; i++)
        out[i] = f32_to_f16(fminf(fmaxf(x[i], -65504.0f), 65504.0f));
}

/* Greatest magnitude; n >= VF_LANES may overlap at the end, shorter ends in a scalar loop. */
static float peak_of(const float *x, int n)
{
    vf top = vf_zero();
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        top = vf_max(top, vf_abs(vf_load(x + i)));
    float peak = vf_hmax(top);
    for (; i < n; i++)
        peak = fmaxf(peak, fabsf(x[i]));
    return peak;
}

/* round(x * inverse) within +-limit. */
static float rounded(float x, float inverse, float limit)
{
    return rintf(fminf(fmaxf(x * inverse, -limit), limit));
}
INLINE vf vf_rounded(vf x, vf inverse, vf limit)
{
    return vf_round(vf_min(vf_max(vf_mul(x, inverse), vf_sub(vf_zero(), limit)), limit));
}

/* The scale is rounded first, so that it adds no error of its own. */
uint16_t ISA(to_i8)(const float *x, int8_t *out, int n)
{
    uint16_t scale = f32_to_f16(fminf(peak_of(x, n) * (1.0f / 127.0f), 65504.0f));
    float step = f16_to_f32(scale), inverse = step > 0 ? 1.0f / step : 0.0f;
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store_i8(out + i, vf_rounded(vf_load(x + i), vf_set1(inverse), vf_set1(127.0f)));
    for (; i < n; i++)
        out[i] = (int8_t)rounded(x[i], inverse, 127.0f);
    return scale;
}

float ISA(to_i16)(const float *x, int16_t *out, int n)
{
    enum { LIMIT = 32000 }; /* 256 products of it with 127 fit 31 bits */
    float peak = peak_of(x, n), inverse = peak > 0 ? (float)LIMIT / peak : 0.0f;
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store_i16(out + i, vf_rounded(vf_load(x + i), vf_set1(inverse), vf_set1(LIMIT)));
    for (; i < n; i++)
        out[i] = (int16_t)rounded(x[i], inverse, LIMIT);
    return peak * (1.0f / (float)LIMIT);
}

void ISA(to_u4)(const float *x, uint8_t *out, int n, uint16_t *scale, uint16_t *min)
{
    vf low = vf_set1(INFINITY), high = vf_set1(-INFINITY);
    int i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES) {
        low = vf_min(low, vf_load(x + i));
        high = vf_max(high, vf_load(x + i));
    }
    float bottom = 0.0f - vf_hmax(vf_sub(vf_zero(), low)), top = vf_hmax(high);
    for (; i < n; i++) {
        bottom = fminf(bottom, x[i]);
        top = fmaxf(top, x[i]);
    }
    *min = f32_to_f16(fminf(fmaxf(bottom, -65504.0f), 65504.0f));
    bottom = f16_to_f32(*min);
    *scale = f32_to_f16((fminf(fmaxf(top, -65504.0f), 65504.0f) - bottom) * (1.0f / 15.0f));
    float step = f16_to_f32(*scale), inverse = step > 0 ? 1.0f / step : 0.0f;
    float r[KV_V4_GROUP];
    for (i = 0; i + VF_LANES <= n; i += VF_LANES) {
        vf v = vf_mul(vf_sub(vf_load(x + i), vf_set1(bottom)), vf_set1(inverse));
        vf_store(r + i, vf_round(vf_min(vf_max(v, vf_zero()), vf_set1(15.0f))));
    }
    for (; i < n; i++)
        r[i] = rintf(fminf(fmaxf((x[i] - bottom) * inverse, 0.0f), 15.0f));
    for (i = 0; i < n; i++)
        out[i] = (uint8_t)r[i];
}
#endif
