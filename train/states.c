/* states.c - for the trainer: token states of a text after some layers of the shipped encoder, exactly as the product computes
 * them. Usage: verifier_states MODEL.gguf LAYER < TEXTS > STATES, one text a line. Each text gives u32 n (0 = refused), then i32
 * ids[n], f16 rows[n][dim] after LAYER layers, f32 vector[dim]; native byte order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/backend/quant.h"
#include "engine/model/encoder.h"

enum { BATCH = 64, LINE_MAX_BYTES = 1 << 16 };

struct kept {
    uint32_t n[BATCH];
    int32_t *ids[BATCH];
    uint16_t *rows[BATCH];
    size_t dim;
};

static void keep(void *arg, const struct encoder_pass *p)
{
    struct kept *k = arg;
    size_t at = 0;
    for (int s = 0; s < p->n_texts; s++) {
        int t = p->text_i[s];
        size_t n = (size_t)p->length[s];
        k->n[t] = (uint32_t)n;
        k->ids[t] = xmalloc(n * sizeof(int32_t));
        k->rows[t] = xmalloc(n * k->dim * sizeof(uint16_t));
        memcpy(k->ids[t], p->ids + at, n * sizeof(int32_t));
        for (size_t i = 0; i < n * k->dim; i++)
            k->rows[t][i] = f32_to_f16(p->rows[at * k->dim + i]);
        at += n;
    }
}

static void write_all(const void *bytes, size_t n)
{
    (void)fwrite(bytes, 1, n, stdout); /* a failure shows in ferror at the end */
}

static void run(struct encoder *enc, struct kept *k, const struct str *texts, int n, float *vectors)
{
    enum err status[BATCH];
    memset(k->n, 0, sizeof k->n);
    encoder_embed(enc, texts, n, vectors, status);
    for (int i = 0; i < n; i++) {
        write_all(&k->n[i], sizeof k->n[i]);
        if (!k->n[i]) continue;
        write_all(k->ids[i], k->n[i] * sizeof(int32_t));
        write_all(k->rows[i], k->n[i] * k->dim * sizeof(uint16_t));
        write_all(vectors + (size_t)i * k->dim, k->dim * sizeof(float));
        mem_free(k->ids[i]);
        mem_free(k->rows[i]);
    }
}

int main(int argc, char **argv)
{
    struct encoder *enc;
    struct encoder_options o = {.n_threads = 2};
    struct errmsg e = {0};
    struct kept k = {.dim = 0};
    struct str texts[BATCH];
    static char line[LINE_MAX_BYTES];
    int n = 0;
    if (argc != 3) return fprintf(stderr, "usage: verifier_states MODEL.gguf LAYER\n"), 2;
    if (encoder_open(&enc, argv[1], &o, &e) != OK) return fprintf(stderr, "%s\n", e.text), 1;
    int layer = atoi(argv[2]);
    if (layer < 1 || layer > encoder_layers(enc)) return fprintf(stderr, "no layer %d\n", layer), 2;
    k.dim = (size_t)encoder_dim(enc);
    float *vectors = xcalloc(BATCH * k.dim, sizeof *vectors);
    encoder_tap_set(enc, layer, keep, &k);
    while (fgets(line, sizeof line, stdin)) {
        struct str text = str_trim(str_of(line));
        texts[n++] = (struct str){xstrndup(text.p, text.n), text.n};
        if (n < BATCH) continue;
        run(enc, &k, texts, n, vectors);
        while (n)
            mem_free((char *)texts[--n].p);
    }
    run(enc, &k, texts, n, vectors);
    while (n)
        mem_free((char *)texts[--n].p);
    mem_free(vectors);
    encoder_close(enc);
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
