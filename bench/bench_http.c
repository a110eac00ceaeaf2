/* bench_http.c - what a request costs in base/httpd and base/http_client. A server on this machine is driven by `wrk` with 2
 * threads and 64 connections; because the load generator competes for the cores, the figure to compare is the CPU time a
 * request of the thread under test, not the requests a second.
 *
 *   bench_http [--json-reply | --stream | --relay] [--threads N] [--seconds S] [--json] [--serve PORT]
 *
 * --json-reply  (default) 1 KB POST, 1.2 KB of JSON back
 * --stream      the reply as 64 events of 180 bytes in 16 writes of one turn
 * --relay       the same stream from an upstream that writes 16 times in 16 turns, passed through by a proxy thread over
 *               kept-alive connections with back-pressure; only the proxy's CPU is counted
 * --threads N   loops of the server under test, each with its own listener; default 1
 * --serve PORT  only serve, for a load generator of your own, until the seconds are over */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_client.h"
#include "base/httpd.h"
#include "base/mem.h"

enum {
    THREADS_MAX = 16,
    EVENTS = 64,
    WRITES = 16,
    EVENT_BYTES = 180,
    REPLY_BYTES = 1229,
    REQUEST_BYTES = 1024
};

extern char **environ;

enum kind { JSON_REPLY, STREAM, RELAY };
static const char *const kind_names[] = {"http_json", "http_stream", "http_relay"};

struct server {
    struct loop *loop;
    struct httpd *httpd;
    struct http_client *client; /* RELAY */
    struct http_origin upstream;
    pthread_t thread;
    uint64_t cpu_us, requests;
};

struct settings {
    enum kind kind;
    int threads, seconds, port;
    bool json, serve_only;
};

static char reply[REPLY_BYTES], event[EVENT_BYTES * EVENTS / WRITES];

/* --- handlers */

static void answer_whole(void *arg, struct http_req *r)
{
    (void)arg;
    http_send(r, 200, "application/json", (struct str){reply, sizeof reply});
}

static void answer_stream(void *arg, struct http_req *r)
{
    (void)arg;
    http_start(r, 200, "text/event-stream");
    for (int i = 0; i < WRITES; i++)
        http_write(r, (struct str){event, sizeof event});
    http_end(r);
}

struct paced {
    struct http_req *req;
    struct loop_timer *timer;
    int n;
};

static void paced_free(void *arg)
{
    struct paced *p = arg;
    loop_timer_free(p->timer);
    mem_free(p);
}

static void paced_write(void *arg)
{
    struct paced *p = arg;
    http_write(p->req, (struct str){event, sizeof event});
    if (++p->n < WRITES) {
        loop_timer_arm(p->timer, 0);
        return;
    }
    http_end(p->req);
    paced_free(p);
}

static void answer_paced(void *arg, struct http_req *r)
{
    struct server *s = arg;
    struct paced *p = xcalloc(1, sizeof *p);
    p->req = r;
    p->timer = loop_timer_new(s->loop, paced_write, p);
    http_req_on_gone(r, paced_free, p);
    http_start(r, 200, "text/event-stream");
    loop_timer_arm(p->timer, 0);
}

struct relay {
    struct http_req *req;
    struct http_call *call;
};

static void relay_head(void *arg, const struct http_reply_head *head)
{
    struct relay *x = arg;
    if (x->req) http_start(x->req, head->status, "text/event-stream");
}

static void relay_body(void *arg, struct str bytes)
{
    struct relay *x = arg;
    if (x->req && !http_write(x->req, bytes)) http_call_pause(x->call);
}

static void relay_done(void *arg, enum err code, const struct errmsg *e)
{
    (void)e;
    struct relay *x = arg;
    if (x->req && code)
        http_abort(x->req);
    else if (x->req)
        http_end(x->req);
    mem_free(x);
}

static void relay_gone(void *arg)
{
    struct relay *x = arg;
    x->req = NULL;
    http_call_cancel(x->call);
}

static void relay_writable(void *arg)
{
    http_call_resume(((struct relay *)arg)->call);
}

static void answer_relay(void *arg, struct http_req *r)
{
    struct server *s = arg;
    struct relay *x = xcalloc(1, sizeof *x);
    struct http_call_options o = {.origin = &s->upstream,
                                  .method = "POST",
                                  .path = "/v1/chat/completions",
                                  .body = http_req_body(r),
                                  .connect_timeout_ms = 5000,
                                  .retry_stale = true};
    struct http_call_handler h = {relay_head, relay_body, relay_done, x};
    x->req = r;
    x->call = http_call(s->client, &o, &h);
    http_req_on_gone(r, relay_gone, x);
    http_req_on_writable(r, relay_writable, x);
}

/* --- servers */

