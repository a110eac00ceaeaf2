/* server_give.c - POST /deja/kv-blocks: computes the prompt of an ask (kv_wire.h) and sends its KV blocks while it does. For engines with
 * the same gateway_key only, and only blocks of the asked scope: those of one tenant are never found by an ask for another's. What does
 * not fit is refused before anything is computed, in one sentence. A receiver that is slow holds back the copying, never a step; one that
 * leaves stops the computation.
 * Threading: the loop's; on_block, on_end and on_exported on the step thread. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/kv_wire.h"
#include "engine/server.h"

enum { GIVES_MAX = 64, WRITE_BYTES = 128 * 1024, FRONT_BYTES_MAX = 2048 };

struct given { /* a block on its way out */
    struct given *next;
    void *bytes;
    int index;
    struct hash128 id, parent;
    int32_t tokens[];
};

struct kv_give {
    struct kv_give *next, *prev;
    struct server *server;
    struct http_req *http; /* NULL: the receiver left, or has it all */
    struct kv_head head;
    uint64_t id;
    bool blocked;
    struct given *now; /* being written; at: bytes of it that are */
    size_t at;
    /* under the server's lock, filled on the step thread */
    struct given *first, *last;
    bool exported, ended;
};

/* --- step thread */
static void wake(struct server *s)
{
    if (loop_post(s->loop, gives_run, s) != OK)
        log_limited(LOG_DEBUG, "engine", "KV blocks wait for the tick");
}

static void on_block(void *arg, int index, const struct block_name *name, void *bytes)
{
    struct kv_give *v = arg;
    size_t n = (size_t)v->head.block_tokens * sizeof(int32_t);
    struct given *b = xmalloc(sizeof *b + n);
    *b = (struct given){.bytes = bytes, .index = index, .id = name->id, .parent = name->parent};
    memcpy(b->tokens, name->tokens, n);
    pthread_mutex_lock(&v->server->lock);
    *(v->first ? &v->last->next : &v->first) = b;
    v->last = b;
    pthread_mutex_unlock(&v->server->lock);
    wake(v->server);
}

static void over(struct kv_give *v, bool *what)
{
    struct server *s = v->server;
    pthread_mutex_lock(&s->lock);
    *what = true;
    pthread_mutex_unlock(&s->lock);
    wake(s);
}

static void on_exported(void *arg)
{
    struct kv_give *v = arg;
    over(v, &v->exported);
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct kv_give *v = arg;
    (void)end; /* what could be computed was handed out */
    over(v, &v->ended);
}

/* --- writing */
static void free_given(struct given *b)
{
    mem_free(b->bytes);
    mem_free(b);
}

static struct given *take(struct kv_give *v)
{
    pthread_mutex_lock(&v->server->lock);
    struct given *b = v->first;
    if (b) v->first = b->next;
    pthread_mutex_unlock(&v->server->lock);
    return b;
}

static void write_some(struct kv_give *v, const void *bytes, size_t n)
{
    v->blocked = !http_write(v->http, (struct str){bytes, n});
}

static void write_front(struct kv_give *v)
{
    uint8_t front[FRONT_BYTES_MAX];
    const struct given *b = v->now;
    struct block_name name = {b->id, b->parent, b->tokens};
    size_t n = kv_entry_bytes(v->head.block_tokens);
    ASSERT(n <= sizeof front);
    kv_record_write(&v->head, b->index, &name, b->bytes, front);
    write_some(v, front, n);
}

/* One piece of v->now. */
static void write_piece(struct kv_give *v)
{
    struct given *b = v->now;
    size_t n = v->head.block_bytes - v->at;
    if (!v->at) write_front(v);
    if (n > WRITE_BYTES) n = WRITE_BYTES;
    write_some(v, (const uint8_t *)b->bytes + v->at, n);
    v->at += n;
    if (v->at < v->head.block_bytes) return;
    metrics_kv_sent(v->server, v->head.block_bytes);
    free_given(b);
    v->now = NULL;
    v->at = 0;
    engine_export_more(v->server->engine, v->id, 1);
}

static void throw_away(struct kv_give *v, struct given *b)
{
    free_given(b);
    if (v->server->engine) engine_export_more(v->server->engine, v->id, 1);
}

static void free_give(struct kv_give *v)
{
    *(v->prev ? &v->prev->next : &v->server->gives) = v->next;
    if (v->next) v->next->prev = v->prev;
    v->server->n_gives--;
    if (v->now) throw_away(v, v->now);
    while ((v->now = take(v)))
        throw_away(v, v->now);
    mem_free(v);
}

/* Writes what there is; frees v when nothing of it is left anywhere. */
static void run(struct kv_give *v)
{
    while (v->http && !v->blocked && (v->now || (v->now = take(v))))
        write_piece(v);
    pthread_mutex_lock(&v->server->lock);
    bool quiet = v->exported && v->ended, empty = !v->first;
    pthread_mutex_unlock(&v->server->lock);
    if (v->http && quiet && empty && !v->now) {
        http_end(v->http);
        v->http = NULL;
    }
    if (!v->http && quiet) free_give(v);
}

void gives_run(void *arg)
{
    struct server *s = arg;
    for (struct kv_give *v = s->gives, *next; v; v = next) {
        next = v->next;
        run(v);
    }
}

