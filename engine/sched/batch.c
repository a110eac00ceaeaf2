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
    mem_free(b->out_row);
    mem_free(b->out_seq);
    mem_free(b->block_table);
    mem_free(b);
}

void batch_fill(struct batch *b, const struct sched *s, const struct sched_plan *plan)
{
    ASSERT(plan->n_rows <= b->rows_max && plan->n_spans <= b->seqs_max);
    b->n_rows = b->n_out = 0;
    b->n_seqs = plan->n_spans;
    for (int i = 0; i < plan->n_spans; i++) {
        const struct sched_span *span = &plan->spans[i];
        const int32_t *tokens = sched_tokens(s, span->seq);
        b->block_table[i] = sched_table(s, span->seq);
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
}
