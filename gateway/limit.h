/* limit.h - a request's claim on its tenant's limits: made at the door (stage "limit", limit.c), carried by the exchange, handed to the
 * ticket when an upstream is asked, and settled once with what the request came to (limit_settle.c). Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_LIMIT_H
#define DEJA_GATEWAY_LIMIT_H
#include "base/openai.h"
#include "gateway/limits.h"

struct exchange;
struct ticket;
struct prompt_reader;

struct limit_claim {
    struct limit_hold *hold;
    struct limit_plan plan;
    struct exchange *x; /* while the decision is awaited */
    int64_t prompt_tokens;
    struct prompt_reader *reader; /* that counted them, for the answer too; NULL = estimated */
    struct limit_amounts reserved;
    struct limit_view tokens; /* as told at the door */
    uint64_t from_us;         /* at the door since */
};

/* Tells the client its limits; a refusal is the whole reply. (limit_tell.c) */
void limit_tell(struct exchange *x, const struct limit_verdict *v);
/* x is answered from the cache, before its reply begins: what was reserved beyond what that costs is left again. */
void limit_tell_hit(struct exchange *x);
void limit_refuse(struct exchange *x, const struct limit_claim *c, const struct limit_verdict *v);
void limit_claim_free(struct limit_claim *c); /* after its hold is gone */
/* The client has left: what was asked for is given back when it comes. */
void limit_leave(struct exchange *x);
/* The end of a request whose claim no ticket took over: nothing was computed for it; a hit costs what limit_hit_tokens says. */
void limit_end(struct exchange *x);
double limit_hit_tokens(const struct limit_claim *c, const struct openai_usage *u);
/* The leader's claim is the call's: whoever reads the answer, it is paid by the upstream call. */
void limit_pass_to_ticket(struct exchange *x, struct ticket *t);
/* ... and is x's again: the call is not made, or what is stored answers x instead. Nothing where x has one or t has none. */
void limit_take_back(struct exchange *x, struct ticket *t);
/* The upstream's answer is there, or a stream is complete and not taken from its collector yet; a may be NULL. Each settles t's claim
 * unless that was done. */
void ticket_settle_answer(struct ticket *t, const struct openai_answer *a);
/* The call has ended, however: settles what is left to settle. */
void ticket_settle_rest(struct ticket *t, enum err code, bool head_seen);
/* Does a header of an upstream's reply stay behind, because the gateway tells limits of its own? */
bool limit_hides(const struct exchange *x, struct str header);

#endif
