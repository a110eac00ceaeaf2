/* proxy.c - every other /v1/ address: method, query, headers and body go to an upstream as they are, and its reply comes back as it is,
 * piece by piece, with back-pressure. Nothing is read, cached or stored. Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/call.h"
#include "gateway/limit.h"
#include "gateway/models_list.h"
#include "gateway/pipeline.h"
#include "gateway/relay.h"
#include "gateway/reply.h"

struct proxy {
    struct exchange *x; /* NULL: the client has left, the call is being cancelled */
    struct call *call;
    uint64_t started_us;
    char *model; /* what the body names, where it was read; "" = none */
    bool paused;
};

/* Several fields of one name, as Set-Cookie. */
static bool came_before(const struct http_reply_head *head, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (str_ieq(head->headers[k].name, head->headers[i].name)) return true;
    return false;
}

static void pass_head(struct exchange *x, const struct http_reply_head *head)
{
    char name[128], type[256];
    int64_t length;
    struct str content_type = http_head_find(head, "content-type");
    for (size_t i = 0; i < head->n_headers; i++) {
        struct str n = head->headers[i].name;
        if (header_is_hop(n) || str_ieq(n, STR("content-type")) || n.n >= sizeof name ||
            limit_hides(x, n))
            continue;
        bool id = str_ieq(n, STR("x-request-id"));
        str_copy(name, sizeof name, id ? STR("x-upstream-request-id") : n);
        if (came_before(head, i))
            http_add_header(x->r, name, head->headers[i].value);
        else
            http_set_header(x->r, name, head->headers[i].value);
    }
    http_set_header(x->r, "x-request-id", str_of(x->request_id));
    if (x->gw->o.trace_header) http_set_header(x->r, "x-deja-trace", str_of(x->trace.id));
    if (str_to_i64(http_head_find(head, "content-length"), 0, INT64_MAX, &length) == OK)
        http_tell_length(x->r, (uint64_t)length);
    snprintf(type, sizeof type, STR_FMT, STR_ARG(content_type));
    http_start(x->r, head->status, type[0] ? type : NULL);
    x->status = head->status;
    x->streaming = true;
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct proxy *p = arg;
    if (p->x && head->status >= 200 && head->status <= 599) pass_head(p->x, head);
}

static void on_body(void *arg, struct str bytes)
{
    struct proxy *p = arg;
    struct exchange *x = p->x;
    if (!x || !x->streaming) return;
    x->bytes_out += bytes.n;
    if (http_write(x->r, bytes) || p->paused) return;
    p->paused = true;
    call_pause(p->call);
}

static void refuse(const struct proxy *p, struct exchange *x, enum fault fault)
{
    struct openai_error e = {0};
    uint64_t wait_ms = call_retry_after_ms(p->call);
    if (fault == FAULT_NO_MODEL) {
        fault_error(&e, fault, "");
        models_missing(&e, x->gw, str_of(p->model), STR(""));
        reply_refusal(x, &e);
    } else if (wait_ms) {
        reply_fault_retry(x, fault, "", wait_ms);
    } else {
        reply_fault(x, fault, "");
    }
}

static void on_done(void *arg, enum err code, enum fault fault, bool head_seen)
{
    struct proxy *p = arg;
    struct exchange *x = p->x;
    if (x) {
        x->proxy = NULL;
        x->upstream_us = clock_us() - p->started_us;
        if (!head_seen || !x->streaming) {
            refuse(p, x, fault == FAULT_NONE ? FAULT_BAD_ANSWER : fault);
        } else {
            http_req_on_gone(x->r, NULL, NULL);
            http_req_on_writable(x->r, NULL, NULL);
            if (code == OK)
                http_end(x->r);
            else
                http_abort(
                    x->r); /* cut there, cut here: the client must see that it is not whole */
            x->r = NULL;
        }
        pipeline_finish(x);
    }
    mem_free(p->model);
    mem_free(p);
}

/* Longer bodies (files, images) are not read for it: about a millisecond of parsing. */
enum { MODEL_BODY_BYTES_MAX = 96 * 1024 };

/* The model a JSON body names, where targets differ by model; empty = any target will do. out owns it. */
static void body_model(const struct exchange *x, struct buf *out)
{
    json_t *doc = NULL;
    struct str body = http_req_body(x->r), type = http_req_header(x->r, "content-type");
    if (!body.n || body.n > MODEL_BODY_BYTES_MAX || !content_type_is_json(type) ||
        !upstreams_have_models(x->gw->upstreams) || json_parse(body, 0, &doc, NULL) != OK)
        return;
    buf_str(out, json_member_str(doc, "model"));
    json_decref(doc);
}

enum step proxy_start(struct exchange *x)
{
    if (models_list(x)) return STEP_DONE;
    struct proxy *p = xcalloc(1, sizeof *p);
    struct header_list headers;
    char salt[33], method[32];
    relay_headers(x, &headers, true);
    relay_salt(x, salt);
    snprintf(method, sizeof method, STR_FMT, STR_ARG(http_req_method(x->r)));
    struct buf model;
    buf_init(&model, 4096);
    body_model(x, &model);
    struct call_request r = {.method = method,
                             .path = http_req_target(x->r),
                             .headers = &headers,
                             .authorization = http_req_header(x->r, "authorization"),
                             .salt = str_of(salt),
                             .model = buf_view(&model),
                             .body = http_req_body(x->r),
                             .batch = x->patient,
                             .tenant = str_of(x->tenant),
                             .tenant_weight = x->tenant_weight,
                             .cost = 1 + (double)http_req_body(x->r).n / 4};
    struct call_handler h = {on_head, on_body, on_done, p, NULL, NULL};
    p->model = xstrndup(model.n ? model.p : "", model.n);
    p->x = x;
    p->started_us = clock_us();
    x->proxy = p;
    p->call = call_start(x->gw, &r, &h);
    headers_fini(&headers);
    buf_fini(&model);
    return STEP_WAIT;
}

enum step stage_unread(struct exchange *x)
{
    if (x->parsed) return STEP_NEXT;
    x->route = ROUTE_PROXY;
    x->door = NULL;
    return proxy_start(x);
}

void proxy_leave(struct exchange *x)
{
    struct proxy *p = x->proxy;
    if (!p) return;
    if (!call_is_waiting(p->call)) x->upstream_us = clock_us() - p->started_us; /* it was asked */
    p->x = NULL;
    x->proxy = NULL;
    call_cancel(p->call);
}

void proxy_writable(struct exchange *x)
{
    struct proxy *p = x->proxy;
    if (!p->paused) return;
    p->paused = false;
    call_resume(p->call);
}
