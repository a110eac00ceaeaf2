/* engine_main.c - options, the loop, signals: `deja engine --model FILE.gguf`. SIGTERM and SIGINT
 * drain; a second one stops at once. */
#include "engine/engine_main.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/model/model_check.h"
#include "engine/server.h"

enum { EXIT_START = 1, EXIT_OPTIONS = 2 };

struct run {
    struct loop *loop;
    struct server *server;
    struct loop_timer *deadline;
    int drain_ms;
    bool stopping;
};

static void stop(void *arg)
{
    loop_stop(((struct run *)arg)->loop);
}

static void on_signal(void *arg, int signo)
{
    struct run *r = arg;
    if (r->stopping) {
        stop(r);
        return;
    }
    r->stopping = true;
    log_info("engine", "%s: draining for at most %d ms", signo == SIGTERM ? "SIGTERM" : "SIGINT",
             r->drain_ms);
    loop_timer_arm(r->deadline, (uint64_t)r->drain_ms);
    server_drain(r->server, stop, r);
}

static int check_file(const char *path)
{
    struct buf b;
    struct errmsg e = {0};
    buf_init(&b, 4096);
    enum err code = model_check(path, &b, &e);
    if (code)
        fprintf(stderr, "%s: %s\n", path, e.text);
    else
        fprintf(stdout, "%s: %.*s\n", path, (int)b.n, b.n ? b.p : "");
    buf_fini(&b);
    return code ? EXIT_START : 0;
}

static int complain(const struct errmsg *e, int status)
{
    fprintf(stderr, "deja engine: %s\n", e->text);
    return status;
}

static int serve(const struct server_options *o)
{
    struct run r = {.drain_ms = o->drain_ms};
    struct errmsg e = {0};
    if (loop_new(&r.loop, &e)) return complain(&e, EXIT_START);
    enum err code = server_open(&r.server, r.loop, o, &e);
    if (!code) {
        r.deadline = loop_timer_new(r.loop, stop, &r);
        if (loop_on_signal(r.loop, SIGTERM, on_signal, &r) ||
            loop_on_signal(r.loop, SIGINT, on_signal, &r))
            log_warn("engine", "signals cannot be handled: SIGTERM will not drain");
        loop_run(r.loop);
        loop_timer_free(r.deadline);
        server_close(r.server);
    }
    loop_free(r.loop);
    return code ? complain(&e, EXIT_START) : 0;
}

int engine_main(int argc, char **argv)
{
    struct conf *c = engine_conf_new();
    struct server_options o;
    struct errmsg e = {0};
    enum log_level level;
    int status;
    enum err code = conf_read_env(c, &e);
    if (!code) code = conf_read_args(c, argc, argv, &e);
    if (code == ERR_CANCELLED) {
        struct buf b;
        buf_init(&b, 1 << 20);
        conf_help(c, &b);
        fprintf(stdout, "deja engine --model FILE.gguf [options]\n\n%.*s", (int)b.n, b.p);
        buf_fini(&b);
        conf_free(c);
        return 0;
    }
    if (!code) code = server_options_read(c, &o, &e);
    if (!code && log_level_parse(o.log_level, &level))
        code = err_set(&e, ERR_INVALID, "option log_level: expected error, warn, info or debug");
    if (code) {
        status = complain(&e, EXIT_OPTIONS);
    } else {
        log_set_level(level);
        status = *o.check ? check_file(o.check) : serve(&o);
    }
    conf_free(c);
    return status;
}
