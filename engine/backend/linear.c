/* linear.c - orders a linear layer: the input transform and its rounding once per row, then tiles of columns times panels of
 * weights, shared out in small claims. Columns come in groups, each with a matrix of its own (moe.c); an ordinary layer is one
 * group. Owns the scratch activations. A sum over n_in is never split, so a row's result does not depend on the batch or on
 * the threads. Threading: see backend.h. */
#include "engine/backend/room.h"

enum {
    FLOAT_COLS_MAX = 8,
    TILE_GROUP_BYTES =
        384 << 10, /* activations that stay in a core's L2 (1 MiB) while panels pass by */
    ROWS_INLINE_MAX =
        4, /* up to so many rows are transformed by the caller: cheaper than waking anybody */
    TASKS_PER_THREAD = 8,
    ROW_TASKS_PER_THREAD = 2,
    ROW_TASK_ELEMENTS = 8192,
};

/* Columns [c0, c1) of one group, which a task takes at once. */
struct cut {
    int c0, c1;
    const struct row_group *group;
};

struct linear_job {
    struct backend *be;
    const struct linear *l;
    const struct row_group *groups;
    int n_groups, n_in, n_runs, tile_cols;
    bool want_int, want_int16, want_float;
    int rows_per_task;
    /* gemm */
    struct cut *cuts;
    int n_cuts;
    int panel_first[LINEAR_WEIGHTS_MAX +
                    1]; /* running count of a group's panels over the weights */
    int panels_per_task, tasks_per_cut;
};

/* Widths a tile may have; 5 and 7 would need kernels of their own, so they are cut in two. */
static int tile_width(int left, int tile_cols)
{
    if (left >= tile_cols) return tile_cols;
    if (left >= 8) return 8;
    return left == 7 ? 4 : left == 5 ? 3 : left;
}

/* The tile that holds column c: its first column and width. */
static int tile_of(int c, int n_cols, int tile_cols, int *width)
{
    int at = c / tile_cols * tile_cols;
    for (;;) {
        *width = tile_width(n_cols - at, tile_cols);
        if (c < at + *width) return at;
        at += *width;
    }
}

static void act_column(const struct linear_job *job, const struct row_group *g, int c, float *tmp)
{
    struct backend *be = job->be;
    const struct linear *l = job->l;
    size_t row = (size_t)(l->row ? l->row[c] : c), n = (size_t)job->n_in;
    int width, at = g->first + tile_of(c - g->first, g->n, job->tile_cols, &width);
    size_t k = (size_t)(c - at), runs = (size_t)job->n_runs;
    struct act_in in = {.in = l->in,
                        .x = l->x + row * n,
                        .x2 = l->x2 ? l->x2 + row * n : NULL,
                        .norm_weight = l->norm_weight,
                        .eps = l->eps,
                        .n = job->n_in};
    struct act_row out = {.width = width, .n_in = job->n_in};
    if (job->want_int) {
        size_t base = (size_t)at * runs + k;
        out.q = (int8_t *)be->act_q.p + (size_t)at * n + k * QUANT_RUN;
        out.d = (float *)be->act_d.p + 2 * base;
        out.k = (int32_t *)be->act_d.p + base;
        out.step = (float *)be->act_step.p + c;
        out.s = (float *)be->act_s.p + base;
        out.neg = (int32_t *)be->act_neg.p + 2 * base;
    }
    if (job->want_int16) {
        out.q16 = (int16_t *)be->act_q16.p + (size_t)at * n + k * QUANT_RUN;
        out.neg16 = (int32_t *)be->act_neg16.p + (size_t)at * runs + k;
        out.step16 = (float *)be->act_step16.p + c;
    }
    if (job->want_int || job->want_int16)
        out.outliers = (struct outliers *)(void *)be->act_outliers.p + c;
    if (job->want_float) out.f = (float *)be->act_f.p + (size_t)at * n + k;
    be->k->act(&in, &out, tmp);
}

static void act_task(void *arg, int task_i, int thread_i)
{
    struct linear_job *job = arg;
    const struct row_group *g = job->groups;
    float *tmp = (float *)job->be->thread[thread_i].p;
    int c = task_i * job->rows_per_task, end = c + job->rows_per_task;
    for (; c < end && c < job->l->n_rows; c++) {
        while (c >= g->first + g->n)
            g++;
        act_column(job, g, c, tmp);
    }
}

