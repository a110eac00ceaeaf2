/* server.c - the server's life, its routes, and what every reply has in common. */
#include "engine/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/http_client.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/announce.h"
#include "engine/model/encoder.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer_load.h"

enum {
    WORK_QUEUE = 256,
    EMBED_QUEUE = 256,
    WARM_TOKENS = 2,
    WARM_PROMPT = 32 /* long enough to time prompt rows */
};

/* ---- replies ---- */
/* Echoes or makes x-request-id. */
static void mark_id(struct server *s, struct http_req *r)
{
    struct str id = http_req_header(r, "x-request-id");
    bool sound = id.n > 0 && id.n <= 128;
    for (size_t i = 0; i < id.n && sound; i++)
        sound = id.p[i] > ' ' && id.p[i] < 127;
    if (sound) {
        http_set_header(r, "x-request-id", id);
        return;
    }
    char hex[33];
    uint64_t n = s->next_id++;
    hash_hex(hash_bytes(s->id_seed ^ 0x7265716964, (struct str){(const char *)&n, sizeof n}), hex);
    http_set_header(r, "x-request-id", str_of(hex));
}

/* Seconds until a queue that is full now has probably let somebody in. */
static int retry_after_s(struct server *s)
{
    struct engine_stats st;
    engine_stats(s->engine, &st);
    double wait =
        st.drain_tokens_per_s > 1 ? (double)st.waiting_prompt_tokens / st.drain_tokens_per_s : 1;
    return wait < 1 ? 1 : wait > 60 ? 60 : (int)(wait + 0.5);
}

void server_refuse(struct server *s, struct http_req *r, const struct openai_error *e)
{
    struct buf b;
    buf_init(&b, 4096);
    openai_error_write(&b, e);
    if (e->status == 429 || e->status == 503)
        http_set_headerf(r, "retry-after", "%d", retry_after_s(s));
    http_send(r, e->status, "application/json", buf_view(&b));
    buf_fini(&b);
}

/* ---- routes ---- */
enum route {
    ROUTE_CHAT,
    ROUTE_COMPLETION,
    ROUTE_EMBEDDING,
    ROUTE_MODELS,
    ROUTE_HEALTH,
    ROUTE_READY,
    ROUTE_METRICS,
    ROUTE_TOKENIZE,
    ROUTE_DETOKENIZE,
    ROUTE_KV_PREFIX,
    ROUTE_KV_TOKENIZER,
    ROUTE_KV_EVENTS,
    ROUTE_KV_BLOCKS,
    ROUTE_NONE
};
static const struct {
    const char *path;
    bool post;
    enum route route;
} routes[] = {
    {"/v1/chat/completions", true, ROUTE_CHAT},
    {"/v1/completions", true, ROUTE_COMPLETION},
    {"/v1/embeddings", true, ROUTE_EMBEDDING},
    {"/v1/models", false, ROUTE_MODELS},
    {"/health", false, ROUTE_HEALTH},
    {"/ready", false, ROUTE_READY},
    {"/metrics", false, ROUTE_METRICS},
    {"/tokenize", true, ROUTE_TOKENIZE},
    {"/detokenize", true, ROUTE_DETOKENIZE},
    {"/deja/prefix", false, ROUTE_KV_PREFIX},
    {"/deja/tokenizer", false, ROUTE_KV_TOKENIZER},
    {"/deja/kv-events", false, ROUTE_KV_EVENTS},
    {"/deja/kv-blocks", true, ROUTE_KV_BLOCKS},
};

static enum route find_route(struct str path, bool *post, struct str *rest)
{
    *rest = (struct str){0};
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        *post = routes[i].post;
        if (str_eqz(path, routes[i].path)) return routes[i].route;
    }
    *post = false;
    if (!str_starts(path, STR("/v1/models/"))) return ROUTE_NONE;
    *rest = str_sub(path, 11, path.n);
    return rest->n ? ROUTE_MODELS : ROUTE_NONE;
}

