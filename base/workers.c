/* workers.c - see workers.h. One list under one mutex; a finished job travels back as a post to its loop. The bound
 * counts jobs until their done() has run, so a stuck loop cannot pile up results. The pool is freed by its last user:
 * workers_free or the last delivery that was still on its way. */
#include "base/workers.h"

#include <pthread.h>

#include "base/mem.h"

struct job {
    struct job *next;
    struct workers *workers;
    struct loop *loop;
    void (*run)(void *arg);
    void (*done)(void *arg, bool cancelled);
    void *arg;
    bool cancelled;
};

struct workers {
    pthread_mutex_t lock; /* guards all below but the threads */
    pthread_cond_t more;
    struct job *first, **last;
    size_t n_queued, queue_max;
    size_t n_undelivered; /* submitted and done() not yet run */
    bool stopping, freed;
    int n_threads;
    pthread_t threads[];
};

/* Ends one job's claim on the pool and frees the pool with the last one. */
static void unclaim(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->n_undelivered--;
    bool last = w->freed && w->n_undelivered == 0;
    pthread_mutex_unlock(&w->lock);
    if (!last) return;
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->more);
    mem_free(w);
}

static void deliver(void *arg)
{
    struct job *j = arg;
    struct workers *w = j->workers;
    j->done(j->arg, j->cancelled);
    mem_free(j);
    unclaim(w);
}

/* Sends the result home; a loop that is gone gets none. */
static void finish(struct job *j)
{
    struct workers *w = j->workers;
    if (j->done && loop_post_unbounded(j->loop, deliver, j) == OK) return;
    mem_free(j);
    unclaim(w);
}

static struct job *next_job(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stopping)
        pthread_cond_wait(&w->more, &w->lock);
    struct job *j = w->stopping ? NULL : w->first;
    if (j) {
        w->first = j->next;
        if (!w->first) w->last = &w->first;
        w->n_queued--;
    }
    pthread_mutex_unlock(&w->lock);
    return j;
}

static void *work(void *arg)
{
    struct workers *w = arg;
    for (struct job *j; (j = next_job(w));) {
        j->run(j->arg);
        finish(j);
    }
    return NULL;
}

struct workers *workers_new(int n_threads, size_t queue_max)
{
    ASSERT(n_threads > 0 && n_threads <= 1024 && queue_max > 0);
    struct workers *w = xcalloc(1, sizeof *w + (size_t)n_threads * sizeof w->threads[0]);
    w->last = &w->first;
    w->queue_max = queue_max;
    w->n_threads = n_threads;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    for (int i = 0; i < n_threads; i++) {
        int failed = pthread_create(&w->threads[i], NULL, work, w);
        ASSERT(!failed); /* start-up: a machine without room for a thread cannot run us */
    }
    return w;
}

void workers_free(struct workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    struct job *left = w->first;
    w->first = NULL;
    w->last = &w->first;
    w->n_queued = 0;
    w->n_undelivered++; /* our own claim, so that the pool outlives the joins */
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    for (struct job *next; left; left = next) {
        next = left->next;
        left->cancelled = true;
        finish(left);
    }
    pthread_mutex_lock(&w->lock);
    w->freed = true;
    pthread_mutex_unlock(&w->lock);
    unclaim(w);
}

enum err workers_submit(struct workers *w, struct loop *loop, void (*run)(void *arg),
                        void (*done)(void *arg, bool cancelled), void *arg)
{
    struct job *j = xmalloc(sizeof *j);
    *j = (struct job){.workers = w, .loop = loop, .run = run, .done = done, .arg = arg};
    pthread_mutex_lock(&w->lock);
    bool full = w->stopping || w->n_queued >= w->queue_max ||
                w->n_undelivered >= w->queue_max + (size_t)w->n_threads;
    if (!full) {
        *w->last = j;
        w->last = &j->next;
        w->n_queued++;
        w->n_undelivered++;
        pthread_cond_signal(&w->more);
    }
    pthread_mutex_unlock(&w->lock);
    if (full) mem_free(j);
    return full ? ERR_FULL : OK;
}
