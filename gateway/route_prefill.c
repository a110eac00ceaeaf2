/* route_prefill.c - see route_prefill.h. */
#include "gateway/route_prefill.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/router_internal.h"

/* Bits of the engines that may compute p's prompt for target. Those that share its chain agree on model file, adapter, salt and names. */
static uint32_t helpers_of(const struct route_plan *p, int target, const struct kv_naming *own)
{
    const struct router *r = p->router;
    uint32_t out = 0;
    for (int i = 0; i < r->n; i++) {
        const struct kv_naming *n =
            r->feeds[i] && kv_feed_live(r->feeds[i]) ? kv_feed_naming(r->feeds[i]) : NULL;
        if (n && n->role == KV_ROLE_PREFILL && p->chains.of[i] == p->chains.of[target] &&
            !strcmp(n->kv_format, own->kv_format))
            out |= 1u << i;
    }
    return out;
}

const char *route_plan_prefill(struct route_plan *p, int target)
{
    struct router *r = p->router;
    if (target >= r->n || !r->feeds[target] || p->chains.of[target] < 0) return NULL;
    const struct kv_naming *own = kv_feed_naming(r->feeds[target]);
    float lacking = p->tokens - (float)p->held_tokens[target];
    if (!own || own->role != KV_ROLE_DECODE || p->prefill_tokens <= 0 ||
        lacking < p->prefill_tokens)
        return NULL;
    struct upstream_want want = {
        .matched = p->matched, .load_weight = p->load_weight, .prompt_tokens = p->tokens};
    struct upstreams *u = r->gw->upstreams;
    const struct upstream *t = upstreams_pick_helper(u, &want, helpers_of(p, target, own), target);
    if (!t) return NULL;
    int i = upstreams_index(u, t), c = p->chains.of[i];
    prefix_index_guess(r->index, i, p->chains.chain[c].blocks, p->chains.chain[c].n_blocks,
                       clock_ms());
    metric_add(r->prefills, 1);
    p->helper = i;
    snprintf(p->prefill, sizeof p->prefill, "http%s://%s:%d %d", t->spec.origin.tls ? "s" : "",
             t->spec.origin.host, t->spec.origin.port, p->held_tokens[target]);
    return p->prefill;
}
