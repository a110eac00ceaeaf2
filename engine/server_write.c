/* server_write.c - answers as bytes: whole JSON replies and server-sent chunks, in the API's exact
 * shapes. */
#include <string.h>

#include "base/clock.h"
#include "base/sse.h"
#include "engine/server.h"

enum { ECHO_MAX = 64 << 20 };

const char *finish_name(enum engine_finish f)
{
    switch (f) {
    case ENGINE_STOP:
        return "stop";
    case ENGINE_LENGTH:
        return "length";
    case ENGINE_CANCELLED:
        return "abort";
    case ENGINE_FAILED:
        return "error";
    }
    return "error";
}

/* A text that ends of itself after calls ends because of them. */
static const char *choice_finish(const struct choice_out *c)
{
    return c->n_calls && c->finish == ENGINE_STOP ? "tool_calls" : finish_name(c->finish);
}

static void open_object(const struct exchange *x, bool chunk, struct buf *out)
{
    const char *kind = x->kind != OPENAI_CHAT ? "text_completion"
                       : chunk                ? "chat.completion.chunk"
                                              : "chat.completion";
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", x->id, kind,
               (long long)x->created_s);
    json_write_string(out, exchange_model(x));
    buf_z(out, ",\"system_fingerprint\":\"deja-" DEJA_VERSION "\",\"choices\":[");
}

static void write_usage(const struct exchange *x, struct buf *out)
{
    buf_printf(out,
               "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_"
               "tokens_details\":{\"cached_tokens\":%lld}",
               (long long)x->prompt_tokens, (long long)x->completion_tokens,
               (long long)(x->prompt_tokens + x->completion_tokens), (long long)x->cached_tokens);
    if (x->drafted_tokens)
        buf_printf(out,
                   ",\"completion_tokens_details\":{\"accepted_prediction_tokens\":%lld,\"rejected_"
                   "prediction_tokens\":%lld}",
                   (long long)x->accepted_tokens,
                   (long long)(x->drafted_tokens - x->accepted_tokens));
    buf_char(out, '}');
}

static void send_chunk(struct exchange *x, struct buf *json)
{
    if (!x->http) return;
    buf_z(json, x->request.include_usage ? "],\"usage\":null}" : "]}");
    struct buf frame;
    buf_init(&frame, json->n + 64);
    sse_write_data(&frame, buf_view(json));
    if (!http_write(x->http, buf_view(&frame))) x->blocked = true;
    buf_fini(&frame);
    x->last_write_ms = clock_ms();
}

static void send_text(struct exchange *x, int i, struct str text, bool all);

void write_echo(struct exchange *x)
{
    for (int i = 0; i < x->n_choices; i++) {
        struct buf b;
        buf_init(&b, ECHO_MAX);
        prompt_echo(x, i / x->request.n, &b);
        if (x->streaming)
            send_text(x, i, buf_view(&b), false);
        else
            buf_str(&x->choices[i].text, buf_view(&b));
        buf_fini(&b);
    }
}

void write_stream_head(struct exchange *x)
{
    http_set_header(x->http, "cache-control", STR("no-cache"));
    http_set_header(x->http, "x-accel-buffering", STR("no"));
    http_start(x->http, 200, "text/event-stream; charset=utf-8");
    x->streaming = true;
    x->last_write_ms = clock_ms();
    if (x->kind != OPENAI_CHAT) return;
    for (int i = 0; i < x->n_choices; i++) {
        struct buf *b = &x->server->scratch;
        buf_clear(b);
        open_object(x, true, b);
        buf_printf(b,
                   "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
                   "null,\"finish_reason\":null}",
                   i);
        send_chunk(x, b);
    }
}

/* One chunk with text and log-probabilities, either of which may be empty. */
static void send_text(struct exchange *x, int i, struct str text, bool all)
{
    struct choice_out *c = &x->choices[i];
    struct buf *b = &x->server->scratch;
    buf_clear(b);
    open_object(x, true, b);
    buf_printf(b, "{\"index\":%d,", i);
    buf_z(b, x->kind == OPENAI_CHAT ? "\"delta\":{\"content\":" : "\"text\":");
    json_write_string(b, text);
    buf_z(b, x->kind == OPENAI_CHAT ? "},\"logprobs\":" : ",\"logprobs\":");
    logprobs_write(x, c, all, b);
    buf_z(b, ",\"finish_reason\":null}");
    send_chunk(x, b);
}

