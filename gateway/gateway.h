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
struct tuning;
struct counting;
struct near;
struct judge;
struct shadows;
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
    struct counting *counting;
    struct near *near;
    struct judge *judge;
    struct shadows *shadows;
    struct upstreams *upstreams;
    struct api_keys *keys; /* NULL: open */
    struct join_table *joins;
    struct { /* keys answered a moment ago, by their low bits: see lookup.c */
        struct hash128 key;
        uint64_t kept_us;
    } recent[RECENT_KEYS];
    struct rng rng;
    char secret[33]; /* keys tenant salts */
    int inflight;
    bool draining;
    uint64_t started_ms;
};

#endif
