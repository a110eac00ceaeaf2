/* moe.h - the routed feed-forward of a mixture of experts: each row goes through the few experts its router likes best, and what they
 * give is added up by weight. A part of backend.h (same rules, same threading), which stands apart because few models need it.
 * Rows are sorted by expert, so that a step reads each expert's weights once whatever the rows; a row's result depends on that row alone,
 * bit for bit, as everywhere on the CPU.
 * Sources: Shazeer et al. 2017, arXiv:1701.06538 (top-k gating); Jiang et al. 2024, arXiv:2401.04088 (weights of the chosen made to sum
 * to 1); Muennighoff et al. 2024, arXiv:2409.02060 (not made so); Qwen2 report 2024, arXiv:2407.10671 (shared expert with a gate). */
#ifndef DEJA_ENGINE_BACKEND_MOE_H
#define DEJA_ENGINE_BACKEND_MOE_H
#include "engine/backend/backend.h"

enum { MOE_EXPERTS_MAX = 512, MOE_USED_MAX = 32 };

struct moe {
    int n_experts, n_used;                 /* n_used of n_experts, at most the maxima above */
    const struct weight *gate, *up, *down; /* weight_new_stack, n_experts matrices each */
    bool normalise;      /* the weights of the chosen sum to 1; false: softmax over all experts */
    float scale;         /* times this */
    const float *logits; /* f32[n_rows][n_experts] of the router */
    const float *x;      /* f32[n_rows][n_embd], normalised */
    const float *shared; /* f32[n_rows][n_embd] added too, or NULL */
    const float
        *shared_gate; /* f32[n_rows]: shared is multiplied by its sigmoid; NULL with shared */
    float *out;       /* f32[n_rows][n_embd] += */
    int n_rows;
    /* scratch: f32[n_rows * n_used] rows of n_ff, n_ff and n_embd */
    float *gate_rows, *up_rows, *down_rows;
};
/* Of equal logits the expert with the lower number is taken. */
void backend_moe(struct backend *be, const struct moe *m);

#endif
