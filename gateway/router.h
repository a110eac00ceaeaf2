/* router.h - which target a prompt should go to: what each is known, or guessed, to hold of it as KV. Owns the prefix index, the feeds
 * that keep it true, and the tokenizers. The choice itself, with loads and breakers, is upstreams_pick's. A guess is made when a
 * call goes to a target (what was sent there will be there); what was promised is compared with what the upstream says it had.
 * With one target only there is nothing to choose and nothing is done. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_ROUTER_H
#define DEJA_GATEWAY_ROUTER_H
#include "base/openai.h"
#include "gateway/gateway.h"
#include "gateway/prompt_reader.h"

struct exchange;
struct router;
struct route_plan; /* of one request */

/* After gw's upstreams. ERR_*: the file of the option tokenizer cannot be used. */
MUST enum err router_open(struct router **out, struct gateway *gw, struct errmsg *e);
void router_close(struct router *r); /* after the HTTP client's end. NULL is fine */

/* What reads prompts for a model; NULL: unknown. Borrowed. */
struct prompt_reader *router_reader(const struct router *r, struct str model);
/* Is there a choice of targets to make by what they hold? */
bool router_chooses(const struct router *r, const struct exchange *x);
/* For /metrics. */
void router_count(struct router *r);

/* For x's prompt asked of model. NULL: nothing is known that would help. The prompt was read before (stage "prompt"). */
struct route_plan *route_plan_new(struct exchange *x, struct str model);
void route_plan_free(struct route_plan *p);                  /* NULL is fine */
const float *route_plan_matched(const struct route_plan *p); /* [UPSTREAMS_MAX] */
float route_plan_tokens(const struct route_plan *p);         /* of the prompt, maybe estimated */
void route_plan_goes(struct route_plan *p, int target);      /* the call goes there now */
void route_plan_ended(struct route_plan *p, const struct openai_usage *usage);
/* "target=2 held=192 of=231 by=events", and " prefill=0" where target 0 computes it: for people. */
void route_plan_describe(const struct route_plan *p, char out[96]);

#endif