void write_text(struct exchange *x, int choice, struct str text)
{
    send_text(x, choice, text, false);
}

struct buf *write_delta_begin(struct exchange *x, int choice)
{
    struct buf *b = &x->server->scratch;
    buf_clear(b);
    open_object(x, true, b);
    buf_printf(b, "{\"index\":%d,\"delta\":", choice);
    return b;
}

void write_delta_end(struct exchange *x, struct buf *b)
{
    buf_z(b, ",\"logprobs\":null,\"finish_reason\":null}");
    send_chunk(x, b);
}

void write_token(struct exchange *x, struct token_event *ev)
{
    struct choice_out *c = &x->choices[ev->choice];
    struct str text = {ev->text, ev->n_text};
    logprobs_add(x, c, ev);
    if (c->toolcall)
        toolcall_feed(c->toolcall, text);
    else if (!x->streaming)
        buf_str(&c->text, text);
    else if (text.n)
        send_text(x, ev->choice, text, false);
}

void write_end(struct exchange *x, struct token_event *ev)
{
    struct choice_out *c = &x->choices[ev->choice];
    struct str text = {ev->text, ev->n_text};
    if (c->toolcall) {
        toolcall_feed(c->toolcall, text);
        toolcall_finish(c->toolcall);
        text.n = 0;
    }
    if (!x->streaming) {
        buf_str(&c->text, text);
        return;
    }
    bool rest = !ev->stopped; /* after a stop string what is left belongs to it */
    if (text.n || (rest && c->n_told < c->n_logged)) send_text(x, ev->choice, text, rest);
    struct buf *b = &x->server->scratch;
    buf_clear(b);
    open_object(x, true, b);
    buf_printf(b, "{\"index\":%d,%s,\"logprobs\":null,\"finish_reason\":\"%s\"}", ev->choice,
               x->kind == OPENAI_CHAT ? "\"delta\":{}" : "\"text\":\"\"", choice_finish(c));
    send_chunk(x, b);
}

void write_whole(struct exchange *x)
{
    struct buf b;
    buf_init(&b, 256 << 20);
    open_object(x, false, &b);
    for (int i = 0; i < x->n_choices; i++) {
        struct choice_out *c = &x->choices[i];
        buf_printf(&b, "%s{\"index\":%d,", i ? "," : "", i);
        if (x->kind == OPENAI_CHAT) {
            buf_z(&b, "\"message\":{\"role\":\"assistant\",\"content\":");
            if (c->n_calls && !c->text.n)
                buf_z(&b, "null");
            else
                json_write_string(&b, buf_view(&c->text));
            calls_write(c, &b);
            buf_z(&b, ",\"refusal\":null}");
        } else {
            buf_z(&b, "\"text\":");
            json_write_string(&b, buf_view(&c->text));
        }
        buf_z(&b, ",\"logprobs\":");
        logprobs_write(x, c, !c->stopped, &b);
        buf_printf(&b, ",\"finish_reason\":\"%s\"}", choice_finish(c));
    }
    buf_z(&b, "],\"usage\":");
    write_usage(x, &b);
    buf_char(&b, '}');
    if (buf_failed(&b)) {
        openai_error_set(&x->error, 500, "server_error", "", "",
                         "the answer is too large to be sent");
        exchange_refuse(x);
    } else {
        http_send(x->http, 200, "application/json", buf_view(&b));
        exchange_finished(x);
    }
    buf_fini(&b);
}

void write_stream_tail(struct exchange *x)
{
    struct buf *b = &x->server->scratch;
    buf_clear(b);
    if (x->error.status) {
        struct buf json;
        buf_init(&json, 4096);
        openai_error_write(&json, &x->error);
        sse_write_data(b, buf_view(&json));
        buf_fini(&json);
    } else if (x->request.include_usage) {
        struct buf json;
        buf_init(&json, 4096);
        open_object(x, true, &json);
        buf_z(&json, "],\"usage\":");
        write_usage(x, &json);
        buf_char(&json, '}');
        sse_write_data(b, buf_view(&json));
        buf_fini(&json);
    }
    if (!x->error.status) buf_z(b, "data: [DONE]\n\n");
    http_write(x->http, buf_view(b));
    http_end(x->http);
    exchange_finished(x);
}