/* Method and body's type, before anything is read. */
static bool check_form(struct server *s, struct http_req *r, enum route route, bool post)
{
    struct openai_error e = {0};
    struct str method = http_req_method(r), type = http_req_header(r, "content-type"),
               coding = http_req_header(r, "content-encoding");
    bool right = post ? str_eqz(method, "POST") : str_eqz(method, "GET") || str_eqz(method, "HEAD");
    struct str media;
    if (!right) {
        http_set_header(r, "allow", post ? STR("POST") : STR("GET, HEAD"));
        openai_error_set(&e, 405, "invalid_request_error", "", "method_not_allowed",
                         "this path takes %s", post ? "POST" : "GET");
    } else if (post && coding.n && !str_ieq(coding, STR("identity"))) {
        openai_error_set(&e, 415, "invalid_request_error", "", "unsupported_encoding",
                         "content-encoding is not supported: send the body as it is");
    } else if (post && type.n && route != ROUTE_KV_BLOCKS &&
               (!str_next(&type, ';', &media) ||
                !str_ieq(str_trim(media), STR("application/json")))) {
        openai_error_set(&e, 415, "invalid_request_error", "", "unsupported_media_type",
                         "content-type: expected application/json");
    }
    if (e.status) server_refuse(s, r, &e);
    return !e.status;
}

static void no_such_path(struct server *s, struct http_req *r)
{
    struct openai_error e = {0};
    openai_error_set(&e, 404, "invalid_request_error", "", "not_found", "no such path here");
    server_refuse(s, r, &e);
}

static void shutting_down(struct server *s, struct http_req *r)
{
    struct openai_error e = {0};
    openai_error_set(&e, 503, "server_error", "", "unavailable", "the server is shutting down");
    server_refuse(s, r, &e);
}

static void on_request(void *arg, struct http_req *r)
{
    struct server *s = arg;
    bool post;
    struct str rest;
    mark_id(s, r);
    if (s->ended) { /* its connection was there before */
        shutting_down(s, r);
        return;
    }
    enum route route = find_route(http_req_path(r), &post, &rest);
    if (route == ROUTE_NONE || (route == ROUTE_EMBEDDING && !s->encoder)) {
        no_such_path(s, r);
        return;
    }
    if (!check_form(s, r, route, post)) return;
    switch (route) {
    case ROUTE_CHAT:
        exchange_start(s, r, OPENAI_CHAT);
        return;
    case ROUTE_COMPLETION:
        exchange_start(s, r, OPENAI_COMPLETION);
        return;
    case ROUTE_EMBEDDING:
        exchange_start(s, r, OPENAI_EMBEDDING);
        return;
    case ROUTE_MODELS:
        ops_models(s, r, rest);
        return;
    case ROUTE_HEALTH:
        ops_health(s, r);
        return;
    case ROUTE_READY:
        ops_ready(s, r);
        return;
    case ROUTE_METRICS:
        ops_metrics(s, r);
        return;
    case ROUTE_TOKENIZE:
        ops_tokenize(s, r);
        return;
    case ROUTE_DETOKENIZE:
        ops_detokenize(s, r);
        return;
    case ROUTE_KV_PREFIX:
        kv_prefix(s, r);
        return;
    case ROUTE_KV_TOKENIZER:
        kv_tokenizer(s, r);
        return;
    case ROUTE_KV_EVENTS:
        kv_events(s, r);
        return;
    case ROUTE_KV_BLOCKS:
        give_start(s, r);
        return;
    case ROUTE_NONE:
        return;
    }
}

/* ---- test generations ---- */
static bool went_well(const struct engine_end *end)
{
    return end->finish == ENGINE_STOP || end->finish == ENGINE_LENGTH;
}

/* Step thread. */
static void warm_end(void *arg, const struct engine_end *end)
{
    struct server *s = arg;
    if (!went_well(end)) return;
    s->warm = true;
    log_info("engine", "warm: ready to serve");
}

/* Step thread. */
static void probe_end(void *arg, const struct engine_end *end)
{
    struct server *s = arg;
    s->probe_failed = !went_well(end);
    s->probing = false;
}

static enum err generate(struct server *s, int n_tokens,
                         void (*on_end)(void *arg, const struct engine_end *end), struct errmsg *e)
{
    int32_t prompt[WARM_PROMPT] = {0};
    uint64_t id;
    int max_len = engine_max_len(s->engine), n = max_len > WARM_PROMPT ? WARM_PROMPT : 1;
    struct engine_submit_options o = {.prompt = prompt,
                                      .n_prompt = n,
                                      .n = 1,
                                      .max_tokens = n_tokens,
                                      .sampling = sampler_params_default(),
                                      .ignore_end = true,
                                      .salt = {~(uint64_t)0, 0},
                                      .on_end = on_end,
                                      .arg = s};
    return engine_submit(s->engine, &o, &id, e);
}

