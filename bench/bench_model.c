/* bench_model.c - speed and perplexity of a whole model on the CPU, without server and scheduler: prompts of one sequence, then 1..N
 * sequences decoding together. One JSON object a line with a checksum of the logits, so that a faster wrong kernel shows;
 * bench_model.py orders the runs and puts them beside a peer. Shapes are those of llama-bench and llama-batched-bench.
 * Usage: bench_model FILE [--threads N] [--isa X] [--kv TYPE] [--prompt N]... [--decode SEQS]... [--tokens N] [--context N]
 *   [--repeat N] [--bandwidth] | FILE [...] --perplexity TEXT_FILE | FILE --load
 * --bandwidth: what the threads read a second from huge pages as large as the weights (400 MiB at most), before everything else;
 * --prompt N: a prompt of N tokens; --decode S: S sequences, --context tokens each at the start, --tokens steps. */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/model/model.h"
#include "engine/model/tokenizer_load.h"
#include "engine/text/tokenizer.h"

enum {
    BLOCK = 16,
    RUNS_MAX = 32,
    WINDOW = 512,
    WINDOW_SCORED_FROM = 256,
    TEXT_BYTES_MAX = 8 << 20
};

struct arguments {
    const char *file, *text;
    struct model_options model;
    int n_runs, tokens, context, repeat;
    struct {
        bool decode;
        int n;
    } run[RUNS_MAX];
    bool load, bandwidth;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_model: %s\n", what);
    exit(1);
}

static uint64_t checksum(uint64_t h, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        h = (h ^ u) * 1099511628211u;
    }
    return h;
}

/* One sequence's blocks are 0..; sequence s has blocks s * per_seq... */
struct runner {
    struct model *m;
    int n_vocab, per_seq;
    int32_t **table;
    float *logits;
};

static int32_t some_token(const struct runner *r, int i)
{
    return (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)r->n_vocab);
}

/* n tokens of sequence s from position pos on, in chunks; logits of the last one to r->logits. */
static void feed(struct runner *r, int s, int pos, int n, int chunk)
{
    int32_t token[WINDOW], at[WINDOW], seq[WINDOW] = {0};
    for (int done = 0, k; done < n; done += k) {
        k = n - done < chunk ? n - done : chunk;
        for (int i = 0; i < k; i++) {
            token[i] = some_token(r, s * 7919 + pos + done + i);
            at[i] = pos + done + i;
        }
        int32_t out = k - 1;
        const int32_t *tables[] = {r->table[s]};
        struct model_batch b = {.n_rows = k,
                                .token = token,
                                .pos = at,
                                .seq = seq,
                                .n_seqs = 1,
                                .block_table = tables,
                                .n_out = done + k == n,
                                .out_row = &out};
        model_forward(r->m, &b, r->logits);
    }
}

static void report(const char *kind, int n, int tokens, uint64_t us, uint64_t h)
{
    printf("{\"name\":\"%s %d\",\"tok_s\":%.2f,\"ms\":%.3f,\"checksum\":\"%016llx\"}\n", kind, n,
           tokens * 1e6 / (double)us, (double)us / 1e3, (unsigned long long)h);
    fflush(stdout);
}

static void run_prompt(struct runner *r, int n)
{
    uint64_t start = clock_us();
    feed(r, 0, 0, n, WINDOW);
    report("prefill", n, n, clock_us() - start, checksum(1, r->logits, (size_t)r->n_vocab));
}

static void run_decode(struct runner *r, const struct arguments *a, int n)
{
    int32_t *token = xcalloc((size_t)n, 4), *pos = xcalloc((size_t)n, 4),
            *seq = xcalloc((size_t)n, 4), *out = xcalloc((size_t)n, 4);
    uint64_t h = 1;
    for (int s = 0; s < n; s++) {
        if (a->context) feed(r, s, 0, a->context, WINDOW);
        seq[s] = out[s] = s;
    }
    uint64_t start = clock_us();
    for (int i = 0; i < a->tokens; i++) {
        for (int s = 0; s < n; s++) {
            token[s] = some_token(r, s * 7919 + a->context + i);
            pos[s] = a->context + i;
        }
        struct model_batch b = {.n_rows = n,
                                .token = token,
                                .pos = pos,
                                .seq = seq,
                                .n_seqs = n,
                                .block_table = (const int32_t *const *)r->table,
                                .n_out = n,
                                .out_row = out};
        model_forward(r->m, &b, r->logits);
    }
    uint64_t us = clock_us() - start;
    h = checksum(h, r->logits, (size_t)r->n_vocab * (size_t)n);
    report("decode", n, n * a->tokens, us, h);
    mem_free(token), mem_free(pos), mem_free(seq), mem_free(out);
}

