/* limit_tell.c - see limit.h: what clients are told of their limits, decided before the first byte: headers in the names of the API they
 * speak, and the refusal. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "gateway/limit.h"
#include "gateway/reply.h"

/* 850ms, 1.2s, 6m0s, 2h5m0s: as OpenAI writes them. */
static void set_duration(struct exchange *x, const char *name, int64_t ms)
{
    if (ms < 1000)
        http_set_headerf(x->r, name, "%lldms", (long long)ms);
    else if (ms < 60000)
        http_set_headerf(x->r, name, "%.4gs", (double)ms / 1000);
    else if (ms < 3600000)
        http_set_headerf(x->r, name, "%lldm%llds", (long long)ms / 60000,
                         (long long)ms / 1000 % 60);
    else
        http_set_headerf(x->r, name, "%lldh%lldm%llds", (long long)ms / 3600000,
                         (long long)ms / 60000 % 60, (long long)ms / 1000 % 60);
}

/* The same moment as a date, as Anthropic writes it. */
static void set_moment(struct exchange *x, const char *name, int64_t ms)
{
    time_t at = (time_t)(clock_wall_s() + (ms + 999) / 1000);
    struct tm tm;
    char text[32];
    gmtime_r(&at, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    http_set_header(x->r, name, str_of(text));
}

struct names {
    const char *limit, *remaining, *reset;
    void (*set_reset)(struct exchange *x, const char *name, int64_t ms);
};

static void set_view(struct exchange *x, const struct limit_view *v, const struct names *n)
{
    if (v->limit < 0) return;
    http_set_headerf(x->r, n->limit, "%.0f", v->limit);
    http_set_headerf(x->r, n->remaining, "%.0f", v->left);
    n->set_reset(x, n->reset, v->full_ms);
}

static const struct names *names_of(const struct exchange *x)
{
    static const struct names names[2][2] = {
        {{"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
          "x-ratelimit-reset-requests", set_duration},
         {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
          set_duration}},
        {{"anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining",
          "anthropic-ratelimit-requests-reset", set_moment},
         {"anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining",
          "anthropic-ratelimit-tokens-reset", set_moment}}};
    return names[x->door == &door_messages];
}

void limit_tell(struct exchange *x, const struct limit_verdict *v)
{
    const struct names *n = names_of(x);
    x->limited = true;
    set_view(x, &v->requests, &n[0]);
    set_view(x, &v->tokens, &n[1]);
}

void limit_tell_hit(struct exchange *x)
{
    const struct limit_claim *c = x->limit;
    if (!c || !x->limited || c->tokens.limit <= 0) return;
    struct limit_view v = c->tokens;
    double back = c->reserved.tokens - limit_hit_tokens(c, &x->usage), gone = v.limit - v.left;
    v.left = fmin(v.limit, v.left + back);
    if (gone > 0) v.full_ms = (int64_t)((double)v.full_ms * (v.limit - v.left) / gone);
    set_view(x, &v, &names_of(x)[1]);
}

/* SDKs heed x-should-retry: asking again is of no use, ever or (money) before the day or the month is over. */
static void set_retry(struct exchange *x, int64_t retry_ms, bool money)
{
    if (retry_ms < 0 || money) http_set_header(x->r, "x-should-retry", STR("false"));
    if (retry_ms < 0) return;
    http_set_headerf(x->r, "Retry-After", "%lld", (long long)(retry_ms + 999) / 1000);
    http_set_headerf(x->r, "retry-after-ms", "%lld", (long long)retry_ms);
}

/* The bucket's name says the model too where the limit is one of a model. */
static void refusal(struct openai_error *e, const struct limit_claim *c,
                    const struct limit_verdict *v)
{
    static const char *const reasons[N_LIMIT_KINDS] = {
        "requests",           "requests",          "tokens", "tokens", "concurrent_requests",
        "insufficient_quota", "insufficient_quota"};
    const struct limit_bucket *b = &c->plan.buckets[v->bucket];
    bool money = v->kind >= LIMIT_BUDGET_DAY;
    bool tokens = v->kind == LIMIT_TOKENS_MIN || v->kind == LIMIT_TOKENS_DAY;
    double requested = money ? c->reserved.cost : tokens ? c->reserved.tokens : 1;
    char when[64] = "This request alone is more than the limit.";
    if (v->retry_ms >= 0)
        snprintf(when, sizeof when, "Try again in %.*fs.", v->retry_ms < 100000 ? 2 : 0,
                 ceil((double)v->retry_ms / 10) / 100);
    openai_error_set(
        e, 429, reasons[v->kind], "", money ? "insufficient_quota" : "rate_limit_exceeded",
        "Limit reached for %.80s: %s: limit %.15g, used %.15g, requested %.6g. %s", b->name,
        limit_kind_name((enum limit_kind)v->kind), b->limit[v->kind], v->used, requested, when);
}

void limit_refuse(struct exchange *x, const struct limit_claim *c, const struct limit_verdict *v)
{
    static const char *const reasons[N_LIMIT_KINDS] = {
        "limit_requests_per_min", "limit_requests_per_day", "limit_tokens_per_min",
        "limit_tokens_per_day",   "limit_concurrency",      "limit_budget_day",
        "limit_budget_month"};
    struct openai_error e = {0};
    refusal(&e, c, v);
    x->out.cache = ""; /* the cache was not asked, and counts no request of it */
    outcome_reason(&x->out, reasons[v->kind]);
    set_retry(x, v->retry_ms, v->kind >= LIMIT_BUDGET_DAY);
    reply_refusal(x, &e);
}

bool limit_hides(const struct exchange *x, struct str header)
{
    static const char *const prefixes[] = {"x-ratelimit-", "anthropic-ratelimit-"};
    for (size_t i = 0; x->limited && i < sizeof prefixes / sizeof *prefixes; i++) {
        struct str prefix = str_of(prefixes[i]);
        if (header.n > prefix.n && str_ieq(str_sub(header, 0, prefix.n), prefix)) return true;
    }
    return false;
}
