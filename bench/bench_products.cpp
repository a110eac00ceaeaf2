/* bench_products.cpp - what rounding the products of long prompts costs: windows of a text through a model on the CPU in float32, then through the
 * emulated GPU (tests/cuda_emu) with the products named, and how far the second is off: perplexity, mean divergence (KL) and the largest and
 * mean difference of the log-probabilities of float32's five likeliest tokens. No speed is measured: kernels are emulated.
 *   bench_products MODEL.gguf TEXT_FILE WINDOWS PRODUCTS[:CALIBRATION_FILE].. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#pragma GCC diagnostic ignored "-Wshadow" /* C names a struct and a function alike */
extern "C" {
#include "engine/backend/device.h"
#include "engine/model/model.h"
#define template reader /* a parameter's name there */
#include "engine/model/tokenizer_load.h"
#undef template
#include "engine/text/tokenizer.h"
}
#include "engine/backend/cuda/device.h"

enum { WINDOW = 320, SCORED_FROM = 32, BLOCK = 16, TOP = 5, TEXT_MAX = 1 << 24 };
/* every row wants its logits, so that the head too is a large product */
enum { SCORED = WINDOW - 1 - SCORED_FROM };

static void fail(const char *what)
{
    fprintf(stderr, "bench_products: %s\n", what);
    exit(1);
}

static struct model *open_model(const char *path, const char *products)
{
    struct model *m = nullptr;
    struct errmsg e = {};
    struct model_options o = {};
    std::string kind = products ? products : "";
    size_t colon = kind.find(':');
    std::string file = colon == std::string::npos ? "" : kind.substr(colon + 1);
    kind = kind.substr(0, colon);
    o.block_tokens = BLOCK, o.n_blocks = WINDOW / BLOCK, o.max_batch_tokens = WINDOW;
    o.max_seqs = 1, o.exact = !products;
    if (products) o.device = "cuda", o.products = kind.c_str();
    if (!file.empty()) o.calibration = file.c_str();
    if (model_open(&m, path, &o, &e)) fail(e.text);
    return m;
}

static std::vector<int32_t> tokens_of(struct model *m, const char *path)
{
    std::string text;
    char piece[65536];
    struct tokenizer *t;
    struct errmsg e = {};
    FILE *f = fopen(path, "rb");
    if (!f) fail("the text cannot be read");
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        text.append(piece, n);
    fclose(f);
    if (tokenizer_from_gguf(&t, model_gguf(m), &e)) fail(e.text);
    struct token_list ids;
    token_list_init(&ids, TEXT_MAX);
    tokenizer_encode(t, {text.data(), text.size()}, 0, &ids);
    std::vector<int32_t> v(ids.ids, ids.ids + ids.n);
    token_list_fini(&ids);
    tokenizer_free(t);
    return v;
}

/* Log-probabilities [SCORED][n_vocab] of a window. */
static std::vector<float> said(struct model *m, const int32_t *token)
{
    int32_t pos[WINDOW], seq[WINDOW] = {0}, out[WINDOW], table[WINDOW / BLOCK];
    const int32_t *tables[] = {table};
    size_t n_vocab = (size_t)model_info(m)->n_vocab;
    for (int i = 0; i < WINDOW; i++)
        pos[i] = out[i] = i;
    for (int i = 0; i < WINDOW / BLOCK; i++)
        table[i] = i;
    struct model_batch b = {};
    b.n_rows = b.n_out = WINDOW, b.token = token, b.pos = pos, b.seq = seq, b.n_seqs = 1;
    b.block_table = tables, b.out_row = out;
    std::vector<float> logits(WINDOW * n_vocab);
    model_forward(m, &b, logits.data());
    logits.erase(logits.begin(), logits.begin() + (long)(SCORED_FROM * n_vocab));
    logits.resize(SCORED * n_vocab);
    for (size_t r = 0; r < SCORED; r++) {
        float *l = &logits[r * n_vocab], top = l[0];
        double total = 0;
        for (size_t v = 1; v < n_vocab; v++)
            top = fmaxf(top, l[v]);
        for (size_t v = 0; v < n_vocab; v++)
            total += exp((double)l[v] - top);
        float all = top + (float)log(total);
        for (size_t v = 0; v < n_vocab; v++)
            l[v] -= all;
    }
    return logits;
}

struct figures {
    double nll = 0, kl = 0, top_sum = 0, top_most = 0;
    size_t n = 0;
};

static void compare(const std::vector<float> &exact, const std::vector<float> &got,
                    const int32_t *token, size_t n_vocab, struct figures *f)
{
    for (size_t r = 0; r < SCORED; r++, f->n++) {
        const float *a = &exact[r * n_vocab], *b = &got[r * n_vocab];
        std::vector<char> taken(n_vocab);
        f->nll -= b[token[SCORED_FROM + r + 1]];
        for (size_t v = 0; v < n_vocab; v++)
            f->kl += exp((double)a[v]) * ((double)a[v] - b[v]);
        for (int k = 0; k < TOP; k++) {
            size_t best = n_vocab;
            for (size_t v = 0; v < n_vocab; v++)
                if (!taken[v] && (best == n_vocab || a[v] > a[best])) best = v;
            taken[best] = 1;
            double off = fabs((double)a[best] - b[best]);
            f->top_sum += off, f->top_most = fmax(f->top_most, off);
        }
    }
}

static void report(const char *name, const struct figures &f)
{
    double n = (double)f.n;
    printf(
        "{\"products\":\"%s\",\"perplexity\":%.4f,\"kl\":%.6f,\"top5_mean\":%.5f,\"top5_max\":%.4f,"
        "\"tokens\":%zu}\n",
        name, exp(f.nll / n), f.kl / n, f.top_sum / n / TOP, f.top_most, f.n);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 4) fail("MODEL.gguf TEXT_FILE WINDOWS PRODUCTS[:CALIBRATION_FILE]..");
    backend_register(&cuda_device);
    struct model *m = open_model(argv[1], nullptr);
    size_t n_vocab = (size_t)model_info(m)->n_vocab;
    auto ids = tokens_of(m, argv[2]);
    int windows = atoi(argv[3]), most = (int)(ids.size() / WINDOW);
    if (windows > most) windows = most;
    std::vector<std::vector<float>> exact;
    struct figures f32;
    for (int w = 0; w < windows; w++) {
        exact.push_back(said(m, &ids[(size_t)(w * WINDOW)]));
        compare(exact.back(), exact.back(), &ids[(size_t)(w * WINDOW)], n_vocab, &f32);
    }
    model_close(m);
    report("float32", f32);
    for (int i = 4; i < argc; i++) {
        struct figures f;
        m = open_model(argv[1], argv[i]);
        for (int w = 0; w < windows; w++)
            compare(exact[(size_t)w], said(m, &ids[(size_t)(w * WINDOW)]),
                    &ids[(size_t)(w * WINDOW)], n_vocab, &f);
        if (model_failure(m)) fail(model_failure(m));
        model_close(m);
        report(argv[i], f);
    }
    return 0;
}
