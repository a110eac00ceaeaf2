/* batches.h - the work of batches: takes lines from Redis, as many as may run now (batch_pace.h), sends each through the pipeline as a
 * request of its tenant, and hands its result back, where it is written once. Every gateway on one Redis takes part. A line whose gateway
 * dies is taken by another when its lease is over. Threading: the loop's thread; inputs are checked on workers. */
#ifndef DEJA_GATEWAY_BATCHES_H
#define DEJA_GATEWAY_BATCHES_H

struct batches;
struct gateway;

/* NULL without a store, or where batches are not served here. */
struct batches *batches_open(struct gateway *gw);
/* Lines at work are left to their leases. Before store_close and the parts requests need; NULL is fine. */
void batches_close(struct batches *b);
/* Calls done once no line is at work here; none is begun any more (gw->draining). b NULL: at once. */
void batches_drain(struct batches *b, void (*done)(void *arg), void *arg);
/* There may be something to do. */
void batches_wake(struct batches *b);

#endif
