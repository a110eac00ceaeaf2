/* forward.c - reads what an upstream answers to a chat or completion request and turns it into what the riders get. Frames of a
 * stream are passed on only when they are whole, valid JSON; a broken one is mended or left out, and such an answer is never stored.
 * A stream that ends before every choice has a finish_reason is told to the client as an error event without [DONE]; one that says
 * [DONE] all the same was not cut: it passes as it came, and is not stored. Whole replies:
 * 2xx must be an answer, anything else passes with its status. Threading: the loop's thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/coalesce.h"
#include "gateway/pipeline.h"
#include "gateway/reply.h"
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
    if (event[0])
        sse_write_event(&out, event, data);
    else
        sse_write_data(&out, data);
    enum err code =
        usage ? tape_add_usage(&t->tape, buf_view(&out)) : tape_add(&t->tape, buf_view(&out));
    buf_fini(&out);
    if (code == OK) t->opened = true;
    return code;
}

static size_t skip_blank(struct str s, size_t i)
{
    while (i < s.n && (s.p[i] == ' ' || s.p[i] == '\t' || s.p[i] == '\n' || s.p[i] == '\r'))
        i++;
    return i;
}

/* A frame that carries usage and no choices. data is valid JSON, so "choices" in quotes is a member's name (inside a string its quotes
 * would be escaped). */
static bool is_usage_frame(struct str data)
{
    ptrdiff_t at = str_find(data, STR("\"choices\""));
    if (at < 0 || str_find(data, STR("\"usage\"")) < 0) return false;
    size_t i = skip_blank(data, (size_t)at + 9);
    if (i >= data.n || data.p[i] != ':') return false;
    i = skip_blank(data, i + 1);
    if (i >= data.n || data.p[i] != '[') return false;
    i = skip_blank(data, i + 1);
    return i < data.n && data.p[i] == ']';
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

static void fail(struct ticket *t, enum fault f, const char *detail)
{
    struct openai_error e = {0};
    fault_error(&e, f, detail);
    ticket_fail(t, &e, f == FAULT_BREAKER && t->call ? call_retry_after_ms(t->call) + 1 : 0);
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
    const json_t *error = json_object_get(doc, "error"),
                 *code = json_object_get(error ? error : doc, "code");
    struct str message =
        json_is_string(error) ? json_str(error) : json_member_str(error ? error : doc, "message");
    struct str type = json_member_str(error ? error : doc, "type");
    int64_t status = json_is_integer(code) ? json_integer_value(code) : 0;
    bool usable = status >= STATUS_LEAST && status <= 599;
    openai_error_set(&e, usable ? (int)status : fault_status(FAULT_STATUS), "upstream_error", "",
                     "", STR_FMT,
                     STR_ARG(message.n ? message : STR("the upstream reported an error")));
    if (type.n) snprintf(e.type, sizeof e.type, STR_FMT, STR_ARG(type));
    json_decref(doc);
    if (!t->opened) return ticket_fail(t, &e, 0);
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

static bool is_object(struct str data)
{
    json_t *doc = NULL;
    bool good = json_parse(data, 0, &doc, NULL) == OK && json_is_object(doc);
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
static void send_answer(struct ticket *t, struct exchange *x, const struct openai_answer *a)
{
    x->usage = a->usage;
    if (t->entry[0]) {
        x->out.stored = !strcmp(x->out.cache, "miss") || !strcmp(x->out.cache, "bypass");
        snprintf(x->out.entry, sizeof x->out.entry, "%s", t->entry);
    }
    if (!x->req.stream) {
        reply_answer_json(x, a);
        ticket_off(t, x);
        return;
    }
    reply_answer_stream(x, a); /* a stream was asked for and a whole reply came */
    if (!x->streaming || reply_pump(x)) ticket_off(t, x);
}

static void complete(struct ticket *t, bool clean)
{
    struct openai_answer a;
    struct openai_usage usage = {0};
    ticket_unlist(t);
    if (!clean) t->unfit = true;
    enum err code = t->collector ? openai_collector_take(t->collector, &a) : ERR_CORRUPT;
    if (code == OK) {
        usage = a.usage;
        ticket_keep(t, &a);
    }
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
            send_answer(t, x, &a);
        else
            reply_fault(x, FAULT_BAD_ANSWER, "its stream cannot be put together"), ticket_off(t, x);
    }
    if (code == OK) openai_answer_fini(&a);
    ticket_feed_riders(t);
    if (t->call) loop_timer_arm(t->timer, DONE_GRACE_MS); /* an upstream that does not hang up */
}

static bool on_event(void *arg, const struct sse_event *ev)
{
    struct ticket *t = arg;
    struct str data = str_trim(ev->data);
    char event[65];
    if (t->ended) return false;
    if (!data.n) return true;
    if (str_eq(data, STR("[DONE]"))) {
        t->done_seen = true;
        if (t->opened)
            complete(t, true);
        else
            fail(t, FAULT_EMPTY, "");
        return false;
    }
    snprintf(event, sizeof event, STR_FMT, STR_ARG(str_sub(ev->event, 0, 64)));
    return take_frame(t, event, data);
}

/* --- whole replies */
/* True: the body has the API's form, {"error":{"message":...}}, and can go as it is. Else what it says is taken out of the other
 * forms in use: {"error":"..."}, {"message":"..."}, {"detail":"..."}, {"detail":[{"msg":"..."}]}. */
static bool error_words(const json_t *doc, char *words, size_t cap)
{
    const json_t *error = json_object_get(doc, "error"), *detail = json_object_get(doc, "detail");
    if (json_member_str(error, "message").p) return true;
    struct str said = json_is_string(error)               ? json_str(error)
                      : json_member_str(doc, "message").p ? json_member_str(doc, "message")
                      : json_is_string(detail)            ? json_str(detail)
                                               : json_member_str(json_array_get(detail, 0), "msg");
    said = str_sub(said, 0, cap - 1);
    said = str_sub(said, 0, utf8_complete(said));
    if (said.n) memcpy(words, said.p, said.n);
    words[said.n] = 0;
    return false;
}

static void whole_error(struct ticket *t)
{
    struct str type = headers_find(&t->headers, "content-type"), body = buf_view(&t->body);
    char detail[320], words[256] = "";
    json_t *doc = NULL;
    bool json = content_type_is_json(type) && type.n && json_parse(body, 0, &doc, NULL) == OK &&
                error_words(doc, words, sizeof words);
    struct openai_error e = {0};
    json_decref(doc);
    ticket_unlist(t);
    t->ended = true;
    t->ended_us = clock_us();
    snprintf(detail, sizeof detail, "status %d%s%s", t->status, words[0] ? ", " : "", words);
    fault_error(&e, FAULT_STATUS, detail);
    if (t->status >= STATUS_LEAST && t->status <= 599) e.status = t->status;
    struct buf text;
    buf_init(&text, 4096);
    openai_error_write(
        &text, &e); /* a page for people is no answer to a program: its words are not passed on */
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        x->upstream_us = t->ended_us - t->started_us;
        bool leads = strcmp(x->out.cache, "coalesced") !=
                     0; /* only the leader gets headers that may be personal */
        struct str retry = headers_find(&t->headers, "retry-after");
        if (!leads && retry.p) http_set_header(x->r, "Retry-After", retry);
        reply_upstream(x, e.status, STR("application/json"), leads ? &t->headers : NULL,
                       json ? body : buf_view(&text));
        ticket_off(t, x);
    }
    buf_fini(&text);
}

/* 2xx that is no answer we can read: a JSON object passes to those who asked for one (never stored), anything else is a 502. */
static void whole_unknown(struct ticket *t, const char *why)
{
    json_t *doc = NULL;
    bool object = json_parse(buf_view(&t->body), 0, &doc, NULL) == OK && json_is_object(doc);
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
        if (x->req.stream) continue;
        x->upstream_us = clock_us() - t->started_us;
        reply_upstream(x, t->status, headers_find(&t->headers, "content-type"), &t->headers,
                       buf_view(&t->body));
        ticket_off(t, x);
    }
    fail(t, t->body.n ? FAULT_BAD_ANSWER : FAULT_EMPTY, t->body.n ? why : "");
}

