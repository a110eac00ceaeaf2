/* judge_table.c - see judge_table.h. */
#include "gateway/judge_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { FILE_BYTES_MAX = 64 * 1024 };

static const char *const languages[2] = {"en", "zh"};
static const struct judge_tables straight = {{{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1},
                                              {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
                                             {{0, 0, 0}, {0, 0, 0}}};

/* By part of the model's name, lower case. qwen2.5-coder-0.5b (with four examples in the prompt): 260 pairs a language of everyday questions,
 * half of them rewordings, half one change away; it puts the same pair above the different one in 52 (English) and 55 (Chinese) of 100
 * cases, so its word is worth next to nothing, and nothing it says reaches the marks. qwen2.5-coder-1.5b: 130 pairs a language of the domains
 * held back from the verifier's training, 81 and 82 of 100; beside the verifier 89, by weights fitted on all 260. */
static const struct {
    const char *in_name;
    struct judge_tables tables;
} measured[] = {
    {"qwen2.5-coder-0.5b",
     {{{0.40, 0.40, 0.40, 0.40, 0.47, 0.54, 0.55, 0.58, 0.60, 0.60, 0.60},
       {0.30, 0.30, 0.54, 0.72, 0.83, 0.83, 0.83, 0.83, 0.83, 0.83, 0.83}},
      {{0, 0, 0}, {0, 0, 0}}}},
    {"qwen2.5-coder-1.5b",
     {{{0.333, 0.333, 0.333, 0.333, 0.333, 0.333, 0.333, 0.425, 0.548, 0.811, 0.875},
       {0.125, 0.125, 0.125, 0.143, 0.193, 0.292, 0.349, 0.596, 0.750, 0.855, 0.941}},
      {{1.637, 0.983, 0.907}, {1.637, 0.983, 0.907}}}},
};

struct judge_tables judge_tables_for(struct str model)
{
    char lower[160];
    size_t n = model.n < sizeof lower ? model.n : sizeof lower;
    for (size_t i = 0; i < n; i++)
        lower[i] = (char)(model.p[i] >= 'A' && model.p[i] <= 'Z' ? model.p[i] + 32 : model.p[i]);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        if (str_find((struct str){lower, n}, str_of(measured[i].in_name)) >= 0)
            return measured[i].tables;
    return straight;
}

double judge_calibrated(const struct judge_tables *t, char language, double yes)
{
    const double *at = t->at[language == 'z'];
    if (!(yes > 0)) return at[0];
    if (yes >= 1) return at[JUDGE_POINTS - 1];
    double x = yes * (JUDGE_POINTS - 1);
    int i = (int)x;
    return at[i] + (x - i) * (at[i + 1] - at[i]);
}

double judge_calibrated_beside(const struct judge_tables *t, char language, double yes,
                               double verifier)
{
    const struct judge_weights *w = &t->beside[language == 'z'];
    return verifier >= 0 && judge_weights_measured(w) ? judge_weighed(w, yes, verifier)
                                                      : judge_calibrated(t, language, yes);
}

/* --- fitting */
static int by_yes(const void *a, const void *b)
{
    const struct judge_label *x = a, *y = b;
    return x->yes < y->yes ? -1 : x->yes > y->yes;
}

struct block { /* of neighbours that share one value */
    double yes, same, n;
};

/* Pools neighbours until the shares never fall; returns how many blocks are left. */
static size_t pool(const struct judge_label *labels, size_t n, struct block *blocks)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        blocks[k++] = (struct block){labels[i].yes, labels[i].same, 1};
        while (k > 1 &&
               blocks[k - 2].same * blocks[k - 1].n >= blocks[k - 1].same * blocks[k - 2].n) {
            struct block *a = &blocks[k - 2], *b = &blocks[k - 1];
            a->yes = (a->yes * a->n + b->yes * b->n) / (a->n + b->n);
            a->same += b->same;
            a->n += b->n;
            k--;
        }
    }
    return k;
}

void judge_table_fit(struct judge_label *labels, size_t n, double out[JUDGE_POINTS])
{
    memcpy(out, straight.at[0], sizeof straight.at[0]);
    if (!n) return;
    double same = 0;
    struct block *blocks = xcalloc(n, sizeof *blocks);
    for (size_t i = 0; i < n; i++)
        same += labels[i].same;
    qsort(labels, n, sizeof *labels, by_yes);
    size_t k = pool(labels, n, blocks), at = 0;
    double share = same / (double)n;
    for (int p = 0; p < JUDGE_POINTS; p++) {
        double x = (double)p / (JUDGE_POINTS - 1);
        while (at + 1 < k && blocks[at + 1].yes <= x)
            at++;
        const struct block *a = &blocks[at], *b = at + 1 < k ? &blocks[at + 1] : a;
        double left = (a->same + 2 * share) / (a->n + 2),
               right = (b->same + 2 * share) / (b->n + 2);
        double t = b->yes > a->yes && x > a->yes ? (x - a->yes) / (b->yes - a->yes) : 0;
        out[p] = left + t * (right - left);
        if (p && out[p] < out[p - 1]) out[p] = out[p - 1]; /* the pull may differ between blocks */
    }
    mem_free(blocks);
}