/* ---- what memory gives ---- */
enum { READ_BYTES_MAX = 400 << 20, READERS_MAX = 64, READ_PASSES = 5 };
struct reader {
    pthread_t thread;
    const uint64_t *from;
    size_t n;
    volatile uint64_t sum;
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= r->n; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += r->from[i + (size_t)j];
    for (int j = 0; j < 8; j++)
        r->sum += sum[j];
    return NULL;
}

/* Best of a few passes, bytes a second over all threads. */
static void run_bandwidth(const struct model_info *info, int n_threads)
{
    size_t bytes = info->weight_bytes < READ_BYTES_MAX ? info->weight_bytes : READ_BYTES_MAX;
    int n = n_threads < 1 || n_threads > READERS_MAX ? 2 : n_threads;
    struct reader reader[READERS_MAX];
    size_t each = bytes / 8 / (size_t)n;
    uint64_t *p = mem_alloc_huge(bytes), best = UINT64_MAX;
    if (!p) fail("no memory to read");
    mem_touch(p, bytes);
    for (int pass = 0; pass < READ_PASSES; pass++) {
        uint64_t start = clock_us();
        for (int i = 0; i < n; i++) {
            reader[i] = (struct reader){.from = p + each * (size_t)i, .n = each};
            if (pthread_create(&reader[i].thread, NULL, read_all, &reader[i])) fail("no thread");
        }
        for (int i = 0; i < n; i++)
            pthread_join(reader[i].thread, NULL);
        uint64_t us = clock_us() - start;
        if (us < best) best = us;
    }
    printf("{\"name\":\"read\",\"gb_s\":%.2f,\"mib\":%zu,\"weight_bytes\":%zu}\n",
           (double)each * 8 * n / (double)best / 1e3, bytes >> 20, (size_t)info->weight_bytes);
    mem_free_huge(p, bytes);
}

/* Windows of 512 tokens without BOS; positions 256..510 of each predict the next one. */
static void run_perplexity(struct runner *r, const char *path)
{
    struct buf text;
    struct tokenizer *t;
    struct errmsg e = {0};
    char piece[65536];
    buf_init(&text, TEXT_BYTES_MAX);
    FILE *f = fopen(path, "rb");
    if (!f) fail("the text cannot be read");
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&text, piece, n);
    fclose(f);
    if (tokenizer_from_gguf(&t, model_gguf(r->m), &e)) fail(e.text);
    struct token_list ids;
    token_list_init(&ids, TEXT_BYTES_MAX);
    tokenizer_encode(t, buf_view(&text), 0, &ids);
    enum { SCORED = WINDOW - 1 - WINDOW_SCORED_FROM };
    float *logits = xcalloc((size_t)SCORED * (size_t)r->n_vocab, 4);
    int32_t pos[WINDOW], seq[WINDOW] = {0}, out[SCORED];
    for (int i = 0; i < WINDOW; i++)
        pos[i] = i;
    for (int i = 0; i < SCORED; i++)
        out[i] = WINDOW_SCORED_FROM + i;
    double sum = 0;
    int n = 0, windows = (int)(ids.n / WINDOW);
    for (int w = 0; w < windows; w++) {
        const int32_t *token = ids.ids + w * WINDOW, *tables[] = {r->table[0]};
        struct model_batch b = {.n_rows = WINDOW,
                                .token = token,
                                .pos = pos,
                                .seq = seq,
                                .n_seqs = 1,
                                .block_table = tables,
                                .n_out = SCORED,
                                .out_row = out};
        model_forward(r->m, &b, logits);
        for (int i = 0; i < SCORED; i++, n++) {
            const float *l = logits + (size_t)i * (size_t)r->n_vocab;
            double top = -INFINITY, total = 0;
            for (int v = 0; v < r->n_vocab; v++)
                top = fmax(top, l[v]);
            for (int v = 0; v < r->n_vocab; v++)
                total += exp(l[v] - top);
            sum += top + log(total) - l[token[out[i] + 1]];
        }
    }
    printf("{\"name\":\"perplexity\",\"value\":%.4f,\"windows\":%d,\"tokens\":%zu}\n", exp(sum / n),
           windows, ids.n);
    token_list_fini(&ids);
    tokenizer_free(t);
    buf_fini(&text);
    mem_free(logits);
}

