/* throughput.c - prompt and decode speed of a whole engine on a device, without HTTP: MODEL.gguf DEVICE N_PROMPT N_SAID N_SEQS... One JSON
 * object a line and number of sequences: best of ROUNDS rounds, the first of which only warms. Prompts share nothing, so that no prefix is
 * found again. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "tests/gpu/registered.h"

enum { ROUNDS = 4, SEQS_MAX = 256, LIMIT_MS = 120000 };

struct one {
    uint64_t first_us, last_us;
    int n;
};
static _Atomic int n_open;

static bool on_token(void *arg, const struct engine_token *t)
{
    struct one *o = arg;
    (void)t;
    o->last_us = clock_us();
    if (!o->n++) o->first_us = o->last_us;
    return true;
}
static void on_end(void *arg, const struct engine_end *end)
{
    (void)arg;
    if (end->finish == ENGINE_FAILED) fprintf(stderr, "throughput: %s\n", end->error);
    n_open--;
}

struct speed {
    double prompt, decode; /* tokens a second over all sequences */
};

static bool run_round(struct engine *g, const int ask[3], uint64_t salt, struct speed *best)
{
    struct one one[SEQS_MAX] = {{0}};
    int n_vocab = engine_model(g)->n_vocab, n_seqs = ask[0], n_prompt = ask[1];
    int32_t *prompt = xcalloc((size_t)n_prompt, sizeof *prompt);
    uint64_t id, start_us = clock_us(), first = 0, last = 0;
    struct errmsg e = {0};
    n_open = n_seqs;
    for (int i = 0; i < n_seqs; i++) {
        for (int k = 0; k < n_prompt; k++)
            prompt[k] = (int32_t)(((uint64_t)k * 7919 + (uint64_t)i * 104729 + salt * 611953) %
                                  (uint64_t)n_vocab);
        struct engine_submit_options o = {.prompt = prompt,
                                          .n_prompt = n_prompt,
                                          .n = 1,
                                          .max_tokens = ask[2],
                                          .sampling = sampler_params_default(),
                                          .ignore_end = true,
                                          .on_token = on_token,
                                          .on_end = on_end,
                                          .arg = &one[i]};
        if (engine_submit(g, &o, &id, &e)) {
            fprintf(stderr, "throughput: %s\n", e.text);
            n_open = 0;
            return false;
        }
    }
    mem_free(prompt);
    for (uint64_t until = clock_ms() + LIMIT_MS; n_open && clock_ms() < until;)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    int n = 0;
    for (int i = 0; i < n_seqs; i++) {
        n += one[i].n;
        if (one[i].first_us > first) first = one[i].first_us;
        if (one[i].last_us > last) last = one[i].last_us;
    }
    if (n_open || n != n_seqs * ask[2] || engine_lost(g)) return false;
    double prompt_rate = (double)n_seqs * n_prompt * 1e6 / (double)(first - start_us),
           decode_rate = (double)(n - n_seqs) * 1e6 / (double)(last - first);
    if (prompt_rate > best->prompt) best->prompt = prompt_rate;
    if (decode_rate > best->decode) best->decode = decode_rate;
    return true;
}

static void tell(struct engine *g, const int ask[3], bool ok, const struct speed *s)
{
    const struct model_info *m = engine_model(g);
    const char *graphs = getenv("DEJA_GPU_GRAPHS");
    printf("{\"model\":\"%s\",\"weight_bytes\":%llu,\"device\":\"%s\",\"device_model\":\"%s\","
           "\"graphs\":%s,\"sequences\":%d,\"prompt_tokens\":%d,\"said_tokens\":%d,\"ok\":%s,"
           "\"prompt_tokens_per_s\":%.1f,\"decode_tokens_per_s\":%.1f,\"step_ms\":%.3f}\n",
           m->name, (unsigned long long)m->weight_bytes, engine_device(g), engine_device_model(g),
           graphs && !strcmp(graphs, "no") ? "false" : "true", ask[0], ask[1], ask[2],
           ok ? "true" : "false", s->prompt, s->decode,
           s->decode > 0 ? ask[0] * 1e3 / s->decode : 0);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int n_prompt = argc > 5 ? atoi(argv[3]) : 0, n_said = argc > 5 ? atoi(argv[4]) : 0, most = 0;
    for (int i = 5; i < argc; i++) {
        if (atoi(argv[i]) > most) most = atoi(argv[i]);
        if (atoi(argv[i]) < 1) n_prompt = 0;
    }
    if (most < 1 || most > SEQS_MAX || n_prompt < 1 || n_said < 2) {
        fprintf(stderr, "usage: throughput MODEL.gguf DEVICE N_PROMPT N_SAID N_SEQS...\n");
        return 2;
    }
    struct engine_options o = {.model_path = argv[1],
                               .device = argv[2],
                               .max_num_seqs = most,
                               .max_num_batched_tokens = 2048,
                               .max_model_len = n_prompt + n_said + 16,
                               .step_target_ms = 10000};
    struct engine *g;
    struct errmsg e = {0};
    register_device();
    if (engine_open(&g, &o, &e)) {
        fprintf(stderr, "throughput: %s\n", e.text);
        return 1;
    }
    bool ok = true;
    for (int i = 5; i < argc && ok; i++) {
        int ask[3] = {atoi(argv[i]), n_prompt, n_said};
        struct speed warm = {0}, best = {0};
        for (int k = 0; k < ROUNDS && ok; k++)
            ok = run_round(g, ask, (uint64_t)(i * ROUNDS + k), k ? &best : &warm);
        tell(g, ask, ok, &best);
    }
    if (engine_lost(g)) fprintf(stderr, "throughput: %s\n", engine_lost(g));
    engine_close(g);
    return ok ? 0 : 1;
}
