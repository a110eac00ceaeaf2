/* loop.c - see loop.h. Other threads reach the loop through one list under one mutex and an eventfd that is written
 * only when the list was empty, so a burst of posts costs one wake-up. libevent's own locking stays off: no other
 * thread ever calls it. */
#include "base/loop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop_internal.h"
#include "base/mem.h"

enum { POSTS_MAX = 65536, SIGNALS_MAX = 4, SPIN_US = 50, REST_MAX = 255 };

struct post {
    struct post *next;
    void (*fn)(void *arg);
    void *arg;
};

struct loop_signal {
    struct loop *loop;
    struct event *ev;
    void (*fn)(void *arg, int signo);
    void *arg;
};

struct loop {
    struct event_base *base;
    struct event *wake_ev;
    int wake_fd;
    pthread_mutex_t lock; /* guards the five below */
    struct post *first, **last;
    size_t n_posts;
    bool closed;
    bool wake_pending;
    atomic_bool stopping;
    uint64_t lag_us;     /* loop thread only, like all that follow */
    uint64_t entered_us; /* 0: between callbacks */
    uint64_t n_calls;    /* callbacks so far */
    bool ended;
    bool alone;             /* one processor: what is waited for cannot run meanwhile */
    unsigned in_vain, rest; /* see spin */
    char *bytes;
    struct loop_signal signals[SIGNALS_MAX];
    int n_signals;
};

struct loop_timer {
    struct loop *loop;
    struct event ev;
    void (*fn)(void *arg);
    void *arg;
};

uint64_t loop_enter(struct loop *l)
{
    l->n_calls++;
    return l->entered_us = clock_us();
}

void loop_leave(struct loop *l, uint64_t entered_us)
{
    uint64_t took = clock_us() - entered_us;
    if (took > l->lag_us) l->lag_us = took;
    l->entered_us = 0;
}

uint64_t loop_ms(const struct loop *l)
{
    return l->entered_us ? l->entered_us / 1000 + 1 : clock_ms();
}

char *loop_bytes(struct loop *l)
{
    if (!l->bytes) l->bytes = xmalloc(LOOP_BYTES);
    return l->bytes;
}

uint64_t loop_lag_us(struct loop *l)
{
    uint64_t lag = l->lag_us;
    l->lag_us = 0;
    return lag;
}

static struct post *take_posts(struct loop *l)
{
    pthread_mutex_lock(&l->lock);
    struct post *list = l->first;
    l->first = NULL;
    l->last = &l->first;
    l->n_posts = 0;
    l->wake_pending = false;
    pthread_mutex_unlock(&l->lock);
    return list;
}

static void run_posts(struct loop *l)
{
    for (struct post *p = take_posts(l), *next; p; p = next) {
        next = p->next;
        uint64_t entered = loop_enter(l);
        p->fn(p->arg);
        loop_leave(l, entered);
        mem_free(p);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct loop *l = arg;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n; /* EAGAIN is harmless: the list says what there is to do */
    run_posts(l);
    if (!atomic_load(&l->stopping)) return;
    l->ended = true;
    event_base_loopbreak(l->base);
}

static void wake(struct loop *l)
{
    uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof one);
    (void)n; /* a full counter means the loop is already being woken */
}

enum err loop_new(struct loop **out, struct errmsg *e)
{
    signal(SIGPIPE, SIG_IGN);
    struct loop *l = xcalloc(1, sizeof *l);
    l->last = &l->first;
    l->alone = sysconf(_SC_NPROCESSORS_ONLN) < 2;
    pthread_mutex_init(&l->lock, NULL);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        l->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (l->base && l->wake_fd >= 0)
        l->wake_ev = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
    if (!l->wake_ev || event_add(l->wake_ev, NULL)) {
        loop_free(l);
        return err_set(e, ERR_UNAVAILABLE,
                       "event loop: the system gives no epoll or eventfd (too many open files?)");
    }
    *out = l;
    return OK;
}

void loop_free(struct loop *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->closed = true; /* nothing is added from here on, so one pass empties the list */
    pthread_mutex_unlock(&l->lock);
    run_posts(l);
    for (int i = 0; i < l->n_signals; i++)
        event_free(l->signals[i].ev);
    if (l->wake_ev) event_free(l->wake_ev);
    if (l->base) {
        /* a freed bufferevent with a deferred callback on its way lets go only when that has been run down */
        event_base_loop(l->base, EVLOOP_NONBLOCK);
        event_base_free(l->base);
    }
    if (l->wake_fd >= 0) close(l->wake_fd);
    pthread_mutex_destroy(&l->lock);
    mem_free(l->bytes);
    mem_free(l);
}

