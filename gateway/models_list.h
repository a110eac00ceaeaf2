/* models_list.h - GET /v1/models of a gateway with several upstreams: what a client may ask for here, from the lists of the upstreams, what
 * they told when probed, aliases and rules; each name once. With one upstream of any model its own list passes. Loop thread only. */
#ifndef DEJA_GATEWAY_MODELS_LIST_H
#define DEJA_GATEWAY_MODELS_LIST_H
#include "gateway/exchange.h"

/* True: x was answered. */
bool models_list(struct exchange *x);

#endif
