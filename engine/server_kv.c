/* server_kv.c - what a router must know of this engine: how its KV blocks are named (/deja/prefix), the tokenizer and chat template that
 * lead to these names (/deja/tokenizer: the model file's metadata), and which blocks there are, as they come and go
 * (/deja/kv-events?incarnation=HEX&from=N: server-sent events, docs/routing.md). With a gateway_key only for who has it: the names tell
 * whether somebody asked a given question. A reader that does not keep up begins anew from a snapshot; nothing here waits for one.
 * Threading: the loop's thread; on_news on the step thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/announce.h"
#include "engine/kv_file.h"
#include "engine/model/gguf.h"
#include "engine/server.h"

enum {
    READERS_MAX = 64,
    FRAME_CHANGES = 512,
    FRAME_BYTES_MAX = 64 * 1024,
    METADATA_BYTES_MAX = 256 << 20,
    QUIET_MS = 1000 /* a reader hears something at least this often */
};

struct kv_reader {
    struct kv_reader *next, *prev;
    struct server *server;
    struct http_req *http;
    uint64_t number, wrote_ms;
    struct kv_change *held; /* [n_held] a snapshot being written, from held_at on; NULL = none */
    size_t n_held, held_at;
    bool blocked;
};

static bool allowed(struct server *s, struct http_req *r)
{
    struct openai_error e = {0};
    if (!*s->o->gateway_key || server_is_gateway(s, r)) return true;
    openai_error_set(&e, 403, "invalid_request_error", "", "forbidden",
                     "this path is the gateway's: x-deja-key is missing or wrong");
    server_refuse(s, r, &e);
    return false;
}

/* --- names */
static void write_model(const struct server *s, struct str id, int adapter, struct buf *b)
{
    char hex[33];
    struct prefix_origin o = engine_prefix_origin(s->engine, adapter);
    buf_z(b, adapter ? ",{\"id\":" : "{\"id\":");
    json_write_string(b, id);
    hash_hex(o.adapter, hex);
    buf_printf(b, ",\"adapter\":\"%s\"}", hex);
}

void kv_prefix(struct server *s, struct http_req *r)
{
    struct buf b;
    char root[33];
    if (!allowed(s, r)) return;
    struct prefix_origin o = engine_prefix_origin(s->engine, 0);
    struct kv_head head;
    engine_kv_head(s->engine, &head);
    hash_hex(o.root, root);
    buf_init(&b, 1 << 20);
    buf_printf(&b,
               "{\"incarnation\":\"%016" PRIx64 "\",\"root\":\"%s\",\"seed\":\"%016" PRIx64
               "\",\"block_tokens\":%d,\"role\":\"%s\",\"kv_format\":\"%s\",\"tools_in_words\":%s,"
               "\"chat\":%s,"
               "\"salted\":%s,\"models\":[",
               announce_incarnation(s->announce), root, o.seed, engine_block_size(s->engine),
               engine_role_name(s->o->role), head.format, s->text.tools_in_words ? "true" : "false",
               s->template ? "true" : "false", *s->o->gateway_key ? "true" : "false");
    write_model(s, str_of(s->model_name), 0, &b);
    for (int i = 0; i < s->o->engine.n_adapters; i++)
        write_model(s, s->o->adapters[i].name, i + 1, &b);
    buf_z(&b, "]}");
    http_send(r, 200, "application/json", buf_view(&b));
    buf_fini(&b);
}

void kv_tokenizer(struct server *s, struct http_req *r)
{
    struct buf b;
    if (!allowed(s, r)) return;
    buf_init(&b, METADATA_BYTES_MAX);
    gguf_write_metadata(engine_gguf(s->engine), &b);
    http_send(r, 200, "application/octet-stream", buf_view(&b));
    buf_fini(&b);
}

/* --- events */
static void free_reader(struct kv_reader *k)
{
    struct server *s = k->server;
    *(k->prev ? &k->prev->next : &s->kv_readers) = k->next;
    if (k->next) k->next->prev = k->prev;
    if (!--s->n_kv_readers) announce_listen(s->announce, NULL, NULL);
    mem_free(k->held);
    mem_free(k);
}

/* number: what the reader may go on from once it has this frame; 0 = not yet. */
static void write_frame(struct kv_reader *k, const struct kv_change *c, size_t n, bool reset,
                        uint64_t number)
{
    struct buf json, frame;
    char hex[33];
    buf_init(&json, FRAME_BYTES_MAX);
    buf_init(&frame, FRAME_BYTES_MAX + 64);
    buf_printf(&json, "{\"number\":%" PRIu64 ",\"reset\":%s,\"changes\":[", number,
               reset ? "true" : "false");
    for (size_t i = 0; i < n; i++) {
        hash_hex(c[i].block, hex);
        buf_printf(&json, "%s\"%c%d%s\"", i ? "," : "", c[i].stored ? '+' : '-', c[i].place, hex);
    }
    buf_z(&json, "]}");
    sse_write_event(&frame, "kv", buf_view(&json));
    k->blocked = !http_write(k->http, buf_view(&frame));
    k->wrote_ms = clock_ms();
    buf_fini(&json);
    buf_fini(&frame);
}

