/* call.c - see call.h. A call is either at a target (http set), or waiting for its timer (a retry, or a refusal to be told later). */
#include "gateway/call.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/gateway.h"

enum { BACKOFF_MAX_MS = 2000 };

struct call {
    struct gateway *gw;
    struct call_handler h;
    char *method, *authorization, *salt, *model;
    struct header_list headers;
    struct buf path, body;
    bool retry_503, batch;

    struct upstream *target; /* while http runs */
    struct http_call *http;
    struct loop_timer *timer;
    int tries_left, tries;
    uint32_t tried; /* targets, a bit each; cleared when all had their turn */
    bool head_seen; /* given to the handler */
    bool retrying;  /* the answer that runs now is thrown away */
    bool cancelled;
    bool failed; /* end is decided, the timer tells it */
    enum fault fault;
    uint64_t wait_ms;
    char text[sizeof((struct errmsg *)0)->text];
};

static void attempt(struct call *c);

static void free_call(struct call *c)
{
    loop_timer_free(c->timer);
    headers_fini(&c->headers);
    buf_fini(&c->path);
    buf_fini(&c->body);
    mem_free(c->method);
    mem_free(c->authorization);
    mem_free(c->salt);
    mem_free(c->model);
    mem_free(c);
}

static void finish(struct call *c, enum err code, enum fault fault)
{
    if (code != OK && code != ERR_CANCELLED && c->text[0])
        log_limited(LOG_WARN, "gateway", "upstream call failed: %s", c->text);
    c->h.on_done(c->h.arg, code, fault, c->head_seen);
    free_call(c);
}

static void fail_later(struct call *c, enum fault fault, const char *text)
{
    c->failed = true;
    c->fault = fault;
    snprintf(c->text, sizeof c->text, "%s", text);
    loop_timer_arm(c->timer, 0);
}

static uint64_t backoff_ms(struct call *c)
{
    uint64_t ms = (uint64_t)c->gw->o.upstream_backoff_ms << (c->tries < 6 ? c->tries : 6);
    if (ms > BACKOFF_MAX_MS) ms = BACKOFF_MAX_MS;
    return ms / 2 +
           rng_below(&c->gw->rng,
                     ms / 2 +
                         1); /* jitter: clients that failed together do not come back together */
}

/* A target that has not been tried yet is asked at once; otherwise after a pause. */
static void retry_later(struct call *c)
{
    int n = upstreams_count(c->gw->upstreams);
    bool all = c->tried == (n == 32 ? UINT32_MAX : (1u << n) - 1);
    if (all) c->tried = 0;
    c->tries_left--;
    loop_timer_arm(c->timer, all || n == 1 ? backoff_ms(c) : 0);
    c->tries++;
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct call *c = arg;
    if (c->cancelled) return;
    if (head->status == 503 && c->retry_503 && c->tries_left > 0) {
        c->retrying = true;
        http_call_cancel(c->http);
        return;
    }
    upstream_judge(c->target, UPSTREAM_GOOD, NULL);
    c->head_seen = true;
    c->h.on_head(c->h.arg, head);
}

static void on_body(void *arg, struct str bytes)
{
    struct call *c = arg;
    if (c->cancelled || c->retrying) return;
    c->h.on_body(c->h.arg, bytes);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct call *c = arg;
    struct upstream *t = c->target;
    c->http = NULL;
    c->target = NULL;
    upstream_done(t);
    snprintf(c->text, sizeof c->text, "%s", e && e->text[0] ? e->text : err_text(code));
    if (c->cancelled) {
        if (!c->head_seen) upstream_judge(t, UPSTREAM_UNKNOWN, NULL);
        finish(c, ERR_CANCELLED, FAULT_NONE);
        return;
    }
    if (c->retrying) {
        c->retrying = false;
        upstream_judge(t, UPSTREAM_GOOD, NULL); /* busy, but there */
        retry_later(c);
        return;
    }
    if (c->head_seen || code == OK) {
        finish(c, code, fault_of_call(code, true));
        return;
    }
    /* ERR_INVALID: the request could not even be written, which says nothing about the target */
    upstream_judge(t, code == ERR_INVALID ? UPSTREAM_UNKNOWN : UPSTREAM_BAD, c->text);
    if (code == ERR_UNAVAILABLE && c->tries_left > 0)
        retry_later(c);
    else
        finish(c, code, fault_of_call(code, false));
}