static void *serve(void *arg)
{
    struct server *s = arg;
    struct rusage used;
    loop_run(s->loop);
    getrusage(RUSAGE_THREAD, &used);
    s->cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000u +
                (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    s->requests = httpd_stats(s->httpd).requests;
    return NULL;
}

static bool start(struct server *s, struct httpd_options o,
                  void (*handler)(void *, struct http_req *), int *port)
{
    struct errmsg e = {0};
    struct httpd_handler h = {handler, s};
    o.port = *port;
    if (loop_new(&s->loop, &e) || httpd_listen(&s->httpd, s->loop, &o, &h, &e)) {
        fprintf(stderr, "bench_http: %s\n", e.text);
        return false;
    }
    *port = httpd_port(s->httpd);
    struct http_client_options client = {.idle_per_origin_max = 256};
    s->client = http_client_new(s->loop, &client);
    return true;
}

static void stop(struct server *s)
{
    loop_stop(s->loop);
    pthread_join(s->thread, NULL);
    httpd_close(s->httpd);
    http_client_free(s->client);
    loop_free(s->loop);
}

/* Servers under test, and the upstream of a relay as the last one. */
static bool start_all(const struct settings *set, struct server servers[THREADS_MAX + 1], int *port)
{
    static void (*const handlers[])(void *, struct http_req *) = {answer_whole, answer_stream,
                                                                  answer_relay};
    struct server *upstream = &servers[set->threads];
    int upstream_port = 0;
    if (set->kind == RELAY &&
        !start(upstream, (struct httpd_options){0}, answer_paced, &upstream_port))
        return false;
    for (int i = 0; i < set->threads; i++) {
        struct httpd_options o = {.reuse_port = set->threads > 1, .joins_port = i > 0};
        servers[i].upstream = (struct http_origin){.host = "127.0.0.1", .port = upstream_port};
        if (!start(&servers[i], o, handlers[set->kind], port)) return false;
    }
    int n = set->threads + (set->kind == RELAY);
    for (int i = 0; i < n; i++)
        if (pthread_create(&servers[i].thread, NULL, serve, &servers[i])) return false;
    return true;
}

/* --- the load */

static void write_script(char path[64])
{
    memcpy(path, "/tmp/bench_http_XXXXXX", 23);
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) return;
    fprintf(f, "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", %d)\n", REQUEST_BYTES);
    fclose(f);
}

/* False when wrk could not be run. Its own report goes to stderr. */
static bool run_wrk(int port, int seconds)
{
    char script[64], url[64], duration[16];
    write_script(script);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/chat/completions", port);
    snprintf(duration, sizeof duration, "-d%d", seconds);
    char *args[] = {"wrk", "-t2", "-c64", duration, "--latency", "-s", script, url, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t child;
    int failed = posix_spawnp(&child, "wrk", &actions, NULL, args, environ), status = 1;
    posix_spawn_file_actions_destroy(&actions);
    if (!failed)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            continue;
    unlink(script);
    return !failed && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool read_settings(int argc, char **argv, struct settings *set)
{
    *set = (struct settings){.threads = 1, .seconds = 5};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--json-reply"))
            set->kind = JSON_REPLY;
        else if (!strcmp(argv[i], "--stream"))
            set->kind = STREAM;
        else if (!strcmp(argv[i], "--relay"))
            set->kind = RELAY;
        else if (!strcmp(argv[i], "--json"))
            set->json = true;
        else if (!strcmp(argv[i], "--threads") && more)
            set->threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && more)
            set->seconds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--serve") && more)
            set->port = atoi(argv[++i]), set->serve_only = true;
        else
            return false;
    }
    return set->threads >= 1 && set->threads <= THREADS_MAX && set->seconds >= 1;
}

static void report(const struct settings *set, const struct server *servers, uint64_t wall_us)
{
    uint64_t requests = 0, cpu_us = 0;
    for (int i = 0; i < set->threads; i++) {
        requests += servers[i].requests;
        cpu_us += servers[i].cpu_us;
    }
    double rps = (double)requests * 1e6 / (double)wall_us,
           us = requests ? (double)cpu_us / (double)requests : 0;
    const char *what = kind_names[set->kind];
    if (set->json) {
        printf("{\"name\":\"%s_rps_%dt\",\"value\":%.0f,\"unit\":\"requests/s\"}\n", what,
               set->threads, rps);
        printf("{\"name\":\"%s_cpu_%dt\",\"value\":%.2f,\"unit\":\"us/request\"}\n", what,
               set->threads, us);
    } else {
        printf("%s, %d thread(s): %llu requests, %.0f a second, %.2f us of CPU each\n", what,
               set->threads, (unsigned long long)requests, rps, us);
    }
}

int main(int argc, char **argv)
{
    struct settings set;
    if (!read_settings(argc, argv, &set)) {
        fprintf(stderr, "bench_http [--json-reply | --stream | --relay] [--threads 1..16] "
                        "[--seconds S] [--json] "
                        "[--serve PORT]\n");
        return 2;
    }
    memset(reply, ' ', sizeof reply);
    memcpy(reply, "{\"object\":\"chat.completion\",\"pad\":\"", 35);
    memcpy(reply + sizeof reply - 2, "\"}", 2);
    memset(event, 'e', sizeof event);
    static struct server servers[THREADS_MAX + 1];
    int port = set.port;
    if (!start_all(&set, servers, &port)) return 1;
    fprintf(stderr, "serving on 127.0.0.1:%d\n", port);
    uint64_t start_us = clock_us();
    bool ran = true;
    if (set.serve_only)
        sleep((unsigned)set.seconds);
    else
        ran = run_wrk(port, set.seconds);
    uint64_t wall_us = clock_us() - start_us;
    for (int i = 0; i < set.threads + (set.kind == RELAY); i++)
        stop(&servers[i]);
    if (ran) report(&set, servers, wall_us);
    if (!ran) fprintf(stderr, "bench_http: skipped, wrk could not be run\n");
    return ran ? 0 : 1;
}
