/* series.c - see series.h. */
#include "gateway/series.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/latency.h"
#include "gateway/spend.h"

static const char *const route_names[N_ROUTES] = {
    "chat",    "completions", "responses", "messages", "embeddings", "count_tokens",
    "proxy",   "files",       "batches",   "kept",     "health",     "ready",
    "metrics", "admin",       "explain",   "none"};

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
    s->latency = latency_new(m);
    s->spend = spend_new(m);
    s->inflight = plain(m, METRIC_GAUGE, "deja_inflight", "requests at work");
    s->coalesced = plain(m, METRIC_COUNTER, "deja_coalesced_total",
                         "requests that shared the upstream call of an equal one");
    static const char *const ends[N_FOLLOWED] = {"end=\"served\"", "end=\"alone\"", "end=\"left\""};
    for (int i = 0; i < N_FOLLOWED; i++)
        s->followed[i] =
            metrics_get(m, METRIC_COUNTER, "deja_join_similar_total", ends[i],
                        "requests that waited for a similar one in flight, by the end", 0, 0);
    for (int i = 0; i < 2; i++)
        s->responses_kept[i] = metrics_get(m, METRIC_COUNTER, "deja_responses_kept_total",
                                           i ? "kept=\"no\"" : "kept=\"yes\"",
                                           "answers of /v1/responses to be kept in Redis", 0, 0);
    s->embedding_hits =
        metrics_get(m, METRIC_COUNTER, "deja_embedding_inputs_total", "result=\"hit\"",
                    "inputs of embedding requests by whether their vector was stored", 0, 0);
    s->embedding_misses =
        metrics_get(m, METRIC_COUNTER, "deja_embedding_inputs_total", "result=\"miss\"",
                    "inputs of embedding requests by whether their vector was stored", 0, 0);
    s->saved_tokens = plain(m, METRIC_COUNTER, "deja_saved_tokens_total",
                            "completion tokens of answers that came from the cache");
    s->upstream_tokens = plain(m, METRIC_COUNTER, "deja_upstream_tokens_total",
                               "prompt and completion tokens that upstreams reported");
    s->lag = plain(m, METRIC_GAUGE, "deja_loop_lag_seconds",
                   "longest time the event loop was busy since the last scrape");
    s->upstream_seconds =
        metrics_get(m, METRIC_HISTOGRAM, "deja_upstream_seconds", "",
                    "time from asking an upstream to the end of its answer", 0.001, 16);
    s->limit_seconds = metrics_get(m, METRIC_HISTOGRAM, "deja_limit_seconds", "",
                                   "time at the door of requests that have limits", 0.00001, 18);
    s->client_gone = plain(m, METRIC_COUNTER, "deja_client_gone_total",
                           "clients that left before their answer was complete");
    s->retries = plain(m, METRIC_COUNTER, "deja_upstream_retries_total", "tries after the first");
    s->budget_spent = plain(m, METRIC_COUNTER, "deja_retry_budget_spent_total",
                            "tries not made because retry_budget_percent was used up");
    s->hedges = plain(m, METRIC_COUNTER, "deja_upstream_hedges_total",
                      "second upstreams asked because the first was slow");
    s->hedges_won = plain(m, METRIC_COUNTER, "deja_upstream_hedges_won_total",
                          "of these, how many were the faster one");
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
    if (!s) return;
    latency_free(s->latency);
    spend_free(s->spend);
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

static struct metric *degraded_series(const struct exchange *x, struct metrics *m)
{
    char labels[64];
    snprintf(labels, sizeof labels, "step=\"%s\"", x->out.degraded);
    return metrics_get(m, METRIC_COUNTER, "deja_degraded_total", labels,
                       "requests served by a step of the degradation ladder, or refused after it",
                       0, 0);
}

static void count_cache(const struct exchange *x, struct metrics *m)
{
    bool hit = x->out.age_s >= 0;
    metric_add(cache_series(x, m), 1);
    if (x->out.degraded) metric_add(degraded_series(x, m), 1);
    if (!strcmp(x->out.cache, "coalesced")) metric_add(x->gw->series->coalesced, 1);
    if (!x->usage.known) return;
    bool saved = hit || !strcmp(x->out.cache, "coalesced");
    double tokens = (double)x->usage.completion_tokens;
    spend_count(x->gw->series->spend, x, saved);
    if (saved)
        metric_add(x->gw->series->saved_tokens, tokens);
    else
        metric_add(x->gw->series->upstream_tokens, tokens + (double)x->usage.prompt_tokens);
}

void series_count(struct exchange *x, uint64_t now_us)
{
    double seconds = (double)(now_us - x->started_us) / 1e6;
    struct metrics *m = x->gw->metrics;
    metric_add(request_series(x, m), 1);
    metric_observe(x->gw->series->request_seconds[x->route], seconds);
    if (x->client_gone) metric_add(x->gw->series->client_gone, 1);
    if (x->upstream_us)
        metric_observe(x->gw->series->upstream_seconds, (double)x->upstream_us / 1e6);
    if (!x->parsed) return;
    latency_count(x->gw->series->latency, x, now_us);
    if (route_is_cached(x->route) && x->out.cache[0]) count_cache(x, m);
}
