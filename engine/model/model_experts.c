/* model_experts.c - the mixture of experts of a decoder: its keys and tensors checked, its weights loaded, its pass. The router and the
 * gate of a shared expert are kept and computed in float32 whatever their type in the file: a rounded router sends rows elsewhere.
 * Refuses what it would have to leave out (other gatings, groups of experts, dense first layers). Adapters do not reach experts.
 * Threading: as the model's. Sources: moe.h. Key names: the GGUF specification and what its converters write. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/backend/moe.h"
#include "engine/model/model_private.h"

enum { FF_MAX = 1 << 20 };

/* ---- the file ---- */
static enum err read_shape(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct plan_experts *x = &p->experts;
    char key[80];
    enum err code;
    x->n_used = -1; /* needed; see plan_int */
    x->n_ff = p->n_ff;
    x->n_ff_shared = p->arch->shared_expert ? p->n_ff : 0;
    x->normalise = p->arch->experts_sum_to_1;
    (void)snprintf(key, sizeof key, STR_FMT ".expert_weights_norm", STR_ARG(p->name));
    if ((code = plan_int(g, p->name, "expert_used_count", 1, MOE_USED_MAX, &x->n_used, e)) ||
        (code = plan_int(g, p->name, "expert_feed_forward_length", 1, FF_MAX, &x->n_ff, e)) ||
        (code = plan_int(g, p->name, "expert_shared_feed_forward_length", 0, FF_MAX,
                         &x->n_ff_shared, e)) ||
        (code = gguf_bool_opt(g, key, &x->normalise, e)) ||
        (code = plan_float(g, p->name, "expert_weights_scale", 0, 1e3f, &x->scale, true, e)))
        return code;
    if (x->scale == 0) x->scale = 1; /* what converters write for "none" */
    if (x->n_used > x->n)
        return err_set(e, ERR_CORRUPT, STR_FMT ".expert_used_count: %d of %d experts",
                       STR_ARG(p->name), x->n_used, x->n);
    if (!p->arch->shared_expert && x->n_ff_shared)
        return err_set(e, ERR_UNSUPPORTED,
                       STR_FMT ".expert_shared_feed_forward_length: a shared expert is not "
                               "supported in this architecture, in qwen2moe it is",
                       STR_ARG(p->name));
    return OK;
}

/* Absent, or so that it does nothing. 0 and 1 both mean "not used" where a count or a kind is meant. */
static enum err check_neutral(const struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    static const struct {
        const char *suffix;
        bool one_too;
    } keys[] = {{"expert_gating_func", true},        {"expert_group_count", true},
                {"expert_group_used_count", true},   {"leading_dense_block_count", false},
                {"interleave_moe_layer_step", true}, {"moe_every_n_layers", true}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        enum err code = plan_neutral(g, p->name, keys[i].suffix, 0, e);
        if (code && keys[i].one_too) code = plan_neutral(g, p->name, keys[i].suffix, 1, e);
        if (code) return code;
    }
    return OK;
}

enum err experts_plan_read(struct model_plan *p, const struct gguf *g, struct errmsg *e)
{
    struct plan_experts *x = &p->experts;
    enum err code = plan_int(g, p->name, "expert_count", 0, MOE_EXPERTS_MAX, &x->n, e);
    if (code || (code = plan_neutral(g, p->name, "attention.clamp_kqv", 0, e))) return code;
    if (!x->n && p->arch->experts == EXPERTS_ALWAYS)
        return err_set(e, ERR_CORRUPT, STR_FMT ".expert_count: is missing or 0", STR_ARG(p->name));
    if (!x->n) return OK;
    if (p->arch->experts == EXPERTS_NONE)
        return err_set(e, ERR_UNSUPPORTED,
                       STR_FMT ".expert_count: %d: this architecture has no experts here",
                       STR_ARG(p->name), x->n);
    code = read_shape(p, g, e);
    return code ? code : check_neutral(p, g, e);
}

static const struct gguf_tensor *find_stack(struct tensor_finder *f, int layer, const char *what,
                                            const struct weight_shape *s)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    return finder_need_stack(f, name, s->n_in, s->n_out, s->n_mats);
}

/* Layouts of other converters, which would else show as a missing tensor. */
static void refuse_layouts(struct tensor_finder *f, int layer)
{
    static const struct {
        const char *what, *why;
    } all[] = {{"ffn_gate.0",
                "experts in tensors of their own are an old layout; convert the model again"},
               {"ffn_gate_up_exps",
                "gate and up of the experts in one tensor; convert without fusing them"}};
    char name[64];
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !f->code; i++) {
        (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, all[i].what);
        if (gguf_tensor(f->g, name))
            f->code = err_set(f->e, ERR_UNSUPPORTED, "tensor %s: %s", name, all[i].why);
    }
}

void experts_plan_find(struct model_plan *p, struct tensor_finder *f, int layer)
{
    const struct plan_experts *x = &p->experts;
    struct plan_mixture *m = &p->layers[layer].mixture;
    struct weight_shape widen = {.n_mats = x->n, .n_out = x->n_ff, .n_in = p->n_embd},
                        narrow = {.n_mats = x->n, .n_out = p->n_embd, .n_in = x->n_ff};
    char name[64];
    refuse_layouts(f, layer);
    (void)snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    m->router = finder_need(f, name, p->n_embd, x->n);
    m->gate = find_stack(f, layer, "ffn_gate_exps", &widen);
    m->up = find_stack(f, layer, "ffn_up_exps", &widen);
    m->down = find_stack(f, layer, "ffn_down_exps", &narrow);
    if (!x->n_ff_shared) return;
    (void)snprintf(name, sizeof name, "blk.%d.ffn_gate_inp_shexp.weight", layer);
    m->shared_router = finder_need(f, name, p->n_embd, 0);
    m->shared_gate = plan_find_linear(f, layer, "ffn_gate_shexp", p->n_embd, x->n_ff_shared);
    m->shared_up = plan_find_linear(f, layer, "ffn_up_shexp", p->n_embd, x->n_ff_shared);
    m->shared_down = plan_find_linear(f, layer, "ffn_down_shexp", x->n_ff_shared, p->n_embd);
}

