/* plan_ways.c - the plan of a file, and of the same engine with options that need less memory: each planned in full, since what a smaller
 * step or another KV type saves depends on the model. See plan.h. */
#include <stdio.h>
#include <string.h>

#include "engine/model/gguf.h"
#include "engine/plan.h"

enum { FEWER_ROWS = 64 /* of a step: a quarter of the default */ };

enum err plan_of(struct plan *out, const struct engine_options *o, struct errmsg *e)
{
    struct engine_sizes size;
    struct gguf *file;
    struct model_plan m;
    enum err code = engine_resolve_sizes(o, &size, e);
    if (!code) code = gguf_open(&file, o->model_path, e);
    if (code) return code;
    code = engine_plan_read(&m, file, o, e);
    if (!code) {
        plan_make(out, &m, &size, o, file);
        out->model = o->model_path;
        model_plan_fini(&m);
    }
    gguf_close(file);
    return code;
}

static bool smaller_kv(struct engine_options *o, char flags[64])
{
    if (o->exact || o->kv_type + 1 >= KV_TYPES) return false;
    o->kv_type++; /* they are in the order of their size */
    snprintf(flags, 64, " --kv-cache-dtype %s", kv_type_name(o->kv_type));
    return true;
}

static bool smaller_steps(struct engine_options *o, const struct plan *p, char flags[64])
{
    int n = 0;
    if (p->max_num_seqs > 1) {
        o->max_num_seqs = p->max_num_seqs > 4 ? p->max_num_seqs / 4 : 1;
        n = snprintf(flags, 64, " --max-num-seqs %d", o->max_num_seqs);
    }
    if (p->max_batch > FEWER_ROWS) {
        o->max_num_batched_tokens = FEWER_ROWS;
        snprintf(flags + n, 64 - (size_t)n, " --max-num-batched-tokens %d", FEWER_ROWS);
    }
    return flags[0] != 0;
}

int plan_ways(struct plan_way out[PLAN_WAYS_MAX], const struct plan *p,
              const struct engine_options *o)
{
    int n = 0;
    out[n++] = (struct plan_way){.plan = *p};
    for (int i = 0; i < 2; i++) {
        struct plan_way *w = &out[n];
        struct engine_options with = *o;
        struct errmsg e;
        *w = (struct plan_way){0};
        bool open = i ? smaller_steps(&with, p, w->flags) : smaller_kv(&with, w->flags);
        if (open && plan_of(&w->plan, &with, &e) == OK) n++;
    }
    return n;
}
