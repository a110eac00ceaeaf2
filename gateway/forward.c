/* forward.c - reads what an upstream answers to a chat or completion request and turns it into what the riders get. Frames of a
 * stream are passed on only when they are whole, valid JSON; a broken one is mended or left out, and such an answer is never stored.
 * A stream that ends before every choice has a finish_reason is told to the client as an error event without [DONE]; one that says
 * [DONE] all the same was not cut: it passes as it came, and is not stored. Whole replies:
 * 2xx must be an answer, anything else passes with its status. Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/openai_glance.h"
#include "gateway/coalesce.h"
#include "gateway/flight.h"
#include "gateway/follow.h"
#include "gateway/limit.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
#include "gateway/router.h"
#include "gateway/ticket.h"

enum { FRAME_BYTES_MAX = 8 << 20, DONE_GRACE_MS = 2000, STATUS_LEAST = 400 };

enum step stage_forward(struct exchange *x)
{
    ticket_start(x, join_allowed(x) && !join_taken(x));
    return STEP_WAIT;
}

/* --- frames */
static enum err add_frame(struct ticket *t, const char *event, struct str data, bool usage)
{
    struct buf out;
    buf_init(&out, data.n * 2 + 256);
    buf_reserve(&out, data.n + 100);
    if (event[0])
        sse_write_event(&out, event, data);
    else
        sse_write_data(&out, data);
    enum err code =
        usage ? tape_add_usage(&t->tape, buf_view(&out)) : tape_add(&t->tape, buf_view(&out));
    buf_fini(&out);
    if (code == OK) t->opened = true;
    if (!usage) t->frames++;
    return code;
}

static bool has_empty_list(struct str data)
{
    const char *end = data.p + data.n, *p = data.p;
    while (p < end && (p = memchr(p, '[', (size_t)(end - p)))) {
        for (p++; p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r');)
            p++;
        if (p < end && *p == ']') return true;
    }
    return false;
}

/* A frame that carries usage and no choices, for who has asked for it. An empty list in the text is looked for first: most frames have
 * none. Its own, or a member's of it? */
static bool is_usage_frame(struct str data)
{
    json_t *doc = NULL;
    const json_t *choices;
    bool may = str_find(data, STR("\"usage\"")) >= 0 && str_find(data, STR("\"choices\"")) >= 0 &&
               has_empty_list(data);
    if (!may || json_parse(data, 0, &doc, NULL) != OK) return false;
    choices = json_object_get(doc, "choices");
    bool is = json_is_array(choices) && !json_array_size(choices) && json_object_get(doc, "usage");
    json_decref(doc);
    return is;
}

static void end_whole_riders(struct ticket *t, enum fault f, const char *detail)
{
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        if (x->streaming) continue;
        reply_fault(x, f, detail);
        ticket_off(t, x);
    }
}

/* The end of a stream that some clients have begun to receive. */
static void cut(struct ticket *t, enum fault f, const char *detail)
{
    struct openai_error e = {0};
    struct buf json;
    ticket_unlist(t);
    fault_error(&e, f, detail);
    buf_init(&json, 4096);
    openai_error_write(&json, &e);
    if (add_frame(t, "", buf_view(&json), false) != OK)
        log_limited(LOG_WARN, "gateway", "an error event did not fit on the tape");
    buf_fini(&json);
    t->ended = true;
    t->ended_us = clock_us();
    t->tape.ended = true;
    end_whole_riders(t, f, detail);
    ticket_feed_riders(t);
}

/* No answer, and nothing of one has reached a client. */
static void fail(struct ticket *t, enum fault f, const char *detail)
{
    struct ending e = {0};
    ending_of_fault(&e, f, detail, t->retry_ms);
    ladder_next(t, &e);
}

static void cut_or_fail(struct ticket *t, enum fault f, const char *detail)
{
    if (t->opened)
        cut(t, f, detail);
    else
        fail(t, f, detail);
}

