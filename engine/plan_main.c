/* plan_main.c - `deja plan --model FILE.gguf [the engine's options] [--memory BYTES] [--no-self-test] [--json]`. Exit status: 0 it fits,
 * 1 it does not or cannot be told, 2 wrong options. */
#include "engine/plan_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/options.h"
#include "engine/plan_probe.h"

enum { NO_FIT = 1, WRONG_OPTIONS = 2, ARGS_MAX = 256 };

struct ask {
    bool json, self_test;
    uint64_t memory_bytes; /* 0 = what the system says is available */
};

static uint64_t available_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib << 10;
}

/* Takes our own options out of argv; what is left is the engine's. */
static bool take_own(struct ask *ask, int *argc, char **argv, char **left)
{
    int n = 0;
    for (int i = 0; i < *argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            ask->json = true;
        } else if (!strcmp(argv[i], "--no-self-test")) {
            ask->self_test = false;
        } else if (!strcmp(argv[i], "--memory")) {
            char *end = NULL;
            ask->memory_bytes = i + 1 < *argc ? strtoull(argv[++i], &end, 10) : 0;
            if (!end || *end || !ask->memory_bytes) return false;
        } else {
            left[n++] = argv[i];
        }
    }
    *argc = n;
    return true;
}

static int answer(const struct ask *ask, const struct server_options *o)
{
    struct plan p;
    struct engine_place place;
    struct errmsg e = {0};
    struct engine_options with = o->engine;
    struct plan_machine machine = {.memory_bytes =
                                       ask->memory_bytes ? ask->memory_bytes : available_bytes()};
    enum err code = engine_place_choose(&place, &with, &e);
    if (!code) code = plan_of(&p, &with, &e);
    if (!code && ask->self_test && !p.device)
        code = plan_probe(&machine, o->engine.n_threads, o->engine.isa, &e);
    if (code) {
        fprintf(stderr, "deja plan: %s\n", e.text);
        return NO_FIT;
    }
    bool fits = p.total <= machine.memory_bytes;
    struct plan_way ways[PLAN_WAYS_MAX];
    struct buf b;
    buf_init(&b, 1 << 20);
    if (ask->json)
        plan_write_json(&p, &machine, &b);
    else
        plan_write_text(&p, &machine, ways, fits ? 0 : plan_ways(ways, &p, &with), &b);
    fprintf(stdout, "%.*s", (int)b.n, b.n ? b.p : "");
    buf_fini(&b);
    return fits ? 0 : NO_FIT;
}

int plan_main(int argc, char **argv)
{
    struct ask ask = {.self_test = true};
    char *left[ARGS_MAX + 1] = {0};
    if (argc > ARGS_MAX || !take_own(&ask, &argc, argv, left)) {
        fprintf(stderr, "deja plan: --memory needs a number of bytes\n");
        return WRONG_OPTIONS;
    }
    struct conf *c = engine_conf_new();
    struct server_options o;
    struct errmsg e = {0};
    enum err code = conf_read_env(c, &e);
    if (!code) code = conf_read_args(c, argc, left, &e);
    int status = WRONG_OPTIONS;
    if (code == ERR_CANCELLED) {
        fprintf(stdout, "deja plan --model FILE.gguf [options of deja engine] [--memory BYTES] "
                        "[--no-self-test] [--json]\ntells the memory such an engine will hold and "
                        "the speed this machine allows; nothing is loaded.\n");
        status = 0;
    } else if (code || (code = server_options_read(c, &o, &e))) {
        fprintf(stderr, "deja plan: %s\n", e.text);
    } else {
        status = answer(&ask, &o);
    }
    conf_free(c);
    return status;
}
