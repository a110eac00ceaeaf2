/* embedder_private.h - what embedder.c (threads, queue) and embedder_calls.c (what others call) share; for no other file. */
#ifndef DEJA_EMBEDDINGS_EMBEDDER_PRIVATE_H
#define DEJA_EMBEDDINGS_EMBEDDER_PRIVATE_H
#include <pthread.h>

#include "embeddings/embedder.h"
#include "embeddings/embedder_memo.h"
#include "embeddings/text_source.h"

struct request {
    struct request *prev, *next; /* in the queue */
    struct str text;
    char *bytes; /* the text, owned */
    uint64_t deadline_ms;
    embedder_done *done;
    void *arg;
    bool expired;                /* running, but already answered with ERR_TIMEOUT */
    embedder_compared *compared; /* not NULL: a comparison; `against` then holds the other side */
    struct comparison *against;
};

struct comparison {
    int n;
    struct str text[EMBEDDER_COMPARE_MAX];
    struct str tokens[EMBEDDER_COMPARE_MAX];
    char *bytes; /* of all of them */
    double cosine[EMBEDDER_COMPARE_MAX];
};

struct embedder {
    struct embedder_options opt;
    struct text_source *source; /* the compute thread's, but for what any thread may ask */
    size_t dim, record;         /* floats of a vector; with its sketch behind it */
    pthread_t computer, watcher;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* the queue got an entry, or closing */
    pthread_cond_t clock; /* an earlier deadline came, or closing */
    bool closing;
    struct request *first, *last; /* queue, oldest first */
    int n_queued;
    struct request **running; /* [batch_max], n_running of them */
    int n_running;
    bool has_compared;   /* the last pass was one of comparisons */
    uint64_t watched_ms; /* the watcher sleeps until then; UINT64_MAX = no deadline */
    struct embedder_memo *memo;
    struct embedder_stats stats;

    /* the compute thread's scratch, [batch_max] each */
    struct str *texts;
    int *slot; /* request -> place among the distinct texts */
    enum err *status;
    bool *due;      /* request -> to be answered */
    float *vectors; /* [batch_max][record] */
};

/* At the end of the queue; the lock is held. */
void embedder_queue_push(struct embedder *em, struct request *r);
void embedder_request_free(struct request *r);

#endif