/* While clients ask, their answers show that the engine works; without any, one token now and then does. */
static void probe_when_idle(struct server *s, uint64_t now_ms)
{
    struct engine_stats st;
    struct errmsg e = {0};
    if (!s->o->warm_up || !s->o->probe_idle_ms || !s->warm || s->probing || s->draining) return;
    engine_stats(s->engine, &st);
    if (st.running || st.waiting || now_ms - st.last_success_ms < (uint64_t)s->o->probe_idle_ms)
        return;
    s->probing = true;
    if (generate(s, 1, probe_end, &e) == OK) return;
    s->probing = false;
    s->probe_failed = true;
    log_limited(LOG_WARN, "engine", "the test generation was refused: %s", e.text);
}

static void warn_when_stuck(struct server *s)
{
    struct engine_stats st;
    engine_stats(s->engine, &st);
    bool stuck = st.step_age_ms > SERVER_STUCK_MS;
    if (stuck && !s->stuck)
        log_error("engine", "stuck: no step has ended for %llu ms while %d choices run and %d wait",
                  (unsigned long long)st.step_age_ms, st.running, st.waiting);
    if (!stuck && s->stuck) log_info("engine", "steps end again");
    s->stuck = stuck;
}

/* ---- time ---- */
/* Comments keep silent streams alive, whatever the engine does; events whose post was refused are
 * run here. */
static void on_tick(void *arg)
{
    struct server *s = arg;
    uint64_t now = clock_ms();
    server_drain_events(s);
    gives_run(s);
    for (struct exchange *x = s->exchanges; x; x = x->next) {
        if (!x->streaming || !x->http || x->blocked || now - x->last_write_ms < SERVER_PING_MS)
            continue;
        http_write(x->http, STR(": ping\n\n"));
        x->last_write_ms = now;
    }
    kv_tick(s);
    const char *lost = engine_lost(s->engine);
    if (lost && s->o->on_lost && !s->told_lost) {
        s->told_lost = true;
        s->o->on_lost(s->o->on_lost_arg, lost);
    }
    warn_when_stuck(s);
    probe_when_idle(s, now);
    loop_timer_arm(s->tick, SERVER_TICK_MS);
}

static enum err warm_up(struct server *s, struct errmsg *e)
{
    if (s->o->warm_up) return generate(s, WARM_TOKENS, warm_end, e);
    s->warm = true;
    return OK;
}

/* ---- life ---- */
static void name_of(const char *wanted, const char *path, char *out, size_t cap)
{
    const char *base = strrchr(path, '/');
    struct str name = str_of(*wanted ? wanted : base ? base + 1 : path);
    if (!*wanted && str_ends(name, STR(".gguf"))) name.n -= 5;
    if (name.n >= cap) name.n = cap - 1;
    memcpy(out, name.p, name.n);
    out[name.n] = 0;
}

static enum err open_text(struct server *s, struct errmsg *e)
{
    const struct gguf *g = engine_gguf(s->engine);
    enum err code = chat_reader_from_gguf(&s->tokenizer, &s->template, &s->text, g, e);
    if (code) return code;
    if (e->text[0]) log_warn("engine", "chat template: %s; /v1/chat/completions is off", e->text);
    for (int32_t id = 0; id < tokenizer_size(s->tokenizer); id++)
        if (tokenizer_is_end(s->tokenizer, id) && s->n_end_ids < ENGINE_END_IDS_MAX)
            s->end_ids[s->n_end_ids++] = id;
    if (!s->n_end_ids)
        log_warn("engine",
                 "the model names no end token: answers end at max_tokens or a stop string only");
    s->forms = forms_new(s);
    s->text.tools_in_words = forms_toolcall(s->forms) == TOOLCALL_GENERIC;
    return OK;
}

/* Step thread; steps begin with the first submission, when all is made. */
static void on_step(void *arg, int n_rows)
{
    metrics_step(arg, n_rows);
}

