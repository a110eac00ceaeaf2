/* route_model.h - the facts of a request for the rules of scenario.h, and their verdict. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_ROUTE_MODEL_H
#define DEJA_GATEWAY_ROUTE_MODEL_H
#include "gateway/exchange.h"

/* The model that answers x, which asks for model (after aliases). Notes in x->out.routed when that is another one. */
struct str route_model(struct exchange *x, struct str model);

#endif
