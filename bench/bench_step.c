/* bench_step.c - what a step costs the host when a GPU computes: the whole engine on the CUDA backend in emulation with kernels left out:
 * what is left is planning, packing, launching and hearing. Processor time of the step thread, a step, in steady decoding, best and
 * median of ROUNDS. Launches cost what the emulation's queue costs, not what a driver's does; they are counted apart, with the packing.
 * tests/gpu/run.sh has it on a GPU, where launches are real and waiting for it is left out.
 *   bench_step MODEL.gguf [SEQS] [wait] [penalties] [lookup] */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/backend/cuda/device.h"
#include "engine/backend/device.h"
#include "engine/engine_private.h"

enum { ROUNDS = 5, SEQS_MAX = 256, PROMPT = 256, SAID = 200, CONTEXT = 512, BLOCK = 16 };

/* Steps of all sequences in a row, and processor time by what was done. */
struct count {
    int n_steps;
    double pack_us, wait_us, all_us;
};
static struct {
    struct model *model;
    int n_seqs, n_rows;
    double last_us;
    struct count now, longest; /* longest: of this round */
} b;
static _Atomic int n_open;

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void forward(void *arg, const struct model_batch *m, float *logits)
{
    double start = cpu_us();
    bool steady = m->n_rows == b.n_seqs && b.n_rows == b.n_seqs;
    if (steady) {
        b.now.all_us += start - b.last_us;
        b.now.n_steps++;
        if (b.now.n_steps > b.longest.n_steps) b.longest = b.now;
    } else {
        b.now = (struct count){0};
    }
    b.n_rows = m->n_rows;
    model_forward(arg, m, logits);
    b.last_us = start;
    b.now.pack_us += cpu_us() - start;
}

static enum err submit(void *arg, const struct sample_row *row, int n, struct errmsg *e)
{
    double start = cpu_us();
    enum err code = model_submit(arg, row, n, e);
    b.now.pack_us += cpu_us() - start;
    return code;
}

/* Kernels were left out, so nothing was picked. */
static enum err wait_picks(void *arg, struct sampler_pick_out *out, struct errmsg *e)
{
    static uint32_t state = 1;
    double start = cpu_us();
    enum err code = model_wait(arg, out, e);
    for (int i = 0; i < b.n_seqs; i++)
        out[i] = (struct sampler_pick_out){
            .token = (int32_t)((state = state * 1664525u + 1013904223u) >> 24)};
    b.now.wait_us += cpu_us() - start;
    return code;
}

static const char *failure(void *arg)
{
    return model_failure(arg);
}
static void copy_block(void *arg, int32_t dst, int32_t src, int n)
{
    model_kv_copy(arg, dst, src, n);
}

static bool on_token(void *arg, const struct engine_token *t)
{
    *(int *)arg += t->id;
    return true;
}
static void on_end(void *arg, const struct engine_end *end)
{
    (void)arg;
    if (end->finish == ENGINE_FAILED) fprintf(stderr, "bench_step: %s\n", end->error);
    n_open--;
}

static bool ask_all(struct engine *g, int round, bool penalties)
{
    static int sums[SEQS_MAX];
    int32_t prompt[PROMPT];
    struct errmsg e = {0};
    n_open = b.n_seqs;
    for (int i = 0; i < b.n_seqs; i++) {
        for (int k = 0; k < PROMPT; k++)
            prompt[k] = (k * 7919 + i * 104729 + round * 611953) % 300;
        struct sampler_params p = sampler_params_default();
        p.temperature = 1, p.top_p = 0.95f, p.seed = (uint64_t)i;
        if (penalties) p.repetition_penalty = 1.1f;
        struct engine_submit_options o = {.prompt = prompt,
                                          .n_prompt = PROMPT,
                                          .n = 1,
                                          .max_tokens = SAID,
                                          .sampling = p,
                                          .ignore_end = true,
                                          .on_token = on_token,
                                          .on_end = on_end,
                                          .arg = &sums[i]};
        uint64_t id;
        if (engine_submit(g, &o, &id, &e)) {
            fprintf(stderr, "bench_step: %s\n", e.text);
            return false;
        }
    }
    while (n_open)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return true;
}