static void on_writable(void *arg)
{
    struct kv_give *v = arg;
    v->blocked = false;
    run(v);
}

static void on_gone(void *arg)
{
    struct kv_give *v = arg;
    v->http = NULL;
    engine_cancel(v->server->engine, v->id);
    run(v);
}

/* --- an ask */
static void refuse(struct server *s, struct http_req *r, int status, const char *code,
                   const char *why)
{
    struct openai_error e = {0};
    metrics_kv_refused(s, code);
    log_limited(LOG_WARN, "engine", "an ask for KV blocks is refused: %s", why);
    openai_error_set(&e, status, status < 500 ? "invalid_request_error" : "server_error", "", code,
                     "%s", why);
    server_refuse(s, r, &e);
}

/* Number of the adapter with this hash, as engine_submit takes it; -1 = there is none. */
static int adapter_of(const struct server *s, struct hash128 adapter)
{
    for (int i = 0; i <= s->o->engine.n_adapters; i++)
        if (hash_eq(engine_prefix_origin(s->engine, i).adapter, adapter)) return i;
    return -1;
}

static enum err check(const struct server *s, const struct kv_ask *ask, int *adapter,
                      struct errmsg *e)
{
    struct kv_head own;
    engine_kv_head(s->engine, &own);
    enum err code = kv_head_fits(&own, &ask->head, e);
    if (code) return code;
    *adapter = adapter_of(s, ask->scope.adapter);
    if (*adapter < 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "lora: this engine does not have the adapter, with the same scale");
    struct prefix_origin o = engine_prefix_origin(s->engine, *adapter);
    o.salt = ask->scope.salt;
    if (!hash_eq(prefix_hash_start(&o), ask->start))
        return err_set(e, ERR_UNSUPPORTED,
                       "blocks have other names here: both engines need one gateway_key, and "
                       "folders of kv_disk made under it");
    return OK;
}

static struct kv_give *give_new(struct server *s, struct http_req *r, const struct kv_ask *ask)
{
    struct kv_give *v = xcalloc(1, sizeof *v);
    v->server = s;
    v->http = r;
    v->head = ask->head;
    v->next = s->gives;
    if (v->next) v->next->prev = v;
    s->gives = v;
    s->n_gives++;
    return v;
}

static enum err submit(struct kv_give *v, const struct kv_ask *ask, int adapter, struct errmsg *e)
{
    size_t n = (size_t)ask->n_tokens * sizeof(int32_t);
    int32_t *prompt = try_malloc(n); /* aligned */
    if (!prompt) return err_set(e, ERR_FULL, "no memory for %d tokens", ask->n_tokens);
    memcpy(prompt, ask->tokens, n);
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = ask->n_tokens,
                                      .n = 1,
                                      .max_tokens = 1,
                                      .sampling = sampler_params_default(),
                                      .ignore_end = true,
                                      .adapter = adapter,
                                      .salt = ask->scope.salt,
                                      .priority = ask->batch,
                                      .on_end = on_end,
                                      .on_block = on_block,
                                      .on_exported = on_exported,
                                      .export_from = ask->from,
                                      .arg = v};
    enum err code = engine_submit(v->server->engine, &o, &v->id, e);
    mem_free(prompt);
    return code;
}

static void start(struct server *s, struct http_req *r, const struct kv_ask *ask, int adapter)
{
    uint8_t head[KV_HEAD_BYTES];
    struct errmsg e = {0};
    struct kv_give *v = give_new(s, r, ask);
    enum err code = submit(v, ask, adapter, &e);
    if (code) {
        free_give(v);
        refuse(s, r,
               code == ERR_FULL     ? 429
               : code == ERR_CLOSED ? 503
                                    : 409,
               code == ERR_FULL ? "busy" : "prompt", e.text);
        return;
    }
    http_req_on_gone(r, on_gone, v);
    http_req_on_writable(r, on_writable, v);
    http_start(r, 200, "application/octet-stream");
    struct kv_head own;
    engine_kv_head(s->engine, &own);
    kv_head_write(&own, head);
    write_some(v, head, sizeof head);
    run(v);
}

void give_start(struct server *s, struct http_req *r)
{
    struct kv_ask ask;
    struct errmsg e = {0};
    int adapter = 0;
    enum err code;
    if (!server_is_gateway(s, r)) {
        refuse(s, r, 403, "key", "KV blocks are for engines with the same gateway_key");
    } else if (s->o->role == ROLE_DECODE) {
        refuse(s, r, 403, "role", "this engine's role is decode: it computes for itself only");
    } else if (!s->o->engine.prefix_caching) {
        refuse(s, r, 409, "no_prefix_caching", "enable_prefix_caching is off here");
    } else if (s->draining || s->n_gives == GIVES_MAX) {
        refuse(s, r, 503, "busy",
               s->draining ? "the server is going down" : "too many asks for KV blocks");
    } else if ((code = kv_ask_read(http_req_body(r), &ask, &e))) {
        refuse(s, r, 400, "malformed", e.text);
    } else if ((code = check(s, &ask, &adapter, &e))) {
        refuse(s, r, 409, "mismatch", e.text);
    } else {
        start(s, r, &ask, adapter);
    }
}