static enum err open_parts(struct server *s, struct errmsg *e)
{
    struct engine_options eo = s->o->engine;
    eo.on_step = on_step;
    eo.on_step_arg = s;
    eo.on_import_room = fetch_room;
    /* behind one gateway equal blocks have equal names */
    if (*s->o->gateway_key) eo.hash_seed = prefix_hash_seed(str_of(s->o->gateway_key));
    eo.announce = s->announce = announce_new(rng_entropy());
    enum err code = engine_open(&s->engine, &eo, e);
    if (!code) code = open_text(s, e);
    if (code) return code;
    if (*s->o->embed_model) {
        /* any text is embedded: what a vector of unknown pieces is worth is for the caller to judge
         */
        struct encoder_options co = {.n_threads = s->o->engine.n_threads,
                                     .isa = s->o->engine.isa,
                                     .exact = s->o->engine.exact,
                                     .unknown_share_max = 1};
        code = encoder_open(&s->encoder, s->o->embed_model, &co, e);
        if (code) return code;
        name_of("", s->o->embed_model, s->embed_name, sizeof s->embed_name);
    }
    name_of(s->o->served_model_name, s->o->engine.model_path, s->model_name, sizeof s->model_name);
    if (server_adapter(s, str_of(s->model_name)) || server_adapter(s, str_of(s->embed_name)))
        return err_set(e, ERR_INVALID, "option lora: an adapter is called like a model");
    s->workers = workers_new(2, WORK_QUEUE);
    s->embed_workers = workers_new(1, EMBED_QUEUE);
    s->metrics = metrics_new();
    server_metrics_new(s);
    if (s->o->role != ROLE_PREFILL && *s->o->gateway_key)
        s->client = http_client_new(s->loop, &(struct http_client_options){0});
    s->tick = loop_timer_new(s->loop, on_tick, s);
    loop_timer_arm(s->tick, SERVER_TICK_MS);
    struct httpd_options ho = {
        .host = s->o->host, .port = s->o->port, .body_max = (size_t)s->o->body_bytes_max};
    struct httpd_handler handler = {on_request, s};
    code = httpd_listen(&s->httpd, s->loop, &ho, &handler, e);
    return code ? code : warm_up(s, e);
}

enum err server_open(struct server **out, struct loop *l, const struct server_options *o,
                     struct errmsg *e)
{
    struct server *s = xcalloc(1, sizeof *s);
    s->loop = l;
    s->o = o;
    s->created_s = clock_wall_s();
    s->id_seed = rng_entropy();
    s->next_id = 1;
    buf_init(&s->scratch, 64 << 20);
    pthread_mutex_init(&s->lock, NULL);
    *out = NULL;
    enum err code = open_parts(s, e);
    if (code) {
        server_close(s);
        return code;
    }
    log_info("engine", "listening host=%s port=%d model=%s embed_model=%s", o->host,
             httpd_port(s->httpd), s->model_name, *s->embed_name ? s->embed_name : "none");
    *out = s;
    return OK;
}

void server_drain(struct server *s, void (*drained)(void *arg), void *arg)
{
    s->draining = true;
    kv_close(s); /* such a stream has no end of its own */
    httpd_drain(s->httpd, drained, arg);
}

void server_end_all(struct server *s)
{
    int n = 0;
    s->ended = true;
    for (struct exchange *x = s->exchanges, *next; x; x = next) {
        next = x->next;
        n += x->http != NULL;
        exchange_end(x);
    }
    if (n) log_warn("engine", "the time to drain is over: %d requests were told so", n);
}

/* Runs behind everything that workers and the step thread have posted: those still name the server
 * and its exchanges. */
static void free_server(void *arg)
{
    struct server *s = arg;
    server_drain_events(s);
    gives_run(s);
    encoder_close(s->encoder);
    chat_template_free(s->template);
    forms_free(s->forms);
    tokenizer_free(s->tokenizer);
    server_metrics_free(s->series);
    metrics_free(s->metrics);
    buf_fini(&s->scratch);
    pthread_mutex_destroy(&s->lock);
    announce_free(s->announce);
    mem_free(s);
}

void server_close(struct server *s)
{
    if (!s) return;
    httpd_close(s->httpd); /* each exchange hears that its client is gone */
    if (s->client) http_client_free(s->client);
    if (s->tick) loop_timer_free(s->tick);
    workers_free(s->workers);
    s->workers = NULL; /* exchanges that end later clean up themselves */
    workers_free(s->embed_workers);
    kv_close(s);
    engine_close(s->engine);
    s->engine = NULL;
    if (loop_post(s->loop, free_server, s) != OK) free_server(s);
}
