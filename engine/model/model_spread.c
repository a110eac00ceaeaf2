/* model_spread.c - what a calibration (calibration.h) says about a model's products, for int8 products on an accelerator. */
#include "base/mem.h"
#include "engine/model/calibration.h"
#include "engine/model/model_private.h"

void calibration_shape_of(const struct model *m, struct calibration_shape *out)
{
    const struct model_plan *p = &m->plan;
    *out = (struct calibration_shape){
        .model = m->file_hash,
        .n_layers = p->n_layer,
        .width = {[SITE_QKV] = p->n_embd, [SITE_ATTN_OUT] = p->n_head * p->head_dim},
        .head = p->n_embd};
    if (p->experts.n) return; /* experts are multiplied by kernels of their own */
    out->width[SITE_GATE] = p->n_embd;
    out->width[SITE_DOWN] = p->n_ff;
}

enum err spreads_load(struct model *m, const char *path, struct errmsg *e)
{
    struct calibration *c;
    struct calibration_shape shape;
    calibration_shape_of(m, &shape);
    enum err code = calibration_load(&c, path, &shape, e);
    if (code) return code;
    int head = calibration_head(&shape), widest = 0;
    for (int p = 0; p <= head; p++)
        if (calibration_width(&shape, p) > widest) widest = calibration_width(&shape, p);
    float *s = xmalloc((size_t)widest * sizeof *s);
    m->spread = xcalloc((size_t)head + 1, sizeof *m->spread);
    for (int p = 0; p <= head && !code && backend_on_device(m->be); p++) {
        size_t n = (size_t)calibration_width(&shape, p);
        if (!calibration_spread(c, p, *calibration_a(c, p), s)) continue;
        if (!(m->spread[p] = backend_floats(m->be, n)))
            code = err_set(e, ERR_FULL, "no memory on the device for the calibration");
        else
            backend_write(m->be, m->spread[p], s, n);
    }
    mem_free(s);
    calibration_free(c);
    return code;
}

void spreads_free(struct model *m)
{
    for (int p = 0; m->spread && p <= m->plan.n_layer * SITES; p++)
        backend_floats_free(m->be, m->spread[p]);
    mem_free(m->spread);
}
