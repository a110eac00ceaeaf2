/* series.h - the gateway's metrics, resolved once. Threading: as base/metrics.h. */
#ifndef DEJA_GATEWAY_SERIES_H
#define DEJA_GATEWAY_SERIES_H
#include "gateway/exchange.h"

struct gateway_series {
    struct metric *inflight, *coalesced, *saved_tokens, *upstream_tokens, *lag, *upstream_seconds, *client_gone;
    struct metric *request_seconds[N_ROUTES];
};
struct gateway_series *series_new(struct metrics *m);
void series_free(struct gateway_series *s);
/* Counts one ended request: deja_requests_total, deja_cache_total, latency, tokens. */
void series_count(const struct exchange *x, double seconds);
const char *route_name(enum route r);

#endif
