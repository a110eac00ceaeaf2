/* bench_http.c - what one request costs in base/httpd: a server answering 1.2 KB of JSON to a 1 KB POST, driven by
 * `wrk` with 2 threads and 64 connections on the same machine. Prints requests a second and, because the load generator
 * competes for the cores, the server's own CPU time a request, which is the figure to compare.
 *
 *   bench_http [--threads N] [--seconds S] [--stream] [--json] [--serve PORT]
 *
 * --threads N   loops, each with its own listener (SO_REUSEPORT); default 1
 * --stream      the reply as 64 events of 180 bytes in 16 writes, instead
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
#include "base/httpd.h"
#include "base/mem.h"

enum { THREADS_MAX = 16, EVENTS = 64, WRITES = 16, EVENT_BYTES = 180, REPLY_BYTES = 1229, REQUEST_BYTES = 1024 };

extern char **environ;

struct server {
    struct loop *loop;
    struct httpd *httpd;
    pthread_t thread;
    uint64_t cpu_us, requests;
};

struct settings {
    int threads, seconds, port;
    bool stream, json, serve_only;
};

static char reply[REPLY_BYTES], event[EVENT_BYTES * EVENTS / WRITES];

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

static bool start(struct server *s, const struct settings *set, bool joins, int *port)
{
    struct errmsg e = {0};
    struct httpd_options o = {.port = *port, .reuse_port = set->threads > 1, .joins_port = joins};
    struct httpd_handler h = {set->stream ? answer_stream : answer_whole, s};
    if (loop_new(&s->loop, &e) || httpd_listen(&s->httpd, s->loop, &o, &h, &e)) {
        fprintf(stderr, "bench_http: %s\n", e.text);
        return false;
    }
    *port = httpd_port(s->httpd);
    return pthread_create(&s->thread, NULL, serve, s) == 0;
}

static void write_script(char path[64])
{
    memcpy(path, "/tmp/bench_http_XXXXXX", 23);
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) return;
    fprintf(f,
            "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", %d)\nwrk.headers[\"Content-Type\"] = "
            "\"application/json\"\n",
            REQUEST_BYTES);
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
        if (!strcmp(argv[i], "--stream"))
            set->stream = true;
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
    double rps = (double)requests * 1e6 / (double)wall_us, us = requests ? (double)cpu_us / (double)requests : 0;
    const char *what = set->stream ? "http_stream" : "http_json";
    if (set->json) {
        printf("{\"name\":\"%s_rps_%dt\",\"value\":%.0f,\"unit\":\"requests/s\"}\n", what, set->threads, rps);
        printf("{\"name\":\"%s_cpu_%dt\",\"value\":%.2f,\"unit\":\"us/request\"}\n", what, set->threads, us);
    } else {
        printf("%s, %d thread(s): %llu requests, %.0f a second, %.2f us of server CPU each\n", what, set->threads,
               (unsigned long long)requests, rps, us);
    }
}

int main(int argc, char **argv)
{
    struct settings set;
    if (!read_settings(argc, argv, &set)) {
        fprintf(stderr, "bench_http [--threads 1..16] [--seconds S] [--stream] [--json] [--serve PORT]\n");
        return 2;
    }
    memset(reply, ' ', sizeof reply);
    memcpy(reply, "{\"object\":\"chat.completion\",\"pad\":\"", 35);
    memcpy(reply + sizeof reply - 2, "\"}", 2);
    memset(event, 'e', sizeof event);
    static struct server servers[THREADS_MAX];
    int port = set.port;
    for (int i = 0; i < set.threads; i++)
        if (!start(&servers[i], &set, i > 0, &port)) return 1;
    fprintf(stderr, "serving on 127.0.0.1:%d\n", port);
    uint64_t start_us = clock_us();
    bool ran = true;
    if (set.serve_only)
        sleep((unsigned)set.seconds);
    else
        ran = run_wrk(port, set.seconds);
    uint64_t wall_us = clock_us() - start_us;
    for (int i = 0; i < set.threads; i++) {
        loop_stop(servers[i].loop);
        pthread_join(servers[i].thread, NULL);
        httpd_close(servers[i].httpd);
        loop_free(servers[i].loop);
    }
    if (ran) report(&set, servers, wall_us);
    if (!ran) fprintf(stderr, "bench_http: skipped, wrk could not be run\n");
    return ran ? 0 : 1;
}
