/* near.h - near misses on their way to the review list in Redis: noted when a look-up ends, sent once a second in batches, so that a
 * request never waits for it. Bounded: beyond NEAR_BATCH_MAX a second they are dropped and counted. Requests that ask for no-store
 * leave no trace here. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_NEAR_H
#define DEJA_GATEWAY_NEAR_H
#include "cache/cache.h"

struct exchange;
struct gateway;
struct near;
enum { NEAR_BATCH_MAX = 400 };

struct near *near_open(struct gateway *gw);
void near_close(struct near *n); /* NULL is fine */
/* f: a miss of x's look-up. */
void near_note(struct near *n, const struct exchange *x, const struct cache_found *f);

#endif
