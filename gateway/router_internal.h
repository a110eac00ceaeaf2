/* router_internal.h - private to router.c and route_shared.c. */
#ifndef DEJA_GATEWAY_ROUTER_INTERNAL_H
#define DEJA_GATEWAY_ROUTER_INTERNAL_H
#include "gateway/kv_feed.h"
#include "gateway/route_chain.h"
#include "gateway/route_shared.h"
#include "gateway/router.h"
#include "gateway/vllm_feed.h"

struct router {
    struct gateway *gw;
    struct prefix_index *index;
    struct kv_feed *feeds[PREFIX_PODS_MAX];     /* NULL: not an engine of ours */
    struct vllm_feed *foreign[PREFIX_PODS_MAX]; /* of servers that tell by ZeroMQ, or NULL */
    struct prompt_reader *given;                /* of the option tokenizer, or NULL */
    struct route_shared *shared;                /* NULL: no Redis */
    int n;
    unsigned lost[PREFIX_PODS_MAX]; /* as upstream's when what is known of it was last trusted */
    struct metric *prefills, *overclaim, *promised, *routed, *live, *blocks, *changes;
};

/* Does target i tell what it holds? */
static inline bool router_told(const struct router *r, int i)
{
    return r->feeds[i] || (r->foreign[i] && vllm_feed_live(r->foreign[i]));
}

struct route_plan {
    struct router *router;
    struct route_chains chains;
    struct prefix_match matches[PREFIX_PODS_MAX]; /* a chain each */
    float matched[UPSTREAMS_MAX];
    float tokens;
    struct hash128 model;
    float prefill_tokens, load_weight; /* knobs */
    char prefill[300];                 /* the last answer of route_plan_prefill */
    int target;                        /* -1: not gone yet */
    uint32_t been_at;                  /* targets, a bit each */
    unsigned lost[PREFIX_PODS_MAX];    /* as upstream's when it went there */
    int helper;                        /* computes the prompt for it, -1 = nobody */
    bool by_events[PREFIX_PODS_MAX];
    int held_tokens[PREFIX_PODS_MAX];
};

#endif
