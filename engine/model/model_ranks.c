/* model_ranks.c - a model whose parts (shard.h) several ranks compute together: the threads of all ranks but the first, which runs on the
 * caller's, and the way a call reaches them. Each rank has its own backend, weights and KV heads; all get the same batch and do the same
 * calls. Blocks of KV leave and enter with all heads in the order of the file, as those of one rank do, so what is kept of them
 * does not depend on the number of ranks.
 * No wait is for ever: a rank that does not come back after a group was given up ends the process, for whoever supervises it.
 * Threading: as the model's; a rank's model is touched by its thread during a pass, by the caller's between passes. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "engine/model/model_private.h"

struct pass { /* what all ranks do together */
    void (*run)(struct model *m, const struct pass *p);
    const struct model_batch *batch;
    float *logits; /* the first rank's */
};

struct follower {
    struct model_ranks *ranks;
    struct model *model;
    pthread_t thread;
    bool started;
    char device[24];
    struct model_options options;
    enum err code; /* of opening */
    struct errmsg e;
};

struct model_ranks {
    struct collective *group;
    int n;
    const char *path; /* while it opens */
    char device[40];
    struct follower rank[COLLECTIVE_RANKS_MAX]; /* 0 without a thread */
    uint8_t *block;                             /* one rank's part of a block */
    size_t block_bytes;

    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    /* under lock */
    const struct pass *pass;
    uint64_t n_passes;
    int n_busy;
    bool closing;
};

/* ---- the threads ---- */
static void answer(struct model_ranks *r)
{
    pthread_mutex_lock(&r->lock);
    r->n_busy--;
    pthread_cond_signal(&r->answered);
    pthread_mutex_unlock(&r->lock);
}

/* NULL: the end. */
static const struct pass *next_pass(struct model_ranks *r, uint64_t *n_done)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_passes == *n_done && !r->closing)
        pthread_cond_wait(&r->asked, &r->lock);
    const struct pass *p = r->n_passes == *n_done ? NULL : r->pass;
    *n_done = r->n_passes;
    pthread_mutex_unlock(&r->lock);
    return p;
}

static void open_one(struct follower *f)
{
    f->code = model_open_rank(f->model, f->ranks->path, &f->options, &f->e);
    if (f->code) collective_abort(f->ranks->group, f->e.text);
}

static void *follow(void *arg)
{
    struct follower *f = arg;
    uint64_t n_done = 0;
    open_one(f);
    answer(f->ranks);
    for (const struct pass *p; (p = next_pass(f->ranks, &n_done));) {
        p->run(f->model, p);
        answer(f->ranks);
    }
    return NULL;
}

/* Under lock. How long a pass may take is bounded by the meetings in it; after the last one the ranks end at about the same time. */
static void wait_for_followers(struct model_ranks *r, bool bounded)
{
    bool given_up = false;
    uint64_t span = (uint64_t)collective_wait_ms(r->group) * 1000, until = clock_us() + span;
    while (r->n_busy) {
        if (!bounded && !collective_failure(r->group)) {
            pthread_cond_wait(&r->answered, &r->lock);
            until = clock_us() + span;
        } else if (!timed_wait(&r->answered, &r->lock, until) && r->n_busy) {
            ASSERT(!given_up && "a rank does not come back from its device");
            given_up = true;
            collective_abort(r->group, "a rank is far behind the others");
            until = clock_us() + span;
        }
    }
}

static void run_all(struct model *first, const struct pass *p)
{
    struct model_ranks *r = first->ranks;
    pthread_mutex_lock(&r->lock);
    r->pass = p;
    r->n_passes++;
    r->n_busy = r->n - 1;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
    p->run(first, p);
    pthread_mutex_lock(&r->lock);
    wait_for_followers(r, true);
    pthread_mutex_unlock(&r->lock);
}

/* ---- opening ---- */
static enum err options_of(struct follower *f, const struct model_options *o, int rank,
                           struct errmsg *e)
{
    int threads = o->n_threads ? o->n_threads : backend_cores();
    f->options = *o;
    f->options.n_threads = threads / o->n_ranks > 0 ? threads / o->n_ranks : 1;
    enum err code = collective_device(o->device, rank, f->device, e);
    f->options.device = o->device ? f->device : NULL;
    return code;
}

/* What rank failed first, or OK. What the others say is only that it failed. */
static enum err first_failure(const struct model_ranks *r, enum err own, struct errmsg *e)
{
    enum err code = own;
    for (int i = 0; i < r->n && (!code || code == ERR_UNAVAILABLE); i++) {
        const struct follower *f = &r->rank[i];
        if (!f->code || (code && f->code == ERR_UNAVAILABLE)) continue;
        code = f->code;
        *e = f->e;
    }
    return code;
}

static enum err start_followers(struct model_ranks *r, const struct model_options *o,
                                struct errmsg *e)
{
    enum err code = OK;
    for (int i = 1; i < r->n && !code; i++) {
        struct follower *f = &r->rank[i];
        if ((code = options_of(f, o, i, e))) break;
        f->ranks = r;
        f->model = xcalloc(1, sizeof *f->model);
        f->model->group = r->group;
        f->model->rank = i;
        pthread_mutex_lock(&r->lock);
        r->n_busy++;
        pthread_mutex_unlock(&r->lock);
        f->started = !pthread_create(&f->thread, NULL, follow, f);
        if (f->started) continue;
        answer(r); /* for the one that is not */
        code = err_set(e, ERR_UNAVAILABLE, "no thread for rank %d", i);
    }
    if (code) collective_abort(r->group, e->text);
    return code;
}

