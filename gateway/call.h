/* call.h - one request to whichever upstream can take it: picks a target, tries again before the first byte (failed connect, 503) on
 * another target or after a pause, feeds the breakers, and says at the end what went wrong. Knows
 * nothing of what is in the answer. Threading: the loop's thread; exactly one on_done, never before call_start returns. */
#ifndef DEJA_GATEWAY_CALL_H
#define DEJA_GATEWAY_CALL_H
#include "gateway/headers.h"
#include "gateway/reply_fault.h"
#include "gateway/upstreams.h"

struct call;
struct gateway;

struct call_request {
    const char *method;
    struct str path;                   /* as the client sent it, with the query */
    const struct header_list *headers; /* what goes to any target; copied */
    struct str authorization; /* the client's, for targets other than the engine; may be empty */
    struct str salt;          /* tenant salt for the engine's prefix cache */
    struct str model;         /* for the choice of the target; empty = any */
    struct str body;          /* copied */
    bool retry_503;
    bool batch; /* the engine serves it after clients */
};
struct call_handler {
    void (*on_head)(void *arg, const struct http_reply_head *head);
    void (*on_body)(void *arg, struct str bytes);
    /* code OK: complete. ERR_CANCELLED: by call_cancel. Otherwise fault says what to tell the client (details, which hold addresses, are
     * logged); head_seen tells whether on_head has run. */
    void (*on_done)(void *arg, enum err code, enum fault fault, bool head_seen);
    void *arg;
};
struct call *call_start(struct gateway *gw, const struct call_request *r,
                        const struct call_handler *h);
void call_cancel(struct call *c); /* on_done(ERR_CANCELLED) follows; idempotent */
void call_pause(struct call *c);
void call_resume(struct call *c);
uint64_t call_retry_after_ms(
    const struct call *c); /* within on_done with FAULT_BREAKER: when to come back */

#endif