static void prepare_rows(struct linear_job *job)
{
    struct backend *be = job->be;
    size_t rows = (size_t)job->l->n_rows, n = (size_t)job->n_in, runs = (size_t)job->n_runs;
    if (job->want_int) {
        scratch_need(&be->act_q, rows * n);
        scratch_need(&be->act_d, rows * runs * 8);
        scratch_need(&be->act_s, rows * runs * 4);
        scratch_need(&be->act_neg, rows * runs * 8);
        scratch_need(&be->act_step, rows * 4);
    }
    if (job->want_int16) {
        scratch_need(&be->act_q16, rows * n * 2);
        scratch_need(&be->act_neg16, rows * runs * 4);
        scratch_need(&be->act_step16, rows * 4);
    }
    if (job->want_int || job->want_int16)
        scratch_need(&be->act_outliers, rows * sizeof(struct outliers));
    if (job->want_float) scratch_need(&be->act_f, rows * n * 4);
    for (int i = 0; i < pool_threads(be->pool); i++)
        scratch_need(&be->thread[i], act_tmp_floats(job->n_in) * 4);
    /* not one long task and a short one, which the other threads would wait for */
    int fair = job->l->n_rows / (ROW_TASKS_PER_THREAD * pool_threads(be->pool));
    job->rows_per_task = 1 + ROW_TASK_ELEMENTS / job->n_in;
    if (job->rows_per_task > fair) job->rows_per_task = fair ? fair : 1;
    int n_tasks = (job->l->n_rows + job->rows_per_task - 1) / job->rows_per_task;
    if (job->l->n_rows <= ROWS_INLINE_MAX)
        for (int i = 0; i < n_tasks; i++)
            act_task(job, i, 0);
    else
        pool_run(be->pool, n_tasks, act_task, job);
}

/* The rounded activations of a tile whose first column is at. */
static void int_tile(const struct linear_job *job, size_t at, struct act_tile *t)
{
    const struct backend *be = job->be;
    size_t n = (size_t)job->n_in, runs = (size_t)job->n_runs;
    if (job->want_int) {
        t->q = (const int8_t *)be->act_q.p + at * n;
        t->d = (const float *)be->act_d.p + 2 * at * runs;
        t->k = (const int32_t *)be->act_d.p + at * runs;
        t->step = (const float *)be->act_step.p + at;
        t->s = (const float *)be->act_s.p + at * runs;
        t->neg = (const int32_t *)be->act_neg.p + 2 * at * runs;
    }
    if (job->want_int16) {
        t->q16 = (const int16_t *)be->act_q16.p + at * n;
        t->neg16 = (const int32_t *)be->act_neg16.p + at * runs;
        t->step16 = (const float *)be->act_step16.p + at;
    }
    t->outliers = (const struct outliers *)(const void *)be->act_outliers.p + at;
}

/* One panel of one weight against the columns of a cut. */
static void panel_columns(const struct linear_job *job, int weight_i, int panel_i,
                          const struct cut *cut)
{
    const struct backend *be = job->be;
    const struct linear *l = job->l;
    const struct weight *w = l->weight[weight_i];
    struct panel p;
    weight_panel(w, cut->group->mat, panel_i, &p);
    int r0 = panel_i * w->panel_rows, end = cut->group->first + cut->group->n,
        n_valid = w->n_out - r0 < w->panel_rows ? w->n_out - r0 : w->panel_rows;
    struct panel_out o = {.out_stride = (size_t)w->n_out,
                          .n_valid = n_valid,
                          .accumulate = l->accumulate,
                          .bias = l->bias[weight_i] ? l->bias[weight_i] + r0 : NULL};
    size_t n = (size_t)job->n_in;
    for (int c = cut->c0, width; c < cut->c1; c += width) {
        width = tile_width(end - c, job->tile_cols);
        size_t at = (size_t)c;
        struct act_tile t = {.width = width};
        o.out = l->out[weight_i] + at * (size_t)w->n_out + r0;
        if (packing_is_float(w->packing)) {
            t.f = (const float *)be->act_f.p + at * n;
            be->k->panel_float(w->packing, &p, &t, &o);
        } else {
            int_tile(job, at, &t);
            be->k->panel_int(w->packing, &p, &t, &o);
        }
    }
}

static void gemm_task(void *arg, int task_i, int thread_i)
{
    struct linear_job *job = arg;
    const struct cut *cut = &job->cuts[task_i / job->tasks_per_cut];
    int p = task_i % job->tasks_per_cut * job->panels_per_task, end = p + job->panels_per_task;
    int n_panels = job->panel_first[job->l->n_weights];
    if (end > n_panels) end = n_panels;
    for (int i = 0; p < end; p++) {
        while (p >= job->panel_first[i + 1])
            i++;
        int panel_i = p - job->panel_first[i];
        float *tmp = (float *)job->be->thread[thread_i].p;
        if (job->l->weight[i]->packing != PACK_ROWS)
            panel_columns(job, i, panel_i, cut);
        else
            linear_row_scalar(job->l, i, panel_i, cut->group, (const float *)job->be->act_f.p, tmp);
    }
}

