/* up_main.c - starts the children in order, asks the gateway until it is ready and has really answered, then watches; ends them in
 * the other order on TERM or INT. With --detach the first process waits for that answer and returns. */
#define _GNU_SOURCE
#include "up/up_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/http_client.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "up/up_key.h"
#include "up/up_plan.h"

enum {
    POLL_MS = 200,
    STOP_LIMIT_MS = 15000, /* of each part; the gateway's drain_ms is 10 s unless set */
    SAY_EVERY_MS = 2000,
    RESTARTS_MAX = 3,
    EXIT_OPTIONS = 2 /* of engine and gateway: the next start would end the same way */
};

struct up {
    struct up_plan plan;
    struct loop *loop;
    struct http_client *client;
    struct child *children[UP_CHILDREN];
    struct arena *text;
    struct loop_timer *poll, *stop_limit;
    struct child *ending; /* the one that was asked to; NULL = none yet */
    struct buf body;
    struct http_origin gateway;
    int status; /* of the last reply */
    enum { ASK_READY, ASK_MODELS, ASK_ANSWER } asking;
    char model[256]; /* the first one /v1/models lists */
    char key[UP_KEY_BYTES],
        key_table[UP_TABLE_BYTES]; /* "" = none; key_table is "" too where --api-key gave the key */
    bool ready, stopping;
    uint64_t started_ms, said_ms;
    int exit_status;
    int report_fd; /* --detach: the waiting parent reads this; -1 = none */
};

static void say(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void say(const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof text - 1) n = sizeof text - 1;
    if (n > 0 && write(STDOUT_FILENO, text, (size_t)n) < 0)
        return; /* nobody listens any more: not our failure */
}

/* --- ending: one part after the other, so that Redis is the last and is asked too */
static struct child *last_running(const struct up *u)
{
    for (int i = UP_CHILDREN - 1; i >= 0; i--)
        if (child_running(u->children[i])) return u->children[i];
    return NULL;
}

static void stop_next(struct up *u)
{
    struct child *c = last_running(u);
    if (!c) return loop_stop(u->loop);
    if (c == u->ending) return; /* it was another one that ended */
    u->ending = c;
    child_stop(c);
    loop_timer_arm(u->stop_limit, STOP_LIMIT_MS);
}

static void stop_hard(void *arg)
{
    struct up *u = arg;
    struct child *c = last_running(u);
    if (!c) return;
    say("%s has not ended by itself and is ended at once\n", child_name(c));
    child_kill(c);
}

static void stop_all(struct up *u, int exit_status)
{
    if (u->stopping) return;
    u->stopping = true;
    u->exit_status = exit_status;
    loop_timer_stop(u->poll);
    for (int i = 0; i < UP_CHILDREN; i++)
        child_keep_down(u->children[i]);
    stop_next(u);
}

static void give_up(struct up *u, const struct child *c)
{
    char words[300];
    child_last_words(c, words, sizeof words);
    say("deja up: %s does not start: %s\n", child_name(c), words);
    stop_all(u, 1);
}

static void part_ended(struct up *u, pid_t pid, int status)
{
    bool hopeless = !u->ready && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OPTIONS;
    for (int i = 0; i < UP_CHILDREN; i++) {
        if (!child_ended(u->children[i], pid, status, !hopeless)) continue;
        if (hopeless && !u->stopping) give_up(u, u->children[i]);
        return;
    }
}

static void on_signal(void *arg, int signo)
{
    struct up *u = arg;
    if (signo != SIGCHLD) {
        if (u->stopping && signo != SIGHUP) return stop_hard(u); /* asked again: no patience */
        if (!u->stopping) say("stopping\n");
        stop_all(u, u->ready ? 0 : 1);
        return;
    }
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        part_ended(u, pid, status);
    if (u->stopping) stop_next(u);
}

