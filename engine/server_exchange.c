/* server_exchange.c - life of one request: parse, prepare (perhaps on a worker), submit, answer as events come, let go. A client that
 * leaves cancels its work in the engine at once, streaming or not. One that reads a stream more slowly than it is made loses nothing: what
 * it has no room for is held, at most the rest of the answer, until it reads on or has read nothing for httpd's write_timeout. */
#include <stdio.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/server.h"

static void link_in(struct exchange *x)
{
    struct server *s = x->server;
    x->next = s->exchanges;
    if (x->next) x->next->prev = x;
    s->exchanges = x;
    s->n_exchanges++;
}

static void fini_run(void *arg)
{
    openai_request_fini(arg);
}

static void fini_done(void *arg, bool cancelled)
{
    if (cancelled) openai_request_fini(arg);
    mem_free(arg);
}

/* The values of a long body are many: taking them apart is a worker's, too. */
static void discard_request(struct exchange *x)
{
    struct server *s = x->server;
    if (!x->has_request) return;
    if (x->long_body && s->workers) {
        struct openai_request *r = xmalloc(sizeof *r);
        *r = x->request;
        if (workers_submit(s->workers, s->loop, fini_run, fini_done, r) == OK) return;
        mem_free(r);
    }
    openai_request_fini(&x->request);
}

static void free_exchange(struct exchange *x)
{
    struct server *s = x->server;
    if (x->prev)
        x->prev->next = x->next;
    else
        s->exchanges = x->next;
    if (x->next) x->next->prev = x->prev;
    s->n_exchanges--;
    for (int i = 0; i < SERVER_CHOICES_MAX; i++) {
        stream_text_free(x->choices[i].assembler);
        buf_fini(&x->choices[i].piece);
        buf_fini(&x->choices[i].text);
        mem_free(x->choices[i].logged);
        calls_free(&x->choices[i]);
    }
    for (int i = 0; i < x->n_prompts; i++)
        token_list_fini(&x->prompts[i]);
    token_list_fini(&x->expected);
    grammar_unref(x->grammar);
    discard_request(x);
    buf_fini(&x->body);
    buf_fini(&x->reply);
    mem_free(x->vectors);
    mem_free(x->vector_status);
    mem_free(x->texts);
    mem_free(x);
}

void exchange_maybe_free(struct exchange *x)
{
    if (!x->http && !x->n_open && !x->on_worker && !x->fetch) free_exchange(x);
}

void exchange_finished(struct exchange *x)
{
    x->http = NULL;
}

void exchange_refuse(struct exchange *x)
{
    if (x->http && x->streaming)
        write_stream_tail(x);
    else if (x->http)
        server_refuse(x->server, x->http, &x->error);
    x->http = NULL;
}

static void cancel(struct exchange *x)
{
    for (int i = 0; i < x->n_prompts; i++)
        if (x->submissions[i].submitted) engine_cancel(x->server->engine, x->submissions[i].id);
}

static void run_held(struct exchange *x);
static void on_writable(void *arg);

static void on_gone(void *arg)
{
    struct exchange *x = arg;
    log_debug("engine", "client left id=%s", x->id);
    x->http = NULL;
    if (!x->on_worker)
        cancel(x); /* else nothing is in the engine yet, and the prompts are the worker's */
    fetch_cancel(x);
    run_held(x);
    exchange_maybe_free(x);
}

void exchange_end(struct exchange *x)
{
    struct openai_error e = {0}; /* a worker may be at x->error */
    openai_error_set(&e, 503, "server_error", "", "unavailable", "the server is shutting down");
    if (x->http && x->streaming) {
        x->error = e;
        write_stream_tail(x);
    } else if (x->http) {
        server_refuse(x->server, x->http, &e);
    }
    x->http = NULL;
    cancel(x);
    fetch_cancel(x);
    run_held(x);
    exchange_maybe_free(x);
}

static void submit_now(struct exchange *x)
{
    if (!x->http) return;
    if (x->error.status || !exchange_submit(x)) {
        exchange_refuse(x);
        return;
    }
    if (x->request.stream) write_stream_head(x);
    if (x->request.echo) write_echo(x);
}

void exchange_go_on(struct exchange *x)
{
    submit_now(x);
    exchange_maybe_free(x);
}

