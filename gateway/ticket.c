/* ticket.c - life of a miss in progress and of its riders; what the upstream sends is read in forward.c. */
#include "gateway/ticket.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/flight.h"
#include "gateway/follow.h"
#include "gateway/join_table.h"
#include "gateway/limit.h"
#include "gateway/model_rules.h"
#include "gateway/pipeline.h"
#include "gateway/relay.h"
#include "gateway/reply.h"
#include "gateway/route_prefill.h"
#include "gateway/router.h"
#include "gateway/series.h"

enum {
    ANSWER_TOKENS = 256, /* an answer whose length nobody knows, and the most one is taken for */
    PAUSE_BYTES = 256 * 1024, /* unread by the fastest client: stop reading the upstream */
    RESUME_BYTES = 64 * 1024,
    BEHIND_BYTES_MAX = 8 << 20, /* behind the fastest: a client this slow is let go */
    LISTED_BYTES_MAX =
        1
        << 20, /* of tape kept for late riders; beyond, nobody may board and the tape is trimmed */
};

static void free_ticket(struct ticket *t)
{
    ticket_unlist(t);
    flight_leave(t);
    ticket_settle_rest(t, OK, false);
    loop_timer_free(t->timer);
    if (t->keyed) cache_key_fini(&t->key);
    headers_fini(&t->headers);
    buf_fini(&t->body);
    route_plan_free(t->plan);
    sse_reader_free(t->sse);
    openai_collector_free(t->collector);
    tape_fini(&t->tape);
    ladder_free(t->ladder);
    model_rules_unref(t->rules);
    mem_free(t);
}

/* At the end of everything that may have been its last use. */
void ticket_settle(struct ticket *t)
{
    if (!t->busy && !t->n_riders && !t->call) free_ticket(t);
}

void ticket_unlist(struct ticket *t)
{
    if (!t->listed) return;
    t->listed = false;
    join_table_remove(t->gw->joins, t->key.exact, t);
    follow_close(t);
}

static void on_timer(void *arg)
{
    struct ticket *t = arg;
    if ((t->n_riders || t->n_behind || flight_followed(t)) && !t->ended)
        return; /* somebody boarded meanwhile */
    ticket_unlist(t);
    if (t->call) call_cancel(t->call);
}

static void link_rider(struct ticket *t, struct exchange *x)
{
    x->ticket = t;
    x->joined_us = x->follows_us ? x->follows_us : clock_us();
    x->rider_prev = NULL;
    x->rider_next = t->riders;
    if (t->riders) t->riders->rider_prev = x;
    t->riders = x;
    t->n_riders++;
}

static void unlink_rider(struct ticket *t, struct exchange *x)
{
    if (x->rider_prev)
        x->rider_prev->rider_next = x->rider_next;
    else
        t->riders = x->rider_next;
    if (x->rider_next) x->rider_next->rider_prev = x->rider_prev;
    x->ticket = NULL;
    t->n_riders--;
}

static void describe_route(const struct ticket *t)
{
    for (struct exchange *x = t->riders; x; x = x->rider_next)
        if (strcmp(x->out.cache, "coalesced") != 0) route_plan_describe(t->plan, x->out.route);
}

static void on_target(void *arg, int target)
{
    struct ticket *t = arg;
    route_plan_goes(t->plan, target);
    describe_route(t);
}

static const char *prefill(void *arg, int target)
{
    struct ticket *t = arg;
    const char *out = route_plan_prefill(t->plan, target);
    if (out) describe_route(t);
    return out;
}

/* What a request will take, before anything is known of its answer: four bytes a token of prompt, and the answer's tokens twice, because
 * one made costs more than one read. */
static double expected_tokens(const struct ticket *t, const struct exchange *x, struct str body)
{
    int out = x->req.max_tokens >= 0 ? x->req.max_tokens : ANSWER_TOKENS;
    double prompt =
        t->limit && t->limit->prompt_tokens ? (double)t->limit->prompt_tokens : (double)body.n / 4;
    return 1 + prompt + 2.0 * (out < ANSWER_TOKENS ? out : ANSWER_TOKENS);
}

void ticket_spent(struct ticket *t, const struct openai_usage *u)
{
    struct call *c = t->call ? t->call : t->over;
    if (c && u->known)
        call_spent(c, 1 + (double)u->prompt_tokens + 2.0 * (double)u->completion_tokens);
}