/* --- as text */
enum { WEIGHT_MAX = 100 };
static const char beside[] = "-beside";

static enum err parse_weights(struct judge_weights *w, struct str line, const char *where,
                              int line_no, struct errmsg *e)
{
    double v[3] = {0};
    struct str word;
    for (int i = 0; i < 3; i++) {
        line = str_trim(line);
        bool good = str_next(&line, ' ', &word) && str_to_f64(word, &v[i]) == OK &&
                    v[i] <= WEIGHT_MAX && v[i] >= (i ? 0 : -WEIGHT_MAX);
        if (!good)
            return err_set(e, ERR_INVALID,
                           "%s:%d: expected a bias of -100 to 100 and two weights of 0 to 100; "
                           "number %d is none",
                           where, line_no, i + 1);
    }
    if (str_trim(line).n) return err_set(e, ERR_INVALID, "%s:%d: more than 3 numbers", where, line_no);
    *w = (struct judge_weights){v[0], v[1], v[2]};
    return OK;
}

static enum err parse_line(struct judge_tables *t, struct str line, const char *where, int line_no,
                           struct errmsg *e)
{
    struct str word;
    int z = -1;
    str_next(&line, ' ', &word);
    struct str name = str_sub(word, 0, 2), rest = str_sub(word, 2, word.n);
    for (int i = 0; i < 2; i++)
        if (str_eqz(name, languages[i])) z = i;
    if (z >= 0 && str_eqz(rest, beside)) return parse_weights(&t->beside[z], line, where, line_no, e);
    if (z < 0 || rest.n)
        return err_set(e, ERR_INVALID, "%s:%d: expected en, zh, en-beside or zh-beside, not \"" STR_FMT "\"", where,
                       line_no, STR_ARG(str_sub(word, 0, 40)));
    for (int p = 0; p < JUDGE_POINTS; p++) {
        double v = -1;
        line = str_trim(line);
        bool good = str_next(&line, ' ', &word) && str_to_f64(word, &v) == OK && v >= 0 && v <= 1;
        if (!good || (p && v < t->at[z][p - 1]))
            return err_set(
                e, ERR_INVALID,
                "%s:%d: expected 11 numbers from 0 to 1 that never fall; number %d is none", where,
                line_no, p + 1);
        t->at[z][p] = v;
    }
    if (str_trim(line).n)
        return err_set(e, ERR_INVALID, "%s:%d: more than 11 numbers", where, line_no);
    return OK;
}

enum err judge_tables_parse(struct judge_tables *out, struct str text, const char *where,
                            struct errmsg *e)
{
    struct judge_tables t = straight;
    struct str line;
    for (int n = 1; str_next(&text, '\n', &line); n++) {
        line = str_trim(line);
        if (!line.n || line.p[0] == '#') continue;
        enum err code = parse_line(&t, line, where, n, e);
        if (code != OK) return code;
    }
    *out = t;
    return OK;
}

enum err judge_tables_load(struct judge_tables *out, const char *path, struct errmsg *e)
{
    FILE *f = fopen(path, "rb");
    if (!f) return err_set(e, ERR_NOT_FOUND, "cannot read the judge's table %.200s", path);
    char *text = xmalloc(FILE_BYTES_MAX);
    size_t n = fread(text, 1, FILE_BYTES_MAX, f);
    fclose(f);
    enum err code = n == FILE_BYTES_MAX ? err_set(e, ERR_TOO_LARGE, "%.200s: too long", path)
                                        : judge_tables_parse(out, (struct str){text, n}, path, e);
    mem_free(text);
    return code;
}

void judge_tables_write(struct buf *out, const struct judge_tables *t)
{
    for (int z = 0; z < 2; z++) {
        buf_z(out, languages[z]);
        for (int p = 0; p < JUDGE_POINTS; p++)
            buf_printf(out, " %.3f", t->at[z][p]);
        buf_char(out, '\n');
        const struct judge_weights *w = &t->beside[z];
        if (judge_weights_measured(w))
            buf_printf(out, "%s%s %.3f %.3f %.3f\n", languages[z], beside, w->bias, w->judge,
                       w->verifier);
    }
}