/* An error in a 200 stream. Before the first frame it becomes an HTTP error with the upstream's own words. */
static void error_frame(struct ticket *t, struct str data)
{
    json_t *doc = NULL;
    struct openai_error e = {0};
    if (json_parse(data, 0, &doc, NULL) != OK)
        return cut_or_fail(t, FAULT_STATUS, "an error event");
    bool told = ending_read_error(doc, fault_status(FAULT_STATUS), &e);
    json_decref(doc);
    if (!t->opened) {
        struct ending end = {0};
        ending_of_error(&end, &e, told ? e.status : 0);
        return ladder_next(t, &end);
    }
    struct buf json;
    buf_init(&json, 4096);
    openai_error_write(&json, &e);
    if (add_frame(t, "", buf_view(&json), false) != OK)
        log_limited(LOG_WARN, "gateway", "an error event did not fit on the tape");
    buf_fini(&json);
    ticket_unlist(t);
    t->ended = true;
    t->ended_us = clock_us();
    t->tape.ended = true;
    end_whole_riders(t, FAULT_STATUS, e.message);
    ticket_feed_riders(t);
}

/* What json_parse refuses may be an object to a client: such bytes pass as they came, and nothing is made of them here. */
static bool is_object(struct str data)
{
    json_t *doc = json_parse_loosely(data);
    bool good = json_is_object(doc);
    json_decref(doc);
    return good;
}

/* What is left of a frame the collector took: its own bytes, or mended ones where they were no UTF-8. */
static enum err pass_frame(struct ticket *t, const char *event, struct str data)
{
    bool suspicious =
        !utf8_valid(data) || str_find(data, STR("\\ud")) >= 0 || str_find(data, STR("\\uD")) >= 0;
    if (!suspicious) return add_frame(t, event, data, is_usage_frame(data));
    struct buf mended;
    buf_init(&mended, data.n * 3 + 16);
    bool changed = json_repair(&mended, data);
    t->unfit |= changed;
    struct str out = changed ? buf_view(&mended) : data;
    enum err code = add_frame(t, event, out, is_usage_frame(out));
    buf_fini(&mended);
    return code;
}

static bool take_frame(struct ticket *t, const char *event, struct str data)
{
    struct errmsg why = {0};
    if (!event[0] && t->collector && t->opened && openai_collector_feed_like(t->collector, data)) {
        t->frames++;
        if (tape_add_data(&t->tape, data) == OK) return true;
        cut_or_fail(t, FAULT_TOO_LONG, "");
        return false;
    }
    enum err code = t->collector      ? openai_collector_feed(t->collector, data, &why)
                    : is_object(data) ? OK
                                      : ERR_INVALID;
    if (code == ERR_UNAVAILABLE || !strcmp(event, "error")) { /* by its form or by its name */
        error_frame(t, data);
        return false;
    }
    if (code != OK) {
        t->unfit = true;
        if (code == ERR_TOO_LARGE || code == ERR_UNSUPPORTED) {
            openai_collector_free(t->collector); /* goes on as a relay only */
            t->collector = NULL;
        }
        if (!is_object(data)) {
            log_limited(LOG_WARN, "gateway", "a frame of an upstream's stream is left out: %.160s",
                        why.text);
            return true;
        }
    }
    if (pass_frame(t, event, data) == OK) return true;
    cut_or_fail(t, FAULT_TOO_LONG, "");
    return false;
}

/* --- the complete end of a stream */
void ticket_send_answer(struct ticket *t, struct exchange *x, const struct openai_answer *a)
{
    x->usage = a->usage;
    if (t->entry[0]) {
        x->out.stored = !strcmp(x->out.cache, "miss") || !strcmp(x->out.cache, "bypass");
        str_copy(x->out.entry, sizeof x->out.entry, str_of(t->entry));
    }
    if (!x->req.stream) {
        reply_answer_json(x, a);
        ticket_off(t, x);
        return;
    }
    reply_answer_stream(x, a); /* a stream was asked for and a whole reply came */
    if (!x->streaming || reply_pump(x))
        ticket_off(t, x);
    else
        ticket_let_go(t, x);
}

static bool all_stream(const struct ticket *t)
{
    for (const struct exchange *x = t->riders; x; x = x->rider_next)
        if (!x->streaming && !x->req.stream) return false;
    return true;
}

