/* call.c - see call.h. A call has up to two legs at work, each at one target; with none it waits for its timer (a retry, or a refusal to
 * be told later). The first leg whose status is taken is the call's from then on. A leg that lost, or whose answer is thrown away for
 * another try, is dropped: it ends by itself and frees itself. */
#include "gateway/call.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/body_edit.h"
#include "gateway/gateway.h"
#include "gateway/queue.h"
#include "gateway/series.h"

enum { BACKOFF_MAX_MS = 2000, DRAINED_RETRY_MS = 1000, N_LEGS = 2 };

struct leg {
    struct call *c; /* NULL: dropped */
    struct upstream *target;
    struct http_call *http;
    bool hedge;
    uint64_t begun_ms, retry_after_ms; /* the second: what it said; 0 = nothing */
};

struct call {
    struct gateway *gw;
    struct call *prev, *next; /* of the gateway's */
    struct call_handler h;
    char *method, *authorization, *salt, *model;
    struct header_list headers;
    struct buf path, body;
    bool repeatable, batch, routed; /* routed: matched is known */
    float matched[UPSTREAMS_MAX], load_weight, prompt_tokens;

    struct leg *legs[N_LEGS];
    struct loop_timer *timer, *total, *hedge; /* the last two may be NULL */
    int tries_left, tries;
    int first_target; /* index; -1 = none yet */
    int last_target;
    uint32_t tried;    /* targets, a bit each; cleared when all had their turn */
    struct leg *taken; /* its head was given to the handler */
    bool moved;
    bool cancelled;
    bool failed; /* the end is decided, the timer tells it */
    enum err code;
    enum fault fault;
    uint64_t wait_ms;
    struct queue_place place;
    double spent;           /* tokens; negative = not known */
    struct breaker_call by; /* request: known once it was needed */
    char text[sizeof((struct errmsg *)0)->text];
};

static void attempt(struct call *c, bool hedge);

/* --- the end */
static void free_call(struct call *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        c->gw->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    queue_leave(c->gw->queue, &c->place, c->spent);
    loop_timer_free(c->timer);
    loop_timer_free(c->total);
    loop_timer_free(c->hedge);
    headers_fini(&c->headers);
    buf_fini(&c->path);
    buf_fini(&c->body);
    mem_free(c->method);
    mem_free(c->authorization);
    mem_free(c->salt);
    mem_free(c->model);
    mem_free(c);
}

static void forget_leg(struct call *c, const struct leg *l)
{
    for (int i = 0; i < N_LEGS; i++)
        if (c->legs[i] == l) c->legs[i] = NULL;
    if (c->taken == l) c->taken = NULL;
}

static void drop_leg(struct call *c, struct leg *l)
{
    if (!l) return;
    forget_leg(c, l);
    l->c = NULL;
    http_call_cancel(l->http);
}

static void drop_legs(struct call *c, const struct leg *but)
{
    for (int i = 0; i < N_LEGS; i++)
        if (c->legs[i] != but) drop_leg(c, c->legs[i]);
}

static void finish(struct call *c, enum err code, enum fault fault, bool head_seen)
{
    drop_legs(c, NULL);
    if (code != OK && code != ERR_CANCELLED && c->text[0])
        log_limited(LOG_WARN, "gateway", "upstream call failed: %s", c->text);
    c->h.on_done(c->h.arg, code, fault, head_seen);
    free_call(c);
}

static void fail_later(struct call *c, enum fault fault, const char *text)
{
    c->failed = true;
    c->code = ERR_UNAVAILABLE;
    c->fault = fault;
    snprintf(c->text, sizeof c->text, "%s", text);
    loop_timer_arm(c->timer, 0);
}

static int legs_at_work(const struct call *c)
{
    return (c->legs[0] != NULL) + (c->legs[1] != NULL);
}

