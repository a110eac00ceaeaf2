/* pipeline.c - see pipeline.h. The table below is the request's path; nothing else moves a request forward, ends or frees it. */
#include "gateway/pipeline.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/access.h"
#include "gateway/counting.h"
#include "gateway/door_stream.h"
#include "gateway/kept_responses.h"
#include "gateway/limit.h"
#include "gateway/model_rules.h"
#include "gateway/prompt_tokens.h"
#include "gateway/reply.h"
#include "gateway/route_shared.h"
#include "gateway/series.h"
#include "gateway/ticket.h"

enum {
    CACHED = 1 << ROUTE_CHAT | 1 << ROUTE_COMPLETIONS | 1 << ROUTE_RESPONSES | 1 << ROUTE_MESSAGES,
    PROXIED = 1 << ROUTE_PROXY,
    STORED = 1 << ROUTE_FILES | 1 << ROUTE_BATCHES,
    KEPT = 1 << ROUTE_KEPT,
    EMBEDDED = 1 << ROUTE_EMBEDDINGS,
    COUNTED = 1 << ROUTE_COUNT_TOKENS,
    POSTED = CACHED | EMBEDDED | COUNTED | 1 << ROUTE_EXPLAIN, /* take nothing but POST */
    ADMIN = 1 << ROUTE_ADMIN,
    EXPLAINED = 1 << ROUTE_EXPLAIN,
    WELL = 1 << ROUTE_HEALTH | 1 << ROUTE_READY,
    EVERY = (1 << N_ROUTES) - 1,
    PLAIN_BYTES = 128,        /* over the longest address known here */
    STATUS_CLIENT_GONE = 499, /* nginx's number for it; only in the log and metrics */
};

static const struct {
    enum step (*run)(struct exchange *x);
    unsigned routes;
    enum timed timed;
} stages[] = {
    {stage_route_known, EVERY, TIMED_NONE},
    {health_answer, WELL, TIMED_NONE},
    {metrics_answer, 1 << ROUTE_METRICS, TIMED_NONE},
    {admin_start, ADMIN, TIMED_NONE},
    {explain_admit, EXPLAINED, TIMED_NONE},
    {stage_admit, CACHED | PROXIED | STORED | KEPT | EMBEDDED | COUNTED, TIMED_NONE},
    {files_start, 1 << ROUTE_FILES, TIMED_NONE},
    {batches_start, 1 << ROUTE_BATCHES, TIMED_NONE},
    {kept_responses_start, KEPT, TIMED_NONE},
    {stage_limit_proxy, PROXIED, TIMED_NONE},
    {proxy_start, PROXIED, TIMED_NONE},
    {stage_previous, 1 << ROUTE_RESPONSES, TIMED_READ},
    {stage_read, CACHED | EXPLAINED | EMBEDDED | COUNTED, TIMED_READ},
    {stage_prepare, CACHED | EXPLAINED | EMBEDDED | COUNTED, TIMED_READ},
    {stage_limit_count, CACHED, TIMED_LIMIT},
    {stage_limit, CACHED | EMBEDDED, TIMED_LIMIT},
    {stage_unread, CACHED | EMBEDDED | COUNTED, TIMED_KEY},
    {embeddings_start, EMBEDDED, TIMED_NONE},
    {stage_key, CACHED | EXPLAINED, TIMED_KEY},
    {explain_start, EXPLAINED, TIMED_NONE},
    {stage_find, CACHED, TIMED_FIND},
    {stage_prompt, CACHED | COUNTED, TIMED_PROMPT},
    {count_tokens_answer, COUNTED, TIMED_NONE},
    {stage_shared, CACHED, TIMED_ROUTE},
    {stage_follow, CACHED, TIMED_ROUTE},
    {stage_join, CACHED, TIMED_ROUTE},
    {stage_forward, CACHED, TIMED_ROUTE},
};
enum { N_STAGES = sizeof stages / sizeof stages[0] };

/* --- addresses */
static bool path_is_odd(struct str path)
{
    return str_find(path, STR("..")) >= 0 || str_find(path, STR("//")) >= 0 ||
           str_find(path, STR("\\")) >= 0 || str_find(path, STR("%00")) >= 0 ||
           str_find(path, STR("%2e")) >= 0 || str_find(path, STR("%2E")) >= 0 ||
           str_find(path, STR("%2f")) >= 0 || str_find(path, STR("%2F")) >= 0 ||
           str_find(path, STR("%5c")) >= 0 || str_find(path, STR("%5C")) >= 0;
}

static bool is_under(struct str path, struct str root)
{
    return str_eq(path, root) ||
           (str_starts(path, root) && path.p[root.n] == '/' && !path_is_odd(path));
}

