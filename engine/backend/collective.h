/* collective.h - what the ranks of one model do together: sum and gather rows that each of them has a part of. A rank is a
 * backend with a thread of its own; all ranks make the same calls in the same order, each with its own arrays. A part of backend.h
 * (same rules), which stands apart because most backends are alone.
 * On the CPU the ranks read each other's memory between two meetings. On an accelerator the calls only enqueue, and its own library
 * moves the data (device.h: join, all_reduce, all_gather); they can be recorded.
 *
 * A sum is the same on every rank, bit for bit, and the same for the same inputs on the CPU; against one backend that computes the
 * whole its order differs, so results agree to rounding.
 * No rank waits for another for ever: who waits longer than wait_ms, or fails, aborts the group with a sentence, and from then on every
 * call returns at once, arrays holding garbage, and collective_failure says why.
 * Threading: collective_abort, collective_failure: any thread; the rest: the rank's own.
 * Source of the split that needs two sums a layer: Shoeybi et al. 2019, arXiv:1909.08053, section 3. */
#ifndef DEJA_ENGINE_BACKEND_COLLECTIVE_H
#define DEJA_ENGINE_BACKEND_COLLECTIVE_H
#include "engine/backend/backend.h"

struct collective;
enum { COLLECTIVE_RANKS_MAX = 16, COLLECTIVE_WAIT_MS = 60000 };

/* n_ranks 1..COLLECTIVE_RANKS_MAX; wait_ms 0 = COLLECTIVE_WAIT_MS. Free it after every backend that joined it is closed. */
struct collective *collective_new(int n_ranks, int wait_ms);
void collective_free(struct collective *c); /* NULL is fine */
int collective_ranks(const struct collective *c);
int collective_wait_ms(const struct collective *c);
/* The first reason stays. */
void collective_abort(struct collective *c, const char *why);
/* NULL, or why the group does nothing any more: a sentence that lives as long as the group. */
const char *collective_failure(const struct collective *c);
/* Waits until every rank is here; true on all of them or on none. False: the group is aborted. For devices. */
MUST bool collective_meet(struct collective *c, int rank);
/* A pointer of a rank's own that the others may read between two meetings. */
void collective_show(struct collective *c, int rank, void *p);
void *collective_seen(const struct collective *c, int rank);

/* Where a rank's part of n begins; the parts follow one another, as even as whole numbers allow; none is longer than the first. */
static inline int collective_first(int n, int n_ranks, int rank)
{
    return (int)(((int64_t)n * rank + n_ranks - 1) / n_ranks);
}
/* The longest part. */
static inline int collective_most(int n, int n_ranks)
{
    return (n + n_ranks - 1) / n_ranks;
}

/* The name of the rank's device where the first rank's is `device`: the index is `rank` higher. NULL and "cpu" stay. ERR_UNSUPPORTED: not
 * built in. */
MUST enum err collective_device(const char *device, int rank, char out[24], struct errmsg *e);
/* Makes be a rank of c. All ranks at once, each in its own thread. ERR_UNSUPPORTED: its device has no way to the others, in a sentence;
 * ERR_UNAVAILABLE: the group is aborted. */
MUST enum err backend_join(struct backend *be, struct collective *c, int rank, struct errmsg *e);

/* x f32[n] = sum over the ranks' x. */
void backend_all_reduce(struct backend *be, float *x, size_t n);
/* Each rank has some columns of f32[n_rows][n]: those from collective_first(n, ranks, rank) on, part f32[n_rows][as many], in memory for
 * n_rows * collective_most(n, ranks). all f32[n_rows][n], or NULL where a rank does not want it. */
void backend_all_gather(struct backend *be, const float *part, int n_rows, int n, float *all);

#endif
