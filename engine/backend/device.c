/* device.c - the registered accelerator, and activation memory wherever it lies. See backend.h and device.h. */
#include "engine/backend/device.h"

#include <string.h>

#include "base/mem.h"
#include "engine/backend/kv.h"

static const struct device_ops *registered;

void backend_register(const struct device_ops *ops)
{
    registered = ops;
}

enum err device_find(const char *name, const struct device_ops **out, struct errmsg *e)
{
    *out = NULL;
    if (!name || !*name || !strcmp(name, "cpu")) return OK;
    if (registered && !strcmp(name, registered->name)) {
        *out = registered;
        return OK;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "device \"%.20s\" is not built into this program; cpu%s%s is", name,
                   registered ? " or " : "", registered ? registered->name : "");
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

void backend_set_rows(struct backend *be, const struct kv *kv, const struct kv_rows *rows)
{
    if (be->ops) be->ops->set_rows(be->device, kv->device, rows);
}
