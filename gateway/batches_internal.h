/* batches_internal.h - what batches.c (taking, leases), batches_line.c (one line) and batches_input.c (validation) share. */
#ifndef DEJA_GATEWAY_BATCHES_INTERNAL_H
#define DEJA_GATEWAY_BATCHES_INTERNAL_H
#include "gateway/batches.h"
#include "gateway/store.h"

struct batch_task { /* a line or a validation: the first member of both */
    struct batches *b;
    struct batch_task *prev, *next;
    char batch[STORE_ID_BYTES];
    char entry[48]; /* its id in the batch's stream; "" = a validation */
    void (*stop)(
        struct batch_task
            *t); /* the gateway ends: no new work; frees t now or when what is awaited comes */
};

struct batches {
    struct gateway *gw;
    struct batch_task *tasks;
    int n_tasks;
    int n_lines; /* of them in the pipeline */
    bool taking, closed;
    void (*drained)(void *arg); /* once no task is left */
    void *drained_arg;
    char name[33]; /* of this gateway among those that work */
    struct loop_timer *poll, *renewal;
    struct metric *queued, *active, *running, *good, *bad, *retried, *waited, *dead, *taken_over,
        *refused;
};

void batches_add(struct batches *b, struct batch_task *t);
/* This gateway is at it already: its lease ran out while Redis was away, and it took its own line again. */
bool batches_has(const struct batches *b, struct str batch, struct str entry);
void batches_remove(
    struct batch_task *t); /* the task is over: another may begin; b may be gone after it */

/* item: as deja_batch_take gives it. */
void batch_line_start(struct batches *b, const struct redis_reply *item);
void batch_input_start(struct batches *b, const struct redis_reply *item);

#endif
