/* pairs_tool.c - what the shipped code makes of pairs of questions, for the trainer and for figures. Usage:
 * verifier_pairs MODEL.gguf|- [PAIR_NET.gguf] < PAIRS, each line two questions with a tab between; "-": the guards alone. First line: the
 * names of the guards; second: the thresholds, first alone hit, English then Chinese. Then per pair: masks of the guards
 * that fired, of the hard ones, of those hard by likeness alone; same, shared, contained, asks_alike, language, cosine, alone, joint, the
 * probability after the first and the second look. A number that is not to be had is "nan". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/verifier.h"
#include "embeddings/text_source.h"

enum { BATCH = 64, CHUNK = 3000, LINE_MAX_BYTES = 1 << 16 };

struct pair {
    char *line;
    struct str text[2];
    const float *record[2];
};
struct tool {
    struct text_source *source; /* NULL: guards alone */
    struct guard *guard;
    struct verifier *verifier; /* NULL: the weights come without a calibration */
    struct pair pairs[CHUNK];
    int n;
};

static void judge(const struct tool *t, const struct pair *p)
{
    struct guard_verdict v;
    struct verifier_view x = {.guard = &v, .cosine = NAN, .alone = NAN, .joint = NAN};
    struct embedder_opinion o;
    double first = NAN, second = NAN;
    guard_check(t->guard, p->text[0], p->text[1], &v);
    if (t->source) {
        size_t dim = text_source_dim(t->source);
        x.cosine = 0;
        for (size_t i = 0; i < dim; i++)
            x.cosine += (double)p->record[0][i] * (double)p->record[1][i];
        if (text_source_score(t->source, p->record[0] + dim, p->record[1] + dim, x.cosine,
                              &x.alone) != OK)
            x.alone = NAN;
        if (t->verifier) first = verifier_probability(t->verifier, &x);
        x.has_joint =
            text_source_has_joint(t->source) &&
            text_source_joint(t->source, p->text[0], &p->text[1], 1, &x.cosine, NULL, &o) == OK;
        if (x.has_joint) x.joint = o.joint;
        if (x.has_joint && t->verifier) second = verifier_probability(t->verifier, &x);
    }
    printf("%u %u %u %d %.4f %.4f %d %c %.6f %.5f %.5f %.6f %.6f\n", v.fired, v.hard,
           v.hard_by_likeness, v.same, (double)v.shared, (double)v.contained, v.asks_alike,
           v.language, x.cosine, (double)x.alone, (double)x.joint, first, second);
}

struct place {
    struct str text;
    const float **record; /* of the pair */
};

static int by_text(const void *a, const void *b)
{
    struct str x = ((const struct place *)a)->text, y = ((const struct place *)b)->text;
    int order = memcmp(x.p, y.p, x.n < y.n ? x.n : y.n);
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

/* Each distinct text of the chunk once. Returns the records, which the pairs point into. */
static float *embed(struct tool *t)
{
    size_t record = text_source_record(t->source), count = (size_t)t->n * 2;
    struct place *places = xcalloc(count + 1, sizeof *places);
    float *records = xcalloc(count * record + 1, sizeof *records), *to = records;
    struct str texts[BATCH];
    enum err status[BATCH];
    int n = 0;
    for (size_t i = 0; i < count; i++)
        places[i] = (struct place){t->pairs[i / 2].text[i % 2], &t->pairs[i / 2].record[i % 2]};
    qsort(places, count, sizeof *places, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i && !by_text(&places[i], &places[i - 1])) {
            *places[i].record = *places[i - 1].record;
            continue;
        }
        *places[i].record = to + (size_t)n * record;
        texts[n++] = places[i].text;
        if (n < BATCH) continue;
        text_source_compute(t->source, texts, n, to, status);
        to += (size_t)n * record;
        n = 0;
    }
    if (n) text_source_compute(t->source, texts, n, to, status);
    mem_free(places);
    return records;
}

static void run(struct tool *t)
{
    float *records = t->source ? embed(t) : NULL;
    for (int i = 0; i < t->n; i++)
        judge(t, &t->pairs[i]);
    for (int i = 0; i < t->n; i++)
        mem_free(t->pairs[i].line);
    mem_free(records);
    t->n = 0;
}

static void print_head(const struct tool *t)
{
    for (int i = 0; guard_names[i]; i++)
        printf("%s%s", i ? " " : "#", guard_names[i]);
    printf("\n");
    for (const char *z = "ez"; *z; z++) {
        const struct verifier_thresholds none = {0, 0, 0}, *x = &none;
        if (t->verifier) x = verifier_thresholds_of(t->verifier, *z);
        printf("%.6f %.6f %.6f%s", x->first, x->alone, x->hit, *z == 'e' ? " " : "\n");
    }
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    static struct tool t;
    struct errmsg e = {0};
    if (argc < 2) return fprintf(stderr, "usage: verifier_pairs MODEL.gguf|- [PAIR_NET.gguf]\n"), 2;
    struct embedder_options o = {
        .n_threads = 2, .batch_tokens_max = 1024, .pair_net = argc > 2 ? argv[2] : NULL};
    if (strcmp(argv[1], "-")) {
        if (text_source_open(&t.source, argv[1], &o, &e) != OK)
            return fprintf(stderr, "%s\n", e.text), 1;
        if (verifier_new(&t.verifier, text_source_calibration(t.source), &e) != OK)
            fprintf(stderr, "%s\n", e.text);
    }
    t.guard = guard_new();
    print_head(&t);
    while (fgets(line, sizeof line, stdin)) {
        struct str text = str_trim(str_of(line));
        ptrdiff_t tab = str_find_char(text, '\t');
        if (tab < 0) return fprintf(stderr, "a line without a tab\n"), 1;
        struct pair *p = &t.pairs[t.n++];
        p->line = xstrndup(text.p, text.n);
        p->text[0] = (struct str){p->line, (size_t)tab};
        p->text[1] = (struct str){p->line + tab + 1, text.n - (size_t)tab - 1};
        if (t.n == CHUNK) run(&t);
    }
    run(&t);
    verifier_free(t.verifier);
    guard_free(t.guard);
    text_source_close(t.source);
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