static void whole_answer(struct ticket *t)
{
    struct openai_answer a;
    struct errmsg why = {0};
    if (openai_answer_parse(&a, t->kind, buf_view(&t->body), &why) != OK) {
        whole_unknown(t, why.text);
        return;
    }
    ticket_keep(t, &a);
    ticket_unlist(t);
    t->ended = true;
    t->ended_us = clock_us();
    for (struct exchange *x = t->riders, *next; x; x = next) {
        next = x->rider_next;
        x->upstream_us = t->ended_us - t->started_us;
        bool own_bytes = !x->req.stream && strcmp(x->out.cache, "coalesced");
        if (!own_bytes) {
            send_answer(t, x, &a);
            continue;
        }
        x->usage = a.usage;
        x->out.stored = t->entry[0] != 0;
        x->out.refused = t->refused;
        snprintf(x->out.entry, sizeof x->out.entry, "%s", t->entry);
        reply_upstream(x, t->status, headers_find(&t->headers, "content-type"), &t->headers,
                       buf_view(&t->body));
        ticket_off(t, x);
    }
    openai_answer_fini(&a);
}

/* --- the call's callbacks */
static void on_head(void *arg, const struct http_reply_head *head)
{
    struct ticket *t = arg;
    struct str encoding = http_head_find(head, "content-encoding");
    t->status = head->status;
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
}

static void on_body(void *arg, struct str bytes)
{
    struct ticket *t = arg;
    if (t->ended) return;
    t->busy = true;
    if (t->form == FORM_WHOLE) {
        buf_str(&t->body, bytes);
        if (buf_failed(&t->body)) {
            fail(t, FAULT_TOO_LONG, "");
            call_cancel(t->call);
        }
    } else {
        enum err code = sse_reader_feed(t->sse, bytes, on_event, t);
        if (code == ERR_TOO_LARGE && !t->ended)
            cut_or_fail(t, FAULT_TOO_LONG, "one event of its stream");
        if (t->ended && !t->done_seen) call_cancel(t->call);
        if (!t->ended) ticket_feed_riders(t);
    }
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
    if (!t->ended && code == ERR_CANCELLED)
        fail(t, FAULT_CLOSED, ""); /* nobody is left to read it */
    else if (!t->ended && !head_seen)
        fail(t, fault, "");
    else if (!t->ended && t->form == FORM_STREAM)
        stream_over(t, code, fault);
    else if (!t->ended && code != OK)
        fail(t, fault, "");
    else if (!t->ended && t->status / 100 != 2)
        whole_error(t);
    else if (!t->ended)
        whole_answer(t);
    t->call = NULL;
    t->busy = false;
    ticket_settle(t);
}

const struct call_handler ticket_call_handler = {on_head, on_body, on_done, NULL};