static void complete(struct ticket *t, bool clean)
{
    struct openai_answer a;
    struct openai_usage usage = {0};
    if (!clean) t->unfit = true;
    ticket_settle_answer(t, NULL);
    enum err code = t->collector ? openai_collector_whole(t->collector) : ERR_CORRUPT;
    if (code == OK) {
        usage = openai_collector_usage(t->collector);
        if (t->plan) route_plan_ended(t->plan, &usage);
        ticket_spent(t, &usage);
    }
    bool wanted = code == OK && (t->store || t->behind || !all_stream(t));
    if (wanted) code = openai_collector_take(t->collector, &a);
    if (wanted && code == OK) ticket_keep(t, &a);
    if (wanted && code == OK) follow_answer(t, &a);
    ticket_unlist(t);
    if (tape_add(&t->tape, STR("data: [DONE]\n\n")) != OK)
        log_limited(LOG_WARN, "gateway", "[DONE] did not fit on the tape");
    t->ended = true;
    t->ended_us = clock_us();
    t->tape.ended = true;
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        x->usage = usage;
        if (x->streaming || x->req.stream) continue;
        if (code == OK)
            ticket_send_answer(t, x, &a);
        else
            reply_fault(x, FAULT_BAD_ANSWER, "its stream cannot be put together"), ticket_off(t, x);
    }
    if (wanted && code == OK) openai_answer_fini(&a);
    ticket_feed_riders(t);
    if (t->call) loop_timer_arm(t->timer, DONE_GRACE_MS); /* an upstream that does not hang up */
}

static bool on_event(void *arg, const struct sse_event *ev)
{
    struct ticket *t = arg;
    struct str data = str_trim(ev->data);
    char event[65];
    if (t->ended || ladder_waits(t)) return false;
    if (!data.n) return true;
    if (str_eq(data, STR("[DONE]"))) {
        t->done_seen = true;
        if (t->opened)
            complete(t, true);
        else
            fail(t, FAULT_EMPTY, "");
        return false;
    }
    str_copy(event, sizeof event, ev->event);
    return take_frame(t, event, data);
}

/* --- whole replies */
/* 2xx that is no answer we can read: a JSON object passes to those who asked for one (never stored), anything else is a 502. */
static void whole_unknown(struct ticket *t, const char *why)
{
    json_t *doc = json_parse_loosely(buf_view(&t->body));
    bool object = json_is_object(doc);
    bool passes = object && json_object_get(doc, "choices") && !json_object_get(doc, "error");
    bool error =
        object && !passes &&
        (json_object_get(doc, "error") || str_eqz(json_member_str(doc, "object"), "error"));
    json_decref(doc);
    if (error) {
        t->ended_us = clock_us();
        error_frame(t, buf_view(&t->body));
        return;
    }
    for (struct exchange *x = t->riders, *next; x && passes; x = next) {
        next = x->rider_next;
        if (x->req.stream || x->door) continue;
        reply_upstream(x, t->status, headers_find(&t->headers, "content-type"), &t->headers,
                       buf_view(&t->body));
        ticket_off(t, x);
    }
    fail(t, t->body.n ? FAULT_BAD_ANSWER : FAULT_EMPTY, t->body.n ? why : "");
}

static void whole_error(struct ticket *t)
{
    struct ending e = {0};
    ending_of_reply(&e, t);
    ladder_next(t, &e);
}

/* Does x get the upstream's own bytes? Else the answer is written anew for it. */
static bool gets_own_bytes(const struct exchange *x)
{
    return !x->req.stream && !x->door && strcmp(x->out.cache, "coalesced") != 0;
}

/* What is only passed on is not taken apart. */
static bool glance(const struct ticket *t, struct openai_answer *a)
{
    *a = (struct openai_answer){.kind = t->kind};
    if (t->store) return false;
    for (const struct exchange *x = t->riders; x; x = x->rider_next)
        if (!gets_own_bytes(x)) return false;
    return openai_glance(buf_view(&t->body), t->kind, &a->usage) && (a->usage.known || !t->limit);
}

static void whole_answer(struct ticket *t)
{
    struct openai_answer a;
    struct errmsg why = {0};
    if (!glance(t, &a) && openai_answer_parse(&a, t->kind, buf_view(&t->body), &why) != OK) {
        whole_unknown(t, why.text);
        return;
    }
    ticket_settle_answer(t, &a);
    if (t->plan) route_plan_ended(t->plan, &a.usage);
    ticket_spent(t, &a.usage);
    ticket_keep(t, &a);
    follow_answer(t, &a);
    ticket_unlist(t);
    t->ended = true;
    t->ended_us = clock_us();
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        if (!gets_own_bytes(x)) {
            ticket_send_answer(t, x, &a);
            continue;
        }
        x->usage = a.usage;
        x->out.stored = t->entry[0] != 0;
        x->out.refused = t->refused;
        str_copy(x->out.entry, sizeof x->out.entry, str_of(t->entry));
        reply_upstream(x, t->status, headers_find(&t->headers, "content-type"), &t->headers,
                       buf_view(&t->body));
        ticket_off(t, x);
    }
    openai_answer_fini(&a);
}

