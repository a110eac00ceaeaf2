/* engine_device.c - where an engine computes: "cpu", a named accelerator, or "auto" (the accelerator that is built in, when it is there and
 * takes this model; else the CPU). On an accelerator the KV cache gets what its share of the memory leaves beside everything else of the
 * plan. Nothing is loaded here. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/backend/collective.h"
#include "engine/engine_private.h"
#include "engine/plan.h"

enum {
    RESERVE_BYTES =
        384
        << 20, /* the driver's context, kernels, recorded steps and scratch; an estimate, see docs/gpu.md */
};

/* What the operator did not say: as many KV blocks as the device has room for. */
static enum err fill_memory(struct engine_options *o, const struct backend_device *d,
                            struct errmsg *e)
{
    struct engine_options small = *o;
    struct plan p;
    small.kv_bytes = 0;
    enum err code = plan_of(&p, &small, e);
    if (code || o->kv_bytes) return code;
    double share = o->gpu_memory_utilization > 0 ? o->gpu_memory_utilization : 0.9;
    uint64_t used = d->total_bytes - d->free_bytes, reserve = RESERVE_BYTES,
             may = (uint64_t)(share * (double)d->total_bytes),
             other = p.device_bytes - p.bytes[PLAN_KV] / (uint64_t)p.n_ranks;
    if (reserve > d->total_bytes / 8) reserve = d->total_bytes / 8;
    uint64_t spent = used + other + reserve,
             one = p.kv_bytes_per_token * (uint64_t)(p.max_len + p.block_size);
    if (may < spent + one)
        return err_set(
            e, ERR_FULL,
            "%s: %llu MiB of %llu may be used, %llu are in use and %llu needed with room "
            "for one sequence",
            d->name, (unsigned long long)(may >> 20), (unsigned long long)(d->total_bytes >> 20),
            (unsigned long long)(used >> 20), (unsigned long long)((other + reserve + one) >> 20));
    o->kv_bytes = may - spent;
    return OK;
}

/* Of the devices of all ranks, counted from the first, the one with the least room is the measure. */
static enum err look_at_all(struct backend_device *d, const struct engine_options *o,
                            struct errmsg *e)
{
    char first[sizeof d->name];
    enum err code = OK;
    snprintf(first, sizeof first, "%s", d->name);
    for (int i = 1; i < o->tensor_parallel && !code; i++) {
        struct backend_device next;
        char name[sizeof next.name];
        code = collective_device(first, i, name, e);
        if (!code) code = backend_device_look(name, &next, e);
        if (!code && next.free_bytes < d->free_bytes) *d = next;
    }
    snprintf(d->name, sizeof d->name, "%s", first);
    return code;
}

/* What an accelerator cannot do, before anything is loaded. */
static enum err check_fit(const struct engine_options *o, struct errmsg *e)
{
    if (o->exact) return err_set(e, ERR_UNSUPPORTED, "exact arithmetic runs on the CPU only");
    if (o->n_adapters) return err_set(e, ERR_UNSUPPORTED, "adapters (lora) run on the CPU only");
    return OK;
}

bool engine_place_denies(enum err code)
{
    return code == ERR_UNSUPPORTED || code == ERR_FULL || code == ERR_UNAVAILABLE;
}

enum err engine_place_choose(struct engine_place *out, struct engine_options *o, struct errmsg *e)
{
    struct backend_device d = {0};
    const char *asked = o->device, *name = asked;
    bool any = asked && !strcmp(asked, "auto");
    *out = (struct engine_place){0};
    if (any) name = backend_device_builtin();
    o->device = NULL;
    if (!name || !strcmp(name, "cpu")) return OK;
    struct engine_options with = *o;
    backend_expect_ranks(o->tensor_parallel);
    enum err code = backend_device_look(name, &d, e);
    if (!code && !d.name[0]) return OK;
    if (!code) code = check_fit(o, e);
    if (!code) code = look_at_all(&d, o, e);
    with.device = d.name;
    if (!code) code = fill_memory(&with, &d, e);
    if (engine_place_denies(code) && any) {
        log_warn("engine", "device=auto: %s; going on with the CPU", e->text);
        return OK;
    }
    if (code) return err_prefix(e, code, "option device");
    snprintf(out->device, sizeof out->device, "%s", d.name);
    out->may_fall_back = any;
    *o = with;
    o->device = out->device;
    log_info("engine", "device=%s (%s) free_mib=%llu of %llu kv_mib=%llu", d.name, d.model,
             (unsigned long long)(d.free_bytes >> 20), (unsigned long long)(d.total_bytes >> 20),
             (unsigned long long)(o->kv_bytes >> 20));
    return OK;
}
