/* reply.c - see reply.h. */
#include "gateway/reply.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/door_stream.h"
#include "gateway/kept_responses.h"
#include "gateway/ladder.h"
#include "gateway/limit.h"
#include "gateway/models_list.h"

enum {
    PIECE_BYTES = 64 * 1024, /* per http_write: well under four times its high-water mark */
    ANSWER_BYTES_MAX = 64 * 1024 * 1024,
    STREAM_PIECE_CHARS = 32, /* characters a chunk of a replayed stream carries */
};

void outcome_init(struct outcome *o)
{
    *o = (struct outcome){.cache = "none", .similarity = -1, .age_s = -1};
}

void outcome_reason(struct outcome *o, const char *reason)
{
    size_t n = strnlen(reason, sizeof o->reason - 1);
    memcpy(o->reason, reason, n);
    o->reason[n] = 0;
}

static bool uses_cache(const struct exchange *x)
{
    return route_is_cached(x->route) || x->route == ROUTE_EMBEDDINGS;
}

/* Without printf: on a hit the headers would be a tenth of the work (libraries that register printf hooks, as a BLAS' run-time
 * may, make every printf several times dearer). */
static void set_number(struct exchange *x, const char *name, uint64_t v)
{
    char digits[STR_U64_BYTES];
    http_set_header(x->r, name, str_u64(v, digits));
}

static void cache_status(struct exchange *x)
{
    const struct outcome *o = &x->out;
    if (o->stale_s > 0) { /* RFC 9211, 2.5: the lifetime left is negative */
        http_set_headerf(x->r, "Cache-Status", "deja; hit; ttl=-%lld; detail=stale",
                         (long long)o->stale_s);
        set_number(x, "Age", (uint64_t)o->age_s);
    } else if (o->age_s >= 0) {
        bool exact = !strcmp(o->cache, "exact");
        http_set_header(x->r, "Cache-Status",
                        exact ? STR("deja; hit; detail=exact") : STR("deja; hit; detail=semantic"));
        set_number(x, "Age", (uint64_t)o->age_s);
    } else if (!strcmp(o->cache, "coalesced")) {
        http_set_header(x->r, "Cache-Status",
                        x->followed ? STR("deja; fwd=miss; collapsed; detail=semantic")
                                    : STR("deja; fwd=miss; collapsed"));
    } else {
        const char *fwd = x->controls.bypass || strcmp(o->cache, "bypass") ? o->cache
                          : x->controls.skip_lookup                        ? "request"
                                                                           : "bypass";
        struct buf b;
        buf_init(&b, 1024);
        buf_z(&b, "deja; fwd=");
        buf_z(&b, fwd);
        buf_z(&b, o->stored ? "; stored" : o->refused ? "; detail=" : "");
        if (!o->stored && o->refused) buf_z(&b, o->refused);
        http_set_header(x->r, "Cache-Status", buf_view(&b));
        buf_fini(&b);
    }
}

/* The reply goes out whole now: whatever happens to the connection is not for x any more. */
static void let_go(struct exchange *x)
{
    http_req_on_gone(x->r, NULL, NULL);
    http_req_on_writable(x->r, NULL, NULL);
}

/* The headers every reply carries; decided by now, before the first byte. */
static void own_headers(struct exchange *x)
{
    const struct outcome *o = &x->out;
    ladder_describe(x);
    http_set_header(x->r, "x-request-id", str_of(x->request_id));
    if (x->gw->o.trace_header) http_set_header(x->r, "x-deja-trace", str_of(x->trace.id));
    if (x->door && x->door->id_header)
        http_set_header(x->r, x->door->id_header, str_of(x->request_id));
    if (!uses_cache(x) || !x->parsed || !o->cache[0]) return;
    http_set_header(x->r, "x-deja-cache", str_of(o->cache));
    if (o->reason[0]) http_set_header(x->r, "x-deja-reason", str_of(o->reason));
    if (o->degraded) http_set_header(x->r, "x-deja-degraded", str_of(o->degraded));
    if (o->routed.n) http_set_headerf(x->r, "x-deja-model", STR_FMT, STR_ARG(o->routed));
    if (o->served_by.n)
        http_set_headerf(x->r, "x-deja-served-by", "fallback; model=" STR_FMT,
                         STR_ARG(o->served_by));
    if (o->queued_us) set_number(x, "x-deja-queue-ms", (o->queued_us + 999) / 1000);
    if (x->arm[0]) http_set_header(x->r, "x-deja-arm", str_of(x->arm));
    if (o->similarity >= 0) http_set_headerf(x->r, "x-deja-similarity", "%.4f", o->similarity);
    if (o->route[0]) http_set_header(x->r, "x-deja-route", str_of(o->route));
    if (o->entry[0]) http_set_header(x->r, "x-deja-entry", str_of(o->entry));
    if (o->nearest[0]) http_set_header(x->r, "x-deja-nearest", str_of(o->nearest));
    set_number(x, "x-deja-overhead-us", clock_us() - x->started_us - x->upstream_us);
    cache_status(x);
}

