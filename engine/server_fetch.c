/* server_fetch.c - the KV blocks of a prompt from an engine that computes them for this one, before the prompt is submitted here. The
 * gateway names that engine in x-deja-prefill ("URL HELD": HELD tokens of the prompt are here already); nobody else is believed. Every
 * block that comes is checked (kv_wire.h) and used; what does not come, for whatever reason, is computed here: a request never fails
 * because of another engine, and waits for its next piece at most kv_transfer_ms, ten times that in all.
 * Threading: the loop's; on_room on the step thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/http_client.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/kv_wire.h"
#include "engine/server.h"

enum { FETCHES_MAX = 64, CONNECT_MS = 500, PIECES_MS = 10, REFUSAL_BYTES_MAX = 4096 };

struct kv_fetch {
    struct exchange *x;
    struct http_call *call;
    struct loop_timer *deadline;
    struct kv_stream *stream;
    struct hash128 *chain; /* as kv_stream_options' */
    int block_tokens;
    uint64_t block_bytes, started_us;
    int status;
    bool timed_out, damaged, full;
    struct buf refusal; /* the body of a reply that is no 200 */
    struct errmsg why;
};

/* --- what comes */
static void on_block(void *arg, int index, void *bytes)
{
    struct kv_fetch *f = arg;
    struct server *s = f->x->server;
    struct block_name name = {f->chain[index + 1], f->chain[index],
                              f->x->prompts[0].ids + (size_t)index * (size_t)f->block_tokens};
    metrics_kv_received(s, f->block_bytes);
    if (!engine_import(s->engine, &name, bytes)) f->full = true;
}

static void on_head(void *arg, const struct http_reply_head *head)
{
    struct kv_fetch *f = arg;
    f->status = head->status;
}

static void on_body(void *arg, struct str bytes)
{
    struct kv_fetch *f = arg;
    if (f->status != 200) {
        buf_str(&f->refusal, bytes);
        return;
    }
    if (f->damaged) return;
    if (kv_stream_feed(f->stream, bytes, &f->why) != OK) {
        f->damaged = true;
        http_call_cancel(f->call);
    } else if (f->full) { /* the step thread is busy: TCP holds the sender back */
        http_call_pause(f->call);
    }
}

static void go_on(void *arg)
{
    struct server *s = arg;
    for (struct exchange *x = s->exchanges; x; x = x->next) {
        if (!x->fetch || !x->fetch->full) continue;
        x->fetch->full = false;
        http_call_resume(x->fetch->call);
    }
}

void fetch_room(void *arg)
{
    struct server *s = arg;
    if (loop_post(s->loop, go_on, s) != OK)
        log_limited(LOG_WARN, "engine", "KV blocks of another engine wait for their deadline");
}

/* --- the end */
static void read_refusal(struct kv_fetch *f)
{
    json_t *doc = NULL;
    struct str text = {0};
    if (json_parse(buf_view(&f->refusal), 0, &doc, NULL) == OK)
        text = json_member_str(json_object_get(doc, "error"), "message");
    (void)err_set(&f->why, ERR_UNSUPPORTED, "%d " STR_FMT, f->status, STR_ARG(text));
    json_decref(doc);
}

static const char *outcome_of(struct kv_fetch *f, enum err code, const struct errmsg *e)
{
    if (f->damaged) return "damaged";
    if (f->timed_out) (void)err_set(&f->why, ERR_TIMEOUT, "it takes too long in all");
    if (f->timed_out) return "timeout";
    if (code == ERR_CANCELLED) return "cancelled";
    if (code == OK && f->status != 200) {
        read_refusal(f);
        return "refused";
    }
    if (code == OK && kv_stream_whole(f->stream)) return "whole";
    (void)err_set(&f->why, code, "%s", code == OK ? "it ended early" : e->text);
    return code == OK                ? "short"
           : code == ERR_UNAVAILABLE ? "unreachable"
           : code == ERR_TIMEOUT     ? "timeout"
                                     : "cut";
}

static void free_fetch(struct kv_fetch *f)
{
    loop_timer_free(f->deadline);
    kv_stream_free(f->stream);
    mem_free(f->chain);
    buf_fini(&f->refusal);
    mem_free(f);
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct kv_fetch *f = arg;
    struct exchange *x = f->x;
    const char *outcome = outcome_of(f, code, e);
    metrics_kv_fetched(x->server, outcome, clock_us() - f->started_us);
    if (f->why.text[0])
        log_limited(LOG_WARN, "engine",
                    "KV blocks from %s: %s after %d blocks (%s): the rest is computed here",
                    x->prefill_url, outcome, kv_stream_count(f->stream), f->why.text);
    x->fetch = NULL;
    x->server->n_fetches--;
    free_fetch(f);
    exchange_go_on(x);
}

static void on_deadline(void *arg)
{
    struct kv_fetch *f = arg;
    f->timed_out = true;
    http_call_cancel(f->call);
}

void fetch_cancel(struct exchange *x)
{
    if (x->fetch) http_call_cancel(x->fetch->call);
}