static bool begin_anew(struct kv_reader *k)
{
    mem_free(k->held);
    k->held = NULL;
    k->held_at = 0;
    if (announce_snapshot(k->server->announce, &k->held, &k->n_held, &k->number) != OK)
        return false; /* no memory now: the tick tries again */
    write_frame(k, NULL, 0, true, 0);
    return true;
}

static void write_held(struct kv_reader *k)
{
    size_t n = k->n_held - k->held_at < FRAME_CHANGES ? k->n_held - k->held_at : FRAME_CHANGES;
    bool last = k->held_at + n == k->n_held;
    write_frame(k, k->held + k->held_at, n, false, last ? k->number : 0);
    k->held_at += n;
    if (!last) return;
    mem_free(k->held);
    k->held = NULL;
}

/* All the news there are, as long as the reader takes them. */
static void feed(struct kv_reader *k)
{
    struct kv_change some[FRAME_CHANGES];
    while (!k->blocked) {
        size_t n;
        if (k->held) {
            write_held(k);
            continue;
        }
        enum err code = announce_read(k->server->announce, &k->number, some, FRAME_CHANGES, &n);
        if (code != OK && !begin_anew(k)) return;
        if (code != OK) continue;
        if (!n) return;
        write_frame(k, some, n, false, k->number);
    }
}

static void feed_all(void *arg)
{
    struct server *s = arg;
    for (struct kv_reader *k = s->kv_readers; k; k = k->next)
        feed(k);
}

/* Step thread. */
static void on_news(void *arg)
{
    struct server *s = arg;
    if (loop_post(s->loop, feed_all, s) != OK)
        log_limited(LOG_DEBUG, "engine", "KV events wait for the tick");
}

static void on_gone(void *arg)
{
    free_reader(arg);
}

static void on_writable(void *arg)
{
    struct kv_reader *k = arg;
    k->blocked = false;
    feed(k);
}

/* from=N with this process's incarnation: where the reader left off. */
static uint64_t start_of(const struct server *s, struct str query)
{
    struct str item, name;
    char own[17];
    int64_t from = -1;
    bool mine = false;
    snprintf(own, sizeof own, "%016" PRIx64, announce_incarnation(s->announce));
    while (str_next(&query, '&', &item)) {
        if (!str_next(&item, '=', &name)) continue;
        if (str_eqz(name, "incarnation")) mine = str_eqz(item, own);
        if (str_eqz(name, "from") && str_to_i64(item, 0, INT64_MAX, &from) != OK) from = -1;
    }
    return mine && from >= 0 ? (uint64_t)from : UINT64_MAX;
}

void kv_events(struct server *s, struct http_req *r)
{
    struct openai_error e = {0};
    struct buf hello;
    if (!allowed(s, r)) return;
    if (s->draining || s->n_kv_readers == READERS_MAX) {
        openai_error_set(&e, 503, "server_error", "", "unavailable", "%s",
                         s->draining ? "the server is going down"
                                     : "too many readers of KV events");
        server_refuse(s, r, &e);
        return;
    }
    struct kv_reader *k = xcalloc(1, sizeof *k);
    k->server = s;
    k->http = r;
    k->number = start_of(s, http_req_query(r));
    k->next = s->kv_readers;
    if (k->next) k->next->prev = k;
    s->kv_readers = k;
    if (!s->n_kv_readers++) announce_listen(s->announce, on_news, s);
    http_req_on_gone(r, on_gone, k);
    http_req_on_writable(r, on_writable, k);
    http_start(r, 200, "text/event-stream");
    buf_init(&hello, 256);
    buf_printf(&hello, "event: hello\ndata: {\"incarnation\":\"%016" PRIx64 "\"}\n\n",
               announce_incarnation(s->announce));
    http_write(r, buf_view(&hello));
    buf_fini(&hello);
    feed(k);
}

void kv_tick(struct server *s)
{
    uint64_t now = clock_ms();
    for (struct kv_reader *k = s->kv_readers; k; k = k->next) {
        feed(k);
        if (k->blocked || now - k->wrote_ms < QUIET_MS) continue;
        k->blocked = !http_write(k->http, STR(": here\n\n"));
        k->wrote_ms = now;
    }
}

void kv_close(struct server *s)
{
    while (s->kv_readers) {
        struct http_req *r = s->kv_readers->http;
        free_reader(s->kv_readers);
        http_end(r);
    }
}
