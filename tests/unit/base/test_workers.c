/* test_workers.c - every accepted job runs once and is delivered once on its loop; a full queue refuses; freeing cancels
 * what waits. */
#include "base/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/check.h"

static struct loop *loop;
static pthread_t loop_thread;
static atomic_int n_ran;
static int n_done, n_cancelled, n_wrong_thread, n_wanted;

static void reset(int wanted)
{
    struct errmsg e = {0};
    CHECK_INT(loop_new(&loop, &e), OK);
    loop_thread = pthread_self();
    atomic_store(&n_ran, 0);
    n_done = n_cancelled = n_wrong_thread = 0;
    n_wanted = wanted;
}

static void run(void *arg)
{
    (void)arg;
    atomic_fetch_add(&n_ran, 1);
    if (pthread_equal(pthread_self(), loop_thread)) n_wrong_thread++;
}

static void done(void *arg, bool cancelled)
{
    (void)arg;
    n_done++;
    n_cancelled += cancelled;
    if (!pthread_equal(pthread_self(), loop_thread)) n_wrong_thread++;
    if (n_done == n_wanted) loop_stop(loop);
}

TEST(every_job_runs_on_a_worker_and_ends_on_the_loop)
{
    reset(1000);
    struct workers *w = workers_new(3, 2000);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(workers_submit(w, loop, run, done, NULL), OK);
    loop_run(loop);
    CHECK_INT(atomic_load(&n_ran), 1000);
    CHECK_INT(n_done, 1000);
    CHECK_INT(n_cancelled, 0);
    CHECK_INT(n_wrong_thread, 0);
    workers_free(w);
    loop_free(loop);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static void wait_at_gate(void *arg)
{
    (void)arg;
    atomic_fetch_add(&n_ran, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

TEST(a_full_queue_refuses_and_freeing_finishes_what_runs_and_cancels_what_waits)
{
    reset(0);
    struct workers *w = workers_new(1, 4);
    pthread_mutex_lock(&gate);
    CHECK_INT(workers_submit(w, loop, wait_at_gate, done, NULL), OK);
    while (!atomic_load(&n_ran))
        usleep(100);
    for (int i = 0; i < 4; i++)
        CHECK_INT(workers_submit(w, loop, run, done, NULL), OK);
    CHECK_INT(workers_submit(w, loop, run, done, NULL), ERR_FULL);
    pthread_mutex_unlock(&gate);
    workers_free(w);
    loop_free(loop); /* delivers what was posted */
    CHECK_INT(n_done, 5);
    CHECK_INT(n_cancelled, 5 - atomic_load(&n_ran));
}

TEST(results_that_nobody_took_count_against_the_bound)
{
    reset(6);
    struct workers *w = workers_new(2, 4);
    int accepted = 0;
    for (int i = 0; i < 1000; i++) {
        if (workers_submit(w, loop, run, done, NULL) == OK) accepted++;
        if (i % 10 == 0) usleep(100);
    }
    CHECK_INT(accepted, 6);
    loop_run(loop);
    CHECK_INT(n_done, 6);
    CHECK_INT(workers_submit(w, loop, run, NULL, NULL), OK); /* room again; nobody to tell */
    workers_free(w);
    loop_free(loop);
}

TEST(a_pool_that_never_worked_is_freed)
{
    workers_free(workers_new(2, 1));
    workers_free(NULL);
}

TEST_MAIN()
