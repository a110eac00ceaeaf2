/* tensor_find.c - looking up keys and tensors with their shape checked; shared by decoder and encoder. See model_plan.h. */
#include <stdio.h>

#include "base/mem.h"
#include "engine/model/model_plan.h"

struct shape {
    int64_t cols, rows, n;
};

static const struct gguf_tensor *find(struct tensor_finder *f, const char *name,
                                      const struct shape *want, bool need)
{
    if (f->code) return NULL;
    const struct gguf_tensor *t = gguf_tensor(f->g, name);
    if (!t) {
        if (need) f->code = err_set(f->e, ERR_CORRUPT, "tensor %s is missing", name);
        return NULL;
    }
    int64_t rows = want->rows ? want->rows : 1;
    if (t->dims[0] != want->cols || t->dims[1] != rows || t->dims[2] != want->n ||
        t->dims[3] != 1) {
        f->code = err_set(
            f->e, ERR_CORRUPT,
            "tensor %s has shape [%lld, %lld, %lld, %lld], must be [%lld, %lld, %lld, 1]", name,
            (long long)t->dims[0], (long long)t->dims[1], (long long)t->dims[2],
            (long long)t->dims[3], (long long)want->cols, (long long)rows, (long long)want->n);
        return NULL;
    }
    f->n_found++;
    f->n_bytes += t->n_bytes;
    return t;
}

const struct gguf_tensor *finder_need(struct tensor_finder *f, const char *name, int64_t cols,
                                      int64_t rows)
{
    return find(f, name, &(struct shape){cols, rows, 1}, true);
}

const struct gguf_tensor *finder_need_stack(struct tensor_finder *f, const char *name, int64_t cols,
                                            int64_t rows, int64_t n)
{
    return find(f, name, &(struct shape){cols, rows, n}, true);
}

const struct gguf_tensor *finder_want(struct tensor_finder *f, const char *name, int64_t cols,
                                      int64_t rows)
{
    return find(f, name, &(struct shape){cols, rows, 1}, false);
}

void finder_no_strangers(struct tensor_finder *f, const char *arch)
{
    if (f->code || f->n_found == gguf_n_tensors(f->g)) return;
    f->code = err_set(f->e, ERR_UNSUPPORTED,
                      "the file has %zu tensors, a %s model of these dimensions has %zu: a variant "
                      "that is not supported",
                      gguf_n_tensors(f->g), arch, f->n_found);
}

enum err plan_int(const struct gguf *g, struct str arch, const char *suffix, int64_t min,
                  int64_t max, int *out, struct errmsg *e)
{
    char key[96];
    uint32_t v;
    (void)snprintf(key, sizeof key, STR_FMT ".%s", STR_ARG(arch), suffix);
    if (*out >= 0 && !gguf_has(g, key)) return OK;
    enum err code = gguf_u32(g, key, &v, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if ((int64_t)v < min || (int64_t)v > max)
        return err_set(e, ERR_CORRUPT, "%s: %u must lie between %lld and %lld", key, v,
                       (long long)min, (long long)max);
    *out = (int)v;
    return OK;
}

enum err plan_float(const struct gguf *g, struct str arch, const char *suffix, float min, float max,
                    float *out, bool optional, struct errmsg *e)
{
    char key[96];
    (void)snprintf(key, sizeof key, STR_FMT ".%s", STR_ARG(arch), suffix);
    if (optional && !gguf_has(g, key)) return OK;
    enum err code = gguf_f32(g, key, out, e);
    if (code) return code == ERR_NOT_FOUND ? ERR_CORRUPT : code;
    if (*out < min || *out > max)
        return err_set(e, ERR_CORRUPT, "%s: %g must lie between %g and %g", key, (double)*out,
                       (double)min, (double)max);
    return OK;
}

enum err plan_neutral(const struct gguf *g, struct str arch, const char *suffix, float neutral,
                      struct errmsg *e)
{
    char key[96];
    float v = neutral;
    uint32_t whole;
    (void)snprintf(key, sizeof key, STR_FMT ".%s", STR_ARG(arch), suffix);
    if (gguf_has(g, key) && gguf_u32(g, key, &whole, e) == OK) {
        v = (float)whole;
    } else {
        enum err code = plan_float(g, arch, suffix, -1e6f, 1e6f, &v, true, e);
        if (code) return code;
    }
    return v == neutral
               ? OK
               : err_set(e, ERR_UNSUPPORTED, STR_FMT ".%s: %g is not supported, only %g is",
                         STR_ARG(arch), suffix, (double)v, (double)neutral);
}

struct plan_linear plan_find_linear(struct tensor_finder *f, int layer, const char *what, int n_in,
                                    int n_out)
{
    char name[64];
    struct plan_linear l;
    (void)snprintf(name, sizeof name, "blk.%d.%s.weight", layer, what);
    l.weight = finder_need(f, name, n_in, n_out);
    (void)snprintf(name, sizeof name, "blk.%d.%s.bias", layer, what);
    l.bias = finder_want(f, name, n_out, 0);
    return l;
}

float *tensor_to_f32(const struct gguf_tensor *t)
{
    int64_t rows = t->dims[1] * t->dims[2] * t->dims[3];
    float *out = xcalloc((size_t)(rows * t->dims[0]), sizeof *out);
    for (int64_t r = 0; r < rows; r++)
        dequantise_row(t->type,
                       (const char *)t->bytes + (size_t)r * tensor_row_bytes(t->type, t->dims[0]),
                       out + r * t->dims[0], t->dims[0]);
    return out;
}