/* At once, or when what another engine computes of it has come. */
static void submit(struct exchange *x)
{
    if (x->http && !x->error.status && fetch_start(x)) return;
    submit_now(x);
}

/* Also picks the adapter of that name. */
static bool model_known(struct exchange *x)
{
    const struct server *s = x->server;
    const char *name = x->kind == OPENAI_EMBEDDING ? s->embed_name : s->model_name;
    if (*name && str_eqz(x->request.model, name)) return true;
    if (x->kind != OPENAI_EMBEDDING) x->adapter = server_adapter(s, x->request.model);
    return x->adapter > 0;
}

struct str exchange_model(const struct exchange *x)
{
    return x->adapter ? x->server->o->adapters[x->adapter - 1].name : str_of(x->server->model_name);
}

bool server_is_gateway(const struct server *s, const struct http_req *r)
{
    const char *key = s->o->gateway_key;
    return *key && equal_constant_time(http_req_header(r, "x-deja-key"), str_of(key));
}

/* The gateway's word on isolation and class; a client's own is worth nothing. */
static void read_trusted_headers(struct exchange *x)
{
    if (!server_is_gateway(x->server, x->http)) return;
    x->salt = prefix_hash_salt(http_req_header(x->http, "x-deja-salt"));
    x->priority = str_eqz(http_req_header(x->http, "x-deja-priority"), "batch");
    fetch_read_hint(x, http_req_header(x->http, "x-deja-prefill"));
}

/* Fills x->request, or x->error. Loop or worker; touches only the exchange and what is immutable. */
static void read_request(struct exchange *x, struct str body)
{
    const struct server *s = x->server;
    if (openai_parse(&x->request, x->kind, body, OPENAI_ENGINE, &x->error) != OK) {
        if (!x->error.status)
            openai_error_set(&x->error, 400, "invalid_request_error", "", "",
                             "the request cannot be read");
        return;
    }
    x->has_request = true;
    x->calls_on =
        x->kind == OPENAI_CHAT && x->request.tools && x->request.tool_choice != OPENAI_TOOLS_NONE;
    if (!model_known(x))
        openai_error_set(&x->error, 404, "invalid_request_error", "model", "model_not_found",
                         "no such model; this server has \"%s\"",
                         x->kind == OPENAI_EMBEDDING ? s->embed_name : s->model_name);
}

static void prepare_run(void *arg)
{
    struct exchange *x = arg;
    if (x->long_body) read_request(x, buf_view(&x->body));
    buf_fini(&x->body);
    if (!x->error.status && x->kind != OPENAI_EMBEDDING) prompt_prepare(x);
}

/* x->request is read, and its prompts are ids, or x->error says what is wrong. */
static void go_on_prepared(struct exchange *x)
{
    if (!x->http) return;
    if (x->error.status)
        exchange_refuse(x);
    else if (x->kind == OPENAI_EMBEDDING)
        embed_start(x);
    else
        submit(x);
}

static void prepare_done(void *arg, bool cancelled)
{
    struct exchange *x = arg;
    x->on_worker = false;
    if (cancelled)
        openai_error_set(&x->error, 503, "server_error", "", "unavailable",
                         "the server is shutting down");
    go_on_prepared(x);
    exchange_maybe_free(x);
}

/* On the loop when that is short, else on a worker. */
static void prepare(struct exchange *x)
{
    x->long_body = http_req_body(x->http).n > SERVER_INLINE_BYTES;
    if (x->long_body)
        x->body = http_req_take_body(x->http);
    else
        read_request(x, http_req_body(x->http));
    bool short_work =
        !x->long_body && (x->error.status || x->kind == OPENAI_EMBEDDING || !form_needed(x));
    if (short_work) {
        prepare_run(x);
        go_on_prepared(x);
        return;
    }
    x->on_worker = true;
    if (workers_submit(x->server->workers, x->server->loop, prepare_run, prepare_done, x) == OK)
        return;
    x->on_worker = false;
    openai_error_set(&x->error, 429, "rate_limit_error", "", "queue_full",
                     "too many long prompts are being read");
    exchange_refuse(x);
}

