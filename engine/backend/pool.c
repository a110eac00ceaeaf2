/* pool.c - compute threads. The whole state of a job is one 64-bit word {tasks, next}: a claim is a fetch_add that tells the
 * claimer whether the task exists in whatever job is open at that instant, so a thread that slept through the end of a job
 * can never run a task of it, and the job's fn and arg are read only under a valid claim (they are stable until that
 * task is counted done). Rejected: static halves with a spin barrier; one descheduled thread then stalls every step
 * (3-15 times slower beside a busy neighbour). Where a neighbour still costs more than the helpers bring, the caller works alone for a
 * while (alone.h). Linux futexes; spins are bounded by the clock. */
#define _GNU_SOURCE
#include "engine/backend/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/backend/alone.h"

enum { SPIN_US = 20, SPINS_PER_LOOK = 32, CACHE_LINE = 64 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int thread_i;
};

/* Lines that different threads write are kept apart by padding (allocations are only 16-byte aligned). */
struct pool {
    char pad0[CACHE_LINE];
    _Atomic uint64_t job; /* tasks << 32 | next */
    char pad1[CACHE_LINE];
    _Atomic uint32_t done; /* tasks finished; the caller may sleep on it */
    _Atomic uint32_t caller_sleeps;
    char pad2[CACHE_LINE];
    _Atomic uint32_t epoch; /* changes with every job; idle workers sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    char pad3[CACHE_LINE];
    void (*fn)(void *arg, int task_i, int thread_i);
    void *arg;
    int n_threads;
    struct alone alone; /* the caller's */
    struct worker worker[POOL_THREADS_MAX];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static bool job_open(uint64_t job)
{
    return (uint32_t)job < (uint32_t)(job >> 32);
}

/* Claims and runs until nothing is left. */
static void work(struct pool *p, int thread_i)
{
    while (job_open(atomic_load_explicit(&p->job, memory_order_relaxed))) {
        uint64_t job = atomic_fetch_add_explicit(&p->job, 1, memory_order_acq_rel);
        if (!job_open(job))
            return; /* someone was faster; next overshoots by at most one a thread */
        uint32_t n_tasks = (uint32_t)(job >> 32);
        p->fn(p->arg, (int)(uint32_t)job, thread_i);
        if (atomic_fetch_add(&p->done, 1) + 1 == n_tasks && atomic_load(&p->caller_sleeps))
            futex_wake(&p->done, 1);
    }
}

/* True when a job is open (or the pool stops); false after SPIN_US without one. */
static bool spin_for_job(struct pool *p)
{
    uint64_t until = clock_us() + SPIN_US;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (job_open(atomic_load_explicit(&p->job, memory_order_relaxed))) return true;
            relax();
        }
    } while (clock_us() < until);
    return atomic_load(&p->stop);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (;;) {
        uint32_t epoch = atomic_load(&p->epoch);
        if (atomic_load(&p->stop)) return NULL;
        if (spin_for_job(p)) {
            work(p, w->thread_i);
            continue;
        }
        atomic_fetch_add(&p->sleepers, 1);
        /* the caller bumps epoch before it looks at sleepers: either it wakes us or the wait returns at once */
        if (!job_open(atomic_load(&p->job)) && !atomic_load(&p->stop)) futex_wait(&p->epoch, epoch);
        atomic_fetch_sub(&p->sleepers, 1);
    }
}

enum err pool_new(struct pool **out, int n_threads, struct errmsg *e)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_THREADS_MAX)
        return err_set(e, ERR_INVALID, "%d threads: between 1 and %d work", n_threads,
                       POOL_THREADS_MAX);
    struct pool *p = xcalloc(1, sizeof *p);
    p->n_threads = 1;
    for (int i = 1; i < n_threads; i++) {
        p->worker[i] = (struct worker){.pool = p, .thread_i = i};
        if (pthread_create(&p->worker[i].thread, NULL, worker_main, &p->worker[i])) {
            pool_free(p);
            return err_set(e, ERR_UNAVAILABLE, "cannot start compute thread %d of %d", i + 1,
                           n_threads);
        }
        p->n_threads = i + 1;
    }
    *out = p;
    return OK;
}

void pool_free(struct pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, POOL_THREADS_MAX);
    for (int i = 1; i < p->n_threads; i++)
        pthread_join(p->worker[i].thread, NULL);
    mem_free(p);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}

/* All tasks are claimed; wait for those still running elsewhere. */
static void wait_done(struct pool *p, uint32_t n_tasks)
{
    uint64_t until = 0;
    for (;;) {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(&p->done, memory_order_acquire) == n_tasks) return;
            relax();
        }
        uint64_t now = clock_us();
        if (!until) until = now + SPIN_US;
        if (now < until) continue;
        atomic_store(&p->caller_sleeps, 1);
        for (uint32_t seen; (seen = atomic_load(&p->done)) != n_tasks;)
            futex_wait(&p->done, seen);
        atomic_store(&p->caller_sleeps, 0);
        return;
    }
}

void pool_run(struct pool *p, int n_tasks, void (*fn)(void *arg, int task_i, int thread_i),
              void *arg)
{
    ASSERT(n_tasks >= 0);
    uint64_t start = p->n_threads > 1 && n_tasks > 1 ? clock_us() : 0;
    if (!start || alone_now(&p->alone, start)) {
        for (int i = 0; i < n_tasks; i++)
            fn(arg, i, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store(&p->job, (uint64_t)n_tasks << 32);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers)) futex_wake(&p->epoch, n_tasks - 1);
    work(p, 0);
    uint64_t worked = clock_us();
    wait_done(p, (uint32_t)n_tasks);
    uint64_t end = clock_us();
    alone_note(&p->alone, end, worked - start, end - worked);
}
