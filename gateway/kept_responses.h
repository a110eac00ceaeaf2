/* kept_responses.h - answers of /v1/responses that stay in Redis (lua/responses.lua): GET and DELETE /v1/responses/{id}, and requests that
 * go on from one by previous_response_id, which are read as if the client had sent the whole conversation: so they share entries, calls
 * and KV with requests that do. What is kept is written when the answer is told; nobody waits for Redis there.
 * Bounds: response_ttl_s, responses_bytes_max a tenant, a conversation's bytes as a body's. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_KEPT_RESPONSES_H
#define DEJA_GATEWAY_KEPT_RESPONSES_H
#include "gateway/pipeline.h"

/* Are they served here, or left to the upstream? */
bool kept_responses_here(const struct gateway *gw);
/* Gives what a reply's ids are made from the way to be kept, where the client did not forbid it. */
void kept_responses_facts(struct exchange *x, struct door_facts *f);

#endif
