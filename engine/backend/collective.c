/* collective.c - a group of ranks: meetings with an end, and the sums and gathers of ranks on the CPU. See collective.h. */
#include "engine/backend/collective.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "engine/backend/room.h"

enum { SUM_FLOATS = 512 }; /* of one pass over the ranks: stays in the first cache */

struct collective {
    int n_ranks, wait_ms;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_here; /* of the meeting that is not complete */
    bool here[COLLECTIVE_RANKS_MAX];
    uint64_t n_meetings;
    void *shown[COLLECTIVE_RANKS_MAX];
    struct errmsg why;
    _Atomic bool aborted; /* set after why is written, never cleared */
};

struct collective *collective_new(int n_ranks, int wait_ms)
{
    ASSERT(n_ranks >= 1 && n_ranks <= COLLECTIVE_RANKS_MAX && wait_ms >= 0);
    struct collective *c = xcalloc(1, sizeof *c);
    c->n_ranks = n_ranks;
    c->wait_ms = wait_ms ? wait_ms : COLLECTIVE_WAIT_MS;
    pthread_mutex_init(&c->lock, NULL);
    timed_cond_init(&c->changed);
    return c;
}

void collective_free(struct collective *c)
{
    if (!c) return;
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    mem_free(c);
}

int collective_ranks(const struct collective *c)
{
    return c->n_ranks;
}
int collective_wait_ms(const struct collective *c)
{
    return c->wait_ms;
}

/* Under lock. */
static void stop(struct collective *c, const char *why)
{
    if (atomic_load(&c->aborted)) return;
    (void)err_set(&c->why, ERR_UNAVAILABLE, "%s", why);
    atomic_store(&c->aborted, true);
    pthread_cond_broadcast(&c->changed);
}

void collective_abort(struct collective *c, const char *why)
{
    pthread_mutex_lock(&c->lock);
    stop(c, why);
    pthread_mutex_unlock(&c->lock);
}

const char *collective_failure(const struct collective *c)
{
    return atomic_load(&c->aborted) ? c->why.text : NULL;
}

/* Under lock. */
static void stop_for_missing(struct collective *c)
{
    char text[80];
    int missing = 0;
    while (missing < c->n_ranks - 1 && c->here[missing])
        missing++;
    snprintf(text, sizeof text, "rank %d of %d did not come to the others within %d ms", missing,
             c->n_ranks, c->wait_ms);
    stop(c, text);
}

/* bounded false: every rank is known to be between the last meeting and this one, busy with a few copies, so nobody waits long and nobody
 * may leave, aborted or not: what the others copy is this rank's. */
static bool meet(struct collective *c, int rank, bool bounded)
{
    uint64_t until = clock_us() + (uint64_t)c->wait_ms * 1000;
    pthread_mutex_lock(&c->lock);
    uint64_t mine = c->n_meetings;
    ASSERT(!c->here[rank]);
    c->here[rank] = true;
    if (++c->n_here == c->n_ranks) {
        c->n_here = 0;
        memset(c->here, 0, sizeof c->here);
        c->n_meetings++;
        pthread_cond_broadcast(&c->changed);
    }
    while (c->n_meetings == mine && !(bounded && atomic_load(&c->aborted))) {
        if (!bounded)
            pthread_cond_wait(&c->changed, &c->lock);
        else if (!timed_wait(&c->changed, &c->lock, until) && c->n_meetings == mine)
            stop_for_missing(c);
    }
    bool complete = c->n_meetings != mine;
    if (!complete) {
        c->here[rank] = false;
        c->n_here--;
    }
    pthread_mutex_unlock(&c->lock);
    return complete;
}

bool collective_meet(struct collective *c, int rank)
{
    return meet(c, rank, true);
}

/* The second of two meetings. */
static void leave(struct collective *c, int rank)
{
    (void)meet(c, rank, false);
}

void collective_show(struct collective *c, int rank, void *p)
{
    c->shown[rank] = p;
}
void *collective_seen(const struct collective *c, int rank)
{
    return c->shown[rank];
}

enum err collective_device(const char *device, int rank, char out[24], struct errmsg *e)
{
    const struct device_ops *ops;
    int index;
    enum err code = device_find(device, &ops, &index, e);
    if (!code) snprintf(out, 24, ops ? "%s:%d" : "cpu", ops ? ops->name : "", index + rank);
    return code;
}

enum err backend_join(struct backend *be, struct collective *c, int rank, struct errmsg *e)
{
    ASSERT(rank >= 0 && rank < c->n_ranks && !be->group);
    enum err code = OK;
    if (be->ops && !be->ops->join)
        code = err_set(e, ERR_UNSUPPORTED, "several of %s cannot compute together", be->ops->name);
    else if (be->ops)
        code = be->ops->join(be->device, c, rank, e);
    else if (!collective_meet(c, rank))
        code = err_set(e, ERR_UNAVAILABLE, "%s", collective_failure(c));
    if (code) return code;
    be->group = c;
    be->rank = rank;
    return OK;
}

/* Elements [from, to) of every rank's array become their sum, in the order of the ranks. */
static void sum(const struct collective *c, size_t from, size_t to)
{
    float total[SUM_FLOATS];
    for (size_t at = from, n; at < to; at += n) {
        n = to - at < SUM_FLOATS ? to - at : SUM_FLOATS;
        memcpy(total, (const float *)c->shown[0] + at, n * sizeof *total);
        for (int r = 1; r < c->n_ranks; r++) {
            const float *x = (const float *)c->shown[r] + at;
            for (size_t i = 0; i < n; i++)
                total[i] += x[i];
        }
        for (int r = 0; r < c->n_ranks; r++)
            memcpy((float *)c->shown[r] + at, total, n * sizeof *total);
    }
}

void backend_all_reduce(struct backend *be, float *x, size_t n)
{
    struct collective *c = be->group;
    if (!n) return;
    if (be->ops) {
        be->ops->all_reduce(be->device, x, n);
        return;
    }
    size_t ranks = (size_t)c->n_ranks, rank = (size_t)be->rank;
    collective_show(c, be->rank, x);
    if (!collective_meet(c, be->rank)) return;
    sum(c, n * rank / ranks, n * (rank + 1) / ranks);
    leave(c, be->rank);
}

void backend_all_gather(struct backend *be, const float *part, int n_rows, int n, float *all)
{
    struct collective *c = be->group;
    if (!n_rows) return;
    if (be->ops) {
        be->ops->all_gather(be->device, part, n_rows, n, all);
        return;
    }
    collective_show(c, be->rank, (void *)part);
    if (!collective_meet(c, be->rank)) return;
    for (int r = 0; all && r < c->n_ranks; r++) {
        size_t first = (size_t)collective_first(n, c->n_ranks, r),
               width = (size_t)collective_first(n, c->n_ranks, r + 1) - first;
        for (size_t i = 0; i < (size_t)n_rows; i++)
            memcpy(all + i * (size_t)n + first, (const float *)c->shown[r] + i * width,
                   width * sizeof *all);
    }
    leave(c, be->rank);
}