static void plan_gemm(struct linear_job *job)
{
    int n_rows = job->l->n_rows;
    bool rows = !job->be->k->panels; /* scalar: a row is decoded once for all columns */
    int element = job->want_float ? 4 : job->want_int16 ? 2 : 1;
    int cols = TILE_GROUP_BYTES / (job->n_in * element) / job->tile_cols * job->tile_cols;
    if (cols < job->tile_cols) cols = job->tile_cols;
    if (rows || cols > n_rows) cols = n_rows;
    size_t cuts_max = (size_t)(job->n_groups + n_rows / cols);
    job->cuts = scratch_need(&job->be->cuts, cuts_max * sizeof *job->cuts);
    for (int i = 0; i < job->n_groups; i++) {
        const struct row_group *g = &job->groups[i];
        int end = g->first + g->n;
        for (int c = g->first; c < end; c += cols)
            job->cuts[job->n_cuts++] = (struct cut){c, c + cols < end ? c + cols : end, g};
    }
    int n_panels = job->panel_first[job->l->n_weights];
    int wanted = pool_threads(job->be->pool) * TASKS_PER_THREAD;
    job->panels_per_task = 1 + (n_panels * job->n_cuts - 1) / wanted;
    if (job->panels_per_task > n_panels) job->panels_per_task = n_panels;
    job->tasks_per_cut = (n_panels + job->panels_per_task - 1) / job->panels_per_task;
}

void linear_groups(struct backend *be, const struct linear *l, const struct row_group *groups,
                   int n_groups)
{
    struct linear_job job = {.be = be,
                             .l = l,
                             .groups = groups,
                             .n_groups = n_groups,
                             .n_in = l->weight[0]->n_in,
                             .tile_cols = be->k->tile_cols};
    bool all_added = true;
    job.n_runs = job.n_in / QUANT_RUN;
    for (int i = 0; i < l->n_weights; i++) {
        const struct weight *w = l->weight[i];
        ASSERT(w->n_in == job.n_in && l->out[i]);
        if (w->packing == PACK_ROWS || packing_is_float(w->packing))
            job.want_float = true;
        else if (w->packing == PACK_Q8_0 && be->k->int16_for_q8)
            job.want_int16 = true;
        else
            job.want_int = true;
        all_added &= w->packing == PACK_Q4_1 || w->packing == PACK_Q4_K;
        job.panel_first[i + 1] = job.panel_first[i] + w->n_panels;
    }
    if (!all_added && job.tile_cols > be->k->other_cols) job.tile_cols = be->k->other_cols;
    if (job.want_float && job.tile_cols > FLOAT_COLS_MAX) job.tile_cols = FLOAT_COLS_MAX;
    prepare_rows(&job);
    plan_gemm(&job);
    pool_run(be->pool, job.n_cuts * job.tasks_per_cut, gemm_task, &job);
}

void backend_linear(struct backend *be, const struct linear *l)
{
    ASSERT(l->n_weights >= 1 && l->n_weights <= LINEAR_WEIGHTS_MAX && l->n_rows >= 0);
    if (l->n_rows == 0) return;
    bool gated = l->in == LINEAR_SILU_MUL || l->in == LINEAR_GELU_MUL;
    ASSERT(l->x && (!gated || l->x2) && (l->in != LINEAR_RMSNORM || l->norm_weight));
    if (be->ops) {
        void *weight[LINEAR_WEIGHTS_MAX];
        for (int i = 0; i < l->n_weights; i++)
            weight[i] = l->weight[i]->device;
        be->ops->linear(be->device, l, weight);
        return;
    }
    struct row_group all = {0, l->n_rows, 0};
    linear_groups(be, l, &all, 1);
}

void backend_linear_input(struct backend *be, const struct linear *l, int row, float *out)
{
    int n = l->weight[0]->n_in;
    size_t at = (size_t)(l->row ? l->row[row] : row) * (size_t)n;
    ASSERT(!be->ops && row >= 0 && row < l->n_rows);
    struct act_in in = {.in = l->in,
                        .x = l->x + at,
                        .x2 = l->x2 ? l->x2 + at : NULL,
                        .norm_weight = l->norm_weight,
                        .eps = l->eps,
                        .n = n};
    struct act_row to = {.width = 1, .n_in = n, .f = out};
    scratch_need(&be->thread[0], act_tmp_floats(n) * sizeof(float));
    be->k->act(&in, &to, (float *)be->thread[0].p);
}
