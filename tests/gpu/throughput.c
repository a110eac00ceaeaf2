/* throughput.c - prompt and decode speed of a whole engine on a device, without HTTP: MODEL.gguf DEVICE N_SEQS N_PROMPT N_SAID. One JSON
 * object: best of ROUNDS rounds, the first of which only warms. Prompts share nothing, so that no prefix is found again. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: throughput MODEL.gguf DEVICE N_SEQS N_PROMPT N_SAID\n");
        return 2;
    }
    int ask[3] = {atoi(argv[3]), atoi(argv[4]), atoi(argv[5])};
    struct engine_options o = {.model_path = argv[1],
                               .device = argv[2],
                               .max_num_seqs = ask[0],
                               .max_num_batched_tokens = 2048,
                               .max_model_len = ask[1] + ask[2] + 16,
                               .step_target_ms = 10000};
    struct engine *g;
    struct errmsg e = {0};
    register_device();
    if (ask[0] < 1 || ask[0] > SEQS_MAX || ask[1] < 1 || ask[2] < 2 || engine_open(&g, &o, &e)) {
        fprintf(stderr, "throughput: %s\n", e.text[0] ? e.text : "numbers out of range");
        return 1;
    }
    struct speed warm = {0}, best = {0};
    bool ok = run_round(g, ask, 0, &warm);
    for (int i = 1; i < ROUNDS && ok; i++)
        ok = run_round(g, ask, (uint64_t)i, &best);
    const struct model_info *m = engine_model(g);
    printf("{\"model\":\"%s\",\"weight_bytes\":%llu,\"device\":\"%s\",\"device_model\":\"%s\","
           "\"sequences\":%d,"
           "\"prompt_tokens\":%d,\"said_tokens\":%d,\"ok\":%s,\"prompt_tokens_per_s\":%.1f,"
           "\"decode_tokens_per_s\":%.1f}\n",
           m->name, (unsigned long long)m->weight_bytes, engine_device(g), engine_device_model(g),
           ask[0], ask[1], ask[2], ok ? "true" : "false", best.prompt, best.decode);
    engine_close(g);
    return ok ? 0 : 1;
}