/* As upstreams read it: what needs no escape is the same with one (RFC 3986, 6.2.2.2), and a slash at the end is none. Else a request
 * would pass by its cache and its limits under another spelling of its address. */
static struct str plain_path(struct str path, char out[PLAIN_BYTES])
{
    size_t n = 0;
    if (path.n > 1 && path.p[path.n - 1] == '/') path.n--;
    if (path.n > PLAIN_BYTES) return path;
    for (size_t i = 0; i < path.n; i++) {
        int byte = str_percent(path, i);
        char c = (char)byte;
        bool escaped = byte >= 0 && (isalnum((unsigned char)c) || c == '-' || c == '_' || c == '~');
        out[n++] = escaped ? c : path.p[i];
        if (escaped) i += 2;
    }
    return (struct str){out, n};
}

static enum route route_of(struct str path)
{
    char scratch[PLAIN_BYTES];
    struct str plain = plain_path(path, scratch);
    static const struct {
        const char *path;
        enum route route;
    } known[] = {{"/v1/chat/completions", ROUTE_CHAT},
                 {"/v1/completions", ROUTE_COMPLETIONS},
                 {"/v1/responses", ROUTE_RESPONSES},
                 {"/v1/messages", ROUTE_MESSAGES},
                 {"/v1/embeddings", ROUTE_EMBEDDINGS},
                 {"/v1/messages/count_tokens", ROUTE_COUNT_TOKENS},
                 {"/health", ROUTE_HEALTH},
                 {"/ready", ROUTE_READY},
                 {"/metrics", ROUTE_METRICS},
                 {"/admin/explain", ROUTE_EXPLAIN}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_ieq(plain, str_of(known[i].path))) return known[i].route;
    if (str_starts(path, STR("/admin/"))) return ROUTE_ADMIN;
    if (is_under(path, STR("/v1/files"))) return ROUTE_FILES;
    if (is_under(path, STR("/v1/batches"))) return ROUTE_BATCHES;
    if (is_under(path, STR("/v1/responses"))) return ROUTE_KEPT;
    return str_starts(path, STR("/v1/")) && !path_is_odd(path) ? ROUTE_PROXY : ROUTE_NONE;
}

static const struct door *door_of(enum route r)
{
    static const struct door *const doors[N_ROUTES] = {[ROUTE_RESPONSES] = &door_responses,
                                                       [ROUTE_MESSAGES] = &door_messages,
                                                       [ROUTE_COUNT_TOKENS] = &door_count_tokens};
    return doors[r];
}

enum step stage_route_known(struct exchange *x)
{
    struct str method = http_req_method(x->r);
    bool get = str_eqz(method, "GET") || str_eqz(method, "HEAD");
    unsigned bit = 1u << x->route;
    if (x->route == ROUTE_NONE) {
        reply_fault(x, FAULT_NOT_FOUND, "");
        return STEP_DONE;
    }
    bool good =
        bit & POSTED ? str_eqz(method, "POST") : bit & (PROXIED | ADMIN | STORED | KEPT) || get;
    if (good) return STEP_NEXT;
    reply_method(x, bit & POSTED ? "POST" : "GET, HEAD");
    return STEP_DONE;
}

/* --- the end */
static void free_exchange(struct exchange *x)
{
    ASSERT(!x->ticket && !x->follows && !x->proxy && !x->lookup && !x->parse && !x->admin &&
           !x->limit && !x->store_job && !x->embedding && !x->seed);
    if (x->parsed) openai_request_fini(&x->req);
    if (x->keyed) cache_key_fini(&x->key);
    if (x->own_used) tape_fini(&x->own);
    door_stream_free(x->told);
    door_request_fini(&x->asked);
    prompt_tokens_free(x->prompt);
    model_rules_unref(x->rules);
    model_rules_unref(x->served_rules);
    buf_fini(&x->body);
    mem_free(x);
}

static bool uses_cache(const struct exchange *x)
{
    return route_is_cached(x->route) && x->parsed && x->out.cache[0];
}

static void end(struct exchange *x)
{
    struct gateway *gw = x->gw;
    uint64_t now_us = clock_us();
    if (x->client_gone || !x->status) x->status = STATUS_CLIENT_GONE;
    series_count(x, now_us);
    if (uses_cache(x)) counting_request(gw->counting, x, (double)(now_us - x->started_us) / 1e6);
    limit_end(x);
    if (gw->o.access_log) access_line(x, now_us);
    gw->inflight--;
    metric_set(gw->series->inflight, gw->inflight);
    free_exchange(x);
}