/* Asks again and again for SPIN_US before the loop sleeps, and is true when something came: who answers within that time, a client with
 * its next request or an upstream, need not wait until a sleeping processor has woken (30 to 50 us on a virtual machine). It stops by
 * itself where it does not pay: each time in vain doubles the number of sleeps until the next try, each success halves it. */
static bool spin(struct loop *l)
{
    if (l->alone) return false;
    if (l->rest) {
        l->rest--;
        return false;
    }
    uint64_t calls = l->n_calls, until = clock_us() + SPIN_US;
    do {
        int failed = event_base_loop(l->base, EVLOOP_NONBLOCK | EVLOOP_NO_EXIT_ON_EMPTY);
        ASSERT(!failed);
        if (l->n_calls != calls || l->ended) {
            l->rest = l->in_vain /= 2;
            return true;
        }
    } while (clock_us() < until);
    l->in_vain = l->in_vain < REST_MAX ? 2 * l->in_vain + 1 : REST_MAX;
    l->rest = l->in_vain;
    return false;
}

void loop_run(struct loop *l)
{
    l->ended = atomic_load(&l->stopping);
    while (!l->ended) {
        if (spin(l)) continue;
        int failed = event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        ASSERT(!failed);
    }
    atomic_store(&l->stopping, false);
}

void loop_stop(struct loop *l)
{
    atomic_store(&l->stopping, true);
    wake(l);
}

struct event_base *loop_base(struct loop *l)
{
    return l->base;
}

static enum err post(struct loop *l, void (*fn)(void *arg), void *arg, bool bounded)
{
    struct post *p = xmalloc(sizeof *p);
    *p = (struct post){.fn = fn, .arg = arg};
    enum err result = OK;
    bool first = false;
    pthread_mutex_lock(&l->lock);
    if (l->closed) {
        result = ERR_CLOSED;
    } else if (bounded && l->n_posts >= POSTS_MAX) {
        result = ERR_FULL;
    } else {
        *l->last = p;
        l->last = &p->next;
        l->n_posts++;
        first = !l->wake_pending;
        l->wake_pending = true;
        if (first) wake(l); /* under the lock: loop_free cannot close the descriptor in between */
    }
    pthread_mutex_unlock(&l->lock);
    if (result) mem_free(p);
    return result;
}

enum err loop_post(struct loop *l, void (*fn)(void *arg), void *arg)
{
    return post(l, fn, arg, true);
}
enum err loop_post_unbounded(struct loop *l, void (*fn)(void *arg), void *arg)
{
    return post(l, fn, arg, false);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loop_timer *t = arg;
    struct loop *l = t->loop; /* fn may free the timer */
    uint64_t entered = loop_enter(l);
    t->fn(t->arg);
    loop_leave(l, entered);
}

struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg), void *arg)
{
    struct loop_timer *t = xmalloc(sizeof *t);
    *t = (struct loop_timer){.loop = l, .fn = fn, .arg = arg};
    int failed = event_assign(&t->ev, l->base, -1, 0, on_timer, t);
    ASSERT(!failed);
    return t;
}

void loop_timer_arm(struct loop_timer *t, uint64_t delay_ms)
{
    struct timeval tv = {.tv_sec = (time_t)(delay_ms / 1000),
                         .tv_usec = (suseconds_t)(delay_ms % 1000 * 1000)};
    int added = event_add(&t->ev, &tv);
    ASSERT(added == 0);
}

void loop_timer_stop(struct loop_timer *t)
{
    event_del(&t->ev);
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t) return;
    event_del(&t->ev);
    mem_free(t);
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
    (void)what;
    struct loop_signal *s = arg;
    uint64_t entered = loop_enter(s->loop);
    s->fn(s->arg, (int)signo);
    loop_leave(s->loop, entered);
}

enum err loop_on_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo), void *arg)
{
    if (l->n_signals == SIGNALS_MAX) return ERR_FULL;
    struct loop_signal *s = &l->signals[l->n_signals];
    *s = (struct loop_signal){.loop = l, .fn = fn, .arg = arg};
    s->ev = evsignal_new(l->base, signo, on_signal, s);
    if (!s->ev) return ERR_UNAVAILABLE;
    if (event_add(s->ev, NULL)) {
        event_free(s->ev);
        return ERR_UNAVAILABLE;
    }
    l->n_signals++;
    return OK;
}
