/* exchange.h - one request on its way through the gateway. Stages read and fill it; only pipeline.c moves it on, ends it and frees
 * it. What a stage keeps between its own callbacks is hidden behind the pointers here. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_EXCHANGE_H
#define DEJA_GATEWAY_EXCHANGE_H
#include "gateway/controls.h"
#include "gateway/gateway.h"
#include "gateway/tape.h"

enum route {
    ROUTE_CHAT,
    ROUTE_COMPLETIONS,
    ROUTE_PROXY,
    ROUTE_HEALTH,
    ROUTE_READY,
    ROUTE_METRICS,
    ROUTE_ADMIN,
    ROUTE_EXPLAIN,
    ROUTE_NONE,
    N_ROUTES
};

struct ticket;
struct proxy;
struct parse_job;
struct admin_job;
struct explanation;

/* How the answer came about: the x-deja-* headers, the access log and the metrics are written from this. */
struct outcome {
    const char *
        cache; /* "exact" "semantic" "coalesced" "miss" "bypass", or "none" where the cache has no part */
    char reason[64];
    char entry[37];
    double similarity;   /* -1 = none */
    int64_t age_s;       /* -1 = not a hit */
    bool stored;         /* known before the first byte */
    const char *refused; /* static text: why the cache would not keep the answer, or NULL */
};

struct exchange {
    struct gateway *gw;
    struct http_req *r; /* NULL once the client has left or its reply has been handed over whole */
    enum route route;
    int stage;    /* index into the pipeline's table */
    bool waiting; /* a stage answered WAIT: pipeline_resume or pipeline_finish will come */
    bool client_gone;

    char request_id[73];
    char tenant[TENANT_BYTES];
    struct controls controls;
    struct openai_request req; /* chat and completions */
    bool parsed;
    struct buf body; /* what goes upstream when it is not the client's own bytes */
    bool body_edited;
    struct str model; /* after aliases; borrowed from the options or req */

    struct cache_knobs knobs; /* of its namespace and arm */
    char arm[2 * 41];         /* "experiment/arm", or "" */
    struct cache_key key;
    bool keyed, found_again; /* the second: looked up once more, see lookup.c */
    struct cache_lookup *lookup;
    struct parse_job *parse; /* reading a long body on a worker */

    struct ticket *ticket; /* the upstream call it shares, and its place among the riders */
    struct exchange *rider_prev, *rider_next;
    struct proxy *proxy;
    struct admin_job *admin;
    struct explanation *explanation;

    struct tape own; /* a streamed hit is rendered here */
    bool own_used;
    const struct tape *tape; /* what is being streamed to the client: own or the ticket's */
    size_t tape_at;
    bool streaming, blocked; /* headers are out; the client's queue is full */

    struct outcome out;
    int status; /* 0 = nothing sent yet */
    uint64_t bytes_out;
    uint64_t started_us, key_us, found_us,
        upstream_us; /* upstream_us: time the upstream took; 0 = not asked */
    struct openai_usage usage;
};

#endif