static void sent_whole(struct exchange *x, int status, size_t n)
{
    x->status = status;
    x->bytes_out = n;
    x->r = NULL;
}

void reply_body(struct exchange *x, int status, const char *content_type, struct str body)
{
    own_headers(x);
    let_go(x);
    http_send(x->r, status, content_type, body);
    sent_whole(x, status, body.n);
}

void reply_refusal(struct exchange *x, const struct openai_error *e)
{
    struct buf body;
    buf_init(&body, 4096);
    if (x->door)
        x->door->write_error(&body, e, str_of(x->request_id));
    else
        openai_error_write(&body, e);
    reply_body(x, e->status, "application/json", buf_view(&body));
    buf_fini(&body);
}

void reply_problem(struct exchange *x, int status, const char *code, const char *param,
                   const char *message)
{
    struct openai_error e = {0};
    openai_error_set(&e, status, status >= 500 ? "server_error" : "invalid_request_error", param,
                     code, "%s", message);
    reply_refusal(x, &e);
}

void reply_method(struct exchange *x, const char *allow)
{
    http_set_header(x->r, "Allow", str_of(allow));
    reply_fault(x, FAULT_METHOD, "");
}

void reply_fault(struct exchange *x, enum fault f, const char *detail)
{
    struct openai_error e = {0};
    fault_error(&e, f, detail);
    if (f == FAULT_NO_MODEL) models_missing(&e, x->gw, x->req.model, x->model);
    reply_refusal(x, &e);
}

void reply_fault_retry(struct exchange *x, enum fault f, const char *detail, uint64_t retry_ms)
{
    uint64_t s = (retry_ms + 999) / 1000;
    set_number(x, "Retry-After", s ? s : 1);
    reply_fault(x, f, detail);
}

bool reply_header_passes(struct str name)
{
    static const char *const ours[] = {"content-type", "x-request-id",     "cache-status",
                                       "age",          "content-encoding", "server"};
    if (header_is_hop(name) || (name.n >= 7 && str_ieq(str_sub(name, 0, 7), STR("x-deja-"))))
        return false;
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (str_ieq(name, str_of(ours[i]))) return false;
    return true;
}

static void pass_headers(struct exchange *x, const struct header_list *from)
{
    char name[128];
    struct str n, v;
    if (!from) return;
    for (size_t i = 0; i < from->n; i++) {
        headers_at(from, i, &n, &v);
        bool id = str_ieq(n, STR("x-request-id"));
        if ((!id && !reply_header_passes(n)) || n.n >= sizeof name || limit_hides(x, n)) continue;
        str_copy(name, sizeof name, n);
        if (id) str_copy(name, sizeof name, STR("x-upstream-request-id"));
        if (headers_again(from, i))
            http_add_header(x->r, name, v); /* Set-Cookie, Link */
        else
            http_set_header(x->r, name, v);
    }
}

void reply_upstream(struct exchange *x, int status, struct str content_type,
                    const struct header_list *from, struct str body)
{
    char type[160];
    str_copy(type, sizeof type, content_type);
    pass_headers(x, from);
    reply_body(x, status, type[0] ? type : "application/json", body);
}

