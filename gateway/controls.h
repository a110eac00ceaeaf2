/* controls.h - what a client may say about caching in its headers: Cache-Control (RFC 9111) and x-deja-*; and the small header
 * questions the gateway asks again and again (hop-by-hop, bearer token, content type). Pure; feed it header by header.
 * A client can only tighten: a threshold below the configured one changes nothing. */
#ifndef DEJA_GATEWAY_CONTROLS_H
#define DEJA_GATEWAY_CONTROLS_H
#include "base/openai.h"

struct controls {
    bool bypass;        /* neither look up, nor join, nor store */
    bool skip_lookup;   /* no-cache, refresh: ask the model, then store */
    bool skip_semantic; /* exact only */
    bool no_store;
    bool only_if_cached; /* a miss is a 504 */
    int64_t max_age_s;   /* -1 = any */
    int64_t ttl_s;       /* 0 = the gateway's own */
    int64_t
        stale_if_error_s; /* how long past its lifetime an answer may be when no upstream answers; -1 = not said */
    double threshold_min; /* 0 = none */
    char ns[65], tags[257];
};

void controls_init(struct controls *c);
/* One request header. Others than those it knows are ignored. ERR_INVALID: *e says which header and what it may be. */
MUST enum err controls_feed(struct controls *c, struct str name, struct str value,
                            struct openai_error *e);
/* The value of x-deja-priority, empty where it is absent. ERR_INVALID as above. */
MUST enum err controls_priority(bool *batch, struct str value, struct openai_error *e);
/* Adds what the body's "cache" member said. ERR_INVALID for a namespace that is none. */
MUST enum err controls_from_body(struct controls *c, const struct openai_request *r,
                                 struct openai_error *e);

bool header_is_hop(
    struct str name); /* RFC 9110, 7.6.1, and what the HTTP client or server sets itself */
/* True when the Connection header's value names it. */
bool header_in_list(struct str list, struct str name);
/* The token of "Bearer <token>", else empty. */
struct str header_bearer(struct str authorization);
/* Absent, application/json or application/...+json, with a charset of utf-8 or none. */
bool content_type_is_json(struct str value);
bool content_type_is(struct str value, const char *type); /* parameters ignored */
/* 1..72 printable characters without blanks or quotes. */
bool request_id_is_good(struct str id);

#endif
