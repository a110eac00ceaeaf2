/* fair_queue.h - who is next when there are more requests than slots. Two classes, online and batch. Inside a class tenants share by
 * weight: each grant costs its tenant cost/weight of virtual time, the tenant furthest behind goes next, and a tenant that was away
 * comes back level with the one furthest behind, not with savings (start-time fair queuing: Goyal, Vin, Cheng 1996; in tokens, corrected
 * once the answer is known: Sheng et al. 2024, arXiv:2401.00588). Inside a tenant the earliest deadline goes first.
 * Batch is granted up to the whole slots of its guaranteed share before online, and one grant in so many for what is less than a
 * slot; beyond it only when no online request waits and only up to its upper bound. A batch request older than age_ms may take every
 * fourth grant of online ones.
 * Pure: time is an argument; items belong to the caller and are linked in place. Bounded: items_max waiting (the fullest tenant gives
 * way to one with less than its part), FAIR_TENANTS_MAX tenants known. Threading: one thread. */
#ifndef DEJA_GATEWAY_FAIR_QUEUE_H
#define DEJA_GATEWAY_FAIR_QUEUE_H
#include "base/err.h"
#include "base/str.h"

enum fair_class { FAIR_ONLINE, FAIR_BATCH, N_FAIR_CLASSES };
enum { FAIR_TENANTS_MAX = 1024, FAIR_TENANT_BYTES = 65 };

struct fair_tenant;
struct fair_item {
    enum fair_class class;
    double cost; /* > 0, estimated; any unit, the same for all */
    uint64_t arrived_ms, deadline_ms;
    /* the queue's */
    struct fair_item *prev, *next;
    struct fair_tenant *tenant; /* from put until done */
    bool waiting;
};

struct fair_queue_options {
    int items_max;
    double batch_share;    /* of the slots, guaranteed to waiting batch work: 0..1 */
    double batch_most;     /* of the slots, at most: batch_share..1 */
    uint64_t batch_age_ms; /* 0 = batch work does not age */
};
struct fair_queue;
struct fair_queue *fair_queue_new(const struct fair_queue_options *o);
void fair_queue_free(struct fair_queue *q); /* must be empty, nothing at work */

/* Item class, cost, times are set; weight > 0 holds for the tenant from now on. *displaced: an item of the fullest tenant that gave
 * way, not waiting any more, or NULL. ERR_FULL: the queue is full and this tenant has its part of it. */
MUST enum err fair_queue_put(struct fair_queue *q, struct fair_item *i, struct str tenant,
                             double weight, struct fair_item **displaced);
void fair_queue_remove(struct fair_queue *q,
                       struct fair_item *i); /* waits no more; fine if it does not */
/* The next one when `slots` calls may be at work at a time, or NULL: taken out and counted at work until fair_queue_done. slots 0 = no
 * bound. */
struct fair_item *fair_queue_next(struct fair_queue *q, int slots, uint64_t now_ms);
/* Counts i at work without waiting: a free slot was there and nobody waited. False: it has to be put. */
bool fair_queue_pass(struct fair_queue *q, struct fair_item *i, struct str tenant, double weight,
                     int slots);
/* i's work has ended and came to `cost`; negative = unknown, the estimate stands. */
void fair_queue_done(struct fair_queue *q, struct fair_item *i, double cost);
/* One whose deadline is over, taken out; NULL: none. */
struct fair_item *fair_queue_expired(struct fair_queue *q, uint64_t now_ms);
/* When the next deadline is; UINT64_MAX: nobody waits. */
uint64_t fair_queue_deadline(const struct fair_queue *q);

int fair_queue_waiting(const struct fair_queue *q, enum fair_class c);
int fair_queue_working(const struct fair_queue *q, enum fair_class c);
/* Waiting ones that a new item of this tenant and class would wait behind, by weight; for an estimate of its wait. */
double fair_queue_ahead(const struct fair_queue *q, enum fair_class c, struct str tenant,
                        double weight);

#endif