/* --- another try */
static struct upstream_want want_of(const struct call *c)
{
    return (struct upstream_want){.model = str_of(c->model),
                                  .matched = c->routed ? c->matched : NULL,
                                  .load_weight = c->load_weight,
                                  .prompt_tokens = c->prompt_tokens,
                                  .tried = c->tried};
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

static bool afford(struct call *c)
{
    if (c->tries_left <= 0) return false;
    if (!retry_budget_take(upstreams_budget(c->gw->upstreams), clock_ms())) {
        metric_add(c->gw->series->budget_spent, 1);
        return false;
    }
    c->tries_left--;
    metric_add(c->gw->series->retries, 1);
    return true;
}

/* May l's end be followed by another try? Then the timer is armed for it: a target that has not been tried yet is asked at once, the same
 * one after a pause, and only if the pause it asks for is short. */
static bool retry_armed(struct call *c, const struct leg *l, enum retry_where where)
{
    const struct gateway_options *o = &c->gw->o;
    struct upstream_want want = want_of(c);
    if (where == RETRY_NO || legs_at_work(c) > 1) return false;
    if (upstreams_has_other(c->gw->upstreams, &want)) {
        if (!afford(c)) return false;
        loop_timer_arm(c->timer, 0);
    } else {
        uint64_t pause = backoff_ms(c);
        if (where != RETRY_ANYWHERE || l->retry_after_ms > (uint64_t)o->upstream_retry_wait_ms ||
            !afford(c))
            return false;
        if (l->retry_after_ms >= pause) pause = l->retry_after_ms + 1;
        c->tried = 0;
        loop_timer_arm(c->timer, pause);
    }
    c->tries++;
    return true;
}

/* Whose failure it is. Nothing of the call has reached a target that could not be connected to: that is about the target alone. */
static void judge(struct call *c, struct upstream *t, enum retry_verdict v, const char *why)
{
    if (!c->by.request && v != TARGET_WELL) /* a body may be long */
        c->by.request =
            (uint32_t)hash_bytes(hash_bytes(0, buf_view(&c->path)).lo, buf_view(&c->body)).lo | 1;
    upstream_judge(t, v, &c->by, why);
}

/* --- a leg's callbacks */
static uint64_t said_wait_ms(const struct http_reply_head *head)
{
    uint64_t ms = 0;
    if (retry_after_parse(http_head_find(head, "retry-after-ms"), true, clock_wall_s(), &ms) ||
        retry_after_parse(http_head_find(head, "retry-after"), false, clock_wall_s(), &ms))
        return ms;
    return 0;
}

/* A 429 on a client's own key says nothing to the others. */
static void note_pause(struct leg *l, int status)
{
    bool ours = l->target->engine || l->target->key[0];
    if (!l->retry_after_ms || !ours) return;
    if (status == 429) upstream_pause(l->target, l->retry_after_ms, true);
    if (status == 503 || status == 529) upstream_pause(l->target, l->retry_after_ms, false);
}

static void take(struct call *c, struct leg *l)
{
    drop_legs(c, l);
    if (c->hedge) loop_timer_stop(c->hedge);
    loop_timer_stop(c->timer);
    if (l->hedge) metric_add(c->gw->series->hedges_won, 1);
    int winner = upstreams_index(c->gw->upstreams, l->target);
    if (c->h.on_target && winner != c->last_target) c->h.on_target(c->h.arg, winner);
    c->moved = !l->hedge && winner != c->first_target;
    c->taken = l;
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct leg *l = arg;
    struct call *c = l->c;
    if (!c) return;
    struct retry_policy p = retry_of_status(head->status);
    char why[40] = "";
    if (p.verdict != TARGET_WELL) snprintf(why, sizeof why, "answered %d", head->status);
    judge(c, l->target, p.verdict, why);
    upstream_said(l->target, head->status, l->begun_ms);
    l->retry_after_ms = said_wait_ms(head);
    note_pause(l, head->status);
    bool other_leg = legs_at_work(c) > 1;
    if (p.where != RETRY_NO && (other_leg || (c->repeatable && retry_armed(c, l, p.where)))) {
        drop_leg(c, l); /* another leg may still do well, or comes */
        return;
    }
    take(c, l);
    c->h.on_head(c->h.arg, head);
}

static void on_body(void *arg, struct str bytes)
{
    struct leg *l = arg;
    if (!l->c) return;
    l->c->h.on_body(l->c->h.arg, bytes);
}

static void ended_without_head(struct call *c, struct leg *l, enum err code)
{
    struct retry_policy p = retry_of_end(code);
    bool was_open = breaker_is_open(&l->target->breaker);
    if (code == ERR_UNAVAILABLE)
        upstream_judge(l->target, p.verdict, NULL, c->text);
    else
        judge(c, l->target, p.verdict, c->text);
    bool shut = !was_open && breaker_is_open(&l->target->breaker);
    l->target->lost +=
        code == ERR_UNAVAILABLE || (code == ERR_CLOSED && shut); /* not: it is slow */
    if (!c->repeatable && code != ERR_UNAVAILABLE) p.where = RETRY_NO;
    bool armed = retry_armed(c, l, p.where);
    forget_leg(c, l);
    if (armed || legs_at_work(c)) return;
    c->wait_ms = 0;
    finish(c, code, fault_of_call(code, false), false);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct leg *l = arg;
    struct call *c = l->c;
    upstream_done(l->target);
    if (!c) { /* dropped: a winner, a deadline or the caller ended it */
        upstream_judge(l->target, TARGET_UNKNOWN, NULL, NULL);
        mem_free(l);
        return;
    }
    str_copy(c->text, sizeof c->text, str_of(e && e->text[0] ? e->text : err_text(code)));
    if (c->taken == l) {
        if (code != OK) judge(c, l->target, TARGET_ERRED, c->text);
        forget_leg(c, l);
        finish(c, code, fault_of_call(code, true), true);
    } else {
        ended_without_head(c, l, code == OK ? ERR_CORRUPT : code);
    }
    mem_free(l);
}

/* --- a try */
static void target_headers(struct call *c, const struct upstream *t, struct http_header *h,
                           size_t *n, struct buf *auth)
{
    *n = headers_view(&c->headers, h);
    if (t->engine) {
        int i = upstreams_index(c->gw->upstreams, t);
        const char *prefill = c->h.prefill ? c->h.prefill(c->h.arg, i) : NULL;
        if (prefill) h[(*n)++] = (struct http_header){STR("x-deja-prefill"), str_of(prefill)};
        const char *key = c->gw->o.gateway_key;
        if (key[0]) h[(*n)++] = (struct http_header){STR("x-deja-key"), str_of(key)};
        if (c->batch) h[(*n)++] = (struct http_header){STR("x-deja-priority"), STR("batch")};
        if (c->salt[0]) h[(*n)++] = (struct http_header){STR("x-deja-salt"), str_of(c->salt)};
        return;
    }
    if (t->key[0])
        buf_printf(auth, "Bearer %s", t->key);
    else
        buf_z(auth, c->authorization);
    if (auth->n) h[(*n)++] = (struct http_header){STR("authorization"), buf_view(auth)};
}

/* The body with the name t has for the model; the call's own where that is the same, or the body has none. */
static struct str target_body(const struct call *c, const struct upstream *t, struct buf *edited)
{
    struct str name, model = str_of(c->model);
    struct buf value;
    if (!model.n || !c->body.n || upstream_spec_serves(&t->spec, model, &name) != SPEC_NAMED ||
        str_eq(name, model))
        return buf_view(&c->body);
    buf_init(&value, 8192);
    json_write_string(&value, name);
    struct body_edit edit = {.name = "model", .value = buf_view(&value)};
    bool good = body_edit(edited, buf_view(&c->body), &edit, 1) == OK;
    buf_fini(&value);
    return good ? buf_view(edited) : buf_view(&c->body);
}

static int own_or(int own, int general)
{
    return own ? own : general;
}

static void start_leg(struct call *c, struct upstream *t, bool hedge)
{
    const struct gateway_options *o = &c->gw->o;
    struct http_header h[HEADERS_MAX + 4];
    size_t n;
    struct buf auth, path, edited;
    struct leg *l = xcalloc(1, sizeof *l);
    int i = upstreams_index(c->gw->upstreams, t);
    *l = (struct leg){.c = c, .target = t, .hedge = hedge, .begun_ms = clock_ms()};
    c->legs[c->legs[0] ? 1 : 0] = l;
    c->tried |= 1u << i;
    if (c->first_target < 0) c->first_target = i;
    c->last_target = i;
    if (c->h.on_target) c->h.on_target(c->h.arg, i);
    buf_init(&auth, 8192);
    buf_init(&path, 128 * 1024);
    buf_init(&edited, c->body.n + 16384);
    target_headers(c, t, h, &n, &auth);
    upstream_path(t, buf_view(&c->path), &path);
    struct http_call_options call = {
        .origin = &t->spec.origin,
        .method = c->method,
        .path = path.p,
        .headers = h,
        .n_headers = n,
        .body = target_body(c, t, &edited),
        .connect_timeout_ms = own_or(t->spec.connect_ms, o->upstream_connect_ms),
        .first_byte_timeout_ms = own_or(t->spec.first_byte_ms, o->upstream_first_byte_ms),
        .idle_timeout_ms = own_or(t->spec.idle_ms, o->upstream_idle_ms),
        .body_max = SIZE_MAX,
        .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_done, l};
    l->http = http_call(c->gw->client, &call, &handler);
    int total = own_or(t->spec.total_ms, o->upstream_total_ms);
    if (c->hedge && !hedge) loop_timer_arm(c->hedge, (uint64_t)o->upstream_hedge_ms);
    if (total && c->total && c->tries == 0 && !hedge) loop_timer_arm(c->total, (uint64_t)total);
    buf_fini(&auth);
    buf_fini(&path);
    buf_fini(&edited);
}

static enum fault fault_of_none(enum upstream_none why)
{
    switch (why) {
    case NONE_MODEL:
        return FAULT_NO_MODEL;
    case NONE_PAUSED:
        return FAULT_PAUSED;
    case NONE_FULL:
        return FAULT_FULL;
    case NONE_OPEN:
        break;
    }
    return FAULT_BREAKER;
}

static void attempt(struct call *c, bool hedge)
{
    struct upstream_want want = want_of(c);
    struct upstream_refusal no;
    struct upstream *t = upstreams_pick(c->gw->upstreams, &want, &no);
    if (!t && c->tried && !hedge) { /* the untried ones are shut: any will do */
        want.tried = c->tried = 0;
        t = upstreams_pick(c->gw->upstreams, &want, &no);
    }
    if (t) {
        start_leg(c, t, hedge);
        return;
    }
    if (hedge || legs_at_work(c)) return;
    c->wait_ms = no.why == NONE_MODEL ? 0 : no.wait_ms + 1; /* waiting brings no model */
    fail_later(c, fault_of_none(no.why), "");
}

/* --- timers */
static void on_timer(void *arg)
{
    struct call *c = arg;
    if (c->cancelled)
        finish(c, ERR_CANCELLED, FAULT_NONE, false);
    else if (c->failed)
        finish(c, c->code, c->fault, false);
    else
        attempt(c, false);
}

static void on_hedge(void *arg)
{
    struct call *c = arg;
    struct upstream_want want = want_of(c);
    if (c->failed || c->cancelled || c->taken || legs_at_work(c) != 1 ||
        !upstreams_has_other(c->gw->upstreams, &want) || !afford(c))
        return;
    metric_add(c->gw->series->hedges, 1);
    attempt(c, true);
}

static void on_total(void *arg)
{
    struct call *c = arg;
    bool head_seen = c->taken != NULL;
    if (c->cancelled || c->failed) return; /* the timer tells it */
    for (int i = 0; i < N_LEGS; i++)
        if (c->legs[i]) judge(c, c->legs[i]->target, TARGET_ERRED, "took too long in all");
    snprintf(c->text, sizeof c->text, "the time for an answer in all is over");
    finish(c, ERR_TIMEOUT, FAULT_TIMEOUT, head_seen);
}

/* --- from outside */
static char *copy(struct str s)
{
    return xstrndup(s.p ? s.p : "", s.n);
}

static void make_timers(struct call *c)
{
    const struct gateway_options *o = &c->gw->o;
    c->timer = loop_timer_new(c->gw->loop, on_timer, c);
    c->total = loop_timer_new(c->gw->loop, on_total, c);
    if (o->upstream_hedge_ms && c->repeatable) c->hedge = loop_timer_new(c->gw->loop, on_hedge, c);
}

/* --- the queue */
static void on_turn(void *arg)
{
    struct call *c = arg;
    if (!c->cancelled && !c->failed) attempt(c, false);
}

static void on_refused(void *arg, enum fault fault, uint64_t retry_ms)
{
    struct call *c = arg;
    if (c->cancelled || c->failed) return;
    c->wait_ms = retry_ms;
    fail_later(c, fault, "");
}

static void take_place(struct call *c, const struct call_request *r)
{
    struct queue_want want = {.model = r->model,
                              .tenant = r->tenant,
                              .weight = r->tenant_weight,
                              .batch = r->batch,
                              .cost = r->cost};
    enum fault fault;
    uint64_t retry_ms;
    c->spent = -1;
    c->place.on_turn = on_turn;
    c->place.on_refused = on_refused;
    c->place.arg = c;
    switch (queue_enter(c->gw->queue, &c->place, &want, &fault, &retry_ms)) {
    case QUEUE_GO:
        attempt(c, false);
        break;
    case QUEUE_REFUSED:
        on_refused(c, fault, retry_ms);
        break;
    case QUEUE_WAIT:
        break;
    }
}

struct call *call_start(struct gateway *gw, const struct call_request *r,
                        const struct call_handler *h)
{
    struct call *c = xcalloc(1, sizeof *c);
    struct str name, value;
    c->gw = gw;
    c->next = gw->calls;
    if (gw->calls) gw->calls->prev = c;
    gw->calls = c;
    c->h = *h;
    c->method = xstrdup(r->method);
    c->authorization = copy(r->authorization);
    c->salt = copy(r->salt);
    c->model = copy(r->model);
    c->repeatable = r->repeatable;
    c->batch = r->batch;
    c->by.tenant = r->tenant.n ? (uint32_t)hash_bytes(0, r->tenant).lo | 1 : 0;
    c->by.model = r->model.n ? (uint32_t)hash_bytes(0, r->model).lo | 1 : 0;
    c->routed = r->matched != NULL;
    if (c->routed) memcpy(c->matched, r->matched, sizeof c->matched);
    c->load_weight = r->load_weight;
    c->prompt_tokens = r->prompt_tokens;
    c->tries_left = gw->o.upstream_retries;
    c->first_target = -1;
    make_timers(c);
    retry_budget_request(upstreams_budget(gw->upstreams), clock_ms());
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
    else if (gw->ending)
        on_refused(c, FAULT_DRAINING, DRAINED_RETRY_MS);
    else
        take_place(c, r);
    return c;
}

void call_spent(struct call *c, double tokens)
{
    c->spent = tokens;
}

bool call_is_waiting(const struct call *c)
{
    return c->place.item.waiting;
}

uint64_t call_waited_us(const struct call *c)
{
    return c->place.waited_us;
}

void call_cancel(struct call *c)
{
    if (c->cancelled) return;
    c->cancelled = true;
    drop_legs(c, NULL);
    queue_leave(c->gw->queue, &c->place, c->spent);
    loop_timer_arm(c->timer, 0);
}

/* Those that wait first, or the ends of others would give them their turn. */
void calls_refuse(struct gateway *gw)
{
    for (int working = 0; working < 2; working++) {
        for (struct call *c = gw->calls, *next; c; c = next) {
            next = c->next;
            if (c->cancelled || (!working && !call_is_waiting(c))) continue;
            c->wait_ms = DRAINED_RETRY_MS;
            finish(c, ERR_UNAVAILABLE, FAULT_DRAINING, c->taken != NULL);
        }
    }
}

void calls_end(struct gateway *gw)
{
    while (gw->calls)
        finish(gw->calls, ERR_CANCELLED, FAULT_NONE, false);
}

void call_pause(struct call *c)
{
    if (c->taken) http_call_pause(c->taken->http);
}

void call_resume(struct call *c)
{
    if (c->taken) http_call_resume(c->taken->http);
}

uint64_t call_retry_after_ms(const struct call *c)
{
    return c->wait_ms;
}

bool call_moved(const struct call *c)
{
    return c->moved;
}
