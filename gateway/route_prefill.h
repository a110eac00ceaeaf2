/* route_prefill.h - which engine, if any, computes a prompt for the one that will answer (docs/disaggregation.md): engines of role prefill
 * that name the blocks of this request alike and keep them in the same format, when the answering engine has role decode and lacks enough
 * of the prompt. The one asked fetches the blocks itself, and computes what it does not get. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_ROUTE_PREFILL_H
#define DEJA_GATEWAY_ROUTE_PREFILL_H

struct route_plan;

/* For the engine target, chosen already: "URL HELD" (x-deja-prefill; HELD tokens of the prompt it has itself), or NULL: it computes the
 * prompt itself. Borrowed until the next call. */
const char *route_plan_prefill(struct route_plan *p, int target);

#endif