static void target_headers(struct call *c, const struct upstream *t, struct http_header *h,
                           size_t *n, struct buf *auth)
{
    *n = headers_view(&c->headers, h);
    if (t->engine) {
        const char *key = c->gw->o.gateway_key;
        if (key[0]) h[(*n)++] = (struct http_header){STR("x-deja-key"), str_of(key)};
        if (c->batch) h[(*n)++] = (struct http_header){STR("x-deja-priority"), STR("batch")};
        if (c->salt[0]) h[(*n)++] = (struct http_header){STR("x-deja-salt"), str_of(c->salt)};
        return;
    }
    if (c->gw->o.upstream_key[0])
        buf_printf(auth, "Bearer %s", c->gw->o.upstream_key);
    else
        buf_z(auth, c->authorization);
    if (auth->n) h[(*n)++] = (struct http_header){STR("authorization"), buf_view(auth)};
}

static void attempt(struct call *c)
{
    const struct gateway_options *o = &c->gw->o;
    struct http_header h[HEADERS_MAX + 3];
    size_t n;
    struct buf auth, path;
    struct upstream *t = upstreams_pick(c->gw->upstreams, str_of(c->model), c->tried, &c->wait_ms);
    if (!t && c->tried) { /* the untried ones are shut: any will do */
        c->tried = 0;
        t = upstreams_pick(c->gw->upstreams, str_of(c->model), 0, &c->wait_ms);
    }
    if (!t) {
        fail_later(c, FAULT_BREAKER, "");
        return;
    }
    c->target = t;
    c->tried |= 1u << upstreams_index(c->gw->upstreams, t);
    buf_init(&auth, 8192);
    buf_init(&path, 128 * 1024);
    target_headers(c, t, h, &n, &auth);
    upstream_path(t, buf_view(&c->path), &path);
    struct http_call_options call = {.origin = &t->origin,
                                     .method = c->method,
                                     .path = path.p,
                                     .headers = h,
                                     .n_headers = n,
                                     .body = buf_view(&c->body),
                                     .connect_timeout_ms = o->upstream_connect_ms,
                                     .first_byte_timeout_ms = o->upstream_first_byte_ms,
                                     .idle_timeout_ms = o->upstream_idle_ms,
                                     .body_max = SIZE_MAX,
                                     .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_done, c};
    c->http = http_call(c->gw->client, &call, &handler);
    buf_fini(&auth);
    buf_fini(&path);
}

static void on_timer(void *arg)
{
    struct call *c = arg;
    if (c->cancelled)
        finish(c, ERR_CANCELLED, FAULT_NONE);
    else if (c->failed)
        finish(c, ERR_UNAVAILABLE, c->fault);
    else
        attempt(c);
}

static char *copy(struct str s)
{
    return xstrndup(s.p ? s.p : "", s.n);
}

struct call *call_start(struct gateway *gw, const struct call_request *r,
                        const struct call_handler *h)
{
    struct call *c = xcalloc(1, sizeof *c);
    struct str name, value;
    c->gw = gw;
    c->h = *h;
    c->method = xstrdup(r->method);
    c->authorization = copy(r->authorization);
    c->salt = copy(r->salt);
    c->model = copy(r->model);
    c->retry_503 = r->retry_503;
    c->batch = r->batch;
    c->tries_left = gw->o.upstream_retries;
    c->timer = loop_timer_new(gw->loop, on_timer, c);
    headers_init(&c->headers);
    for (size_t i = 0; i < r->headers->n && i < HEADERS_MAX - 1; i++) {
        headers_at(r->headers, i, &name, &value);
        if (!headers_add(&c->headers, name, value)) break;
    }
    buf_init(&c->path, 128 * 1024);
    buf_str(&c->path, r->path);
    buf_init(&c->body, gw->o.body_bytes_max + 64 * 1024);
    buf_str(&c->body, r->body);
    if (buf_failed(&c->path) || buf_failed(&c->body))
        fail_later(c, FAULT_MEMORY, "");
    else
        attempt(c);
    return c;
}

void call_cancel(struct call *c)
{
    if (c->cancelled) return;
    c->cancelled = true;
    if (c->http)
        http_call_cancel(c->http);
    else
        loop_timer_arm(c->timer, 0);
}

void call_pause(struct call *c)
{
    if (c->http) http_call_pause(c->http);
}

void call_resume(struct call *c)
{
    if (c->http) http_call_resume(c->http);
}

uint64_t call_retry_after_ms(const struct call *c)
{
    return c->wait_ms;
}
