/* moe.c - a mixture of experts on the CPU: choosing (a row at a time, float32), sorting (row, expert) pairs by expert, the two products as
 * grouped linear layers (linear.c), and the weighted sum in the order of the choice, which is the row's own. See moe.h. */
#include "engine/backend/moe.h"

#include <math.h>
#include <string.h>

#include "engine/backend/room.h"

enum { TASK_ELEMENTS = 16384 };

/* Pair p = row * n_used + i is the i-th choice of a row. */
struct moe_job {
    struct backend *be;
    const struct moe *m;
    int n_embd, rows_per_task;
    int32_t *expert; /* [pairs] */
    float *weight;   /* [pairs] */
    int32_t *row;    /* [pairs] sorted by expert: the row of each */
    int32_t *place;  /* [pairs] where it is among the sorted */
    struct row_group *groups;
    int n_groups;
};

static void choose(const struct moe *m, const float *logit, int32_t *expert, float *weight)
{
    bool taken[MOE_EXPERTS_MAX] = {false};
    for (int i = 0; i < m->n_used; i++) {
        int best = -1;
        for (int e = 0; e < m->n_experts; e++)
            if (!taken[e] && (best < 0 || logit[e] > logit[best])) best = e;
        taken[best] = true;
        expert[i] = best;
    }
    float most = logit[expert[0]], sum = 0;
    for (int i = 0; i < m->n_used; i++) {
        weight[i] = expf(logit[expert[i]] - most);
        sum += weight[i];
    }
    for (int e = 0; e < m->n_experts && !m->normalise; e++)
        if (!taken[e]) sum += expf(logit[e] - most);
    for (int i = 0; i < m->n_used; i++)
        weight[i] *= m->scale / sum;
}

static void choose_task(void *arg, int task_i, int thread_i)
{
    struct moe_job *job = arg;
    const struct moe *m = job->m;
    (void)thread_i;
    int end = (task_i + 1) * job->rows_per_task;
    for (int r = task_i * job->rows_per_task; r < end && r < m->n_rows; r++)
        choose(m, m->logits + (size_t)r * (size_t)m->n_experts, job->expert + r * m->n_used,
               job->weight + r * m->n_used);
}

static void sort_pairs(struct moe_job *job)
{
    int n_pairs = job->m->n_rows * job->m->n_used, at = 0, next[MOE_EXPERTS_MAX] = {0};
    for (int p = 0; p < n_pairs; p++)
        next[job->expert[p]]++;
    job->n_groups = 0;
    for (int e = 0; e < job->m->n_experts; e++) {
        int n = next[e];
        next[e] = at;
        if (n) job->groups[job->n_groups++] = (struct row_group){at, n, e};
        at += n;
    }
    for (int p = 0; p < n_pairs; p++) {
        job->place[p] = next[job->expert[p]]++;
        job->row[job->place[p]] = p / job->m->n_used;
    }
}

static void sum_task(void *arg, int task_i, int thread_i)
{
    struct moe_job *job = arg;
    const struct moe *m = job->m;
    size_t n = (size_t)job->n_embd;
    (void)thread_i;
    int end = (task_i + 1) * job->rows_per_task;
    for (int r = task_i * job->rows_per_task; r < end && r < m->n_rows; r++) {
        float *out = m->out + (size_t)r * n;
        for (int i = 0; i < m->n_used; i++) {
            int pair = r * m->n_used + i;
            float weight = job->weight[pair];
            const float *y = m->down_rows + (size_t)job->place[pair] * n;
            for (size_t j = 0; j < n; j++)
                out[j] += weight * y[j];
        }
        if (!m->shared) continue;
        const float *y = m->shared + (size_t)r * n;
        float open = 1.0f / (1.0f + expf(-m->shared_gate[r]));
        for (size_t j = 0; j < n; j++)
            out[j] += open * y[j];
    }
}

static void run_rows(struct moe_job *job, int elements_a_row,
                     void (*task)(void *arg, int task_i, int thread_i))
{
    job->rows_per_task = 1 + TASK_ELEMENTS / elements_a_row;
    pool_run(job->be->pool, (job->m->n_rows + job->rows_per_task - 1) / job->rows_per_task, task,
             job);
}

void backend_moe(struct backend *be, const struct moe *m)
{
    ASSERT(m->n_experts >= 1 && m->n_experts <= MOE_EXPERTS_MAX && m->n_rows >= 0);
    ASSERT(m->n_used >= 1 && m->n_used <= MOE_USED_MAX && m->n_used <= m->n_experts);
    ASSERT(m->gate->n_mats == m->n_experts && m->up->n_mats == m->n_experts &&
           m->down->n_mats == m->n_experts);
    ASSERT(m->gate->n_out == m->down->n_in && m->up->n_out == m->down->n_in);
    ASSERT(!m->shared || m->shared_gate);
    if (!m->n_rows) return;
    if (be->ops) {
        void *weight[] = {m->gate->device, m->up->device, m->down->device};
        be->ops->moe(be->device, m, weight);
        return;
    }
    size_t n = (size_t)m->n_rows * (size_t)m->n_used;
    char *mem = scratch_need(&be->pairs, n * 16 + (size_t)m->n_experts * sizeof(struct row_group));
    struct moe_job job = {.be = be, .m = m, .n_embd = m->down->n_out};
    job.expert = (int32_t *)(void *)mem;
    job.weight = (float *)(void *)(mem + 4 * n);
    job.row = (int32_t *)(void *)(mem + 8 * n);
    job.place = (int32_t *)(void *)(mem + 12 * n);
    job.groups = (struct row_group *)(void *)(mem + 16 * n);
    run_rows(&job, m->n_experts * m->n_used, choose_task);
    sort_pairs(&job);
    struct linear widen = {.n_weights = 2,
                           .weight = {m->gate, m->up},
                           .out = {m->gate_rows, m->up_rows},
                           .x = m->x,
                           .n_rows = (int)n,
                           .row = job.row};
    linear_groups(be, &widen, job.groups, job.n_groups);
    struct linear narrow = {.n_weights = 1,
                            .weight = {m->down},
                            .out = {m->down_rows},
                            .in = LINEAR_SILU_MUL,
                            .x = m->gate_rows,
                            .x2 = m->up_rows,
                            .n_rows = (int)n};
    linear_groups(be, &narrow, job.groups, job.n_groups);
    run_rows(&job, job.n_embd * m->n_used, sum_task);
}
