/* ranks.cu - this GPU as one rank of a tensor-parallel group (collective.h): how it joins, sums and gathers by NCCL in its stream, and
 * waiting that ends when the group does. A collective that is enqueued waits on the GPU until every rank has enqueued its own; should one fail, nothing
 * on this GPU would ever end, so the host looks, while it waits for its stream, at the group, at NCCL and at the other ranks' streams
 * (whose own threads may not wait for them in this step), and gives the group up. Threading: the rank's. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/backend/cuda/gpu.h"
extern "C" {
#include "base/clock.h"
}

enum { SPIN_US = 1000, LOOK_US = 500, REST_US = 30 };

enum err gpu_join(void *device, struct collective *c, int rank, struct errmsg *e)
{
    struct gpu *g = on(device);
    struct nccl *all[COLLECTIVE_RANKS_MAX];
    int index[COLLECTIVE_RANKS_MAX], n = collective_ranks(c);
    enum err code = OK;
    pthread_mutex_init(&g->recording, NULL);
    collective_show(c, rank, g);
    bool met = collective_meet(c, rank);
    if (met && !rank) {
        for (int i = 0; i < n; i++)
            index[i] = ((struct gpu *)collective_seen(c, i))->index;
        code = nccl_open(all, index, n, e);
        cudaSetDevice(g->index);
        if (code) collective_abort(c, e->text);
        for (int i = 0; i < n && !code; i++) /* the others wait in the next meeting */
            ((struct gpu *)collective_seen(c, i))->nccl = all[i];
    }
    if (code) return code;
    if (!met || !collective_meet(c, rank))
        return err_set(e, ERR_UNAVAILABLE, "%s", collective_failure(c));
    g->rank = rank;
    g->ranks = c;
    return OK;
}

static void give_up(struct gpu *g, const char *what, const char *why)
{
    fail(g, what, why);
    steps_drop(g);       /* leaving a group waits for the graphs that hold its sums */
    nccl_close(g->nccl); /* what waits on the GPU ends */
    g->nccl = NULL;
}

/* A stream must not be asked while it is recorded, which would end the recording: asking and recording exclude one another. */
void recording_begins(struct gpu *g)
{
    if (g->ranks) pthread_mutex_lock(&g->recording);
}
void recording_ends(struct gpu *g)
{
    if (g->ranks) pthread_mutex_unlock(&g->recording);
}

/* "Not ready" is no error, but counts as this thread's last one. */
static void forget_not_ready()
{
    if (cudaPeekAtLastError() == cudaErrorNotReady) (void)cudaGetLastError();
}

/* What another rank's stream says, or NULL. */
static const char *fault_of_others(const struct gpu *g)
{
    for (int i = 0; i < collective_ranks(g->ranks); i++) {
        struct gpu *other = (struct gpu *)collective_seen(g->ranks, i);
        if (!other || i == g->rank || pthread_mutex_trylock(&other->recording)) continue;
        cudaError_t code = cudaStreamQuery(other->stream);
        pthread_mutex_unlock(&other->recording);
        if (code != cudaSuccess && code != cudaErrorNotReady) return cudaGetErrorString(code);
    }
    return NULL;
}

cudaError_t settle(struct gpu *g)
{
    if (!g->ranks || !g->nccl) return cudaStreamSynchronize(g->stream);
    uint64_t from = clock_us(), now = from, looked = from,
             span = (uint64_t)collective_wait_ms(g->ranks) * 1000;
    cudaError_t code;
    while ((code = cudaStreamQuery(g->stream)) == cudaErrorNotReady) {
        const char *why = collective_failure(g->ranks), *fault = NULL;
        now = clock_us();
        if (now - looked > LOOK_US) {
            looked = now;
            fault = nccl_failure(g->nccl);
            if (!fault) fault = fault_of_others(g);
        }
        if (why || fault || now - from > span) {
            give_up(g, why ? "computing with others" : "a sum over the ranks",
                    why     ? why
                    : fault ? fault
                            : "another rank does not come");
            code = cudaStreamSynchronize(g->stream);
            break;
        }
        if (now - from < SPIN_US)
            sched_yield();
        else
            usleep(REST_US);
    }
    forget_not_ready();
    if (code != cudaSuccess && g->nccl) { /* what is enqueued behind a sum still has to end */
        give_up(g, "a kernel", cudaGetErrorString(code));
        (void)cudaStreamSynchronize(g->stream);
    }
    return code;
}

void gpu_all_reduce(void *device, float *x, size_t n)
{
    struct gpu *g = on(device);
    if (is_lost(g) || !g->nccl) return;
    const char *why = nccl_all_reduce(g->nccl, x, n, g->stream);
    if (why) fail(g, "a sum over the ranks", why);
}

void gpu_all_gather(void *device, const float *part, int n_rows, int n, float *all)
{
    struct gpu *g = on(device);
    int n_ranks = collective_ranks(g->ranks);
    size_t one = (size_t)n_rows * (size_t)collective_most(n, n_ranks), bytes = sizeof(float);
    float *parts = (float *)need(g, &g->gathered_parts, (size_t)n_ranks * one * bytes);
    if (is_lost(g) || !g->nccl) return;
    const char *why = nccl_all_gather(g->nccl, part, one, parts, g->stream);
    if (why) fail(g, "gathering from the ranks", why);
    for (int r = 0; all && !why && r < n_ranks; r++) {
        int first = collective_first(n, n_ranks, r);
        size_t width = (size_t)(collective_first(n, n_ranks, r + 1) - first) * bytes;
        note(g, "gathering from the ranks",
             cudaMemcpy2DAsync(all + first, (size_t)n * bytes, parts + (size_t)r * one, width,
                               width, (size_t)n_rows, cudaMemcpyDeviceToDevice, g->stream));
    }
}