static struct engine *open_engine(const char *path, bool waits, bool lookup)
{
    struct engine *g;
    struct errmsg e = {0};
    struct model_options mo = {.n_threads = 1,
                               .block_tokens = BLOCK,
                               .n_blocks = b.n_seqs * CONTEXT / BLOCK,
                               .max_batch_tokens = 2 * SEQS_MAX,
                               .max_seqs = b.n_seqs,
                               .context_max = CONTEXT,
                               .device = "cuda"};
    backend_register(&cuda_device);
    if (model_open(&b.model, path, &mo, &e)) {
        fprintf(stderr, "bench_step: %s\n", e.text);
        exit(1);
    }
    struct engine_forward f = {.arg = b.model,
                               .forward = forward,
                               .kv_copy = copy_block,
                               .block_bytes = model_kv_block_bytes(b.model),
                               .submit = submit,
                               .wait = wait_picks,
                               .failure = failure,
                               .n_vocab = model_info(b.model)->n_vocab};
    struct speculator_options so = {.n_max = 8, .branches = 1, .lookup = true};
    if (lookup) f.speculator = speculator_new(&so);
    struct engine_sizes s = {.n_blocks = mo.n_blocks,
                             .block_size = BLOCK,
                             .max_len = CONTEXT,
                             .max_num_seqs = b.n_seqs,
                             .max_batch = 2 * SEQS_MAX,
                             .queue_max = SEQS_MAX,
                             .draft_rows = lookup ? 32 : 0,
                             .prefix_caching = true,
                             .wait_each_step = waits};
    if (engine_open_with(&g, &f, &s, &e)) {
        fprintf(stderr, "bench_step: %s\n", e.text);
        exit(1);
    }
    return g;
}

static int by_all(const void *x, const void *y)
{
    const double *a = x, *c = y;
    return (a[0] > c[0]) - (a[0] < c[0]);
}

int main(int argc, char **argv)
{
    bool waits = false, penalties = false, lookup = false;
    b.n_seqs = SEQS_MAX;
    for (int i = 2; i < argc; i++) {
        if (atoi(argv[i]) > 0 && atoi(argv[i]) <= SEQS_MAX) b.n_seqs = atoi(argv[i]);
        waits |= !strcmp(argv[i], "wait");
        penalties |= !strcmp(argv[i], "penalties");
        lookup |= !strcmp(argv[i], "lookup");
    }
    if (argc < 2) {
        fprintf(stderr, "usage: bench_step MODEL.gguf [SEQS] [wait] [penalties] [lookup]\n");
        return 1;
    }
    setenv("CUDA_EMU_NO_KERNELS_RUN", "1", 1);
    struct engine *g = open_engine(argv[1], waits, lookup);
    double all[ROUNDS][3]; /* plan and hear, pack and launch, the emulation's own work */
    struct engine_stats st;
    int n_steps = 0;
    for (int r = 0; r < ROUNDS; r++) {
        if (!ask_all(g, r, penalties)) return 1;
        const struct count *c = &b.longest;
        double n = c->n_steps;
        all[r][0] = (c->all_us - c->wait_us) / n;
        all[r][1] = c->pack_us / n, all[r][2] = c->wait_us / n;
        n_steps = c->n_steps;
        b.longest = b.now = (struct count){0};
    }
    engine_stats(g, &st);
    qsort(all, ROUNDS, sizeof all[0], by_all);
    printf("{\"seqs\":%d,\"steps\":%d,\"ahead\":%.2f,\"host_us\":%.1f,\"host_us_median\":%.1f,"
           "\"of_it_pack_and_launch_us\":%.1f,\"emulation_us\":%.1f}\n",
           b.n_seqs, n_steps, (double)st.ahead_steps / (double)st.steps, all[0][0],
           all[ROUNDS / 2][0], all[0][1], all[0][2]);
    engine_close(g);
    model_close(b.model);
    return 0;
}
