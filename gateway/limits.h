/* limits.h - reservations of what a request may use, for all gateways together: one call of deja_limit (lua/limits.lua) takes everything
 * or nothing, another puts it right at the end. Reservations at work are renewed, so that those of a gateway that died come back by
 * themselves. When Redis is away or slow, this gateway goes by its own share (limit_local.h), and tells Redis afterwards what was used.
 * Where no limit is set nothing is asked and nothing is sent. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_LIMITS_H
#define DEJA_GATEWAY_LIMITS_H
#include "gateway/limit_local.h"

struct gateway;
struct limits;
struct limit_hold; /* one reservation, from asking to being settled */

struct limits *limits_open(struct gateway *gw);
void limits_close(
    struct limits *l); /* NULL is fine; every hold has been settled or abandoned before */

/* Which limits hold for this request; false: none. */
bool limits_plan(const struct limits *l, struct str tenant, struct str model,
                 struct limit_plan *out);
/* Per million tokens of model: what is set for it, else what holds for all models. */
struct limit_price limits_price(const struct limits *l, struct str model);

enum limit_answer { LIMIT_PENDING, LIMIT_ALLOWED, LIMIT_REFUSED };
typedef void limit_decided(void *arg, const struct limit_verdict *v);
/* ALLOWED: *out must be settled. REFUSED: there is no hold. PENDING: decided(arg, v) comes once, unless *out is abandoned before; if it
 * says refused, the hold is gone. v is filled unless PENDING. */
MUST enum limit_answer limits_reserve(struct limits *l, const struct limit_plan *p,
                                      struct limit_amounts a, struct limit_hold **out,
                                      struct limit_verdict *v, limit_decided *decided, void *arg);
/* Nobody waits for a pending hold any more: what it gets is given back. */
void limits_abandon(struct limit_hold *h);
/* The end: what it came to, and what the cache saved. The hold is gone. */
void limits_settle(struct limit_hold *h, struct limit_amounts used, double saved);
/* done(arg) once Redis has every settlement, or after wait_ms. For the end of the program. */
void limits_flush(struct limits *l, int wait_ms, void (*done)(void *arg), void *arg);

#endif