/* Will anybody want the answer put together? Who could still board may want it. */
static bool is_collected(const struct ticket *t)
{
    return t->store || t->listed || t->flight || t->limit || !all_stream(t);
}

/* --- the call's callbacks */
static void on_head(void *arg, const struct http_reply_head *head)
{
    struct ticket *t = arg;
    struct str encoding = http_head_find(head, "content-encoding");
    t->status = head->status;
    if (t->call) { /* else another gateway's */
        t->moved = call_moved(t->call);
        t->queued_us = call_waited_us(t->call);
    }
    t->head_us = clock_us();
    flight_head(t, head);
    for (size_t i = 0; i < head->n_headers; i++)
        if (!headers_add(&t->headers, head->headers[i].name, head->headers[i].value)) break;
    bool plain = !encoding.n || str_ieq(encoding, STR("identity"));
    bool stream = head->status / 100 == 2 &&
                  content_type_is(http_head_find(head, "content-type"), "text/event-stream");
    t->form = stream && plain ? FORM_STREAM : FORM_WHOLE;
    if (!plain) t->unfit = true;
    if (t->form != FORM_STREAM) return;
    t->sse = sse_reader_new(FRAME_BYTES_MAX);
    t->collector = openai_collector_new(t->kind, t->gw->o.answer_bytes_max);
    if (!is_collected(t)) openai_collector_only_watch(t->collector);
}

static void on_body(void *arg, struct str bytes)
{
    struct ticket *t = arg;
    if (t->ended || ladder_waits(t)) return;
    t->busy = true;
    flight_body(t, bytes);
    if (t->form == FORM_WHOLE) {
        buf_str(&t->body, bytes);
        if (buf_failed(&t->body)) {
            fail(t, FAULT_TOO_LONG, "");
            if (t->call) call_cancel(t->call);
        }
    } else {
        enum err code = sse_reader_feed(t->sse, bytes, on_event, t);
        if (code == ERR_TOO_LARGE && !t->ended)
            cut_or_fail(t, FAULT_TOO_LONG, "one event of its stream");
        if (t->ended && !t->done_seen && t->call) call_cancel(t->call);
        if (!t->ended) ticket_feed_riders(t);
    }
    if (t->ended) flight_done(t, OK, FAULT_NONE, true);
    t->busy = false;
}

static void stream_over(struct ticket *t, enum err code, enum fault fault)
{
    bool whole = t->collector && openai_collector_complete(t->collector);
    /* Cut by the transport after the last finish_reason: the client has it all, but it is not trusted enough to be stored. */
    if (whole)
        complete(t, code == OK);
    else if (code != OK)
        cut_or_fail(t, fault, "");
    else if (t->opened)
        cut(t, FAULT_CLOSED, "");
    else
        fail(t, t->unfit ? FAULT_BAD_ANSWER : FAULT_EMPTY, "");
}

static void on_done(void *arg, enum err code, enum fault fault, bool head_seen)
{
    struct ticket *t = arg;
    t->busy = true;
    t->retry_ms = head_seen || !t->call ? 0 : call_retry_after_ms(t->call);
    if (t->call) t->queued_us = call_waited_us(t->call);
    t->over = t->call;
    t->call = NULL;
    if (t->ended || ladder_call_over(t))
        ; /* the riders have been told, or the next step has begun */
    else if (code == ERR_CANCELLED)
        fail(t, FAULT_CLOSED, ""); /* nobody is left to read it */
    else if (!head_seen)
        fail(t, fault, "");
    else if (t->form == FORM_STREAM)
        stream_over(t, code, fault);
    else if (code != OK)
        fail(t, fault, "");
    else if (t->status / 100 != 2)
        whole_error(t);
    else
        whole_answer(t);
    flight_done(t, code, fault, head_seen);
    if (t->ended && !t->call) ticket_settle_rest(t, code, head_seen);
    t->over = NULL;
    t->busy = false;
    ticket_settle(t);
}

const struct call_handler ticket_call_handler = {on_head, on_body, on_done, NULL, NULL, NULL};
