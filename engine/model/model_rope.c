/* model_rope.c - how a decoder file stretches its positions, read, checked and made into tables of rotations. Pair i of a head
 * turns by pos * base^(-2i/dims) / divisor[i]; every kind of scaling is a choice of the divisors and of one magnitude.
 * Threading: none of its own.
 * Sources: linear: Chen et al. 2023, arXiv:2306.15595; yarn: Peng et al. 2023, arXiv:2309.00071, section 3.2 (ramp between turns per
 * original context, magnitude 0.1 ln(factor) + 1); longrope: Ding et al. 2024, arXiv:2402.13753. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/model/model_private.h"

static enum err read_kind(struct plan_rope *r, const struct gguf *g, struct str name,
                          struct errmsg *e)
{
    static const char *const kinds[] = {"none", "linear", "yarn", "longrope"};
    char key[64], shown[40];
    struct str kind = STR("none");
    (void)snprintf(key, sizeof key, STR_FMT ".rope.scaling.type", STR_ARG(name));
    enum err code = gguf_str_opt(g, key, &kind, e);
    if (code) return code;
    for (int i = 0; i < 4; i++)
        if (str_eqz(kind, kinds[i])) {
            r->scaling = (enum rope_scaling)i;
            return OK;
        }
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: \"%s\" is not supported; none, linear, yarn and longrope are", key,
                   gguf_printable(kind, shown, sizeof shown));
}

static enum err read_yarn(struct plan_rope *r, const struct gguf *g, struct str name,
                          struct errmsg *e)
{
    enum err code;
    if ((code = plan_float(g, name, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &r->beta_fast, true,
                           e)) ||
        (code = plan_float(g, name, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &r->beta_slow, true,
                           e)) ||
        (code = plan_neutral(g, name, "rope.scaling.yarn_ext_factor", 1, e)) ||
        (code = plan_neutral(g, name, "rope.scaling.yarn_attn_factor", 1, e)) ||
        (code = plan_neutral(g, name, "rope.scaling.yarn_log_multiplier", 0, e)))
        return code;
    if (r->factor < 1)
        return err_set(e, ERR_CORRUPT,
                       STR_FMT ".rope.scaling.factor: %g is below 1, yarn stretches", STR_ARG(name),
                       r->factor);
    if (r->base <= 1)
        return err_set(e, ERR_CORRUPT, STR_FMT ".rope.freq_base: must be above 1 for yarn",
                       STR_ARG(name));
    r->magnitude *= (float)(0.1 * log(r->factor) + 1);
    return OK;
}

enum err rope_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct plan_rope *r = &p->rope;
    float base = 10000, factor = 1, local = p->arch->local_base;
    enum err code;
    *r = (struct plan_rope){.dims = p->head_dim,
                            .beta_fast = 32,
                            .beta_slow = 1,
                            .magnitude = 1,
                            .original_context = p->context_length};
    if ((code = plan_float(g, p->name, "rope.freq_base", 1, 1e12f, &base, true, e)) ||
        (p->arch->window_period &&
         (code = plan_float(g, p->name, "rope.freq_base_swa", 1, 1e12f, &local, true, e))) ||
        (code = plan_int(g, p->name, "rope.dimension_count", 2, p->head_dim, &r->dims, e)) ||
        (code = read_kind(r, g, p->name, e)) ||
        (code = plan_float(g, p->name, "rope.scale_linear", 1e-3f, 1e6f, &factor, true,
                           e)) || /* older name */
        (code = plan_float(g, p->name, "rope.scaling.factor", 1e-3f, 1e6f, &factor, true, e)) ||
        (code = plan_int(g, p->name, "rope.scaling.original_context_length", 1, INT32_MAX,
                         &r->original_context, e)) ||
        (code = plan_float(g, p->name, "rope.scaling.attn_factor", 1e-3f, 1e3f, &r->magnitude, true,
                           e)))
        return code;
    if (r->dims % 2)
        return err_set(e, ERR_CORRUPT, "rope.dimension_count: %d must be even", r->dims);
    r->base = (double)base;
    r->local_base = (double)local;
    r->factor = (double)factor;
    if (r->scaling == ROPE_SCALING_NONE || r->scaling == ROPE_SCALING_LINEAR) r->magnitude = 1;
    return r->scaling == ROPE_SCALING_YARN ? read_yarn(r, g, p->name, e) : OK;
}

/* A frequency factor divides: 0, negative or not finite would poison every position silently. */
static enum err check_factors(const struct gguf_tensor *t, int n, struct errmsg *e)
{
    if (!t) return OK;
    float *factors = tensor_to_f32(t);
    enum err code = OK;
    for (int i = 0; i < n && !code; i++)
        if (!isfinite(factors[i]) || factors[i] <= 0)
            code = err_set(e, ERR_CORRUPT, "tensor " STR_FMT "[%d]: must be above 0",
                           STR_ARG(t->name), i);
    mem_free(factors);
    return code;
}

enum err rope_plan_find(struct model_plan *p, struct tensor_finder *f)
{
    struct plan_rope *r = &p->rope;
    int n = r->dims / 2;
    r->freqs = finder_want(f, "rope_freqs.weight", n, 0);
    if (r->scaling == ROPE_SCALING_LONG) {
        r->f_short = finder_need(f, "rope_factors_short.weight", n, 0);
        r->f_long = finder_need(f, "rope_factors_long.weight", n, 0);
    }
    enum err code = f->code;
    if (code || (code = check_factors(r->freqs, n, f->e)) ||
        (code = check_factors(r->f_short, n, f->e)))
        return code;
    return check_factors(r->f_long, n, f->e);
}

/* The pair that turns `turns` times over the original context; pairs before it turn more often. */
static double pair_turning(const struct plan_rope *r, float turns)
{
    static const double tau = 6.283185307179586;
    return r->dims * log(r->original_context / ((double)turns * tau)) / (2 * log(r->base));
}

/* Fast pairs keep their speed, slow ones are stretched by the whole factor, in between lies a ramp. */
static void yarn_divisors(const struct plan_rope *r, float *divisor)
{
    double low = floor(pair_turning(r, r->beta_fast)), high = ceil(pair_turning(r, r->beta_slow));
    low = fmax(0, low);
    high = fmin(r->dims - 1, high);
    for (int i = 0; i < r->dims / 2; i++) {
        double kept = 1 - fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        divisor[i] /= (float)(kept + (1 - kept) / r->factor);
    }
}

enum err model_rope_new(struct rope **out, const struct model_plan *p, int pos_max, bool local,
                        struct errmsg *e)
{
    const struct plan_rope *r = &p->rope;
    const struct gguf_tensor *file = r->freqs;
    if (r->scaling == ROPE_SCALING_LONG)
        file = pos_max > r->original_context ? r->f_long : r->f_short;
    float *divisor =
        file && !local ? tensor_to_f32(file) : xcalloc((size_t)(r->dims / 2), sizeof *divisor);
    if (!file || local)
        for (int i = 0; i < r->dims / 2; i++)
            divisor[i] = 1;
    if (r->scaling == ROPE_SCALING_YARN && !local) yarn_divisors(r, divisor);
    struct rope_options o = {
        .base = local ? r->local_base : r->base,
        .linear_scale = r->scaling == ROPE_SCALING_LINEAR && !local ? r->factor : 1,
        .magnitude = local ? 1 : r->magnitude,
        .dims = r->dims,
        .pos_max = pos_max,
        .half_split = p->arch->half_split,
        .freq_factors = divisor,
    };
    enum err code = rope_new(out, &o, e);
    mem_free(divisor);
    return code;
}
