/* series.h - the gateway's metrics, resolved once. Threading: as base/metrics.h. */
#ifndef DEJA_GATEWAY_SERIES_H
#define DEJA_GATEWAY_SERIES_H
#include "gateway/exchange.h"

enum { STATUSES = 600, CACHE_SERIES_KNOWN = 64 };

struct gateway_series {
    struct metric *inflight, *coalesced, *saved_tokens, *upstream_tokens, *lag, *upstream_seconds,
        *client_gone;
    struct metric *request_seconds[N_ROUTES];
    struct metric *requests[N_ROUTES][STATUSES]; /* made when first seen */
    struct {
        char result[16], reason[64];
        struct metric *metric;
    } cache[CACHE_SERIES_KNOWN];
    int n_cache;
};
struct gateway_series *series_new(struct metrics *m);
void series_free(struct gateway_series *s);
/* Counts one ended request: deja_requests_total, deja_cache_total, latency, tokens. */
void series_count(const struct exchange *x, double seconds);
const char *route_name(enum route r);

#endif
