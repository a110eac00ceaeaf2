/* gateway_main.c - see gateway_main.h. Makes the parts in the order they need each other and frees them in the other. One event loop
 * thread serves everything; work over a millisecond runs on the workers or the embedder's own threads. */
#include "gateway/gateway_main.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/mem.h"
#include "embeddings/embedder.h"
#include "gateway/batches.h"
#include "gateway/call.h"
#include "gateway/counting.h"
#include "gateway/files_http.h"
#include "gateway/flight.h"
#include "gateway/join_table.h"
#include "gateway/judge.h"
#include "gateway/limits.h"
#include "gateway/near.h"
#include "gateway/pipeline.h"
#include "gateway/router.h"
#include "gateway/queue.h"
#include "gateway/secret.h"
#include "gateway/model_rules.h"
#include "gateway/series.h"
#include "gateway/shadow.h"
#include "gateway/store.h"
#include "gateway/text_file.h"
#include "gateway/tuning.h"

enum {
    LAST_COUNTS_MS = 500,
    LAST_BYTES_MS =
        1000, /* for clients to take what they are told when the time to drain is over */
    CANNED_BYTES_MAX = 64 * 1024,
    WORK_QUEUE_MAX = 1024,
    SECRET_WAIT_MS = 1000,
    EXIT_START = 1,
    EXIT_OPTIONS = 2,
    DESCRIPTORS_OTHER = 256
};

struct run {
    struct gateway gw;
    struct conf *conf;
    struct secret_wait *secret;
    struct loop_timer *drain_timer;
    int exit_status;
};

static void stop(void *arg)
{
    loop_stop(((struct run *)arg)->gw.loop);
}

static void settled(void *arg)
{
    counting_flush(((struct run *)arg)->gw.counting, LAST_COUNTS_MS, stop, arg);
}

static void batches_drained(void *arg)
{
    limits_flush(((struct run *)arg)->gw.limits, LAST_COUNTS_MS, settled, arg);
}

static void drained(void *arg)
{
    batches_drain(((struct run *)arg)->gw.batches, batches_drained, arg);
}

/* The time to drain is over, or the second signal came: who is left is told so, and has a moment to read it. */
static void end_all(void *arg)
{
    struct run *r = arg;
    if (r->gw.ending) return stop(r);
    r->gw.ending = true;
    if (r->gw.inflight)
        log_warn("gateway", "the time to drain is over: %d requests are told so", r->gw.inflight);
    loop_timer_arm(r->drain_timer, LAST_BYTES_MS);
    calls_refuse(&r->gw);
    flights_refuse(r->gw.flights);
}

static void on_signal(void *arg, int signo)
{
    struct run *r = arg;
    if (!r->gw.httpd) return stop(r); /* nothing to drain */
    if (r->gw.draining) return end_all(r);
    r->gw.draining = true;
    log_info("gateway", "%s: draining %d requests for at most %d ms",
             signo == SIGTERM ? "SIGTERM" : "SIGINT", r->gw.inflight, r->gw.o.drain_ms);
    loop_timer_arm(r->drain_timer, (uint64_t)r->gw.o.drain_ms);
    httpd_drain(r->gw.httpd, drained, r);
}

static enum err open_cache(struct gateway *gw, uint64_t secret, struct errmsg *e)
{
    const struct gateway_options *o = &gw->o;
    struct cache_options c = {.ns = o->ns,
                              .exact = o->cache_exact,
                              .semantic = o->cache_semantic,
                              .threshold = o->cache_threshold,
                              .max_temperature = o->cache_max_temperature,
                              .ttl_s = o->cache_ttl_s,
                              .stale_if_error_s = o->stale_if_error_s,
                              .entry_bytes_max = o->cache_entry_bytes_max,
                              .memory_bytes_max = o->cache_memory_bytes_max,
                              .entries_max = o->cache_entries_max,
                              .embed_deadline_ms = o->cache_embed_deadline_ms,
                              .redis_deadline_ms = o->cache_redis_deadline_ms,
                              .secret = secret,
                              .redis_url = gw->redis ? o->redis : NULL};
    return cache_open(&gw->cache, gw->loop, gw->redis, gw->embedder, gw->workers, gw->metrics, &c,
                      e);
}

static void on_request(void *arg, struct http_req *r)
{
    pipeline_start(arg, r);
}

