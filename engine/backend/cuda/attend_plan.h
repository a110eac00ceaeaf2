/* attend_plan.h - which part of a step's attention each block of the GPU computes. The context of a row is cut at fixed positions into
 * splits of ATTEND_SPLIT tokens; a tile is some query vectors (row, head of a group) that look at the same splits together, so that K and
 * V are read once for all of them: rows of one sequence side by side, or rows of several sequences whose tables begin with the same
 * blocks (a shared prefix, found here by comparing tables, at as many levels as there are). What a split of a row computes does not
 * depend on the tile it is in, so neither sharing nor the batch changes a result.
 * Few: up to ATTEND_VECTORS vectors; many: up to attend_many(head_dim).
 * Pure; any thread. Source of the idea of shared prefixes: Juravsky et al. 2024, arXiv:2402.05099 (Hydragen); Ye et al. 2025,
 * arXiv:2501.01005 (FlashInfer's cascade). */
#ifndef DEJA_ENGINE_BACKEND_CUDA_ATTEND_PLAN_H
#define DEJA_ENGINE_BACKEND_CUDA_ATTEND_PLAN_H
#ifdef __cplusplus
extern "C" {
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTEND_SPLIT = 256, ATTEND_VECTORS = 16 };
struct attend_tile {
    int row, vector,
        n_vectors; /* first row, and vectors of its group to skip; listed: row is a place in members */
    int seq, from, to; /* tokens any of them may see; `from` is where its first split begins */
    int first_split, n_splits; /* 0 splits: padding */
    bool listed;
};
struct attend_rows {
    int first_row, n_rows;    /* tiles and members name rows from first_row on */
    const int32_t *pos, *seq; /* [n_rows] */
    /* of a tree (struct kv_tree), else NULL: a node, whose mask is not 0, has a tile of its own where its path lies */
    const int32_t *tree_from;
    const uint64_t *tree_mask;
    const int32_t *const *block_table;
    int block_tokens, group, window, many; /* many: vectors of a large tile */
    bool share;                            /* look for shared prefixes */
};
struct attend_unit { /* rows of one sequence side by side whose contexts end in the same split */
    const int32_t *table;
    int row, n_rows, seq, from, to, first_split, n_splits;
    int split_blocks; /* blocks of a split */
    int whole;        /* splits before the one its own tokens are in, or its tree begins in */
};
struct attend_plan {
    struct attend_tile *few, *many;
    int32_t *members, *n_splits; /* n_splits [n_rows] */
    struct attend_unit *units;
    int n_few, n_many, n_members, splits_max;
    int few_max, many_max, members_max, shared_max;
    size_t device_bytes, bytes; /* few, many, members, n_splits come first: what a device needs */
};
static inline int attend_many(int head_dim)
{
    return head_dim <= 128 ? 64 : 32;
}
/* Places in a block of memory of p->bytes, which depend on these numbers only; memory NULL: only sizes and offsets from it. */
void attend_plan_lay(struct attend_plan *p, void *memory, int n_rows, int group, int many);
void attend_plan_make(struct attend_plan *p, const struct attend_rows *r);

#ifdef __cplusplus
}
#endif
#endif
