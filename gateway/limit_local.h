/* limit_local.h - what this gateway itself has let through, bucket by bucket, so that limits hold while Redis is away: then it goes by its
 * share, limit / gateways, at least 1. It is kept up all the time: what a gateway let through just before Redis went away counts. Of
 * money it knows what was left when Redis last said so, and spends its share of that. Bounded: of buckets beyond LIMIT_LOCAL_MAX the
 * least used is forgotten. Pure: time is an argument. */
#ifndef DEJA_GATEWAY_LIMIT_LOCAL_H
#define DEJA_GATEWAY_LIMIT_LOCAL_H
#include "gateway/limit_rules.h"

enum { LIMIT_LOCAL_MAX = 4096 };

/* What is told to the client: of the rate with the least left; limit < 0 = none. */
struct limit_view {
    double limit, left;
    int64_t full_ms; /* until the whole limit is there again */
};
struct limit_verdict {
    bool allowed;
    int kind, bucket; /* that refused: enum limit_kind and index into the plan; -1 = none */
    double used;
    int64_t retry_ms;               /* -1 = it never fits */
    int shadow_kind, shadow_bucket; /* that would refuse; -1 = none */
    struct limit_view requests, tokens;
};
struct limit_amounts {
    double tokens, cost;
};

struct limit_local;
struct limit_local *limit_local_new(void);
void limit_local_free(struct limit_local *l);

/* Decides by 1/gateways of every limit and, when allowed, takes. All or nothing. */
struct limit_verdict limit_local_reserve(struct limit_local *l, const struct limit_plan *p,
                                         struct limit_amounts a, int gateways, double now_us);
/* Takes without asking: Redis has allowed it. */
void limit_local_note(struct limit_local *l, const struct limit_plan *p, struct limit_amounts a,
                      int gateways, double now_us);
/* Redis says so much money was left in bucket i of p. */
void limit_local_money(struct limit_local *l, const struct limit_plan *p, int i, double left);
/* The end of what was reserved or noted: it came to `used`. */
void limit_local_settle(struct limit_local *l, const struct limit_plan *p,
                        struct limit_amounts reserved, struct limit_amounts used, int gateways,
                        double now_us);

#endif
