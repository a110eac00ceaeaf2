/* admin.c - /metrics in Prometheus' text format. Gauges that are cheap to read are set at the scrape. */
#include "base/clock.h"
#include "gateway/pipeline.h"
#include "gateway/queue.h"
#include "gateway/reply.h"
#include "gateway/router.h"
#include "gateway/series.h"
#include "gateway/spend.h"
#include "gateway/tuning.h"

enum { METRICS_BYTES_MAX = 8 << 20 };

static void set_gauges(struct gateway *gw)
{
    struct metrics *m = gw->metrics;
    struct httpd_stats h = httpd_stats(gw->httpd);
    spend_show(gw->series->spend);
    metric_set(gw->series->lag, (double)loop_lag_us(gw->loop) / 1e6);
    metric_set(
        metrics_get(m, METRIC_GAUGE, "deja_open_connections", "", "client connections", 0, 0),
        h.open_connections);
    metric_set(metrics_get(m, METRIC_GAUGE, "deja_uptime_seconds", "", "since start", 0, 0),
               (double)(clock_ms() - gw->started_ms) / 1000);
    if (gw->redis) {
        metric_set(
            metrics_get(m, METRIC_GAUGE, "deja_redis_up", "", "1: connected and in time", 0, 0),
            redis_usable(gw->redis));
        metric_set(metrics_get(m, METRIC_GAUGE, "deja_settings_version", "",
                               "of the settings in force; one that falls was lost", 0, 0),
                   (double)settings_version(tuning_settings(gw->tuning)));
    }
    queue_show(gw->queue);
    for (int i = 0; i < upstreams_count(gw->upstreams); i++) {
        struct upstream *t = upstreams_at(gw->upstreams, i);
        struct buf labels;
        buf_init(&labels, 1024);
        metrics_label(&labels, "upstream", str_of(t->url));
        const char *l = labels.p ? labels.p : "";
        metric_set(metrics_get(m, METRIC_GAUGE, "deja_upstream_up", l, "1: answered lately", 0, 0),
                   upstream_is_ready(t, clock_ms()));
        metric_set(
            metrics_get(m, METRIC_GAUGE, "deja_upstream_inflight", l, "calls at work there", 0, 0),
            t->inflight);
        metric_set(metrics_get(m, METRIC_GAUGE, "deja_upstream_slots", l,
                               "calls it takes at a time; 0 = no bound is known", 0, 0),
                   slots_bound(&t->slots));
        metric_set(metrics_get(m, METRIC_GAUGE, "deja_upstream_breaker_open", l,
                               "1: left alone, or one probe is let through", 0, 0),
                   breaker_is_open(&t->breaker));
        metric_set(metrics_get(m, METRIC_GAUGE, "deja_upstream_paused", l,
                               "1: it asked to wait (429 with Retry-After)", 0, 0),
                   t->paused_until_ms > clock_ms());
        buf_fini(&labels);
    }
    if (!gw->cache) return;
    struct cache_stats s = {0};
    cache_stats(gw->cache, &s);
    metric_set(metrics_get(m, METRIC_GAUGE, "deja_cache_entries", "", "answers known here", 0, 0),
               (double)s.entries);
    metric_set(metrics_get(m, METRIC_GAUGE, "deja_cache_bytes", "", "of in-process copies", 0, 0),
               (double)s.bytes);
}

enum step metrics_answer(struct exchange *x)
{
    struct buf body;
    buf_init(&body, METRICS_BYTES_MAX);
    set_gauges(x->gw);
    router_count(x->gw->router);
    metrics_write(x->gw->metrics, &body);
    if (buf_failed(&body))
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_body(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&body));
    buf_fini(&body);
    return STEP_DONE;
}