/* --- asking the gateway */
static void on_head(void *arg, const struct http_reply_head *head)
{
    ((struct up *)arg)->status = head->status;
}
static void on_body(void *arg, struct str bytes)
{
    buf_str(&((struct up *)arg)->body, bytes);
}

static void report_done(struct up *u, char outcome)
{
    if (u->report_fd < 0) return;
    int fd = u->report_fd;
    u->report_fd = -1;
    if (write(fd, &outcome, 1) < 0) log_warn("up", "nobody waits for the outcome");
    close(fd);
    char path[460];
    snprintf(path, sizeof path, "%s/up.log", u->plan.logs);
    int out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) return;
    dup2(out, 1);
    dup2(out, 2);
    close(out);
}

/* Not the key itself: what is printed here ends up in logs. */
static void say_key(const struct up *u)
{
    if (u->key_table[0])
        say("  DEJA_API_KEY=$(awk '!/^[ \\t]*#/ && NF { print $1; exit }' '%s')\n", u->key_table);
    else if (u->key[0])
        say("  DEJA_API_KEY=...   # the one of --api-key\n");
}

static void announce(struct up *u, struct str text)
{
    const char *host = u->plan.host;
    int port = u->plan.port;
    say("It answers: " STR_FMT "\n\nReady on http://%s:%d/v1 after %.1f s. Try:\n\n", STR_ARG(text),
        host, port, (double)(clock_ms() - u->started_ms) / 1000);
    say_key(u);
    say("  curl -i http://%s:%d/v1/chat/completions -H 'Content-Type: application/json' \\\n%s"
        "    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"How do I reset "
        "my password?\"}]}'\n\n"
        "Ask twice and look at x-deja-cache. Logs: %s\n",
        host, port, u->key[0] ? "    -H \"Authorization: Bearer $DEJA_API_KEY\" \\\n" : "",
        u->model, u->plan.logs);
    if (u->plan.own_redis)
        say("Its settings: redis-cli -s %s FCALL deja_help 0\n", u->plan.redis_socket);
    say(u->plan.detach ? "Stop it with: ./dev down --data %s\n" : "Stop it with Ctrl-C. Data: %s\n",
        u->plan.data);
}

static json_t *reply_json(struct up *u)
{
    json_t *reply = NULL;
    struct errmsg e = {0};
    return json_parse(buf_view(&u->body), 0, &reply, &e) ? NULL : reply;
}

/* False: no model is listed yet. */
static bool take_model(struct up *u)
{
    json_t *reply = reply_json(u);
    struct str id = json_member_str(json_array_get(json_object_get(reply, "data"), 0), "id");
    bool found = id.n && id.n < sizeof u->model;
    if (found) snprintf(u->model, sizeof u->model, STR_FMT, STR_ARG(id));
    json_decref(reply);
    return found;
}

static void answered(struct up *u)
{
    json_t *reply = reply_json(u);
    json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    struct str text = json_member_str(json_object_get(choice, "message"), "content");
    if (u->status == 200 && text.p) {
        u->ready = true;
        announce(u, str_trim(text));
        report_done(u, 'y');
    } else {
        say("the gateway is ready but did not answer (status %d): %.300s\n", u->status,
            u->body.p ? u->body.p : "");
        stop_all(u, 1);
    }
    json_decref(reply);
}

/* A part that ended this often before the first answer will not come up by itself: a wrong option,
 * a broken file. */
static bool gave_up(struct up *u)
{
    for (int i = 0; i < UP_CHILDREN; i++) {
        if (!u->children[i] || child_restarts(u->children[i]) < RESTARTS_MAX) continue;
        give_up(u, u->children[i]);
        return true;
    }
    return false;
}

