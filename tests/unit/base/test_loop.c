/* test_loop.c - posts from many threads arrive once and in order, timers re-arm and cancel, signals, the end. */
#include "base/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/check.h"

enum { THREADS = 4, POSTS = 5000 };

static struct loop *loop_or_null(void)
{
    struct loop *l = NULL;
    struct errmsg e = {0};
    CHECK_INT(loop_new(&l, &e), OK);
    return l;
}

struct ticket {
    struct loop *loop;
    int thread, i;
};
static int next_of[THREADS], out_of_order, n_seen;

static void seen(void *arg)
{
    struct ticket *t = arg;
    if (t->i != next_of[t->thread]++) out_of_order++;
    if (++n_seen == THREADS * POSTS) loop_stop(t->loop);
    mem_free(t);
}

static void *poster(void *arg)
{
    struct ticket *first = arg;
    for (int i = 0; i < POSTS; i++) {
        struct ticket *t = xmalloc(sizeof *t);
        *t = (struct ticket){first->loop, first->thread, i};
        while (loop_post(t->loop, seen, t) != OK)
            usleep(100);
    }
    return NULL;
}

TEST(posts_of_every_thread_run_once_and_in_their_order)
{
    struct loop *l = loop_or_null();
    pthread_t threads[THREADS];
    struct ticket seeds[THREADS];
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = (struct ticket){l, i, 0};
        pthread_create(&threads[i], NULL, poster, &seeds[i]);
    }
    loop_run(l);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(n_seen, THREADS * POSTS);
    CHECK_INT(out_of_order, 0);
    loop_free(l);
}

static void count(void *arg)
{
    ++*(int *)arg;
}

TEST(posts_over_the_bound_are_refused_and_the_rest_runs_at_the_end)
{
    struct loop *l = loop_or_null();
    int ran = 0, accepted = 0;
    while (accepted < 100000 && loop_post(l, count, &ran) == OK)
        accepted++;
    CHECK_INT(accepted, 65536);
    CHECK_INT(loop_post(l, count, &ran), ERR_FULL);
    loop_free(l);
    CHECK_INT(ran, accepted);
}

static struct loop *closing;
static enum err late_result;
static void post_again(void *arg)
{
    late_result = loop_post(closing, count, arg);
}

TEST(a_post_while_the_loop_is_being_freed_is_refused)
{
    closing = loop_or_null();
    int ran = 0;
    CHECK_INT(loop_post(closing, post_again, &ran), OK);
    loop_free(closing);
    CHECK_INT(late_result, ERR_CLOSED);
    CHECK_INT(ran, 0);
}

struct beat {
    struct loop *loop;
    struct loop_timer *timer;
    int n;
};

static void beat(void *arg)
{
    struct beat *b = arg;
    if (++b->n < 3)
        loop_timer_arm(b->timer, 5);
    else
        loop_stop(b->loop);
}

TEST(a_timer_fires_after_its_delay_and_can_be_armed_again)
{
    struct beat b = {loop_or_null(), NULL, 0};
    b.timer = loop_timer_new(b.loop, beat, &b);
    int never = 0;
    struct loop_timer *stopped = loop_timer_new(b.loop, count, &never);
    loop_timer_arm(stopped, 1);
    loop_timer_stop(stopped);
    loop_timer_arm(b.timer, 1000000);
    loop_timer_arm(b.timer, 20); /* replaces */
    uint64_t start_ms = clock_ms();
    loop_run(b.loop);
    CHECK_INT(b.n, 3);
    CHECK(clock_ms() - start_ms >= 20);
    CHECK_INT(never, 0);
    loop_timer_free(stopped);
    loop_timer_free(b.timer);
    loop_timer_free(NULL);
    loop_free(b.loop);
}

static void free_itself(void *arg)
{
    struct beat *b = arg;
    loop_timer_free(b->timer);
    loop_stop(b->loop);
}

TEST(a_timer_may_free_itself)
{
    struct beat b = {loop_or_null(), NULL, 0};
    b.timer = loop_timer_new(b.loop, free_itself, &b);
    loop_timer_arm(b.timer, 0);
    loop_run(b.loop);
    loop_free(b.loop);
}

TEST(a_stop_before_the_run_is_not_lost_and_the_loop_runs_again_later)
{
    struct loop *l = loop_or_null();
    loop_stop(l);
    loop_run(l);
    int ran = 0;
    CHECK_INT(loop_post(l, count, &ran), OK);
    CHECK_INT(loop_post(l, (void (*)(void *))loop_stop, l), OK);
    loop_run(l);
    CHECK_INT(ran, 1);
    loop_free(l);
}

static struct loop *signalled;
static void on_signal(void *arg, int signo)
{
    *(int *)arg = signo;
    loop_stop(signalled);
}

static void raise_usr1(void *arg)
{
    (void)arg;
    kill(getpid(), SIGUSR1);
}

TEST(a_signal_runs_its_callback_on_the_loop_and_a_fifth_is_refused)
{
    signalled = loop_or_null();
    int got = 0;
    CHECK_INT(loop_on_signal(signalled, SIGUSR1, on_signal, &got), OK);
    CHECK_INT(loop_on_signal(signalled, SIGUSR2, on_signal, &got), OK);
    CHECK_INT(loop_on_signal(signalled, SIGHUP, on_signal, &got), OK);
    CHECK_INT(loop_on_signal(signalled, SIGCHLD, on_signal, &got), OK);
    CHECK_INT(loop_on_signal(signalled, SIGALRM, on_signal, &got), ERR_FULL);
    CHECK_INT(loop_post(signalled, raise_usr1, NULL), OK);
    loop_run(signalled);
    CHECK_INT(got, SIGUSR1);
    loop_free(signalled);
}

static void be_slow(void *arg)
{
    usleep(20000);
    loop_stop(arg);
}

TEST(lag_is_the_longest_callback_since_the_last_look)
{
    struct loop *l = loop_or_null();
    CHECK_INT(loop_post(l, be_slow, l), OK);
    loop_run(l);
    uint64_t lag = loop_lag_us(l);
    CHECK_AT(lag >= 20000, "lag is %llu us", (unsigned long long)lag);
    CHECK_INT(loop_lag_us(l), 0);
    loop_free(l);
    loop_free(NULL);
}

static void tick(void *arg)
{
    struct ticket *t = arg;
    if (++t->i == 20) loop_stop(t->loop);
}

static uint64_t thread_cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

TEST(a_loop_with_little_to_do_sleeps)
{
    struct loop *l = loop_or_null();
    struct ticket t = {.loop = l};
    struct loop_timer *timers[20];
    for (int i = 0; i < 20; i++)
        loop_timer_arm(timers[i] = loop_timer_new(l, tick, &t), 20 * (uint64_t)i);
    uint64_t begun = clock_us(), cpu = thread_cpu_us();
    loop_run(l);
    CHECK_INT(t.i, 20);
    CHECK((thread_cpu_us() - cpu) * 4 < clock_us() - begun);
    for (int i = 0; i < 20; i++)
        loop_timer_free(timers[i]);
    loop_free(l);
}

TEST_MAIN()