/* --- the beginning */
void fetch_read_hint(struct exchange *x, struct str header)
{
    struct str url;
    int64_t held = 0;
    if (!header.n || !str_next(&header, ' ', &url) || url.n >= sizeof x->prefill_url) return;
    if (header.n && str_to_i64(header, 0, KV_ASK_TOKENS_MAX, &held) != OK) return;
    memcpy(x->prefill_url, url.p, url.n);
    x->prefill_held = (int)held;
}

static void ask(struct kv_fetch *f, const struct http_origin *origin, const struct kv_ask *ask,
                size_t answer_max)
{
    struct server *s = f->x->server;
    struct buf body;
    struct http_header h[] = {{STR("x-deja-key"), str_of(s->o->gateway_key)},
                              {STR("x-request-id"), str_of(f->x->id)},
                              {STR("content-type"), STR("application/octet-stream")}};
    buf_init(&body, KV_HEAD_BYTES + (size_t)ask->n_tokens * sizeof(int32_t) + 4096);
    kv_ask_write(ask, &body);
    struct http_call_options o = {.origin = origin,
                                  .method = "POST",
                                  .path = "/deja/kv-blocks",
                                  .headers = h,
                                  .n_headers = sizeof h / sizeof h[0],
                                  .body = buf_view(&body),
                                  .connect_timeout_ms = CONNECT_MS,
                                  .first_byte_timeout_ms = s->o->kv_transfer_ms,
                                  .idle_timeout_ms = s->o->kv_transfer_ms,
                                  .body_max = answer_max,
                                  .retry_stale = true};
    struct http_call_handler handler = {on_head, on_body, on_done, f};
    f->call = http_call(s->client, &o, &handler);
    buf_fini(&body);
}

static void start(struct exchange *x, const struct http_origin *origin, int from, int n_blocks)
{
    struct server *s = x->server;
    struct kv_fetch *f = xcalloc(1, sizeof *f);
    struct kv_head head;
    engine_kv_head(s->engine, &head);
    struct prefix_origin o = engine_prefix_origin(s->engine, x->adapter);
    o.salt = x->salt;
    size_t n_tokens = (size_t)n_blocks * (size_t)head.block_tokens;
    f->x = x;
    f->block_tokens = head.block_tokens;
    f->block_bytes = head.block_bytes;
    f->started_us = clock_us();
    f->chain = xcalloc((size_t)n_blocks + 1, sizeof *f->chain);
    f->chain[0] = prefix_hash_start(&o);
    (void)prefix_hash_chain(&o, head.block_tokens, x->prompts[0].ids, n_tokens, f->chain + 1,
                            (size_t)n_blocks);
    struct kv_stream_options so = {.head = head,
                                   .from = from,
                                   .n_blocks = n_blocks,
                                   .chain = f->chain,
                                   .tokens = x->prompts[0].ids,
                                   .on_block = on_block,
                                   .arg = f};
    f->stream = kv_stream_new(&so);
    buf_init(&f->refusal, REFUSAL_BYTES_MAX);
    f->deadline = loop_timer_new(s->loop, on_deadline, f);
    loop_timer_arm(f->deadline, (uint64_t)s->o->kv_transfer_ms * PIECES_MS);
    struct kv_ask wanted = {.head = head,
                            .scope = {.adapter = o.adapter, .salt = o.salt},
                            .start = f->chain[0],
                            .from = from,
                            .n_tokens = (int)n_tokens,
                            .batch = x->priority,
                            .tokens = (const uint8_t *)x->prompts[0].ids};
    size_t record = kv_entry_bytes(head.block_tokens) + head.block_bytes;
    x->fetch = f;
    s->n_fetches++;
    ask(f, origin, &wanted, KV_HEAD_BYTES + (size_t)(n_blocks - from + 1) * record);
}

bool fetch_start(struct exchange *x)
{
    struct server *s = x->server;
    struct http_origin origin;
    if (!x->prefill_url[0] || !s->client || x->n_prompts != 1 || !engine_can_import(s->engine))
        return false;
    int bt = engine_block_size(s->engine), from = x->prefill_held / bt,
        most =
            engine_host_blocks(s->engine) / 2; /* of which the end would push out the beginning */
    size_t n = x->prompts[0].n;
    if (n > KV_ASK_TOKENS_MAX || (int)n >= engine_max_len(s->engine)) return false;
    int n_blocks = ((int)n - 1) / bt; /* the last token is always computed */
    if (n_blocks > from + most) n_blocks = from + most;
    struct engine_stats st;
    engine_stats(s->engine, &st);
    /* nothing is computed elsewhere for one who is about to be refused here */
    if (from >= n_blocks || st.waiting >= s->o->engine.queue_max) return false;
    if (s->n_fetches == FETCHES_MAX || http_origin_parse(str_of(x->prefill_url), &origin, NULL)) {
        metrics_kv_fetched(s, s->n_fetches == FETCHES_MAX ? "busy" : "unreachable", 0);
        return false;
    }
    start(x, &origin, from, n_blocks);
    return true;
}
