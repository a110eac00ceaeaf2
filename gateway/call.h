/* call.h - one request to whichever upstream can take it: picks a target, tries again before the first byte as gateway/retry.h says, on
 * another target or after a pause, within the budget; may ask a second target when the first is slow (hedging); feeds breakers and
 * pauses, and says at the end what went wrong. Knows nothing of what is in the answer. Threading: the loop's thread; exactly one
 * on_done, never before call_start returns. */
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
    struct str
        authorization;    /* the client's, for targets without a key of their own; may be empty */
    struct str salt;      /* tenant salt for the engine's prefix cache */
    struct str model;     /* for the choice of the target; empty = any */
    const float *matched; /* see struct upstream_want; copied, may be NULL */
    float load_weight, prompt_tokens;
    struct str body; /* copied; its "model" becomes what the target calls it */
    bool
        repeatable; /* may be sent twice: tries again also after it may have been at work somewhere, and may be hedged */
    bool batch;     /* the engine serves it after clients, and it waits in the batch class */
    struct str tenant;    /* whose turn it is in the queue; empty: the gateway's own work */
    double tenant_weight; /* 0 = 1 */
    double cost;          /* tokens it will take, estimated; 0 = not known */
};
struct call_handler {
    void (*on_head)(void *arg, const struct http_reply_head *head);
    void (*on_body)(void *arg, struct str bytes);
    /* code OK: complete. ERR_CANCELLED: by call_cancel. Otherwise fault says what to tell the client (details, which hold addresses, are
     * logged); head_seen tells whether on_head has run. */
    void (*on_done)(void *arg, enum err code, enum fault fault, bool head_seen);
    void *arg;
    /* May be NULL. The call goes to this target now, by its index; also from within call_start. */
    void (*on_target)(void *arg, int target);
    /* May be NULL. After on_target: what the engine that is asked hears as x-deja-prefill, or NULL; borrowed until the next call. */
    const char *(*prefill)(void *arg, int target);
};
struct call *call_start(struct gateway *gw, const struct call_request *r,
                        const struct call_handler *h);
void call_cancel(struct call *c); /* on_done(ERR_CANCELLED) follows; idempotent */
/* All there are end with FAULT_DRAINING, before this returns, and so does any that is started once gw->ending is set. */
void calls_refuse(struct gateway *gw);
/* All that are left, at the end of the program; their handlers must not start others. */
void calls_end(struct gateway *gw);
/* What it came to in tokens, for the sharing among tenants. */
void call_spent(struct call *c, double tokens);
/* No target has been asked yet: it waits for a slot. */
bool call_is_waiting(const struct call *c);
/* Time it waited for a slot, microseconds. */
uint64_t call_waited_us(const struct call *c);
void call_pause(struct call *c);
void call_resume(struct call *c);
/* Within on_done without a head: when to come back; 0 = nothing is known. */
uint64_t call_retry_after_ms(const struct call *c);
/* From on_head on: another target than the first one answers, because that one failed. */
bool call_moved(const struct call *c);

#endif