static void not_ready_yet(struct up *u)
{
    uint64_t now = clock_ms();
    if (gave_up(u)) return;
    int limit_s = (int)conf_int(u->plan.conf, "ready_s");
    if (now - u->started_ms > (uint64_t)limit_s * 1000) {
        say("not ready after %d s (--ready-s); the last words of each part:\n", limit_s);
        for (int i = 0; i < UP_CHILDREN; i++) {
            char words[300];
            if (!u->children[i]) continue;
            child_last_words(u->children[i], words, sizeof words);
            say("  %s: %s\n", child_name(u->children[i]), words);
        }
        stop_all(u, 1);
        return;
    }
    if (now - u->said_ms > SAY_EVERY_MS) {
        u->said_ms = now;
        say("  waiting for a real answer (%d s)\n", (int)((now - u->started_ms) / 1000));
    }
    loop_timer_arm(u->poll, POLL_MS);
}

static void ask(void *arg);

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct up *u = arg;
    (void)e;
    if (u->stopping || u->ready) return;
    bool good = !code && u->status == 200;
    if (!code && u->status == 401) {
        say("the gateway asks for an API key: give one of its table with --api-key\n");
        stop_all(u, 1);
    } else if (u->asking == ASK_ANSWER && !code) {
        answered(u);
    } else if (u->asking == ASK_READY && good) {
        u->asking = ASK_MODELS;
        ask(u);
    } else if (u->asking == ASK_MODELS && good && take_model(u)) {
        u->asking = ASK_ANSWER;
        ask(u);
    } else {
        u->asking = ASK_READY;
        not_ready_yet(u);
    }
}

static void ask(void *arg)
{
    struct up *u = arg;
    char bearer[UP_KEY_BYTES + 8];
    snprintf(bearer, sizeof bearer, "Bearer %s", u->key);
    const struct http_header headers[] = {{STR("content-type"), STR("application/json")},
                                          {STR("x-deja-cache"), STR("bypass")},
                                          {STR("authorization"), str_of(bearer)}};
    struct http_call_options o = {.origin = &u->gateway,
                                  .method = "GET",
                                  .path = "/ready",
                                  .headers = headers,
                                  .n_headers = u->key[0] ? 3 : 2,
                                  .first_byte_timeout_ms = 5000};
    struct buf question;
    buf_init(&question, 4096);
    if (u->asking == ASK_MODELS) o.path = "/v1/models";
    if (u->asking == ASK_ANSWER) {
        buf_z(&question, "{\"messages\":[{\"role\":\"user\",\"content\":\"Say hello in one short "
                         "sentence.\"}],\"max_tokens\":16,"
                         "\"temperature\":0,\"model\":");
        json_write_string(&question, str_of(u->model));
        buf_char(&question, '}');
        o = (struct http_call_options){.origin = &u->gateway,
                                       .method = "POST",
                                       .path = "/v1/chat/completions",
                                       .headers = headers,
                                       .n_headers = u->key[0] ? 3 : 2,
                                       .body = buf_view(&question),
                                       .first_byte_timeout_ms = 60000};
    }
    buf_clear(&u->body);
    u->status = 0;
    http_call(u->client, &o, &(struct http_call_handler){on_head, on_body, on_done, u});
    buf_fini(&question);
}

/* --- starting */
static enum err write_pid(const struct up *u, struct errmsg *e)
{
    int fd = open(u->plan.pid_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char text[16];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    if (fd >= 0) close(fd);
    return ok ? OK : err_set(e, ERR_IO, "cannot write %s: %s", u->plan.pid_path, strerror(errno));
}

static enum err start_children(struct up *u, struct errmsg *e)
{
    for (int i = 0; i < UP_CHILDREN; i++) {
        struct child_options o;
        if (!up_plan_child(&u->plan, i, &o, u->text)) continue;
        u->children[i] = child_new(u->loop, &o);
        enum err rc = child_start(u->children[i], e);
        if (rc) return rc;
        say("  started %s\n", o.name);
    }
    return OK;
}

static enum err start(struct up *u, struct errmsg *e)
{
    enum err rc = loop_new(&u->loop, e);
    if (rc) return rc;
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 4; i++)
        if ((rc = loop_on_signal(u->loop, signals[i], on_signal, u)))
            return err_set(e, rc, "cannot watch signals");
    char url[100];
    snprintf(url, sizeof url, "http://%s:%d",
             strcmp(u->plan.host, "0.0.0.0") ? u->plan.host : "127.0.0.1", u->plan.port);
    rc = http_origin_parse(str_of(url), &u->gateway, e);
    if (rc) return rc;
    u->client = http_client_new(u->loop, &(struct http_client_options){0});
    u->poll = loop_timer_new(u->loop, ask, u);
    u->stop_limit = loop_timer_new(u->loop, stop_hard, u);
    rc = write_pid(u, e);
    return rc ? rc : start_children(u, e);
}