void exchange_start(struct server *s, struct http_req *r, enum openai_kind kind)
{
    struct exchange *x = xcalloc(1, sizeof *x);
    x->server = s;
    x->http = r;
    x->kind = kind;
    x->arrived_us = http_req_started_us(r);
    x->created_s = clock_wall_s();
    struct hash128 h =
        hash_bytes(s->id_seed, (struct str){(const char *)&s->next_id, sizeof s->next_id});
    s->next_id++;
    char hex[33];
    hash_hex(h, hex);
    snprintf(x->id, sizeof x->id, "%s-%s",
             kind == OPENAI_CHAT         ? "chatcmpl"
             : kind == OPENAI_COMPLETION ? "cmpl"
                                         : "embd",
             hex);
    link_in(x);
    http_req_on_gone(r, on_gone, x);
    http_req_on_writable(r, on_writable, x);
    read_trusted_headers(x);
    prepare(x);
    exchange_maybe_free(x);
}

static void take_token(struct exchange *x, struct token_event *ev)
{
    struct choice_out *c = &x->choices[ev->choice];
    if (!x->first_token_us) {
        x->first_token_us = ev->at_us;
        metrics_first_token(x, ev->at_us);
    }
    if (c->last_token_us) metrics_gap(x, ev->at_us - c->last_token_us);
    c->last_token_us = ev->at_us;
    if (x->http) write_token(x, ev);
}

static void take_end(struct exchange *x, struct token_event *ev)
{
    struct choice_out *c = &x->choices[ev->choice];
    c->ended = true;
    c->finish = ev->end.finish;
    x->n_open--;
    x->completion_tokens += ev->end.completion_tokens;
    x->drafted_tokens += ev->end.drafted_tokens;
    x->accepted_tokens += ev->end.accepted_tokens;
    if (!ev->end.choice) {
        x->prompt_tokens += ev->end.prompt_tokens;
        x->cached_tokens += ev->end.cached_tokens;
    }
    metrics_choice_end(x, finish_name(c->finish), ev);
    if (!x->http) return;
    if (c->finish == ENGINE_FAILED)
        openai_error_set(&x->error, 500, "server_error", "", "", "%s",
                         ev->end.error ? ev->end.error : "the engine failed");
    if (c->finish == ENGINE_CANCELLED)
        openai_error_set(&x->error, 503, "server_error", "", "unavailable",
                         "the server is shutting down");
    if (x->error.status) {
        exchange_refuse(x); /* the other choices end without a listener */
        cancel(x);
        return;
    }
    write_end(x, ev);
    if (x->n_open) return;
    if (x->streaming)
        write_stream_tail(x);
    else
        write_whole(x);
}

static void take(struct exchange *x, struct token_event *ev)
{
    if (ev->is_end)
        take_end(x, ev);
    else
        take_token(x, ev);
    mem_free(ev);
}

static void hold(struct exchange *x, struct token_event *ev)
{
    ev->next = NULL;
    *(x->held_first ? &x->held_last->next : &x->held_first) = ev;
    x->held_last = ev;
}

static bool must_wait(const struct exchange *x)
{
    return x->http && x->blocked;
}

static void run_held(struct exchange *x)
{
    while (x->held_first && !must_wait(x)) {
        struct token_event *ev = x->held_first;
        x->held_first = ev->next;
        take(x, ev);
    }
}

static void on_writable(void *arg)
{
    struct exchange *x = arg;
    x->blocked = false;
    run_held(x);
    exchange_maybe_free(x);
}

/* Runs everything that was delivered. */
static void drain_events(void *arg)
{
    struct server *s = arg;
    pthread_mutex_lock(&s->lock);
    struct token_event *ev = s->first;
    s->first = s->last = NULL;
    s->posted = false;
    pthread_mutex_unlock(&s->lock);
    for (struct token_event *next; ev; ev = next) {
        struct exchange *x = ev->exchange;
        bool last = ev->is_end;
        next = ev->next;
        if (must_wait(x)) {
            hold(x, ev);
            continue;
        }
        take(x, ev);
        if (last) exchange_maybe_free(x);
    }
}

void server_drain_events(struct server *s)
{
    drain_events(s);
}

void server_deliver(struct server *s, struct token_event *ev)
{
    pthread_mutex_lock(&s->lock);
    if (s->last)
        s->last->next = ev;
    else
        s->first = ev;
    s->last = ev;
    bool post = !s->posted;
    s->posted = true;
    /* refused only when the loop's post queue is full or it is being freed; the tick looks after
     * what is left */
    if (post && loop_post(s->loop, drain_events, s) != OK) s->posted = false;
    pthread_mutex_unlock(&s->lock);
}
