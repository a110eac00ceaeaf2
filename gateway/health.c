/* health.c - /health: this process runs. /ready: can it serve, and which part is broken. Without an upstream that answered lately it
 * cannot (503); without Redis or the embedder it serves all the same, with less cache ("degraded", 200). Just started it is not ready
 * before Redis has told the settings and what may be used, so that no first request misses a cache that is full; START_MS at most. */
#include "base/clock.h"
#include "gateway/flight.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/tuning.h"

enum { START_MS = 5000 };

struct report {
    struct buf parts, broken;
    bool serves, degraded, starting;
};

static void add_part(struct report *r, const char *name, bool ok, const char *why)
{
    if (r->parts.n) buf_char(&r->parts, ',');
    buf_printf(&r->parts, "\"%s\":{\"ok\":%s", name, ok ? "true" : "false");
    if (!ok) {
        buf_z(&r->parts, ",\"why\":");
        json_write_string(&r->parts, str_of(why));
        buf_printf(&r->broken, "%s\"%s\"", r->broken.n ? "," : "", name);
    }
    buf_char(&r->parts, '}');
}

static void add_upstreams(struct report *r, struct gateway *gw)
{
    struct buf list;
    uint64_t now = clock_ms();
    int n = upstreams_count(gw->upstreams);
    buf_init(&list, 64 * 1024);
    for (int i = 0; i < n; i++) {
        struct upstream *t = upstreams_at(gw->upstreams, i);
        bool ok = upstream_is_ready(t, now);
        r->serves |= ok;
        buf_printf(&list, "%s{\"url\":", i ? "," : "");
        json_write_string(&list, str_of(t->url));
        buf_printf(&list, ",\"kind\":\"%s\",\"ok\":%s,\"inflight\":%d",
                   t->engine ? "engine" : "upstream", ok ? "true" : "false", t->inflight);
        if (t->last_ok_ms)
            buf_printf(&list, ",\"last_answer_s\":%.1f", (double)(now - t->last_ok_ms) / 1000);
        if (!ok) {
            buf_z(&list, ",\"why\":");
            json_write_string(&list, str_of(t->why[0] ? t->why : "has not answered yet"));
        }
        buf_char(&list, '}');
        r->degraded |= !ok;
    }
    add_part(r, "upstream", r->serves, "no upstream answered lately");
    buf_z(&r->parts, ",\"upstreams\":[");
    buf_str(&r->parts, buf_view(&list));
    buf_char(&r->parts, ']');
    buf_fini(&list);
}

static void add_cache(struct report *r, struct gateway *gw)
{
    struct cache_stats s = {0};
    if (!gw->cache) return;
    cache_stats(gw->cache, &s);
    if (gw->redis) {
        bool ok = redis_usable(gw->redis);
        bool told = s.redis_known && tuning_known(gw->tuning) && flights_known(gw->flights);
        r->starting = !told && clock_ms() - gw->listening_ms < START_MS;
        add_part(r, "redis", ok && !r->starting,
                 r->starting ? "has not told yet what it holds; the start waits for it a little"
                             : "not connected, or too slow to answer; the cache in memory goes on");
        r->degraded |= !ok;
    }
    if (gw->embedder) {
        add_part(r, "embedder", s.embedder_usable,
                 "embeddings fail or miss their deadline; exact hits go on");
        add_part(r, "index", s.synced, "the vector index has not caught up with Redis yet");
        r->degraded |= !s.embedder_usable || !s.synced;
    }
}

static enum step ready(struct exchange *x)
{
    struct report r = {0};
    struct buf body;
    buf_init(&r.parts, 128 * 1024);
    buf_init(&r.broken, 4096);
    buf_init(&body, 256 * 1024);
    add_upstreams(&r, x->gw);
    add_cache(&r, x->gw);
    bool serves = r.serves && !r.starting && !x->gw->draining;
    buf_printf(&body, "{\"status\":\"%s\",\"broken\":[",
               !serves      ? "not ready"
               : r.degraded ? "degraded"
                            : "ready");
    buf_str(&body, buf_view(&r.broken));
    buf_z(&body, "],\"parts\":{");
    buf_str(&body, buf_view(&r.parts));
    buf_z(&body, "}}\n");
    reply_body(x, serves ? 200 : 503, "application/json", buf_view(&body));
    buf_fini(&body);
    buf_fini(&r.parts);
    buf_fini(&r.broken);
    return STEP_DONE;
}

enum step health_answer(struct exchange *x)
{
    if (x->route == ROUTE_READY) return ready(x);
    reply_body(x, 200, "application/json", STR("{\"status\":\"ok\"}\n"));
    return STEP_DONE;
}
