/* queue.h - where calls wait for a free slot of an upstream, before any work is done for them. One queue for each set of upstreams that can
 * take a call (gateway/fair_queue.h says who is next); who will not be served within its time is refused at once, with the time after
 * which it is worth coming back. While the upstreams have no known bound nothing waits. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_QUEUE_H
#define DEJA_GATEWAY_QUEUE_H
#include "gateway/fair_queue.h"
#include "gateway/reply_fault.h"

struct gateway;
struct queue;
struct queue_pool;

struct queue_want {
    struct str model, tenant; /* tenant empty: the gateway's own work */
    double weight;            /* of the tenant; 0 = 1 */
    bool batch;
    double cost; /* tokens it will take, estimated; >= 1 */
};
/* A call's place, kept by the caller; zeroed at the start. */
struct queue_place {
    struct fair_item item;
    struct queue_pool *pool; /* NULL: no slot is held and nothing waited for */
    void (*on_turn)(void *arg);
    /* Waits no more: FAULT_QUEUE_FULL, FAULT_QUEUE_LATE. */
    void (*on_refused)(void *arg, enum fault fault, uint64_t retry_ms);
    void *arg;
    uint64_t entered_us, waited_us;
};

struct queue *queue_open(struct gateway *gw);
void queue_close(struct queue *q); /* after all calls; NULL is fine */
enum queue_answer { QUEUE_GO, QUEUE_WAIT, QUEUE_REFUSED };
/* GO: the slot is p's until queue_leave. WAIT: on_turn or on_refused follows, never before this returns, unless p leaves. REFUSED: *fault
 * and *retry_ms say why and when to come back. */
enum queue_answer queue_enter(struct queue *q, struct queue_place *p, const struct queue_want *w,
                              enum fault *fault, uint64_t *retry_ms);
/* Gives the slot back or waits no more. cost: what it came to in tokens, negative = unknown. Idempotent. */
void queue_leave(struct queue *q, struct queue_place *p, double cost);
/* Sets the gauges; before they are read. */
void queue_show(struct queue *q);

#endif
