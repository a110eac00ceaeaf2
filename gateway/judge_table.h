/* judge_table.h - what a judge's probability of yes is worth: how often pairs with that probability were really the same. A table of 11
 * points for 0, 0.1 ... 1 a language, straight between them, never falling. Shipped for models that were measured; `deja judge` makes one
 * from labelled pairs. Pure but for judge_tables_load.
 * Source: isotonic regression by pooling adjacent violators (Ayer et al. 1955; Zadrozny & Elkan 2002 for probabilities). */
#ifndef DEJA_GATEWAY_JUDGE_TABLE_H
#define DEJA_GATEWAY_JUDGE_TABLE_H
#include "base/buf.h"
#include "gateway/judge_weights.h"

enum { JUDGE_POINTS = 11 };
struct judge_tables {
    double at[2][JUDGE_POINTS];     /* without Chinese, Chinese */
    struct judge_weights beside[2]; /* where the verifier has said something too */
};

/* The straight line for models nobody measured. */
struct judge_tables judge_tables_for(struct str model);
double judge_calibrated(const struct judge_tables *t, char language /* 'z' or 'e' */, double yes);
/* The same beside what the verifier said, where that was measured; verifier below 0: it said nothing. */
double judge_calibrated_beside(const struct judge_tables *t, char language, double yes,
                               double verifier);
/* labels are sorted. Each point is pulled towards the share of all as by one pair of each kind, so that a few labels prove nothing.
 * Without labels: the straight line. */
void judge_table_fit(struct judge_label *labels, size_t n, double out[JUDGE_POINTS]);

/* "en v0 ... v10" and "zh ..." lines, "en-beside BIAS JUDGE VERIFIER" and "zh-beside ..." ones; '#' comments. ERR_INVALID says where;
 * what is missing keeps the straight line, and no weights. */
MUST enum err judge_tables_parse(struct judge_tables *out, struct str text, const char *where,
                                 struct errmsg *e);
MUST enum err judge_tables_load(struct judge_tables *out, const char *path, struct errmsg *e);
void judge_tables_write(struct buf *out, const struct judge_tables *t);

#endif
