/* timed_wait.h - condition variables waited on until a time of clock_us. Threading: any, as those of pthreads. */
#ifndef DEJA_BASE_TIMED_WAIT_H
#define DEJA_BASE_TIMED_WAIT_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline void timed_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* c: of timed_cond_init. False: the time has come; true: woken, or for no reason. */
static inline bool timed_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_us)
{
    struct timespec t = {.tv_sec = (time_t)(until_us / 1000000),
                         .tv_nsec = (long)(until_us % 1000000) * 1000};
    return !pthread_cond_timedwait(c, lock, &t);
}

#endif
