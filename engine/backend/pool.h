/* pool.h - the compute threads of one backend. A job is a number of tasks; every thread, the caller first, claims the next
 * task through one atomic word, so a thread the kernel has taken off its core delays one task, not the step. Idle threads
 * spin for some 20 us (decode steps follow one another closely), then sleep on a futex. Refuses nested jobs.
 * Threading: pool_run from one thread at a time. */
#ifndef DEJA_ENGINE_BACKEND_POOL_H
#define DEJA_ENGINE_BACKEND_POOL_H
#include "base/err.h"

struct pool;
enum { POOL_THREADS_MAX = 64 };

/* n_threads 1..64, the caller counted. ERR_UNAVAILABLE when a thread cannot be started. */
MUST enum err pool_new(struct pool **out, int n_threads, struct errmsg *e);
void pool_free(struct pool *p); /* NULL is fine */
int pool_threads(const struct pool *p);

/* Runs fn(arg, task_i, thread_i) for task_i 0..n_tasks-1 in any order on any thread, and returns
 * when all have finished; what they wrote is visible to the caller. thread_i is 0..n_threads-1, no two at once. */
void pool_run(struct pool *p, int n_tasks, void (*fn)(void *arg, int task_i, int thread_i),
              void *arg);

#endif
