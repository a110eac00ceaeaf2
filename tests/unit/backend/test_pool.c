/* test_pool.c - every task runs exactly once, results are visible, nothing hangs when jobs follow one another closely or
 * with pauses in which workers fall asleep. Meant to be run under a thread sanitizer as well. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/backend/pool.h"
#include "tests/unit/backend/helpers.h"

struct count {
    int n_threads;
    int runs[2000];
    _Atomic int busy[POOL_THREADS_MAX];
    _Atomic int clashes, foreign;
};

static void count_task(void *arg, int task_i, int thread_i)
{
    struct count *c = arg;
    if (thread_i < 0 || thread_i >= c->n_threads)
        atomic_fetch_add(&c->foreign, 1);
    else if (atomic_exchange(&c->busy[thread_i], 1))
        atomic_fetch_add(&c->clashes, 1);
    c->runs[task_i]++; /* plain on purpose: only one thread may touch it */
    if (thread_i >= 0 && thread_i < c->n_threads) atomic_store(&c->busy[thread_i], 0);
}

static void run_many(int n_threads, int jobs, int pause_every)
{
    struct pool *p = NULL;
    struct errmsg e = {0};
    REQUIRE(pool_new(&p, n_threads, &e) == OK);
    CHECK_INT(pool_threads(p), n_threads);
    struct count *c = xcalloc(1, sizeof *c);
    c->n_threads = n_threads;
    struct rng r;
    rng_seed(&r, 1);
    for (int j = 0; j < jobs; j++) {
        int n = (int)rng_below(&r, j % 7 ? 9 : 2000);
        memset(c->runs, 0, sizeof c->runs);
        pool_run(p, n, count_task, c);
        int wrong = 0;
        for (int i = 0; i < 2000; i++)
            wrong += c->runs[i] != (i < n);
        CHECK_AT(!wrong, "job %d of %d tasks: %d ran not exactly once", j, n, wrong);
        if (pause_every && j % pause_every == 0) usleep(100); /* workers fall asleep */
    }
    CHECK_INT(atomic_load(&c->clashes), 0);
    CHECK_INT(atomic_load(&c->foreign), 0);
    mem_free(c);
    pool_free(p);
}

TEST(every_task_runs_once_on_one_thread)
{
    run_many(1, 300, 0);
}
TEST(every_task_runs_once_on_two_threads)
{
    run_many(2, 3000, 0);
}
TEST(every_task_runs_once_on_more_threads_than_cores)
{
    run_many(6, 600, 0);
}
TEST(sleeping_workers_wake_for_the_next_job)
{
    run_many(3, 300, 1);
}

TEST(pools_come_and_go_without_a_job)
{
    for (int i = 0; i < 50; i++) {
        struct pool *p = NULL;
        struct errmsg e = {0};
        REQUIRE(pool_new(&p, 1 + i % 4, &e) == OK);
        if (i % 3 == 0) usleep(50);
        pool_free(p);
    }
    struct pool *p = NULL;
    struct errmsg e = {0};
    CHECK_INT(pool_new(&p, 0, &e), ERR_INVALID);
    CHECK(!p);
    pool_free(NULL);
}

TEST_MAIN()
