/* gateway.h - what all requests share: the loop and everything on it, made by gateway_main.c and borrowed by every stage.
 * Threading: the loop's thread only (metrics aside). */
#ifndef DEJA_GATEWAY_GATEWAY_H
#define DEJA_GATEWAY_GATEWAY_H
#include "base/hash.h"
#include "base/http_client.h"
#include "base/httpd.h"
#include "base/metrics.h"
#include "base/redis.h"
#include "base/rng.h"
#include "base/workers.h"
#include "cache/cache.h"
#include "gateway/api_keys.h"
#include "gateway/options.h"
#include "gateway/upstreams.h"

struct join_table;
struct queue;
struct tuning;
struct limits;
struct counting;
struct near;
struct judge;
struct shadows;
struct model_rules;
struct router;
struct store;
struct batches;
struct flights;
enum { RECENT_KEYS = 1024 }; /* power of two */
struct gateway_series;       /* metrics.h of this room: series resolved once */

struct gateway {
    struct gateway_options o;
    struct loop *loop;
    struct workers *workers;
    struct metrics *metrics;
    struct gateway_series *series;
    struct httpd *httpd;
    struct http_client *client;
    struct redis *redis;       /* NULL: memory only */
    struct embedder *embedder; /* NULL: no semantic step */
    struct cache *cache;
    struct tuning *tuning; /* the knobs in force */
    struct limits *limits;
    struct flights *flights; /* NULL: calls are not shared with other gateways */
    struct counting *counting;
    struct near *near;
    struct judge *judge;
    struct shadows *shadows;
    struct store *store;     /* of files and batches; NULL without Redis */
    struct batches *batches; /* the same */
    struct upstreams *upstreams;
    struct router *router;
    struct queue *queue;   /* of calls that wait for one of them */
    struct call *calls;    /* at work */
    struct api_keys *keys; /* NULL: open */
    struct join_table *joins;
    struct { /* keys answered a moment ago, by their low bits: see lookup.c */
        struct hash128 key;
        uint64_t kept_us;
    } recent[RECENT_KEYS];
    struct model_rules *rules; /* which model answers for which, now */
    char *canned;              /* text of the last answer of the ladder; NULL = none */
    struct rng rng;
    char secret[33];        /* keys tenant salts */
    bool responses_refused; /* Redis did not take the last kept response */
    bool seeding;           /* a file is being loaded (admin_seed.c) */
    int inflight;
    bool draining, ending; /* ending: the time to drain is over */
    uint64_t started_ms, listening_ms;
};

#endif