static struct arguments parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"threads", 1, 0, 't'}, {"isa", 1, 0, 'i'},       {"kv", 1, 0, 'k'},
        {"prompt", 1, 0, 'p'},  {"decode", 1, 0, 'd'},    {"tokens", 1, 0, 'n'},
        {"context", 1, 0, 'c'}, {"repeat", 1, 0, 'r'},    {"perplexity", 1, 0, 'x'},
        {"load", 0, 0, 'l'},    {"bandwidth", 0, 0, 'b'}, {0}};
    struct arguments a = {.tokens = 64, .repeat = 1};
    struct errmsg e = {0};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == '?' || a.n_runs == RUNS_MAX) fail("see the head of bench_model.c");
        if (c == 't') a.model.n_threads = atoi(optarg);
        if (c == 'i') a.model.isa = optarg;
        if (c == 'k' && kv_type_parse(optarg, &a.model.kv_type, &e)) fail(e.text);
        if (c == 'p' || c == 'd') {
            a.run[a.n_runs].decode = c == 'd';
            a.run[a.n_runs++].n = atoi(optarg);
        }
        if (c == 'n') a.tokens = atoi(optarg);
        if (c == 'c') a.context = atoi(optarg);
        if (c == 'r') a.repeat = atoi(optarg);
        if (c == 'x') a.text = optarg;
        if (c == 'l') a.load = true;
        if (c == 'b') a.bandwidth = true;
    }
    if (optind + 1 != argc) fail("name one model file");
    a.file = argv[optind];
    return a;
}

int main(int argc, char **argv)
{
    struct arguments a = parse(argc, argv);
    struct errmsg e = {0};
    int seqs = 1, longest = WINDOW;
    for (int i = 0; i < a.n_runs; i++) {
        if (a.run[i].n < 1) fail("a run needs a size of 1 or more");
        if (a.run[i].decode && a.run[i].n > seqs) seqs = a.run[i].n;
        if (!a.run[i].decode && a.run[i].n > longest) longest = a.run[i].n;
    }
    if (a.context + a.tokens > longest) longest = a.context + a.tokens;
    struct runner r = {.per_seq = (longest + BLOCK - 1) / BLOCK};
    a.model.block_tokens = BLOCK;
    a.model.n_blocks = seqs * r.per_seq;
    a.model.max_seqs = seqs;
    a.model.max_batch_tokens = seqs > WINDOW ? seqs : WINDOW;
    uint64_t start = clock_us();
    if (model_open(&r.m, a.file, &a.model, &e)) fail(e.text);
    if (a.load) printf("{\"name\":\"load\",\"ms\":%.1f}\n", (double)(clock_us() - start) / 1e3);
    if (a.bandwidth) run_bandwidth(model_info(r.m), a.model.n_threads);
    r.n_vocab = model_info(r.m)->n_vocab;
    r.logits = xcalloc((size_t)seqs * (size_t)r.n_vocab, 4);
    r.table = xcalloc((size_t)seqs, sizeof *r.table);
    for (int s = 0; s < seqs; s++) {
        r.table[s] = xcalloc((size_t)r.per_seq, 4);
        for (int i = 0; i < r.per_seq; i++)
            r.table[s][i] = s * r.per_seq + i;
    }
    if (a.n_runs) feed(&r, 0, 0, 32, 32); /* warm up */
    for (int k = 0; k < a.repeat; k++)
        for (int i = 0; i < a.n_runs; i++)
            if (a.run[i].decode)
                run_decode(&r, &a, a.run[i].n);
            else
                run_prompt(&r, a.run[i].n);
    if (a.text) run_perplexity(&r, a.text);
    for (int s = 0; s < seqs; s++)
        mem_free(r.table[s]);
    mem_free(r.table), mem_free(r.logits);
    model_close(r.m);
    return 0;
}