void pipeline_finish(struct exchange *x)
{
    ASSERT(x->waiting);
    end(x);
}

static void run(struct exchange *x)
{
    while (x->stage < N_STAGES) {
        int i = x->stage++;
        if (!(stages[i].routes & 1u << x->route)) continue;
        if (stages[i].timed != x->watch.now) stopwatch_turn(&x->watch, stages[i].timed, clock_us());
        enum step step = stages[i].run(x);
        if (step == STEP_NEXT) continue;
        if (step == STEP_WAIT && x->stage == N_STAGES)
            stopwatch_turn(&x->watch, TIMED_NONE, clock_us()); /* the ticket knows what follows */
        x->waiting = step == STEP_WAIT;
        if (step == STEP_DONE) end(x);
        return;
    }
    ASSERT(!"a request passed the last stage");
}

void pipeline_resume(struct exchange *x)
{
    ASSERT(x->waiting);
    x->waiting = false;
    run(x);
}

/* --- the client's side */
static void on_gone(void *arg)
{
    struct exchange *x = arg;
    ASSERT(x->waiting);
    x->client_gone = true;
    x->r = NULL;
    cache_find_cancel(x->lookup);
    x->lookup = NULL;
    parse_abandon(x);
    limit_leave(x);
    prompt_abandon(x);
    route_shared_abandon(x);
    proxy_leave(x);
    embeddings_leave(x);
    admin_leave(x);
    admin_seed_leave(x);
    explain_leave(x);
    store_leave(x);
    ticket_leave(x);
    end(x);
}

static void on_writable(void *arg)
{
    struct exchange *x = arg;
    if (x->proxy) {
        proxy_writable(x);
    } else if (x->store_job) {
        store_writable(x);
    } else if (x->ticket && x->streaming) {
        ticket_writable(x);
    } else if (x->streaming) {
        x->blocked = false;
        if (reply_pump(x)) pipeline_finish(x);
    }
}

/* The one traceparent a request may have: several are as good as none. */
static struct str trace_parent(const struct http_req *r)
{
    struct str found = {0}, name, value;
    for (int i = 0; i < http_req_n_headers(r); i++) {
        http_req_header_at(r, i, &name, &value);
        if (name.n != 11 || !str_ieq(name, STR("traceparent"))) continue;
        if (found.p) return STR("");
        found = value;
    }
    return found;
}

/* An id of the request's own, made of the trace's and of our span in it, where the client gives none. */
static void make_ids(struct exchange *x)
{
    struct rng *rng = &x->gw->rng;
    struct hash128 fresh = {rng_u64(rng), rng_u64(rng)};
    trace_begin(&x->trace, trace_parent(x->r), fresh, rng_u64(rng), x->gw->o.trace_sample_percent);
    struct str given = http_req_header(x->r, "x-request-id");
    if (request_id_is_good(given)) str_copy(x->request_id, sizeof x->request_id, given);
    if (x->request_id[0]) return;
    memcpy(x->request_id, "req-", 4);
    memcpy(x->request_id + 4, x->trace.id, 8);
    memcpy(x->request_id + 12, x->trace.span, 17);
}

static void start(struct gateway *gw, struct http_req *r, const char *batch_tenant)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    x->gw = gw;
    x->r = r;
    x->started_us = http_req_started_us(r);
    x->route = route_of(http_req_path(r));
    if ((1 << x->route & STORED) && !gw->o.batch_api) x->route = ROUTE_PROXY;
    if (x->route == ROUTE_KEPT && !kept_responses_here(gw)) x->route = ROUTE_PROXY;
    x->batch = batch_tenant != NULL;
    x->door = door_of(x->route);
    outcome_init(&x->out);
    buf_init(&x->body, gw->o.body_bytes_max + 64 * 1024);
    str_copy(x->tenant, sizeof x->tenant, str_of(batch_tenant ? batch_tenant : "-"));
    make_ids(x);
    http_req_on_gone(r, on_gone, x);
    http_req_on_writable(r, on_writable, x);
    gw->inflight++;
    metric_set(gw->series->inflight, gw->inflight);
    if (gw->inflight > gw->o.inflight_max && x->route != ROUTE_HEALTH &&
        x->route != ROUTE_METRICS && x->route != ROUTE_ADMIN) {
        reply_fault_retry(x, FAULT_BUSY, "", 1000);
        end(x);
        return;
    }
    run(x);
}

void pipeline_start(struct gateway *gw, struct http_req *r)
{
    start(gw, r, NULL);
}

void pipeline_start_batch(struct gateway *gw, struct http_req *r, const char *tenant)
{
    start(gw, r, tenant);
}
