/* exchange.h - one request on its way through the gateway. Stages read and fill it; only pipeline.c moves it on, ends it and frees
 * it. What a stage keeps between its own callbacks is hidden behind the pointers here. Threading: the loop's thread. */
#ifndef DEJA_GATEWAY_EXCHANGE_H
#define DEJA_GATEWAY_EXCHANGE_H
#include "gateway/controls.h"
#include "gateway/door.h"
#include "gateway/gateway.h"
#include "gateway/latency.h"
#include "gateway/tape.h"
#include "gateway/trace.h"

enum route {
    ROUTE_CHAT,
    ROUTE_COMPLETIONS,
    ROUTE_RESPONSES,
    ROUTE_MESSAGES,
    ROUTE_EMBEDDINGS,
    ROUTE_COUNT_TOKENS,
    ROUTE_PROXY,
    ROUTE_FILES,
    ROUTE_BATCHES,
    ROUTE_KEPT, /* /v1/responses/{id} */
    ROUTE_HEALTH,
    ROUTE_READY,
    ROUTE_METRICS,
    ROUTE_ADMIN,
    ROUTE_EXPLAIN,
    ROUTE_NONE,
    N_ROUTES
};

/* Those that are answered as a chat or a completion: looked up, shared, stored. */
static inline bool route_is_cached(enum route r)
{
    return r <= ROUTE_MESSAGES;
}

struct embedding;
struct ticket;
struct proxy;
struct parse_job;
struct admin_job;
struct seed_job;
struct explanation;
struct store_job;
struct limit_claim;
struct prompt_tokens;
struct prompt_job;
struct shared_job;

/* How the answer came about: the x-deja-* headers, the access log and the metrics are written from this. */
struct outcome {
    const char *
        cache; /* "exact" "semantic" "coalesced" "miss" "bypass", or "none" where the cache has no part */
    char reason[64];
    char entry[37];       /* served, or what the answer was stored as; "" = neither */
    char nearest[37];     /* on a miss: the stored question that came nearest, or "" */
    char route[96];       /* why this target (router.h), or "" */
    double similarity;    /* -1 = none */
    int64_t age_s;        /* -1 = not a hit */
    uint64_t queued_us;   /* it waited for a slot of an upstream */
    bool stored;          /* known before the first byte */
    const char *refused;  /* static text: why the cache would not keep the answer, or NULL */
    const char *degraded; /* static text: the step of ladder.h that served it, or NULL */
    struct str routed;    /* the model a rule of `route` led to; borrowed from the rules */
    struct str served_by; /* the fallback model; borrowed from served_rules */
    int64_t stale_s;      /* how long past its lifetime; 0 = fresh */
};

struct exchange {
    struct gateway *gw;
    struct http_req *r; /* NULL once the client has left or its reply has been handed over whole */
    enum route route;
    int stage;    /* index into the pipeline's table */
    bool waiting; /* a stage answered WAIT: pipeline_resume or pipeline_finish will come */
    bool client_gone;
    bool batch; /* a line of a batch: its tenant is known, and clients are served before it */

    char request_id[73];
    struct trace trace;
    char tenant[TENANT_BYTES];
    double tenant_weight; /* its part of the queue */
    int trust, min_trust; /* of its key: api_keys.h */
    bool patient; /* waits in the batch class: a line of a batch, or its key or header says so */
    struct controls controls;
    const struct door *door;   /* how the client speaks; NULL = as upstreams do */
    struct door_request asked; /* with a door: what it asked in its own words */
    struct door_stream *told;  /* with a door: what its stream makes of the tape */
    struct openai_request req; /* chat and completions */
    bool parsed;
    struct buf body; /* what goes upstream when it is not the client's own bytes */
    bool body_edited;
    struct str model; /* after aliases; borrowed from the options, rules or req */
    struct model_rules *rules,
        *served_rules; /* a reference each: as it began; those a fallback comes from */

    struct cache_knobs knobs; /* of its namespace and arm */
    char arm[2 * 41];         /* "experiment/arm", or "" */
    struct cache_key key;
    bool keyed, found_again; /* the second: looked up once more, see lookup.c */
    struct cache_lookup *lookup;
    struct parse_job *parse;      /* reading a long body on a worker */
    struct prompt_tokens *prompt; /* as token ids; NULL = not known (prompt_tokens.h) */
    struct prompt_job *prompt_job;
    struct shared_job *shared; /* asking Redis who holds the prompt */

    struct limit_claim *limit; /* what it has reserved; the ticket's once an upstream is asked */
    bool limited;              /* the client is told limits of ours */

    struct ticket *ticket; /* the upstream call it shares, and its place among the riders */
    struct exchange *rider_prev, *rider_next;
    uint64_t joined_us; /* since when it waits for the ticket's call, which may have begun before */
    struct ticket *
        follows; /* the one whose answer it waits for (follow.h): then the two above are of its line */
    uint64_t follows_us;  /* since then */
    bool followed;        /* once is enough */
    uint64_t coming_seen; /* what the cache's look-up knew of such ones */
    struct proxy *proxy;
    struct embedding *embedding;
    struct admin_job *admin;
    struct seed_job *seed;
    struct explanation *explanation;
    struct store_job *store_job;

    struct tape own; /* a streamed hit is rendered here */
    bool own_used;
    const struct tape *tape; /* what is being streamed to the client: own or the ticket's */
    size_t tape_at;
    bool streaming, blocked; /* headers are out; the client's queue is full */

    struct outcome out;
    int status; /* 0 = nothing sent yet */
    uint64_t bytes_out;
    uint64_t started_us, key_us, found_us,
        upstream_us;   /* upstream_us: time the upstream took; 0 = not asked */
    uint64_t head_us;  /* from asking an upstream to the head of its reply; 0 = none came */
    uint64_t first_us; /* when the first bytes of a stream were written; 0 = no stream */
    int64_t frames;    /* of the upstream's stream */
    struct stopwatch watch;
    struct openai_usage usage;
};

#endif
