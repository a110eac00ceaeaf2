/* device.c - the registered accelerator, and activation memory wherever it lies. See backend.h and device.h. */
#include "engine/backend/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/backend/kv.h"

enum { DEVICE_INDEX_MAX = 63 };

static const struct device_ops *registered;

void backend_register(const struct device_ops *ops)
{
    registered = ops;
}

void backend_expect_ranks(int n)
{
    if (registered && n > 1) registered->expect_ranks();
}

const char *backend_device_builtin(void)
{
    return registered ? registered->name : NULL;
}

/* name is `of` or `of`:INDEX */
static bool is_called(const char *name, const char *of, int *index)
{
    size_t n = strlen(of);
    char *end = NULL;
    *index = 0;
    if (strncmp(name, of, n)) return false;
    if (!name[n]) return true;
    if (name[n] != ':' || name[n + 1] < '0' || name[n + 1] > '9') return false;
    long i = strtol(name + n + 1, &end, 10);
    *index = (int)i;
    return !*end && i <= DEVICE_INDEX_MAX;
}

enum err device_find(const char *name, const struct device_ops **out, int *index, struct errmsg *e)
{
    *out = NULL;
    *index = 0;
    if (!name || !*name || !strcmp(name, "cpu")) return OK;
    if (registered && is_called(name, registered->name, index)) {
        *out = registered;
        return OK;
    }
    if (registered)
        return err_set(e, ERR_UNSUPPORTED,
                       "device \"%.20s\" is not built into this program: cpu, %s and %s:N are",
                       name, registered->name, registered->name);
    return err_set(e, ERR_UNSUPPORTED,
                   "device \"%.20s\" is not built into this program: cpu is (a build with the CUDA "
                   "toolkit has cuda)",
                   name);
}

enum err backend_device_look(const char *name, struct backend_device *out, struct errmsg *e)
{
    const struct device_ops *ops;
    void *device;
    int index;
    memset(out, 0, sizeof *out);
    enum err code = device_find(name, &ops, &index, e);
    if (code || !ops) return code;
    if ((code = ops->open(&device, index, "own", e))) return code;
    snprintf(out->name, sizeof out->name, "%s:%d", ops->name, index);
    snprintf(out->model, sizeof out->model, "%s", ops->model(device));
    ops->memory(device, &out->free_bytes, &out->total_bytes);
    ops->close(device);
    return OK;
}

size_t weight_bytes_on(const char *device, enum tensor_type t, int n_out, int n_in)
{
    const struct device_ops *ops;
    int index;
    if (device_find(device, &ops, &index, NULL) || !ops)
        return weight_bytes_planned(t, n_out, n_in);
    return ops->weight_planned(t, n_out, n_in);
}

enum err kv_block_bytes_on(const char *device, const struct kv_options *o, size_t *bytes,
                           struct errmsg *e)
{
    const struct device_ops *ops;
    int index;
    enum err code = device_find(device, &ops, &index, e);
    if (code) return code;
    ASSERT(ops);
    return ops->kv_planned(o, bytes, e);
}

const char *backend_device_name(const struct backend *be)
{
    return be->ops ? be->device_name : "cpu";
}

const char *backend_device_model(const struct backend *be)
{
    return be->ops ? be->ops->model(be->device) : be->k->name;
}

const char *backend_failure(const struct backend *be)
{
    return be->ops ? be->ops->failure(be->device) : NULL;
}

bool backend_on_device(const struct backend *be)
{
    return be->ops != NULL;
}

float *backend_floats(struct backend *be, size_t n)
{
    if (be->ops) return be->ops->alloc(be->device, n * sizeof(float));
    return try_calloc(n, sizeof(float));
}

void backend_floats_free(struct backend *be, float *p)
{
    if (be && be->ops && p)
        be->ops->release(be->device, p);
    else
        mem_free(p);
}

void backend_write(struct backend *be, float *to, const float *from, size_t n)
{
    if (be->ops)
        be->ops->write(be->device, to, from, n * sizeof(float));
    else
        memcpy(to, from, n * sizeof(float));
}

enum err backend_read(struct backend *be, float *host, const float *from, size_t n,
                      struct errmsg *e)
{
    if (be->ops) return be->ops->read(be->device, host, from, n * sizeof(float), e);
    if (host != from) memcpy(host, from, n * sizeof(float));
    return OK;
}

void backend_take_rows(struct backend *be, float *x, int width, const int32_t *row, int n_rows)
{
    if (be->ops) {
        be->ops->take_rows(be->device, x, width, row, n_rows);
        return;
    }
    for (int i = 0; i < n_rows; i++) /* ascending, so nothing is overwritten before it is read */
        if (row[i] != i)
            memcpy(x + (size_t)i * (size_t)width, x + (size_t)row[i] * (size_t)width,
                   (size_t)width * sizeof(float));
}

bool backend_step_begin(struct backend *be, const struct kv *kv, const struct backend_step *s,
                        int *n_rows)
{
    *n_rows = s->rows->n_rows;
    ASSERT(s->n_windows >= 1 && s->n_windows <= BACKEND_WINDOWS_MAX && *n_rows <= s->rows_max);
    return be->ops && be->ops->step_begin(be->device, kv->device, s, n_rows);
}

bool backend_step_end(struct backend *be)
{
    return !be->ops || be->ops->step_end(be->device);
}

enum err backend_submit(struct backend *be, const struct sample *s, struct errmsg *e)
{
    ASSERT(be->ops && s->n_rows >= 0 && s->n_vocab > 0);
    return be->ops->submit(be->device, s, e);
}

enum err backend_wait(struct backend *be, struct sampler_pick_out *out, struct errmsg *e)
{
    ASSERT(be->ops);
    return be->ops->wait(be->device, out, e);
}

void backend_set_rows(struct backend *be, const struct kv *kv, const struct kv_rows *rows)
{
    if (be->ops) be->ops->set_rows(be->device, kv->device, rows);
}
