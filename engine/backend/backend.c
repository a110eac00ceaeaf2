/* backend.c - opening and closing: which instruction set, how many threads, scratch memory. Refuses instruction sets this CPU
 * lacks instead of falling back in silence. Threading: see backend.h. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "engine/backend/room.h"

static bool cpu_has(const struct kernels *k)
{
    if (k == &kernels_scalar) return true;
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16_is_native();
    if (k == &kernels_avx2) return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

static enum err pick(const char *isa, const struct kernels **out, struct errmsg *e)
{
    static const struct kernels *const all[] = {&kernels_avx512, &kernels_avx2, &kernels_scalar};
    const char *from = "instruction set";
    if (!isa && (isa = getenv("DEJA_ISA"))) from = "DEJA_ISA";
    if (isa && !*isa) isa = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (isa && strcmp(isa, all[i]->name)) continue;
        *out = all[i];
        if (cpu_has(all[i])) return OK;
        if (isa)
            return err_set(e, ERR_UNSUPPORTED, "%s \"%s\": this CPU does not have it", from, isa);
    }
    return err_set(e, ERR_INVALID, "%s \"%s\": scalar, avx2 and avx512 are known", from, isa);
}

int backend_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n > POOL_THREADS_MAX ? POOL_THREADS_MAX : n;
}

enum err backend_open(struct backend **out, const struct backend_options *opt, struct errmsg *e)
{
    *out = NULL;
    const struct kernels *k = NULL;
    const struct device_ops *ops = NULL;
    int index;
    enum err err = device_find(opt->device, &ops, &index, e);
    if (!err && ops && opt->exact)
        err = err_set(e, ERR_UNSUPPORTED, "exact arithmetic runs on the CPU only");
    if (!err) err = pick(opt->isa, &k, e);
    if (err) return err;
    struct backend *be = xcalloc(1, sizeof *be);
    be->k = k;
    be->exact = opt->exact;
    be->ops = ops;
    err = pool_new(&be->pool, opt->n_threads == 0 ? backend_cores() : opt->n_threads, e);
    if (!err && ops) err = ops->open(&be->device, index, opt->products, e);
    if (!err && ops) snprintf(be->device_name, sizeof be->device_name, "%s:%d", ops->name, index);
    if (err) {
        pool_free(be->pool);
        mem_free(be);
        return err;
    }
    *out = be;
    return OK;
}

void backend_close(struct backend *be)
{
    if (!be) return;
    if (be->ops) be->ops->close(be->device);
    pool_free(be->pool);
    weight_arena_free_all(be);
    struct scratch *all[] = {&be->act_q,    &be->act_d,        &be->act_s,      &be->act_neg,
                             &be->act_step, &be->act_outliers, &be->act_f,      &be->cuts,
                             &be->act_q16,  &be->act_neg16,    &be->act_step16, &be->pairs,
                             &be->part,     &be->kv_f32,       &be->tiles,      &be->segments};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        scratch_free(all[i]);
    for (int i = 0; i < POOL_THREADS_MAX; i++)
        scratch_free(&be->thread[i]);
    mem_free(be);
}

const char *backend_isa_name(const struct backend *be)
{
    return be->ops ? be->ops->name : be->k->name;
}
int backend_threads(const struct backend *be)
{
    return pool_threads(be->pool);
}
bool backend_is_exact(const struct backend *be)
{
    return be->exact;
}

void *scratch_need(struct scratch *s, size_t bytes)
{
    if (bytes > s->bytes) {
        mem_free(s->raw);
        s->raw = xmalloc(bytes + 64);
        s->p = (char *)(((uintptr_t)s->raw + 63) & ~(uintptr_t)63);
        s->bytes = bytes;
    }
    return s->p;
}

void scratch_free(struct scratch *s)
{
    mem_free(s->raw);
    *s = (struct scratch){0};
}
