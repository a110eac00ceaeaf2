/* pipeline.c - see pipeline.h. The table below is the request's path; nothing else moves a request forward, ends or frees it. */
#include "gateway/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/access.h"
#include "gateway/counting.h"
#include "gateway/reply.h"
#include "gateway/series.h"
#include "gateway/ticket.h"

enum {
    CACHED = 1 << ROUTE_CHAT | 1 << ROUTE_COMPLETIONS,
    PROXIED = 1 << ROUTE_PROXY,
    ADMIN = 1 << ROUTE_ADMIN,
    EXPLAINED = 1 << ROUTE_EXPLAIN,
    WELL = 1 << ROUTE_HEALTH | 1 << ROUTE_READY,
    EVERY = (1 << N_ROUTES) - 1,
    STATUS_CLIENT_GONE = 499, /* nginx's number for it; only in the log and metrics */
};

static const struct {
    enum step (*run)(struct exchange *x);
    unsigned routes;
} stages[] = {
    {stage_route_known, EVERY},
    {health_answer, WELL},
    {metrics_answer, 1 << ROUTE_METRICS},
    {admin_start, ADMIN},
    {explain_admit, EXPLAINED},
    {stage_admit, CACHED | PROXIED},
    {proxy_start, PROXIED},
    {stage_read, CACHED | EXPLAINED},
    {stage_prepare, CACHED | EXPLAINED},
    {stage_key, CACHED | EXPLAINED},
    {explain_start, EXPLAINED},
    {stage_find, CACHED},
    {stage_join, CACHED},
    {stage_forward, CACHED},
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

static enum route route_of(struct str path)
{
    static const struct {
        const char *path;
        enum route route;
    } known[] = {{"/v1/chat/completions", ROUTE_CHAT},
                 {"/v1/completions", ROUTE_COMPLETIONS},
                 {"/health", ROUTE_HEALTH},
                 {"/ready", ROUTE_READY},
                 {"/metrics", ROUTE_METRICS},
                 {"/admin/explain", ROUTE_EXPLAIN}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_eqz(path, known[i].path)) return known[i].route;
    if (str_starts(path, STR("/admin/"))) return ROUTE_ADMIN;
    return str_starts(path, STR("/v1/")) && !path_is_odd(path) ? ROUTE_PROXY : ROUTE_NONE;
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
        bit & (CACHED | EXPLAINED) ? str_eqz(method, "POST") : bit & (PROXIED | ADMIN) || get;
    if (good) return STEP_NEXT;
    http_set_header(x->r, "Allow", bit & (CACHED | EXPLAINED) ? STR("POST") : STR("GET, HEAD"));
    reply_fault(x, FAULT_METHOD, "");
    return STEP_DONE;
}

/* --- the end */
static void free_exchange(struct exchange *x)
{
    ASSERT(!x->ticket && !x->proxy && !x->lookup && !x->parse && !x->admin);
    if (x->parsed) openai_request_fini(&x->req);
    if (x->keyed) cache_key_fini(&x->key);
    if (x->own_used) tape_fini(&x->own);
    buf_fini(&x->body);
    mem_free(x);
}

static bool uses_cache(const struct exchange *x)
{
    return (1 << x->route & CACHED) && x->parsed && x->out.cache[0];
}

static void end(struct exchange *x)
{
    struct gateway *gw = x->gw;
    uint64_t now_us = clock_us();
    if (x->client_gone || !x->status) x->status = STATUS_CLIENT_GONE;
    double seconds = (double)(now_us - x->started_us) / 1e6;
    series_count(x, seconds);
    if (uses_cache(x)) counting_request(gw->counting, x, seconds);
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
        enum step step = stages[i].run(x);
        if (step == STEP_NEXT) continue;
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
    proxy_leave(x);
    admin_leave(x);
    explain_leave(x);
    ticket_leave(x);
    end(x);
}

static void on_writable(void *arg)
{
    struct exchange *x = arg;
    if (x->proxy) {
        proxy_writable(x);
    } else if (x->ticket && x->streaming && x->tape != &x->own) {
        ticket_writable(x);
    } else if (x->streaming) {
        x->blocked = false;
        if (!reply_pump(x)) return;
        if (x->ticket) ticket_detach(x);
        pipeline_finish(x);
    }
}

static void make_id(struct exchange *x)
{
    struct str given = http_req_header(x->r, "x-request-id");
    if (request_id_is_good(given))
        snprintf(x->request_id, sizeof x->request_id, STR_FMT, STR_ARG(given));
    if (x->request_id[0]) return;
    struct hash128 random = {rng_u64(&x->gw->rng), rng_u64(&x->gw->rng)};
    char hex[33];
    hash_hex(random, hex);
    memcpy(x->request_id, "req-", 4);
    memcpy(x->request_id + 4, hex, 24);
    x->request_id[28] = 0;
}

void pipeline_start(struct gateway *gw, struct http_req *r)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    x->gw = gw;
    x->r = r;
    x->started_us = http_req_started_us(r);
    x->route = route_of(http_req_path(r));
    outcome_init(&x->out);
    buf_init(&x->body, gw->o.body_bytes_max + 64 * 1024);
    memcpy(x->tenant, "-", 2);
    make_id(x);
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