void ticket_call(struct ticket *t, struct exchange *x, struct str model, struct str body)
{
    struct header_list headers;
    struct buf key;
    char salt[33];
    if (!t->limit) limit_pass_to_ticket(x, t);
    buf_init(&key, 8192);
    relay_headers(x, &headers, false);
    relay_salt(x, salt);
    struct call_request r = {.method = "POST",
                             .path = x->door ? STR("/v1/chat/completions") : http_req_target(x->r),
                             .headers = &headers,
                             .authorization = relay_authorization(x, &key),
                             .salt = str_of(salt),
                             .model = model,
                             .body = body,
                             .repeatable = true,
                             .batch = x->patient,
                             .tenant = str_of(x->tenant),
                             .tenant_weight = x->tenant_weight,
                             .cost = expected_tokens(t, x, body)};
    struct call_handler h = ticket_call_handler;
    h.arg = t;
    route_plan_free(t->plan); /* of a model that did not answer */
    t->plan = route_plan_new(x, model);
    if (t->plan) {
        r.matched = route_plan_matched(t->plan);
        r.prompt_tokens = route_plan_tokens(t->plan);
        r.load_weight = (float)x->knobs.route_load_weight;
        h.on_target = on_target;
        h.prefill = prefill;
    }
    if (!t->started_us) t->started_us = clock_us();
    t->call = call_start(t->gw, &r, &h);
    headers_fini(&headers);
    buf_fini(&key);
}

void ticket_forget_answer(struct ticket *t)
{
    ASSERT(!t->opened);
    sse_reader_free(t->sse);
    openai_collector_free(t->collector);
    t->sse = NULL;
    t->collector = NULL;
    headers_fini(&t->headers);
    headers_init(&t->headers);
    buf_clear(&t->body);
    t->form = FORM_NONE;
    t->status = 0;
    t->unfit = t->done_seen = t->paused = t->moved = false;
}

void ticket_start(struct exchange *x, bool listed)
{
    struct ticket *t = xcalloc(1, sizeof *t);
    t->gw = x->gw;
    t->kind = x->req.kind;
    t->batch = x->patient;
    t->rules = model_rules_ref(x->rules);
    t->timer = loop_timer_new(t->gw->loop, on_timer, t);
    t->keyed = x->keyed;
    if (x->keyed) {
        t->key = x->key;
        x->keyed = false;
        t->store = !x->controls.bypass && !x->controls.no_store;
    }
    t->ttl_s = x->controls.ttl_s > 0 ? x->controls.ttl_s : x->knobs.ttl_s;
    t->trust = x->trust;
    memcpy(t->tags, x->controls.tags, sizeof t->tags);
    headers_init(&t->headers);
    buf_init(&t->body, t->gw->o.answer_bytes_max);
    tape_init(&t->tape, t->gw->o.answer_bytes_max * 2);
    t->listed = listed && t->keyed && join_table_put(t->gw->joins, t->key.exact, t) == OK;
    link_rider(t, x);
    follow_open(t, x);
    limit_pass_to_ticket(x, t);
    t->started_us = clock_us();
    if (!flight_begin(t)) ticket_lead(t);
}

struct exchange *ticket_leader(struct ticket *t)
{
    struct exchange *x = t->riders;
    for (struct exchange *r = t->riders; r; r = r->rider_next)
        if (!strcmp(x->out.cache, "coalesced")) x = r;
    if (x && !strcmp(x->out.cache, "coalesced")) {
        x->out.cache = "miss";
        outcome_reason(&x->out, "leader_lost");
    }
    return x;
}

void ticket_lead(struct ticket *t)
{
    struct exchange *x = ticket_leader(t);
    ASSERT(x);
    ticket_call(t, x, x->model, exchange_body(x));
}

void ticket_follow(struct ticket *t)
{
    for (struct exchange *x = t->riders; x; x = x->rider_next) {
        if (strcmp(x->out.cache, "miss") != 0) continue;
        x->out.cache = "coalesced";
        outcome_reason(&x->out, "in_flight");
        limit_take_back(x, t); /* it is charged as one that shared */
    }
}

bool ticket_takes(const struct ticket *t)
{
    return t->listed && !t->ended && t->n_riders + t->n_behind < t->gw->o.coalesce_max;
}

void ticket_board(struct ticket *t, struct exchange *x)
{
    ASSERT(ticket_takes(t));
    loop_timer_stop(t->timer);
    link_rider(t, x);
    t->busy = true;
    ticket_feed_riders(t);
    t->busy = false;
}

void ticket_wanted(struct ticket *t)
{
    loop_timer_stop(t->timer);
    if (!t->opened) return;
    t->busy = true;
    ticket_feed_riders(t);
    t->busy = false;
}

void ticket_ride(struct ticket *t, struct exchange *x)
{
    link_rider(t, x);
}

static void note_call(const struct ticket *t, struct exchange *x)
{
    if (t->head_us) x->head_us = t->head_us - t->started_us;
    x->frames = t->frames;
    x->out.queued_us = t->queued_us;
}

