/* deja.c - main(): one program, one sub-command a room. Each sub-command reads its own options (`deja engine --help`). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cache/eval_main.h"
#include "cache/knobs.h"
#include "cache/library.h"
#ifdef DEJA_DEVICE
#include "engine/backend/device.h"
extern const struct device_ops DEJA_DEVICE;
#endif
#include "engine/engine_main.h"
#include "engine/plan_main.h"
#include "gateway/gateway_main.h"
#include "gateway/judge_main.h"
#include "gateway/seed_main.h"
#include "up/probe.h"
#include "up/up_main.h"

static int version_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    puts("deja " DEJA_VERSION);
    return 0;
}

/* `deja functions | redis-cli -x FUNCTION LOAD REPLACE` does what a gateway does when it connects. */
static int functions_main(int argc, char **argv)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    if (argc > 1 && !strcmp(argv[1], "--knobs"))
        knobs_write_markdown(&text);
    else
        library_write(&text);
    fwrite(text.p, 1, text.n, stdout);
    buf_fini(&text);
    return 0;
}

static int help_main(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name */
    const char *help;
} commands[] = {
    {"engine", engine_main, "serve a GGUF model as an OpenAI-compatible server"},
    {"plan", plan_main,
     "tell what memory and speed a model will need and have, without loading it"},
    {"gateway", gateway_main,
     "answer from the cache, or ask an upstream: an OpenAI-compatible proxy"},
    {"up", up_main, "start and watch a private redis-server, an engine and the gateway"},
    {"probe", probe_main, "ask one URL and end with 0 when it answers 2xx (for health checks)"},
    {"judge", judge_main,
     "ask a judge model about labelled pairs: how far its word can be trusted"},
    {"seed", seed_main, "load answers written by people: served before anything a model said"},
    {"eval", eval_main, "replay question files against a policy: hits, and how many were wrong"},
    {"explain", explain_main, "may the answer to one question be used for another, and why"},
    {"functions", functions_main,
     "print the Redis Functions as a gateway loads them; --knobs: what they may set, as a table"},
    {"version", version_main, "print the version"},
    {"help", help_main, "print this"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int help_main(int argc, char **argv)
{
    (void)argc, (void)argv;
    puts("usage: deja COMMAND [options]\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    puts("\n`deja COMMAND --help` lists its options.");
    return 0;
}

int main(int argc, char **argv)
{
    json_set_alloc_funcs(try_malloc, mem_free); /* many small blocks: they are kept for reuse */
#ifdef DEJA_DEVICE                              /* the accelerator this program was built with */
    backend_register(&DEJA_DEVICE);
#endif
    const char *name = argc > 1 ? argv[1] : "help";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return commands[i].run(argc - (argc > 1), argv + (argc > 1));
    fprintf(stderr, "deja: no command \"%s\"; `deja help` lists them\n", name);
    return 2;
}