/* ---- weights ---- */
static enum err load_float(struct model *m, struct weight **out, const struct gguf_tensor *t,
                           struct errmsg *e)
{
    float *v = tensor_to_f32(t);
    enum err code = weight_new(out, m->be, TENSOR_F32, (int)t->dims[1], (int)t->dims[0], v, e);
    mem_free(v);
    return code ? err_prefix(e, code, "tensor " STR_FMT, STR_ARG(t->name)) : OK;
}

enum err experts_load(struct model *m, struct mixture *x, const struct plan_mixture *p,
                      struct errmsg *e)
{
    enum err code;
    if ((code = load_float(m, &x->router, p->router, e)) ||
        (code = model_load_weight(m, &x->gate, p->gate, e)) ||
        (code = model_load_weight(m, &x->up, p->up, e)) ||
        (code = model_load_weight(m, &x->down, p->down, e)))
        return code;
    if (!p->shared_router) return OK;
    if ((code = load_float(m, &x->shared_router, p->shared_router, e)) ||
        (code = model_load_matrix(m, &x->shared_gate, &p->shared_gate, e)) ||
        (code = model_load_matrix(m, &x->shared_up, &p->shared_up, e)))
        return code;
    return model_load_matrix(m, &x->shared_down, &p->shared_down, e);
}

void experts_free(struct model *m, struct mixture *x)
{
    struct weight *all[] = {x->router, x->gate, x->up, x->down, x->shared_router};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        weight_free(all[i]);
    model_free_matrix(m, &x->shared_gate);
    model_free_matrix(m, &x->shared_up);
    model_free_matrix(m, &x->shared_down);
}

bool experts_make_memory(struct model *m)
{
    const struct plan_experts *x = &m->plan.experts;
    int n_ff = x->n_used * x->n_ff;
    if (n_ff < x->n_ff_shared) n_ff = x->n_ff_shared;
    m->gate = model_rows(m, n_ff);
    m->up = model_rows(m, n_ff);
    m->moe.normed = model_rows(m, m->plan.n_embd);
    m->moe.logits = model_rows(m, x->n);
    m->moe.down = model_rows(m, x->n_used * m->plan.n_embd);
    if (x->n_ff_shared) {
        m->moe.shared = model_rows(m, m->plan.n_embd);
        m->moe.shared_logit = model_rows(m, 1);
    }
    return m->moe.normed && m->moe.logits && m->moe.down &&
           (!x->n_ff_shared || (m->moe.shared && m->moe.shared_logit));
}

void experts_free_memory(struct model *m)
{
    float *all[] = {m->moe.normed, m->moe.shared, m->moe.logits, m->moe.shared_logit, m->moe.down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        backend_floats_free(m->be, all[i]);
}

/* ---- the pass ---- */
static void shared_expert(struct model *m, const struct mixture *x, int n_rows)
{
    struct linear widen = {.n_weights = 2,
                           .weight = {x->shared_gate.weight, x->shared_up.weight},
                           .bias = {x->shared_gate.bias, x->shared_up.bias},
                           .out = {m->gate, m->up},
                           .x = m->moe.normed,
                           .n_rows = n_rows};
    backend_linear(m->be, &widen);
    struct linear narrow = {.n_weights = 1,
                            .weight = {x->shared_down.weight},
                            .bias = {x->shared_down.bias},
                            .out = {m->moe.shared},
                            .in = LINEAR_SILU_MUL,
                            .x = m->gate,
                            .x2 = m->up,
                            .n_rows = n_rows};
    backend_linear(m->be, &narrow);
}

void experts_forward(struct model *m, const struct layer *l, int n_rows)
{
    const struct mixture *x = &l->mixture;
    const struct plan_experts *p = &m->plan.experts;
    backend_rmsnorm(m->be, m->x, l->ffn_norm, m->plan.norm_eps, n_rows, m->plan.n_embd,
                    m->moe.normed);
    struct linear route = {.n_weights = x->shared_router ? 2 : 1,
                           .weight = {x->router, x->shared_router},
                           .out = {m->moe.logits, m->moe.shared_logit},
                           .x = m->moe.normed,
                           .n_rows = n_rows};
    backend_linear(m->be, &route);
    if (x->shared_router) shared_expert(m, x, n_rows);
    if (m->rank) /* the sum over the ranks has it from the first */
        backend_scale(m->be, 0, (size_t)n_rows * (size_t)m->plan.n_embd, m->x);
    struct moe moe = {.n_experts = p->n,
                      .n_used = p->n_used,
                      .gate = x->gate,
                      .up = x->up,
                      .down = x->down,
                      .normalise = p->normalise,
                      .scale = p->scale,
                      .logits = m->moe.logits,
                      .x = m->moe.normed,
                      .shared = m->moe.shared,
                      .shared_gate = m->moe.shared_logit,
                      .out = m->x,
                      .n_rows = n_rows,
                      .gate_rows = m->gate,
                      .up_rows = m->up,
                      .down_rows = m->moe.down};
    backend_moe(m->be, &moe);
    model_sum_ranks(m, m->x, n_rows);
}
