/* coalesce.h - equal requests in flight share one upstream call. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_COALESCE_H
#define DEJA_GATEWAY_COALESCE_H
#include "gateway/exchange.h"

/* True when this exchange may share: keyed, and nothing it asked for forbids it. */
bool join_allowed(const struct exchange *x);
/* An equal request is being answered now and has room for x. */
bool join_possible(const struct exchange *x);
/* The key is listed already (full or not): a new ticket must go unlisted. A client's takes the place of a batch's line. */
bool join_taken(const struct exchange *x);

#endif