/* Each connection is a descriptor, and so is what is asked upstream for it; some are for files and Redis. */
static int connections_max(const struct gateway_options *o)
{
    int wanted = o->connections_max + o->inflight_max + DESCRIPTORS_OTHER,
        got = descriptors_raise(wanted);
    if (got >= wanted) return o->connections_max;
    int most = got > 4 * DESCRIPTORS_OTHER ? got - got / 4 : got / 2;
    if (most >= o->connections_max) return o->connections_max;
    log_warn("gateway",
             "connections_max %d is lowered to %d: the system allows this process %d open files",
             o->connections_max, most, got);
    return most;
}

static enum err listen_now(struct gateway *gw, struct errmsg *e)
{
    const struct gateway_options *o = &gw->o;
    struct httpd_options h = {.host = o->host,
                              .port = o->port,
                              .connections_max = connections_max(o),
                              .body_max = o->body_bytes_max,
                              .body_max_of = files_body_max,
                              .body_max_arg = gw,
                              .idle_timeout_ms = o->client_idle_ms,
                              .write_timeout_ms = o->client_write_ms};
    struct httpd_handler handler = {on_request, gw};
    enum err code = httpd_listen(&gw->httpd, gw->loop, &h, &handler, e);
    if (code != OK) return code;
    gw->listening_ms = clock_ms();
    log_info("gateway", "listening host=%s port=%d upstreams=%d redis=%s semantic=%s keys=%zu",
             o->host, httpd_port(gw->httpd), upstreams_count(gw->upstreams),
             gw->redis ? "yes" : "no", gw->embedder ? "yes" : "no",
             gw->keys ? api_keys_count(gw->keys) : 0);
    return OK;
}

/* The last part of the start: needs the loop to run, because the secret may come from Redis. */
static void on_secret(void *arg, uint64_t secret)
{
    struct run *r = arg;
    struct errmsg e = {0};
    snprintf(r->gw.secret, sizeof r->gw.secret, "%016llx", (unsigned long long)secret);
    enum err code = open_cache(&r->gw, secret, &e);
    if (code == OK) r->gw.tuning = tuning_open(&r->gw);
    if (code == OK) r->gw.limits = limits_open(&r->gw);
    if (code == OK) r->gw.flights = flights_open(&r->gw);
    if (code == OK) r->gw.counting = counting_open(&r->gw);
    if (code == OK) r->gw.near = near_open(&r->gw);
    if (code == OK) code = judge_open(&r->gw.judge, &r->gw, &e);
    if (code == OK) r->gw.shadows = shadows_open(&r->gw);
    if (code == OK) code = store_open(&r->gw.store, &r->gw, &e);
    if (code == OK) r->gw.batches = batches_open(&r->gw);
    if (code == OK) code = listen_now(&r->gw, &e);
    if (code == OK) return;
    log_error("gateway", "cannot start: %s", e.text[0] ? e.text : err_text(code));
    r->exit_status = EXIT_START;
    loop_stop(r->gw.loop);
}

static enum err read_canned(struct gateway *gw, struct errmsg *e)
{
    struct buf text;
    if (!gw->o.canned_answer_file[0]) return OK;
    buf_init(&text, CANNED_BYTES_MAX);
    enum err code = text_file_read(&text, "canned_answer_file", gw->o.canned_answer_file, e);
    struct str trimmed = str_trim(buf_view(&text));
    if (code == OK && (!trimmed.n || !utf8_valid(trimmed)))
        code = err_set(e, ERR_INVALID, "canned_answer_file: expected text in UTF-8");
    if (code == OK) gw->canned = xstrndup(trimmed.p, trimmed.n);
    buf_fini(&text);
    return code;
}

