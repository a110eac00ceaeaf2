/* limit_wire.h - calls of the Function deja_limit (lua/limits.lua) as arguments, and its answer as a verdict. Pure. */
#ifndef DEJA_GATEWAY_LIMIT_WIRE_H
#define DEJA_GATEWAY_LIMIT_WIRE_H
#include "base/redis.h"
#include "gateway/limit_local.h"

enum {
    LIMIT_ID_BYTES = 33,
    LIMIT_ARGS_MAX = 12 + LIMIT_BUCKETS_MAX * (2 + N_LIMIT_KINDS),
};

/* Strings are borrowed from what was given and from text; moves nowhere once filled. */
struct limit_args {
    int n;
    struct str v[LIMIT_ARGS_MAX];
    char text[LIMIT_ARGS_MAX][28];
};

void limit_wire_id(char out[LIMIT_ID_BYTES], uint64_t a, uint64_t b);
/* force: counts what was used while Redis was away. */
void limit_wire_reserve(struct limit_args *out, const char *key, const char *id, bool force,
                        int lease_ms, const struct limit_plan *p, struct limit_amounts a);
void limit_wire_settle(struct limit_args *out, const char *key, const char *id,
                       struct limit_amounts used, double saved);
/* The answer to reserve for n buckets; left[i] < 0: no budget there. False: no such answer. */
bool limit_wire_read(const struct redis_reply *reply, int n, struct limit_verdict *out,
                     double *left);

#endif
