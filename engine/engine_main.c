/* engine_main.c - options, the loop, signals: `deja engine --model FILE.gguf`. SIGTERM and SIGINT drain: what runs and waits may end; who
 * is left when the time is over, or at a second signal, is told so. A third one stops at once. */
#include "engine/engine_main.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/model/calibrate.h"
#include "engine/model/model_check.h"
#include "engine/server.h"

enum {
    EXIT_START = 1,
    EXIT_OPTIONS = 2,
    LOST_DRAIN_MS = 5000,
    LAST_BYTES_MS = 1000 /* for clients to take what they are told at the end */
};

struct run {
    struct loop *loop;
    struct server *server;
    struct loop_timer *deadline;
    int drain_ms;
    bool stopping, ending; /* ending: whoever was left has been told */
    struct errmsg lost;    /* why the device is gone; text empty: it is not */
};

static void stop(void *arg)
{
    loop_stop(((struct run *)arg)->loop);
}

/* The time to drain is over. */
static void end_all(void *arg)
{
    struct run *r = arg;
    if (r->ending) {
        stop(r);
        return;
    }
    r->ending = true;
    loop_timer_arm(r->deadline, LAST_BYTES_MS);
    server_end_all(r->server); /* its drained callback follows when all have read it */
}

static void on_signal(void *arg, int signo)
{
    struct run *r = arg;
    if (r->stopping) {
        end_all(r);
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

static int measure_model(const struct server_options *o)
{
    struct calibrate_options c = {.model_path = o->engine.model_path,
                                  .text_path = o->calibrate,
                                  .isa = o->engine.isa,
                                  .n_threads = o->engine.n_threads};
    struct calibration *made;
    struct errmsg e = {0};
    enum err code = calibrate_model(&made, &c, &e);
    if (code) return complain(&e, EXIT_START);
    code = calibration_save(made, o->engine.gpu_calibration, &e);
    int moved = 0, all = 0;
    for (int p = 0; p <= calibration_head(&made->shape); p++) {
        all += calibration_width(&made->shape, p) > 0;
        moved += *calibration_a(made, p) > 0;
    }
    if (!code)
        fprintf(stdout, "%s: %llu tokens; %d of %d products gain by moving large channels\n",
                o->engine.gpu_calibration, (unsigned long long)made->n_tokens, moved, all);
    calibration_free(made);
    return code ? complain(&e, EXIT_START) : 0;
}

/* Loop. Whoever waits has been told by then; nothing that is sent now can be computed here any more. */
static void on_lost(void *arg, const char *why)
{
    struct run *r = arg;
    (void)err_set(&r->lost, ERR_UNAVAILABLE, "%s", why);
    if (r->stopping) return;
    loop_timer_arm(r->deadline, LOST_DRAIN_MS);
    server_drain(r->server, stop, r);
}

/* One server's life. After the loss of a device that "auto" found, *o says the CPU, at the same port. */
static enum err serve_once(struct run *r, struct server_options *o, struct errmsg *e)
{
    r->lost = (struct errmsg){0};
    r->ending = false;
    enum err code = server_open(&r->server, r->loop, o, e);
    if (code) return code;
    loop_run(r->loop);
    o->port = httpd_port(r->server->httpd);
    server_close(r->server);
    loop_timer_stop(r->deadline);
    if (!r->lost.text[0]) return OK;
    if (r->stopping || strcmp(o->engine.device, "auto")) {
        *e = r->lost;
        return ERR_UNAVAILABLE;
    }
    log_warn("engine", "device=auto: %s; starting anew on the CPU", r->lost.text);
    o->engine.device = "cpu";
    return OK;
}

static int serve(const struct server_options *from)
{
    struct server_options o = *from;
    struct run r = {.drain_ms = o.drain_ms};
    struct errmsg e = {0};
    enum err code;
    o.on_lost = on_lost;
    o.on_lost_arg = &r;
    if (loop_new(&r.loop, &e)) return complain(&e, EXIT_START);
    r.deadline = loop_timer_new(r.loop, end_all, &r);
    if (loop_on_signal(r.loop, SIGTERM, on_signal, &r) ||
        loop_on_signal(r.loop, SIGINT, on_signal, &r))
        log_warn("engine", "signals cannot be handled: SIGTERM will not drain");
    do
        code = serve_once(&r, &o, &e);
    while (!code && r.lost.text[0] && !r.stopping);
    loop_timer_free(r.deadline);
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
        status = *o.check ? check_file(o.check) : *o.calibrate ? measure_model(&o) : serve(&o);
    }
    conf_free(c);
    return status;
}