void ticket_note_wait(const struct ticket *t, struct exchange *x)
{
    uint64_t until_us = x->streaming || !t->ended_us ? clock_us() : t->ended_us;
    x->upstream_us = until_us > x->joined_us ? until_us - x->joined_us : 1;
}

void ticket_let_go(struct ticket *t, struct exchange *x)
{
    ticket_note_wait(t, x);
    note_call(t, x);
    unlink_rider(t, x);
}

void ticket_off(struct ticket *t, struct exchange *x)
{
    ticket_let_go(t, x);
    pipeline_finish(x);
}

static void pace(struct ticket *t);

void ticket_unread(struct ticket *t)
{
    if (t->n_riders || t->n_behind || !t->call || flight_followed(t)) return;
    bool finish = t->store && !t->unfit && !t->ended && t->gw->o.keep_after_gone_ms > 0 &&
                  !call_is_waiting(t->call);
    if (finish)
        loop_timer_arm(t->timer, (uint64_t)t->gw->o.keep_after_gone_ms);
    else if (!t->ended)
        ticket_unlist(t), call_cancel(t->call);
}

void ticket_leave(struct exchange *x)
{
    struct ticket *t = x->ticket;
    follow_leave(x);
    if (!t) return;
    ticket_note_wait(t, x);
    note_call(t, x);
    unlink_rider(t, x);
    if (!t->n_riders && !t->call) flight_leave(t);
    ticket_unread(t);
    pace(t);
    ticket_settle(t);
}

void ticket_each(struct ticket *t, void (*fn)(struct ticket *t, struct exchange *x))
{
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        fn(t, x);
    }
}

/* --- speed */
/* Positions of the fastest and slowest streaming riders; false when nobody streams. */
static bool positions(const struct ticket *t, size_t *fastest, size_t *slowest)
{
    bool any = false;
    for (const struct exchange *x = t->riders; x; x = x->rider_next) {
        if (!x->streaming) continue;
        if (!any || x->tape_at > *fastest) *fastest = x->tape_at;
        if (!any || x->tape_at < *slowest) *slowest = x->tape_at;
        any = true;
    }
    return any;
}

static bool all_stream(const struct ticket *t)
{
    for (const struct exchange *x = t->riders; x; x = x->rider_next)
        if (!x->streaming) return false;
    return t->riders != NULL;
}

/* Stops reading the upstream while every client is behind, and goes on when the fastest has caught up; forgets tape nobody needs. */
static void pace(struct ticket *t)
{
    size_t fastest = 0, slowest = 0, end = tape_end(&t->tape);
    bool streaming = positions(t, &fastest, &slowest);
    bool hold =
        streaming && all_stream(t) && end - fastest > (t->paused ? RESUME_BYTES : PAUSE_BYTES);
    if (flight_followed(t)) hold = false;
    if (t->call && hold != t->paused) {
        t->paused = hold;
        if (hold)
            call_pause(t->call);
        else
            call_resume(t->call);
    }
    if (t->listed && t->tape.bytes.n > LISTED_BYTES_MAX) ticket_unlist(t);
    if (t->listed) return;
    if (!streaming)
        tape_drop(&t->tape, end);
    else if (slowest - t->tape.base > RESUME_BYTES)
        tape_drop(&t->tape, slowest);
}

static void let_go_if_behind(struct ticket *t, struct exchange *x)
{
    size_t fastest = 0, slowest = 0;
    if (!x->streaming || !positions(t, &fastest, &slowest) ||
        fastest - x->tape_at <= BEHIND_BYTES_MAX)
        return;
    http_req_on_gone(x->r, NULL, NULL);
    http_abort(x->r);
    x->r = NULL;
    ticket_off(t, x);
}

static void feed(struct ticket *t, struct exchange *x)
{
    if (!x->streaming && t->opened && x->req.stream) {
        bool leader = !strcmp(x->out.cache, "miss") || !strcmp(x->out.cache, "bypass");
        reply_stream_open(x, &t->tape, leader ? &t->headers : NULL);
    }
    if (x->streaming && reply_pump(x)) ticket_off(t, x);
}

void ticket_feed_riders(struct ticket *t)
{
    if (t->behind && t->opened && !t->ended) follow_stream(t);
    ticket_each(t, feed);
    ticket_each(t, let_go_if_behind);
    pace(t);
}

void ticket_writable(struct exchange *x)
{
    struct ticket *t = x->ticket;
    x->blocked = false;
    t->busy = true;
    ticket_feed_riders(t);
    t->busy = false;
    ticket_settle(t);
}
