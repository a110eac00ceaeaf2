/* secret.h - the number that keys cache hashes and tenant salts. All replicas on one Redis must have the same one, and nobody outside
 * may know it (XXH3 is no cryptographic hash): made at random by whoever comes first and kept in Redis, unless the operator gives it. */
#ifndef DEJA_GATEWAY_SECRET_H
#define DEJA_GATEWAY_SECRET_H
#include "gateway/gateway.h"

/* Calls ready(arg, secret) once, from the loop: at once from the option or without Redis (then random), else when Redis has answered or
 * after wait_ms (then random, with a warning: entries of this process are not shared until it is restarted). */
struct secret_wait;
struct secret_wait *secret_get(struct gateway *gw, int wait_ms,
                               void (*ready)(void *arg, uint64_t secret), void *arg);
/* The number of a secret's text, as in the option cache_secret or in Redis. */
uint64_t secret_of_text(struct str text);
/* After redis_close. NULL is fine. */
void secret_free(struct secret_wait *w);

#endif
