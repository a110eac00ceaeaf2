/* limit_rules.h - which limits hold for a tenant at a model, from the settings of the limit_* and price_* knobs. Four buckets, each with
 * limits of its own: the tenant (set IN tenant:T, else global), the tenant at this model (tenant:T/model:M, else model:M), everybody
 * together (all), everybody at this model (all/model:M). What is no limit (shadow, prices, what hits cost, how answers are counted) holds
 * from the narrowest scope that says something. Pure; never changes once made. */
#ifndef DEJA_GATEWAY_LIMIT_RULES_H
#define DEJA_GATEWAY_LIMIT_RULES_H
#include "base/str.h"

enum limit_kind { /* in the order of lua/limits.lua, which counts from 1 */
                  LIMIT_REQUESTS_MIN,
                  LIMIT_REQUESTS_DAY,
                  LIMIT_TOKENS_MIN,
                  LIMIT_TOKENS_DAY,
                  LIMIT_CONCURRENCY,
                  LIMIT_BUDGET_DAY,
                  LIMIT_BUDGET_MONTH,
                  N_LIMIT_KINDS
};
enum { LIMIT_BUCKETS_MAX = 4, LIMIT_SCOPE_BYTES = 161, LIMIT_BUCKET_BYTES = 256 };

struct limit_bucket {
    char name[LIMIT_BUCKET_BYTES]; /* tenant:T, tenant:T/model:M, all, all/model:M */
    bool shadow;                   /* counts, refuses nothing */
    double limit[N_LIMIT_KINDS];   /* 0 = none */
};
struct limit_plan {
    struct limit_bucket buckets[LIMIT_BUCKETS_MAX];
    int n;
    bool tokens, money; /* some bucket limits tokens, money */
    bool hit_tokens, stream_usage;
    int64_t answer_tokens;
    double price_prompt, price_completion; /* per million tokens */
};

struct limit_rules;
struct limit_rules *limit_rules_new(void);
void limit_rules_free(struct limit_rules *r);
/* One setting. False: the knob is none of ours, or is not set in such a scope. */
bool limit_rules_add(struct limit_rules *r, struct str scope, const char *knob, double value);
/* After the last add, before the first question. */
void limit_rules_finish(struct limit_rules *r);
bool limit_rules_any(const struct limit_rules *r); /* is anything limited at all */
/* False: nothing limits this request. model may be empty: then only what holds for all models. */
bool limit_rules_plan(const struct limit_rules *r, struct str tenant, struct str model,
                      struct limit_plan *out);
/* Prices per million tokens that are set for the model itself; -1 where none is. */
struct limit_price {
    double prompt, completion;
};
struct limit_price limit_rules_price(const struct limit_rules *r, struct str model);
/* "tokens per min" */
const char *limit_kind_name(enum limit_kind k);

#endif
