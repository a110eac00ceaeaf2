/* loop.h - one event loop (libevent's event_base with its bufferevents) and the way into it from other threads.
 * A loop and everything on it belong to the thread that runs loop_run; loop_post is the only call for other threads.
 * Callbacks never run before the call that started them has returned. loop_new makes the process ignore SIGPIPE: a peer
 * that left is an error code here, not a signal.
 * Order at the end: free servers, clients and timers, then workers, then the loop. */
#ifndef DEJA_BASE_LOOP_H
#define DEJA_BASE_LOOP_H
#include "base/str.h"

struct loop;
struct event_base; /* libevent's; for the files of base/ that talk to sockets */
struct loop_timer;

MUST enum err loop_new(struct loop **out, struct errmsg *e);
/* Runs what is still posted (whoever posted owns memory through it), then frees. NULL is fine. */
void loop_free(struct loop *l);
/* Runs until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l); /* any thread; safe in a signal callback of loop_on_signal */
struct event_base *loop_base(struct loop *l);

/* Any thread: fn(arg) runs once on the loop's thread. ERR_FULL when posts_max (65536) wait; ERR_CLOSED when the loop is
 * being freed: fn has not run and never will. */
MUST enum err loop_post(struct loop *l, void (*fn)(void *arg), void *arg);
/* The same without that bound, for what somebody waits for and who posts it cannot wait: he keeps a bound of his own. OK or ERR_CLOSED. */
MUST enum err loop_post_unbounded(struct loop *l, void (*fn)(void *arg), void *arg);

/* One-shot timer; never NULL. Free cancels. A fired timer may be re-armed. */
struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *arg), void *arg);
void loop_timer_arm(struct loop_timer *t, uint64_t delay_ms); /* re-arming replaces */
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t);

/* fn on the loop's thread at each signal. At most 4 signals. */
MUST enum err loop_on_signal(struct loop *l, int signo, void (*fn)(void *arg, int signo),
                             void *arg);

/* Longest time a callback kept the loop busy since the last call, microseconds (a gauge for /metrics). */
uint64_t loop_lag_us(struct loop *l);
/* Posts, timers and signals are measured by the loop itself. A file that hangs own events on loop_base brackets its
 * callbacks: uint64_t t = loop_enter(l); ... loop_leave(l, t); */
uint64_t loop_enter(struct loop *l);
void loop_leave(struct loop *l, uint64_t entered_us);
/* clock_ms as it was when the callback at work began, without asking the clock again: good enough for deadlines. */
uint64_t loop_ms(const struct loop *l);

#endif
