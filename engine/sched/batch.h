/* batch.h - a plan flattened into the arrays a forward pass takes: one row a token, sequences numbered from 0.
 * Pure; no allocation after batch_new. Threading: engine thread only. */
#ifndef DEJA_ENGINE_SCHED_BATCH_H
#define DEJA_ENGINE_SCHED_BATCH_H
#include "engine/sched/scheduler.h"

struct batch {
    int n_rows, n_seqs, n_out;
    int32_t *token, *pos, *seq; /* [n_rows] */
    int32_t *out_row;           /* [n_out] ascending */
    int *out_seq; /* [n_out] sequence whose logits these are; several in a row after a draft */
    const int32_t **block_table; /* [n_seqs] borrowed from the scheduler until its next step */
    bool has_tree;               /* some draft branches; only then: */
    int32_t *slot, *tree_from;   /* [n_rows] as in struct kv_tree */
    uint64_t *tree_mask;         /* [n_rows] */
    int rows_max, seqs_max, out_max;
};

/* out_max: rows whose logits may be wanted at a time; at least seqs_max. */
struct batch *batch_new(int rows_max, int seqs_max, int out_max);
void batch_free(struct batch *b);
/* Fills b from the plan of this step. */
void batch_fill(struct batch *b, const struct sched *s, const struct sched_plan *plan);

#endif
