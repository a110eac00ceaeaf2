/* pipeline.h - the order of stages one request goes through, in one table, never back. A stage does its part and answers NEXT, DONE
 * (the reply has been handed over whole) or WAIT (it has started something, whose end calls pipeline_resume or pipeline_finish).
 * Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_PIPELINE_H
#define DEJA_GATEWAY_PIPELINE_H
#include "gateway/exchange.h"

enum step { STEP_NEXT, STEP_DONE, STEP_WAIT };

/* Takes a request that has arrived whole and runs it as far as it goes. */
void pipeline_start(struct gateway *gw, struct http_req *r);
/* What a stage waited for has come: go on with the next one. */
void pipeline_resume(struct exchange *x);
/* The reply has been handed over whole (or cut): writes the access line, counts, frees x. Only for an exchange that waits. */
void pipeline_finish(struct exchange *x);

/* The stages, in their order. Each lives in the file of its name. */
enum step stage_route_known(struct exchange *x); /* pipeline.c: addresses and methods */
enum step stage_admit(struct exchange *x);       /* admit.c */
enum step stage_read(struct exchange *x);        /* chat.c: the body, strictly */
enum step stage_prepare(struct exchange *x);     /* chat.c: controls, aliases, what goes upstream */
enum step stage_key(struct exchange *x);         /* lookup.c */
enum step stage_find(struct exchange *x);        /* lookup.c: exact and similar */
enum step stage_join(struct exchange *x);        /* coalesce.c */
enum step
stage_forward(struct exchange *x); /* forward.c: route, forward and keep go on in the ticket */

/* Where the answers that need no pipeline come from. */
enum step health_answer(struct exchange *x);  /* health.c */
enum step metrics_answer(struct exchange *x); /* admin.c */
enum step proxy_start(struct exchange *x);    /* proxy.c */
enum step admin_start(struct exchange *x);    /* admin_http.c */
enum step explain_admit(struct exchange *x);  /* explain.c; and the two below */
enum step explain_start(struct exchange *x);
void explain_leave(struct exchange *x);
/* Has the request the admin key? If not it has been refused. */
bool admin_is_allowed(struct exchange *x); /* admin_http.c */
/* Ways a waiting exchange lets go when its client has left; each is fine when there is nothing to let go. */
void parse_abandon(struct exchange *x); /* chat.c; true work goes on without x */
void proxy_leave(struct exchange *x);   /* proxy.c */
void admin_leave(struct exchange *x);   /* admin_http.c */
void proxy_writable(struct exchange *x);

#endif
