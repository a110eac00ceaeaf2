/* device.h - what an accelerator offers behind backend.h: one table of functions. backend.c and its siblings send every call there when a
 * backend was opened on a device; activations, norms and weights are then in the device's memory, and only backend_write,
 * backend_read, token ids, positions and block tables cross over.
 * Calls only enqueue work unless they hand something to the host; an error of the device shows at the next read, which says so,
 * and from then on every read fails. Threading: as backend.h, the step thread alone.
 * Private to engine/backend and its device folders. */
#ifndef DEJA_ENGINE_BACKEND_DEVICE_H
#define DEJA_ENGINE_BACKEND_DEVICE_H
#include "engine/backend/backend.h"
#include "engine/backend/collective.h"
#include "engine/backend/moe.h"

struct rope_table {
    const float *cos_sin; /* f32[pos][dims/2][2], on the device */
    int dims;
    bool half_split;
};

struct device_ops {
    const char *name; /* "cuda" */
    /* Several of these devices are about to be opened, to compute together: before the process's first other call. */
    void (*expect_ranks)(void);
    /* The index-th device. ERR_UNSUPPORTED with one sentence: no driver, no such device, too old a device, no kernels for it. */
    /* products: see backend_options. */
    enum err (*open)(void **device, int index, const char *products, struct errmsg *e);
    void (*close)(void *device);
    void (*memory)(void *device, size_t *free_bytes, size_t *total_bytes); /* now; 0 = unknown */
    const char *(*model)(void *device); /* what its maker calls it; lives as long as it is open */
    /* NULL, or the sentence that every read gives since something failed. */
    const char *(*failure)(void *device);
    /* Bytes a matrix takes on the device; 0: no such matrix. No device is needed. */
    size_t (*weight_planned)(enum tensor_type t, int n_out, int n_in);
    /* Bytes of one KV block over all layers. ERR_UNSUPPORTED: a type or head size that is not kept there. No device is needed. */
    enum err (*kv_planned)(const struct kv_options *o, size_t *block_bytes, struct errmsg *e);

    void *(*alloc)(void *device, size_t bytes); /* NULL: no memory */
    void (*release)(void *device, void *p);
    void (*write)(void *device, void *to, const void *host, size_t bytes);
    enum err (*read)(void *device, void *host, const void *from, size_t bytes, struct errmsg *e);

    enum err (*weight_new)(void *device, void **weight, enum tensor_type t, int n_out, int n_in,
                           const void *rows, size_t *bytes, struct errmsg *e);
    void (*weight_free)(void *device, void *weight);
    void (*embed)(void *device, void *weight, const int32_t *id /* host */, int n_rows,
                  bool accumulate, float *out);
    void (*linear)(void *device, const struct linear *l, void *const *weight);
    void (*rmsnorm)(void *device, const float *x, const float *weight, float eps, int n_rows, int n,
                    float *out);
    void (*add)(void *device, const float *x, size_t n, float *inout);
    void (*scale)(void *device, float factor, size_t n, float *inout);
    void (*take_rows)(void *device, float *x, int width, const int32_t *row /* host */, int n_rows);

    enum err (*kv_new)(void *device, void **kv, const struct kv_options *o, size_t *bytes,
                       struct errmsg *e);
    void (*kv_free)(void *device, void *kv);
    size_t (*kv_block_bytes)(const void *kv);
    void (*kv_copy)(void *device, void *kv, int dst, int src, int n_tokens);
    void (*kv_move)(void *device, void *kv, const struct kv_move *moves /* host */, int n);
    /* After a failure (`failure`) the host has 0xff: look before the block is kept. */
    void (*kv_read)(void *device, const void *kv, int block, void *host);
    void (*kv_write)(void *device, void *kv, int block, const void *host);
    /* Positions and block tables of the step's rows, kept by the caller until the next call. */
    void (*set_rows)(void *device, const void *kv, const struct kv_rows *rows);
    void (*rope_store)(void *device, void *kv, const struct rope_store *p,
                       const struct rope_table *rope /* NULL = none */);
    void (*attention)(void *device, const void *kv, const struct attention *p);
    bool (*step_begin)(void *device, const void *kv, const struct backend_step *s, int *n_rows);
    bool (*step_end)(void *device);
    enum err (*submit)(void *device, const struct sample *s, struct errmsg *e);
    enum err (*wait)(void *device, struct sampler_pick_out *out, struct errmsg *e);
    void (*moe)(void *device, const struct moe *m, void *const weight[3]); /* gate, up, down */
    /* As in collective.h; join NULL: this device is always alone. A rank that fails aborts the group, and while it waits for its device it
     * looks whether another has. */
    enum err (*join)(void *device, struct collective *c, int rank, struct errmsg *e);
    void (*all_reduce)(void *device, float *x, size_t n);
    void (*all_gather)(void *device, const float *part, int n_rows, int n, float *all);
};

/* Makes a device known by its name to backend_open. The table must stay. At start, before other threads. */
void backend_register(const struct device_ops *ops);
/* name: NULL, "", "cpu", or NAME or NAME:INDEX of the registered one. *out NULL: the CPU was meant. ERR_UNSUPPORTED: not built in. */
MUST enum err device_find(const char *name, const struct device_ops **out, int *index,
                          struct errmsg *e);

#endif
