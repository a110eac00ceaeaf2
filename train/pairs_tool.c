/* pairs_tool.c - what the shipped code makes of pairs of questions, for train/calibrate.py and for figures. Usage: verifier_pairs
 * MODEL.gguf [PAIR_NET.gguf] < PAIRS, each line two questions with a tab between. First line: the names of the guards; second: the
 * thresholds, first alone hit, English then Chinese. Then per pair: fired and hard masks, same, shared, contained, asks_alike, language,
 * cosine, alone, joint, the probability after the first and the second look. A number that is not to be had is "nan". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cache/verifier.h"
#include "embeddings/text_source.h"

enum { BATCH = 64, LINE_MAX_BYTES = 1 << 16 };

struct judges {
    struct guard *guard;
    struct verifier *verifier; /* NULL: the weights come without a calibration */
};
struct pair {
    char *line;
    struct str text[2];
};

static void judge(struct text_source *s, const struct judges *j, const struct pair *p,
                  const float *records)
{
    size_t dim = text_source_dim(s), record = text_source_record(s);
    struct guard_verdict v;
    struct verifier_view x = {.guard = &v, .alone = NAN, .joint = NAN};
    double first = NAN, second = NAN;
    for (size_t i = 0; i < dim; i++)
        x.cosine += (double)records[i] * (double)records[record + i];
    guard_check(j->guard, p->text[0], p->text[1], &v);
    if (text_source_score(s, records + dim, records + record + dim, x.cosine, &x.alone) != OK)
        x.alone = NAN;
    if (j->verifier) first = verifier_probability(j->verifier, &x);
    struct embedder_opinion o;
    if (text_source_has_joint(s) &&
        text_source_joint(s, p->text[0], &p->text[1], 1, &x.cosine, &o) == OK) {
        x.joint = o.joint;
        x.has_joint = true;
        if (j->verifier) second = verifier_probability(j->verifier, &x);
    }
    printf("%u %u %d %.4f %.4f %d %c %.6f %.5f %.5f %.6f %.6f\n", v.fired, v.hard, v.same,
           (double)v.shared, (double)v.contained, v.asks_alike, v.language, x.cosine,
           (double)x.alone, (double)x.joint, first, second);
}

static void run(struct text_source *s, const struct judges *j, struct pair *pairs, int n)
{
    struct str texts[2 * BATCH];
    enum err status[2 * BATCH];
    size_t record = text_source_record(s);
    float *records = xcalloc((size_t)(2 * n) * record + 1, sizeof *records);
    for (int i = 0; i < 2 * n; i++)
        texts[i] = pairs[i / 2].text[i % 2];
    text_source_compute(s, texts, 2 * n, records, status);
    for (int i = 0; i < n; i++) {
        judge(s, j, &pairs[i], records + (size_t)(2 * i) * record);
        mem_free(pairs[i].line);
    }
    mem_free(records);
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    struct text_source *s;
    struct errmsg e = {0};
    struct pair pairs[BATCH];
    int n = 0;
    if (argc < 2) return fprintf(stderr, "usage: verifier_pairs MODEL.gguf [PAIR_NET.gguf]\n"), 2;
    struct embedder_options o = {
        .n_threads = 2, .batch_tokens_max = 1024, .pair_net = argc > 2 ? argv[2] : NULL};
    if (text_source_open(&s, argv[1], &o, &e) != OK) return fprintf(stderr, "%s\n", e.text), 1;
    if (*text_source_why_no_sketch(s)) fprintf(stderr, "%s\n", text_source_why_no_sketch(s));
    struct judges j = {.guard = guard_new()};
    if (verifier_new(&j.verifier, text_source_calibration(s), &e) != OK)
        fprintf(stderr, "%s\n", e.text);
    for (int i = 0; guard_names[i]; i++)
        printf("%s%s", i ? " " : "#", guard_names[i]);
    printf("\n");
    for (const char *z = "ez"; *z; z++) {
        const struct verifier_thresholds none = {0, 0, 0}, *t = &none;
        if (j.verifier) t = verifier_thresholds_of(j.verifier, *z);
        printf("%.6f %.6f %.6f%s", t->first, t->alone, t->hit, *z == 'e' ? " " : "\n");
    }
    while (fgets(line, sizeof line, stdin)) {
        struct str text = str_trim(str_of(line));
        ptrdiff_t tab = str_find_char(text, '\t');
        if (tab < 0) return fprintf(stderr, "a line without a tab\n"), 1;
        struct pair *p = &pairs[n++];
        p->line = xstrndup(text.p, text.n);
        p->text[0] = (struct str){p->line, (size_t)tab};
        p->text[1] = (struct str){p->line + tab + 1, text.n - (size_t)tab - 1};
        if (n < BATCH) continue;
        run(s, &j, pairs, n);
        n = 0;
    }
    run(s, &j, pairs, n);
    verifier_free(j.verifier);
    guard_free(j.guard);
    text_source_close(s);
    return fflush(stdout) ? 1 : 0;
}