static enum err open_parts(struct run *r, struct errmsg *e)
{
    struct gateway *gw = &r->gw;
    const struct gateway_options *o = &gw->o;
    enum err code = loop_new(&gw->loop, e);
    if (code != OK) return code;
    gw->started_ms = clock_ms();
    rng_seed(&gw->rng, rng_entropy());
    gw->workers = workers_new(o->workers, WORK_QUEUE_MAX);
    gw->metrics = metrics_new();
    gw->series = series_new(gw->metrics);
    gw->joins = join_table_new((size_t)o->inflight_max);
    r->drain_timer = loop_timer_new(gw->loop, end_all, r);
    if (o->api_keys[0]) code = api_keys_load(&gw->keys, o->api_keys, e);
    if (code == OK) code = read_canned(gw, e);
    if (code == OK) code = model_rules_new(&gw->rules, str_of(o->routes), str_of(o->fallbacks), e);
    struct redis_options redis = {.url = o->redis,
                                  .command_timeout_ms = o->cache_redis_deadline_ms};
    if (code == OK && o->redis[0]) code = redis_open(&gw->redis, gw->loop, &redis, e);
    struct embedder_options embed = {.deadline_ms = o->cache_embed_deadline_ms,
                                     .key = o->embed_key,
                                     .pair_net = o->embed_net[0] ? o->embed_net : NULL};
    if (code == OK && strcmp(o->embed_model, "none") && o->embed_model[0])
        code = embedder_open(&gw->embedder, o->embed_model, &embed, e);
    struct http_client_options client = {.idle_per_origin_max = 64,
                                         .ca_file = o->ca_file[0] ? o->ca_file : NULL};
    if (code != OK) return code;
    gw->client = http_client_new(gw->loop, &client);
    code = upstreams_open(&gw->upstreams, gw->loop, gw->client, o, gw->metrics, e);
    if (code == OK) code = router_open(&gw->router, gw, e);
    gw->queue = queue_open(gw);
    if (code == OK) code = loop_on_signal(gw->loop, SIGTERM, on_signal, r);
    if (code == OK) code = loop_on_signal(gw->loop, SIGINT, on_signal, r);
    return code;
}

static void close_parts(struct run *r)
{
    struct gateway *gw = &r->gw;
    if (gw->httpd) httpd_close(gw->httpd); /* every exchange ends here */
    batches_close(gw->batches);
    store_close(gw->store);
    shadows_close(gw->shadows);
    judge_close(gw->judge);
    calls_end(gw);
    if (gw->client) http_client_free(gw->client);
    router_close(gw->router);
    queue_close(gw->queue);
    upstreams_close(gw->upstreams);
    near_close(gw->near);
    counting_close(gw->counting);
    limits_close(gw->limits);
    tuning_close(gw->tuning);
    if (gw->cache) cache_close(gw->cache);
    if (gw->embedder) embedder_close(gw->embedder);
    if (gw->redis) redis_close(gw->redis);
    flights_close(gw->flights); /* after the last callback of Redis */
    secret_free(r->secret);
    loop_timer_free(r->drain_timer);
    api_keys_free(gw->keys);
    mem_free(gw->canned);
    model_rules_unref(gw->rules);
    if (gw->workers) workers_free(gw->workers);
    if (gw->loop) loop_free(gw->loop);
    join_table_free(gw->joins);
    series_free(gw->series);
    if (gw->metrics) metrics_free(gw->metrics);
}

static void write_out(const struct buf *text)
{
    for (size_t at = 0; at < text->n;) {
        ssize_t n = write(STDOUT_FILENO, text->p + at, text->n - at);
        if (n <= 0) return;
        at += (size_t)n;
    }
}

/* OK, ERR_CANCELLED after --help, otherwise an error to report. */
static enum err read_options(struct run *r, int argc, char **argv, struct errmsg *e)
{
    size_t n;
    enum log_level level;
    const struct conf_row *rows = gateway_option_rows(&n);
    r->conf = conf_new(rows, n);
    enum err code = conf_read_env(r->conf, e);
    if (code == OK) code = conf_read_args(r->conf, argc, argv, e);
    if (code == ERR_CANCELLED) {
        struct buf help;
        buf_init(&help, 256 * 1024);
        conf_help(r->conf, &help);
        write_out(&help);
        buf_fini(&help);
        return code;
    }
    if (code == OK) code = gateway_options_read(&r->gw.o, r->conf, e);
    if (code == OK && log_level_parse(r->gw.o.log_level, &level) == OK) log_set_level(level);
    return code;
}

int gateway_main(int argc, char **argv)
{
    struct run *r = xcalloc(1, sizeof *r);
    struct errmsg e = {0};
    enum err code = read_options(r, argc, argv, &e);
    signal(SIGPIPE,
           SIG_IGN); /* a broken connection is an error of its write, not the end of the process */
    if (code != OK) {
        if (code != ERR_CANCELLED) log_error("gateway", "%s", e.text);
        r->exit_status = code == ERR_CANCELLED ? 0 : EXIT_OPTIONS;
    } else if ((code = open_parts(r, &e)) != OK) {
        log_error("gateway", "cannot start: %s", e.text[0] ? e.text : err_text(code));
        r->exit_status = EXIT_START;
    } else {
        r->secret = secret_get(&r->gw, SECRET_WAIT_MS, on_secret, r);
        loop_run(r->gw.loop);
        log_info("gateway", "ended");
    }
    close_parts(r);
    conf_free(r->conf);
    int status = r->exit_status;
    mem_free(r);
    return status;
}