static struct door_facts facts_of(struct exchange *x)
{
    struct hash128 random = {rng_u64(&x->gw->rng), rng_u64(&x->gw->rng)};
    struct door_facts f = {.asked = x->asked.asked, .now_s = clock_wall_s()};
    hash_hex(random, f.id);
    kept_responses_facts(x, &f);
    return f;
}

static void answer_through_door(struct exchange *x, const struct openai_answer *a)
{
    struct turn t;
    struct buf body;
    struct errmsg why = {0};
    struct door_facts f = facts_of(x);
    turn_init(&t, ANSWER_BYTES_MAX);
    buf_init(&body, ANSWER_BYTES_MAX);
    enum err code = turn_read(&t, a);
    if (code == OK) code = x->door->write_answer(&body, &t, &f, &why);
    if (code != OK)
        reply_fault(x, code == ERR_TOO_LARGE ? FAULT_TOO_LONG : FAULT_BAD_ANSWER, why.text);
    else if (buf_failed(&body))
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_body(x, 200, "application/json", buf_view(&body));
    turn_fini(&t);
    buf_fini(&body);
}

void reply_answer_json(struct exchange *x, const struct openai_answer *a)
{
    struct buf body;
    if (x->door) return answer_through_door(x, a);
    buf_init(&body, ANSWER_BYTES_MAX);
    openai_answer_write_json(&body, a);
    if (buf_failed(&body))
        reply_fault(x, FAULT_MEMORY, "");
    else
        reply_body(x, 200, "application/json", buf_view(&body));
    buf_fini(&body);
}

/* --- streams */
void reply_stream_open(struct exchange *x, const struct tape *tape, const struct header_list *from)
{
    pass_headers(x, from);
    own_headers(x);
    if (!from || !headers_find(from, "cache-control").p)
        http_set_header(x->r, "Cache-Control", STR("no-cache"));
    http_set_header(x->r, "X-Accel-Buffering", STR("no"));
    http_start(x->r, 200, "text/event-stream; charset=utf-8");
    x->status = 200;
    x->tape = tape;
    x->tape_at = tape->base;
    x->streaming = true;
    if (!x->door) return;
    struct door_facts f = facts_of(x);
    x->told = door_stream_new(x->door, &f, ANSWER_BYTES_MAX);
}

void reply_answer_stream(struct exchange *x, const struct openai_answer *a)
{
    tape_init(&x->own, ANSWER_BYTES_MAX);
    x->own_used = true;
    openai_answer_write_sse(&x->own.bytes, a, x->req.include_usage, STREAM_PIECE_CHARS);
    if (buf_failed(&x->own.bytes)) {
        reply_fault(x, FAULT_MEMORY, "");
        return;
    }
    x->own.ended = true;
    reply_stream_open(x, &x->own, NULL);
}

static struct str tape_next(struct exchange *x)
{
    return tape_piece(x->tape, &x->tape_at, x->req.include_usage, PIECE_BYTES);
}

/* What is to be written next: the tape as it is, or what the door makes of it. */
static struct str next_piece(struct exchange *x)
{
    if (!x->told) return tape_next(x);
    struct str out = door_stream_next(x->told, PIECE_BYTES), in;
    while (!out.n && (in = tape_next(x)).n) {
        door_stream_feed(x->told, in);
        x->tape_at += in.n;
        out = door_stream_next(x->told, PIECE_BYTES);
    }
    if (out.n || !x->tape->ended) return out;
    door_stream_close(x->told);
    return door_stream_next(x->told, PIECE_BYTES);
}

bool reply_pump(struct exchange *x)
{
    struct str piece = next_piece(x);
    for (; piece.n && !x->blocked; piece = next_piece(x)) {
        if (!http_write(x->r, piece)) x->blocked = true;
        x->bytes_out += piece.n;
        if (!x->first_us) x->first_us = clock_us();
        if (x->told)
            door_stream_sent(x->told, piece.n);
        else
            x->tape_at += piece.n;
    }
    bool lost = x->told && buf_failed(&x->told->out); /* no memory for what is to be said */
    if (!lost && (piece.n || !x->tape->ended)) return false;
    let_go(x);
    if (lost)
        http_abort(x->r);
    else
        http_end(x->r);
    x->r = NULL;
    return true;
}
