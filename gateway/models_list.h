/* models_list.h - GET /v1/models of a gateway with several upstreams: what a client may ask for here, from the lists of the upstreams, what
 * they told when probed, aliases and rules; each name once. With one upstream of any model its own list passes. Loop thread only. */
#ifndef DEJA_GATEWAY_MODELS_LIST_H
#define DEJA_GATEWAY_MODELS_LIST_H
#include "gateway/exchange.h"

/* True: x was answered. */
bool models_list(struct exchange *x);
/* Makes *e, which the table of faults has filled, name the model that nobody serves (asked by the client; led_to: what an alias or a rule
 * made of it, may be empty or the same) and some of those there are. */
void models_missing(struct openai_error *e, struct gateway *gw, struct str asked,
                    struct str led_to);

#endif
