/* route_shared.h - stage "shared": gateways that share targets which tell nothing of their KV share through Redis what they have sent
 * there (lua/prefix.lua). What Redis knows of a prompt is put into this gateway's own index as guesses, and the choice goes by that; so
 * a failure or a slow reply costs nothing but the knowledge. Engines of ours are followed by every gateway itself and have no part in
 * this. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_ROUTE_SHARED_H
#define DEJA_GATEWAY_ROUTE_SHARED_H
#include "gateway/pipeline.h"

struct route_plan;
struct route_shared;
struct route_shared *route_shared_open(struct gateway *gw);
void route_shared_close(struct route_shared *s); /* NULL is fine */
/* NEXT, or WAIT while Redis is asked. */
enum step stage_shared(struct exchange *x);
void route_shared_abandon(struct exchange *x);
/* p's call goes to target now. */
void route_shared_note(struct route_shared *s, const struct route_plan *p, int target);

#endif
