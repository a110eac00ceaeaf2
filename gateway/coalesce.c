/* coalesce.c - stage "join": a request equal to one in flight follows it instead of asking again. Requests with no-cache, no-store or
 * bypass do not: they asked for an answer of their own. */
#include "gateway/coalesce.h"

#include "gateway/join_table.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/ticket.h"

bool join_allowed(const struct exchange *x)
{
    const struct controls *c = &x->controls;
    return x->keyed && !c->bypass && !c->skip_lookup && !c->no_store && x->gw->o.coalesce_max > 0;
}

bool join_taken(const struct exchange *x)
{
    struct ticket *t = join_table_find(x->gw->joins, x->key.exact);
    if (!t || x->patient || !t->batch) return t != NULL;
    ticket_unlist(t); /* a client's call takes the place of a batch's: others follow that one */
    return false;
}

bool join_possible(const struct exchange *x)
{
    if (!join_allowed(x)) return false;
    const struct ticket *t = join_table_find(x->gw->joins, x->key.exact);
    return t && ticket_takes(t) && (x->patient || !t->batch);
}

enum step stage_join(struct exchange *x)
{
    if (!join_possible(x)) return STEP_NEXT;
    x->out.cache = "coalesced";
    outcome_reason(&x->out, "in_flight");
    ticket_board(join_table_find(x->gw->joins, x->key.exact), x);
    return STEP_WAIT;
}
