/* counting.h - counts what becomes of each request and hands it to Redis once a second, off the request's path, so that operators see
 * hit rates, false reuse, latency and savings of all gateways together (deja_stats, deja_experiment_report). A batch is sent again
 * until it is answered and added once whatever happens. Without Redis nothing is kept. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_COUNTING_H
#define DEJA_GATEWAY_COUNTING_H
#include "gateway/tally.h"

struct exchange;
struct gateway;
struct counting;

struct counting *counting_open(struct gateway *gw);
void counting_close(struct counting *c); /* NULL is fine */
/* Sends what is there; done(arg) once Redis has it or after wait_ms. For the end of the program. */
void counting_flush(struct counting *c, int wait_ms, void (*done)(void *arg), void *arg);
/* At the end of a request that used the cache. */
void counting_request(struct counting *c, const struct exchange *x, double seconds);
/* Something that is counted apart from requests: an answer checked, a pair judged. */
void counting_add(struct counting *c, const char *ns, const char *arm, enum tally_field field,
                  uint64_t n);

#endif
