/* series.c - see series.h. */
#include "gateway/series.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char *const route_names[N_ROUTES] = {
    "chat", "completions", "proxy", "health", "ready", "metrics", "admin", "explain", "none"};

const char *route_name(enum route r)
{
    return route_names[r];
}

static struct metric *plain(struct metrics *m, enum metric_kind kind, const char *name,
                            const char *help)
{
    return metrics_get(m, kind, name, "", help, 0, 0);
}

struct gateway_series *series_new(struct metrics *m)
{
    struct gateway_series *s = xcalloc(1, sizeof *s);
    s->inflight = plain(m, METRIC_GAUGE, "deja_inflight", "requests at work");
    s->coalesced = plain(m, METRIC_COUNTER, "deja_coalesced_total",
                         "requests that shared the upstream call of an equal one");
    s->saved_tokens = plain(m, METRIC_COUNTER, "deja_saved_tokens_total",
                            "completion tokens of answers that came from the cache");
    s->upstream_tokens = plain(m, METRIC_COUNTER, "deja_upstream_tokens_total",
                               "prompt and completion tokens that upstreams reported");
    s->lag = plain(m, METRIC_GAUGE, "deja_loop_lag_seconds",
                   "longest time the event loop was busy since the last scrape");
    s->upstream_seconds =
        metrics_get(m, METRIC_HISTOGRAM, "deja_upstream_seconds", "",
                    "time from asking an upstream to the end of its answer", 0.001, 16);
    s->client_gone = plain(m, METRIC_COUNTER, "deja_client_gone_total",
                           "clients that left before their answer was complete");
    for (int i = 0; i < N_ROUTES; i++) {
        char labels[64];
        snprintf(labels, sizeof labels, "route=\"%s\"", route_names[i]);
        s->request_seconds[i] =
            metrics_get(m, METRIC_HISTOGRAM, "deja_request_seconds", labels,
                        "time from a request's first byte to the end of its reply", 0.00005, 22);
    }
    return s;
}

void series_free(struct gateway_series *s)
{
    mem_free(s);
}

static struct metric *make_cache_series(const struct exchange *x, struct metrics *m)
{
    struct buf labels;
    buf_init(&labels, 512);
    metrics_label(&labels, "result", str_of(x->out.cache));
    metrics_label(&labels, "reason", str_of(x->out.reason));
    struct metric *made =
        metrics_get(m, METRIC_COUNTER, "deja_cache_total", labels.p ? labels.p : "",
                    "chat and completion requests by what the cache did", 0, 0);
    buf_fini(&labels);
    return made;
}

/* Results and reasons are few; the registry is asked once for each. */
static struct metric *cache_series(const struct exchange *x, struct metrics *m)
{
    struct gateway_series *s = x->gw->series;
    for (int i = 0; i < s->n_cache; i++)
        if (!strcmp(s->cache[i].reason, x->out.reason) && !strcmp(s->cache[i].result, x->out.cache))
            return s->cache[i].metric;
    struct metric *made = make_cache_series(x, m);
    if (s->n_cache == CACHE_SERIES_KNOWN) return made;
    snprintf(s->cache[s->n_cache].result, sizeof s->cache[0].result, "%s", x->out.cache);
    snprintf(s->cache[s->n_cache].reason, sizeof s->cache[0].reason, "%s", x->out.reason);
    s->cache[s->n_cache++].metric = made;
    return made;
}

static struct metric *request_series(const struct exchange *x, struct metrics *m)
{
    char labels[64];
    struct metric **known =
        &x->gw->series->requests[x->route][x->status >= 0 && x->status < STATUSES ? x->status : 0];
    if (*known) return *known;
    snprintf(labels, sizeof labels, "route=\"%s\",status=\"%d\"", route_names[x->route], x->status);
    *known = metrics_get(m, METRIC_COUNTER, "deja_requests_total", labels,
                         "requests by route and status (499: the client left)", 0, 0);
    return *known;
}

static void count_cache(const struct exchange *x, struct metrics *m)
{
    bool hit = x->out.age_s >= 0;
    metric_add(cache_series(x, m), 1);
    if (!strcmp(x->out.cache, "coalesced")) metric_add(x->gw->series->coalesced, 1);
    if (!x->usage.known) return;
    double tokens = (double)x->usage.completion_tokens;
    if (hit || !strcmp(x->out.cache, "coalesced"))
        metric_add(x->gw->series->saved_tokens, tokens);
    else
        metric_add(x->gw->series->upstream_tokens, tokens + (double)x->usage.prompt_tokens);
}

void series_count(const struct exchange *x, double seconds)
{
    struct metrics *m = x->gw->metrics;
    metric_add(request_series(x, m), 1);
    metric_observe(x->gw->series->request_seconds[x->route], seconds);
    if (x->client_gone) metric_add(x->gw->series->client_gone, 1);
    if (x->upstream_us)
        metric_observe(x->gw->series->upstream_seconds, (double)x->upstream_us / 1e6);
    if ((x->route == ROUTE_CHAT || x->route == ROUTE_COMPLETIONS) && x->out.cache[0] && x->parsed)
        count_cache(x, m);
}
