/* batch.c - see batch.h. */
#include "engine/sched/batch.h"

#include "base/mem.h"

struct batch *batch_new(int rows_max, int seqs_max, int out_max)
{
    ASSERT(rows_max > 0 && seqs_max > 0 && out_max >= seqs_max);
    struct batch *b = xcalloc(1, sizeof *b);
    b->rows_max = rows_max;
    b->seqs_max = seqs_max;
    b->out_max = out_max;
    b->token = xcalloc((size_t)rows_max, sizeof *b->token);
    b->pos = xcalloc((size_t)rows_max, sizeof *b->pos);
    b->seq = xcalloc((size_t)rows_max, sizeof *b->seq);
    b->slot = xcalloc((size_t)rows_max, sizeof *b->slot);
    b->tree_from = xcalloc((size_t)rows_max, sizeof *b->tree_from);
    b->tree_mask = xcalloc((size_t)rows_max, sizeof *b->tree_mask);
    b->out_row = xcalloc((size_t)out_max, sizeof *b->out_row);
    b->out_seq = xcalloc((size_t)out_max, sizeof *b->out_seq);
    b->block_table = xcalloc((size_t)seqs_max, sizeof *b->block_table);
    return b;
}

void batch_free(struct batch *b)
{
    if (!b) return;
    mem_free(b->token);
    mem_free(b->pos);
    mem_free(b->seq);
    mem_free(b->slot);
    mem_free(b->tree_from);
    mem_free(b->tree_mask);
    mem_free(b->out_row);
    mem_free(b->out_seq);
    mem_free(b->block_table);
    mem_free(b);
}

/* Where the rows lie and what they see: those of a draft by its tree, all others in their places. */
static void fill_trees(struct batch *b, const struct sched *s, const struct sched_plan *plan)
{
    int row = 0;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        int root = row + span->n - span->n_draft - 1, base = span->from + span->n - span->n_draft;
        for (; row <= root; row++) {
            b->slot[row] = b->pos[row];
            b->tree_from[row] = b->pos[row] + 1;
            b->tree_mask[row] = 0;
        }
        for (int k = 0; k < span->n_draft; k++, row++) {
            int above = root + 1 + sched_draft_parent(s, span->seq, k);
            b->pos[row] = b->pos[above] + 1;
            b->slot[row] = base + k;
            b->tree_from[row] = base;
            b->tree_mask[row] = b->tree_mask[above] | UINT64_C(1) << k;
        }
    }
}

void batch_fill(struct batch *b, const struct sched *s, const struct sched_plan *plan)
{
    ASSERT(plan->n_rows <= b->rows_max && plan->n_spans <= b->seqs_max);
    b->n_rows = b->n_out = 0;
    b->n_seqs = plan->n_spans;
    b->has_tree = false;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        const int32_t *tokens = sched_tokens(s, span->seq);
        b->block_table[i] = sched_table(s, span->seq);
        b->has_tree |= span->tree;
        for (int k = 0; k < span->n; k++, b->n_rows++) {
            b->token[b->n_rows] = tokens[span->from + k];
            b->pos[b->n_rows] = span->from + k;
            b->seq[b->n_rows] = i;
        }
        if (!span->sample) continue;
        ASSERT(b->n_out + 1 + span->n_draft <= b->out_max);
        for (int k = span->n_draft; k >= 0; k--) {
            b->out_row[b->n_out] = b->n_rows - 1 - k;
            b->out_seq[b->n_out++] = span->seq;
        }
    }
    ASSERT(b->n_rows == plan->n_rows);
    if (b->has_tree) fill_trees(b, s, plan);
}
