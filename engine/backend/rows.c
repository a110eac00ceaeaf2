/* rows.c - operations on rows of plain numbers: embedding look-up, norms, sums. Small calls run on the caller alone.
 * Threading: see backend.h. */
#include <string.h>

#include "engine/backend/room.h"

enum { TASK_ELEMENTS = 16384 };

struct rows_job {
    struct backend *be;
    int n_rows, n, rows_per_task;
    const float *x, *weight;
    float eps, *out;
    const struct layernorm *norm;
    const struct weight *table;
    const int32_t *id;
    bool accumulate;
};

static void run_rows(struct rows_job *job, void (*task)(void *arg, int task_i, int thread_i))
{
    ASSERT(job->n_rows >= 0 && job->n > 0);
    job->rows_per_task = 1 + TASK_ELEMENTS / job->n;
    pool_run(job->be->pool, (job->n_rows + job->rows_per_task - 1) / job->rows_per_task, task, job);
}

static int task_end(const struct rows_job *job, int task_i)
{
    int end = (task_i + 1) * job->rows_per_task;
    return end < job->n_rows ? end : job->n_rows;
}

static void embed_task(void *arg, int task_i, int thread_i)
{
    struct rows_job *job = arg;
    float *tmp = (float *)job->be->thread[thread_i].p;
    for (int i = task_i * job->rows_per_task; i < task_end(job, task_i); i++) {
        float *out = job->out + (size_t)i * (size_t)job->n;
        if (job->id[i] == job->table->n_out) {
            if (!job->accumulate) memset(out, 0, (size_t)job->n * sizeof *out);
            continue;
        }
        weight_row(job->table, 0, job->id[i], job->accumulate ? tmp : out);
        if (job->accumulate)
            for (int j = 0; j < job->n; j++)
                out[j] += tmp[j];
    }
}

void backend_embed(struct backend *be, const struct weight *w, const int32_t *id, int n_rows,
                   bool accumulate, float *out)
{
    if (be->ops) {
        be->ops->embed(be->device, w->device, id, n_rows, accumulate, out);
        return;
    }
    for (int i = 0; i < pool_threads(be->pool); i++)
        scratch_need(&be->thread[i], (size_t)w->n_in * 4);
    struct rows_job job = {.be = be,
                           .n_rows = n_rows,
                           .n = w->n_in,
                           .table = w,
                           .id = id,
                           .accumulate = accumulate,
                           .out = out};
    run_rows(&job, embed_task);
}

static void rmsnorm_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    struct rows_job *job = arg;
    for (int i = task_i * job->rows_per_task; i < task_end(job, task_i); i++) {
        size_t at = (size_t)i * (size_t)job->n;
        job->be->k->rmsnorm(job->x + at, job->weight, job->eps, job->n, job->out + at);
    }
}

void backend_rmsnorm(struct backend *be, const float *x, const float *weight, float eps, int n_rows,
                     int n, float *out)
{
    if (be->ops) {
        be->ops->rmsnorm(be->device, x, weight, eps, n_rows, n, out);
        return;
    }
    struct rows_job job = {
        .be = be, .n_rows = n_rows, .n = n, .x = x, .weight = weight, .eps = eps, .out = out};
    run_rows(&job, rmsnorm_task);
}

static void layernorm_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    struct rows_job *job = arg;
    for (int i = task_i * job->rows_per_task; i < task_end(job, task_i); i++) {
        size_t at = (size_t)i * (size_t)job->n;
        const float *add = job->norm->add ? job->norm->add + at : NULL;
        job->be->k->layernorm(job->x + at, add, job->norm, job->n, job->out + at);
    }
}

void backend_layernorm(struct backend *be, const float *x, const struct layernorm *p, int n_rows,
                       int n, float *out)
{
    ASSERT(!be->ops); /* encoders run on the CPU */
    struct rows_job job = {.be = be, .n_rows = n_rows, .n = n, .x = x, .norm = p, .out = out};
    run_rows(&job, layernorm_task);
}

/* Element-wise sums are as fast as memory on one thread for the sizes a step has. */
void backend_add(struct backend *be, const float *x, size_t n, float *inout)
{
    if (be->ops) {
        be->ops->add(be->device, x, n, inout);
        return;
    }
    for (size_t i = 0; i < n; i++)
        inout[i] += x[i];
}

void backend_scale(struct backend *be, float factor, size_t n, float *inout)
{
    if (be->ops) {
        be->ops->scale(be->device, factor, n, inout);
        return;
    }
    for (size_t i = 0; i < n; i++)
        inout[i] *= factor;
}
