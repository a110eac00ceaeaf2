/* aside.h - one call of the gateway's own, beside any request: to the judge, or a second asking of a question to see whether a reused
 * answer was right. Batch class (the engine serves clients first), the whole reply in memory within a bound, a deadline, no retries
 * beyond those of any call. Threading: the loop's thread; exactly one done, never before aside_start returns. */
#ifndef DEJA_GATEWAY_ASIDE_H
#define DEJA_GATEWAY_ASIDE_H
#include "base/http_client.h"

struct aside;
struct gateway;

struct aside_request {                /* all copied */
    const struct http_origin *origin; /* NULL = one of the gateway's upstreams that serves model */
    struct str key;                   /* bearer token for origin; may be empty */
    struct str path; /* "/v1/chat/completions"; with an origin: appended to its base */
    struct str model, body;
    struct str authorization, salt; /* as in call.h, for the gateway's upstreams */
    int timeout_ms;
};
/* code OK: the reply was complete; status and body as they came. Otherwise body is empty. */
typedef void aside_done(void *arg, enum err code, int status, struct str body);
struct aside *aside_start(struct gateway *gw, const struct aside_request *r, aside_done *done,
                          void *arg);
void aside_cancel(struct aside *a); /* done(ERR_CANCELLED) follows; idempotent; NULL is fine */

#endif
