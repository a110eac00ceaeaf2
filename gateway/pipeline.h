/* pipeline.h - the order of stages one request goes through, in one table, never back. A stage does its part and answers NEXT, DONE
 * (the reply has been handed over whole) or WAIT (it has started something, whose end calls pipeline_resume or pipeline_finish).
 * Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_PIPELINE_H
#define DEJA_GATEWAY_PIPELINE_H
#include "gateway/exchange.h"

enum step { STEP_NEXT, STEP_DONE, STEP_WAIT };

/* Takes a request that has arrived whole and runs it as far as it goes. */
void pipeline_start(struct gateway *gw, struct http_req *r);
/* The same for a line of a batch, for this tenant. r: of base/http_local.h. */
void pipeline_start_batch(struct gateway *gw, struct http_req *r, const char *tenant);
/* What a stage waited for has come: go on with the next one. */
void pipeline_resume(struct exchange *x);
/* The reply has been handed over whole (or cut): writes the access line, counts, frees x. Only for an exchange that waits. */
void pipeline_finish(struct exchange *x);

/* The stages, in their order. Each lives in the file of its name. */
enum step stage_route_known(struct exchange *x); /* pipeline.c: addresses and methods */
enum step stage_admit(struct exchange *x);       /* admit.c */
struct str admit_key(const struct http_req *r);  /* the API key a request carries, or empty */
enum step stage_previous(struct exchange *x);    /* kept_responses.c: the conversation so far */
enum step stage_read(struct exchange *x);        /* chat.c: the body, strictly */
enum step stage_prepare(struct exchange *x);     /* chat.c: controls, aliases, what goes upstream */
enum step stage_limit_count(struct exchange *x); /* limit.c: the prompt, where tokens are limited */
enum step stage_limit(struct exchange *x); /* limit.c; and the next, of what is passed through */
enum step stage_limit_proxy(struct exchange *x);
enum step stage_key(struct exchange *x);    /* lookup.c */
enum step stage_find(struct exchange *x);   /* lookup.c: exact and similar */
enum step stage_prompt(struct exchange *x); /* prompt_tokens.c: token ids */
enum step stage_shared(struct exchange *x); /* route_shared.c: what other gateways sent where */
enum step stage_follow(struct exchange *x); /* lookup.c: similar ones begun meanwhile */
enum step stage_join(struct exchange *x);   /* coalesce.c */
enum step
stage_forward(struct exchange *x); /* forward.c: route, forward and keep go on in the ticket */

/* chat.c: the body as it goes upstream; borrowed. */
struct str exchange_body(const struct exchange *x);

/* proxy.c: what chat.c left for the upstream to judge goes there as it is. */
enum step stage_unread(struct exchange *x);

/* Where the answers that need no pipeline come from. */
enum step health_answer(struct exchange *x);        /* health.c */
enum step metrics_answer(struct exchange *x);       /* admin.c */
enum step proxy_start(struct exchange *x);          /* proxy.c */
enum step embeddings_start(struct exchange *x);     /* embeddings.c */
enum step count_tokens_answer(struct exchange *x);  /* count_tokens.c */
enum step admin_start(struct exchange *x);          /* admin_http.c */
enum step files_start(struct exchange *x);          /* files_http.c */
enum step batches_start(struct exchange *x);        /* batches_http.c */
enum step kept_responses_start(struct exchange *x); /* kept_responses.c: /v1/responses/{id} */
enum step explain_admit(struct exchange *x);        /* explain.c; and the two below */
enum step explain_start(struct exchange *x);
void explain_leave(struct exchange *x);
/* Has the request the admin key? If not it has been refused. */
bool admin_is_allowed(struct exchange *x); /* admin_http.c */
/* Ways a waiting exchange lets go when its client has left; each is fine when there is nothing to let go. */
void parse_abandon(struct exchange *x); /* chat.c; true work goes on without x */
void proxy_leave(struct exchange *x);   /* proxy.c */
void embeddings_leave(struct exchange *x);
void admin_leave(struct exchange *x); /* admin_http.c */
/* admin_seed.c: POST, DELETE /admin/seed, the key checked. */
enum step admin_seed_start(struct exchange *x);
void admin_seed_leave(struct exchange *x);
void store_leave(struct exchange *x); /* store.c */
void proxy_writable(struct exchange *x);
void store_writable(struct exchange *x);

#endif
