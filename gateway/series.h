/* series.h - the gateway's metrics, resolved once. Threading: as base/metrics.h. */
#ifndef DEJA_GATEWAY_SERIES_H
#define DEJA_GATEWAY_SERIES_H
#include "gateway/exchange.h"

enum { STATUSES = 600, CACHE_SERIES_KNOWN = 64 };

struct latency;
struct spend;

enum followed { FOLLOWED_SERVED, FOLLOWED_ALONE, FOLLOWED_LEFT, N_FOLLOWED };
struct gateway_series {
    struct latency *latency;
    struct spend *spend;
    struct metric *inflight, *coalesced, *saved_tokens, *upstream_tokens, *lag, *upstream_seconds,
        *client_gone, *retries, *budget_spent, *hedges, *hedges_won;
    struct metric *limit_seconds, *embedding_hits, *embedding_misses;
    struct metric *
        followed[N_FOLLOWED]; /* who waited for the answer to a similar question, by how it ended */
    struct metric *responses_kept[2]; /* kept, lost */
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
void series_count(struct exchange *x, uint64_t now_us);
const char *route_name(enum route r);

#endif