enum err model_ranks_open(struct model_ranks **out, struct model *first, const char *path,
                          const struct model_options *o, struct errmsg *e)
{
    struct model_ranks *r = xcalloc(1, sizeof *r);
    *out = r;
    if (o->n_ranks > COLLECTIVE_RANKS_MAX)
        return err_set(e, ERR_RANGE, "tensor_parallel_size: %d must be 1 to %d", o->n_ranks,
                       COLLECTIVE_RANKS_MAX);
    r->n = o->n_ranks;
    r->path = path;
    r->group = collective_new(r->n, o->rank_wait_ms);
    pthread_mutex_init(&r->lock, NULL);
    timed_cond_init(&r->asked);
    timed_cond_init(&r->answered);
    struct follower *own = &r->rank[0];
    *own = (struct follower){.ranks = r, .model = first};
    first->group = r->group;
    enum err code = options_of(own, o, 0, e);
    if (!code) code = start_followers(r, o, e);
    if (!code) open_one(own);
    pthread_mutex_lock(&r->lock);
    wait_for_followers(r, false);
    pthread_mutex_unlock(&r->lock);
    if ((code = first_failure(r, code, e))) return code;
    size_t heads = (size_t)first->plan.n_kv_head;
    r->block_bytes = kv_block_bytes(first->kv);
    r->block = xmalloc(r->block_bytes);
    ASSERT(r->block_bytes % (heads * (size_t)first->plan.n_layer) == 0);
    if (backend_on_device(first->be))
        snprintf(r->device, sizeof r->device, "%s x%d", own->device, r->n);
    else
        snprintf(r->device, sizeof r->device, "cpu x%d", r->n);
    return OK;
}

/* Nothing of the last pass runs any more, so that no rank reads from one that is gone. */
static void finish(const struct model *m)
{
    struct errmsg e;
    float unused;
    if (m && m->output_norm && backend_read(m->be, &unused, m->output_norm, 1, &e))
        log_debug("model", "rank %d: %s", m->rank, e.text);
}

void model_ranks_stop(struct model_ranks *r)
{
    if (!r || !r->n) return;
    for (int i = 0; i < r->n; i++)
        finish(r->rank[i].model);
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
    for (int i = 1; i < r->n; i++) {
        if (r->rank[i].started) pthread_join(r->rank[i].thread, NULL);
        if (r->rank[i].model) model_close_rank(r->rank[i].model);
    }
}

void model_ranks_free(struct model_ranks *r)
{
    if (!r) return;
    if (r->n) {
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->asked);
        pthread_cond_destroy(&r->answered);
    }
    collective_free(r->group);
    mem_free(r->block);
    mem_free(r);
}

int model_ranks_count(const struct model_ranks *r)
{
    return r ? r->n : 1;
}

struct model *model_ranks_at(struct model *first, int rank)
{
    return rank ? first->ranks->rank[rank].model : first;
}

const char *model_ranks_device(const struct model_ranks *r)
{
    return r->device;
}

/* ---- passes ---- */
static void forward(struct model *m, const struct pass *p)
{
    model_forward_rank(m, p->batch, m->rank ? NULL : p->logits, p->logits != NULL);
}

void model_ranks_forward(struct model *first, const struct model_batch *b, float *logits)
{
    struct pass p = {forward, b, logits};
    run_all(first, &p);
}

static void warm(struct model *m, const struct pass *p)
{
    (void)p;
    model_warm_rank(m);
}

void model_ranks_warm(struct model *first)
{
    struct pass p = {.run = warm};
    run_all(first, &p);
}

/* ---- blocks of KV ---- */
/* Heads lie together in a layer, of a rank and of all. */
struct heads {
    size_t bytes, here, all, layers; /* of one; of a rank; of the model */
};
static struct heads heads_of(const struct model *first)
{
    const struct model_plan *p = &first->plan;
    struct heads h = {.here = (size_t)p->n_kv_head,
                      .all = (size_t)p->shard.n_kv_head_whole,
                      .layers = (size_t)p->n_layer};
    h.bytes = first->ranks->block_bytes / (h.here * h.layers);
    return h;
}

size_t model_ranks_block_bytes(const struct model *first)
{
    struct heads h = heads_of(first);
    return h.bytes * h.all * h.layers;
}

static uint8_t *layer_at(const struct model *m, const struct heads *h, const void *all,
                         size_t layer)
{
    return (uint8_t *)all + (layer * h->all + (size_t)m->plan.shard.kv_first) * h->bytes;
}

void model_ranks_kv_read(const struct model *first, int32_t block, void *to)
{
    struct model_ranks *r = first->ranks;
    struct heads h = heads_of(first);
    for (int i = 0; i < r->n; i++) {
        const struct model *m = i ? r->rank[i].model : first;
        kv_block_read(m->kv, block, r->block);
        for (size_t l = 0; l < h.layers; l++)
            memcpy(layer_at(m, &h, to, l), r->block + l * h.here * h.bytes, h.here * h.bytes);
    }
}

void model_ranks_kv_write(const struct model *first, int32_t block, const void *from)
{
    struct model_ranks *r = first->ranks;
    struct heads h = heads_of(first);
    for (int i = 0; i < r->n; i++) {
        const struct model *m = i ? r->rank[i].model : first;
        for (size_t l = 0; l < h.layers; l++)
            memcpy(r->block + l * h.here * h.bytes, layer_at(m, &h, from, l), h.here * h.bytes);
        kv_block_write(m->kv, block, r->block);
    }
}
