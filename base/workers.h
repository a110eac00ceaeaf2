/* workers.h - a small pool for work over a millisecond (embedding, FAISS, tokenising long text, files), whose
 * completion runs on a loop. Bounded queue. Threading: submit from any thread; run() on a worker; done() on the loop's
 * thread. */
#ifndef DEJA_BASE_WORKERS_H
#define DEJA_BASE_WORKERS_H
#include "base/loop.h"

struct workers;
struct workers *workers_new(int n_threads, size_t queue_max);
/* Finishes what runs; queued work gets done() with cancelled = true where its loop still runs. Call it before freeing
 * the loops it reports to. NULL is fine. */
void workers_free(struct workers *w);
/* ERR_FULL: nothing was queued (queue_max wait, or queue_max + n_threads are not yet delivered). Otherwise run(arg)
 * then, on loop, done(arg, cancelled) exactly once. done may be NULL. */
MUST enum err workers_submit(struct workers *w, struct loop *loop, void (*run)(void *arg),
                             void (*done)(void *arg, bool cancelled), void *arg);

#endif
