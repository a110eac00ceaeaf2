/* relay.h - which of a client's header fields go on to an upstream, and what is added. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_RELAY_H
#define DEJA_GATEWAY_RELAY_H
#include "gateway/exchange.h"
#include "gateway/headers.h"

/* Everything end-to-end but credentials (the call adds those per target) and x-deja-*. keep_encoding: Accept-Encoding passes, because
 * nobody here reads the answer. */
void relay_headers(const struct exchange *x, struct header_list *out, bool keep_encoding);
/* What authorizes it at an upstream: the client's own field, or its x-api-key in that form. Borrowed, from x or scratch. */
struct str relay_authorization(const struct exchange *x, struct buf *scratch);
/* HMAC of the tenant, 32 hex digits: keeps tenants apart in the engine's prefix cache. "" when there is no engine. */
void relay_salt(const struct exchange *x, char out[33]);

#endif
