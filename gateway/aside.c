/* aside.c - see aside.h. */
#include "gateway/aside.h"

#include <stdio.h>

#include "base/mem.h"
#include "gateway/call.h"
#include "gateway/gateway.h"

enum { REPLY_BYTES_MAX = 1 << 20 };

struct aside {
    struct call *call;      /* through the gateway's upstreams, or */
    struct http_call *http; /* straight to an origin */
    struct loop_timer *deadline;
    struct buf body;
    int status;
    bool timed_out;
    aside_done *done;
    void *arg;
};

static void finish(struct aside *a, enum err code)
{
    if (code == OK && buf_failed(&a->body)) code = ERR_TOO_LARGE;
    if (a->timed_out) code = ERR_TIMEOUT;
    a->done(a->arg, code, a->status, code == OK ? buf_view(&a->body) : STR(""));
    loop_timer_free(a->deadline);
    buf_fini(&a->body);
    mem_free(a);
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    ((struct aside *)arg)->status = head->status;
}

static void on_body(void *arg, struct str bytes)
{
    struct aside *a = arg;
    buf_str(&a->body, bytes);
    if (buf_failed(&a->body)) aside_cancel(a);
}

static void on_call_done(void *arg, enum err code, enum fault fault, bool head_seen)
{
    struct aside *a = arg;
    (void)fault, (void)head_seen;
    a->call = NULL;
    finish(a, code == ERR_CANCELLED && buf_failed(&a->body) ? OK : code);
}

static void on_http_done(void *arg, enum err code, const struct errmsg *e)
{
    struct aside *a = arg;
    (void)e;
    a->http = NULL;
    finish(a, code == ERR_CANCELLED && buf_failed(&a->body) ? OK : code);
}

static void on_deadline(void *arg)
{
    struct aside *a = arg;
    a->timed_out = true;
    aside_cancel(a);
}

static void ask_origin(struct aside *a, struct gateway *gw, const struct aside_request *r)
{
    char bearer[600], path[300];
    struct http_header h[2] = {{STR("content-type"), STR("application/json")}};
    size_t n = 1;
    if (r->key.n) {
        snprintf(bearer, sizeof bearer, "Bearer " STR_FMT, STR_ARG(r->key));
        h[n++] = (struct http_header){STR("authorization"), str_of(bearer)};
    }
    snprintf(path, sizeof path, STR_FMT, STR_ARG(r->path));
    struct http_call_options o = {.origin = r->origin,
                                  .method = "POST",
                                  .path = path,
                                  .headers = h,
                                  .n_headers = n,
                                  .body = r->body,
                                  .connect_timeout_ms = gw->o.upstream_connect_ms,
                                  .first_byte_timeout_ms = r->timeout_ms,
                                  .idle_timeout_ms = r->timeout_ms,
                                  .body_max = REPLY_BYTES_MAX,
                                  .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_http_done, a};
    a->http = http_call(gw->client, &o, &handler);
}

static void ask_upstream(struct aside *a, struct gateway *gw, const struct aside_request *r)
{
    struct header_list headers;
    headers_init(&headers);
    bool fits = headers_add(&headers, STR("content-type"), STR("application/json")) &&
                headers_add(&headers, STR("accept-encoding"), STR("identity"));
    ASSERT(fits);
    struct call_request c = {.method = "POST",
                             .path = r->path,
                             .headers = &headers,
                             .authorization = r->authorization,
                             .salt = r->salt,
                             .model = r->model,
                             .body = r->body,
                             .batch = true};
    struct call_handler h = {on_head, on_body, on_call_done, a, NULL, NULL};
    a->call = call_start(gw, &c, &h);
    headers_fini(&headers);
}

struct aside *aside_start(struct gateway *gw, const struct aside_request *r, aside_done *done,
                          void *arg)
{
    struct aside *a = xcalloc(1, sizeof *a);
    a->done = done;
    a->arg = arg;
    buf_init(&a->body, REPLY_BYTES_MAX);
    a->deadline = loop_timer_new(gw->loop, on_deadline, a);
    loop_timer_arm(a->deadline, (uint64_t)r->timeout_ms);
    if (r->origin)
        ask_origin(a, gw, r);
    else
        ask_upstream(a, gw, r);
    return a;
}

void aside_cancel(struct aside *a)
{
    if (!a) return;
    if (a->call) call_cancel(a->call);
    if (a->http) http_call_cancel(a->http);
}