static void finish(struct up *u)
{
    for (int i = 0; i < UP_CHILDREN; i++)
        child_free(u->children[i]);
    if (u->client) http_client_free(u->client);
    if (u->poll) loop_timer_free(u->poll);
    if (u->stop_limit) loop_timer_free(u->stop_limit);
    if (u->loop) loop_free(u->loop);
    if (u->plan.lock_fd >= 0 && u->started_ms) unlink(u->plan.pid_path);
    buf_fini(&u->body);
    arena_free(u->text);
}

static void take_key(struct up *u)
{
    snprintf(u->key, sizeof u->key, "%s", conf_str(u->plan.conf, "api_key"));
    if (!u->key[0]) up_key_find(conf_str(u->plan.conf, "gateway_config"), u->key_table, u->key);
}

static int serve(struct up *u)
{
    struct errmsg e = {0};
    u->started_ms = clock_ms();
    u->exit_status = 1;
    u->text = arena_new(1 << 20);
    take_key(u);
    buf_init(&u->body, 1 << 20);
    if (start(u, &e)) {
        say("deja up: %s\n", e.text);
    } else {
        loop_timer_arm(u->poll, POLL_MS);
        loop_run(u->loop);
    }
    report_done(u, 'n');
    finish(u);
    return u->exit_status;
}

/* The first process of --detach: waits for the outcome while the second one prints. */
static int wait_outcome(int fd)
{
    char outcome = 'n';
    while (read(fd, &outcome, 1) < 0 && errno == EINTR) {
    }
    return outcome == 'y' ? 0 : 1;
}

static int detach(struct up *u)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC)) return say("deja up: no pipe: %s\n", strerror(errno)), 1;
    pid_t pid = fork();
    if (pid < 0) return say("deja up: cannot fork: %s\n", strerror(errno)), 1;
    if (pid) {
        close(fds[1]);
        return wait_outcome(fds[0]);
    }
    close(fds[0]);
    setsid();
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, 0);
    u->report_fd = fds[1];
    return serve(u);
}

/* Engine and gateway know each other by a key of this run; the environment, unlike arguments, is seen by this user alone. */
static void make_gateway_key(void)
{
    struct hash128 key = {rng_entropy(), rng_entropy()};
    char hex[33];
    hash_hex(key, hex);
    setenv("DEJA_GATEWAY_KEY", hex, false);
}

int up_main(int argc, char **argv)
{
    struct up u = {.report_fd = -1};
    struct errmsg e = {0};
    struct buf help;
    buf_init(&help, 1 << 16);
    int exit_status = 1;
    enum err rc = up_plan_read(&u.plan, argc, argv, &help, &e);
    if (rc == ERR_CANCELLED) {
        say("%s", help.p);
        exit_status = 0;
    } else if (rc || up_plan_prepare(&u.plan, &e)) {
        say("deja up: %s\n", e.text);
    } else {
        make_gateway_key();
        exit_status = u.plan.detach ? detach(&u) : serve(&u);
    }
    up_plan_fini(&u.plan);
    buf_fini(&help);
    return exit_status;
}
