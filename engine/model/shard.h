/* shard.h - cuts a model for the ranks of a tensor-parallel group: which heads, which columns of the feed-forward and which rows of the
 * vocabulary each of them has, and how a part of a tensor is read from a file.
 * q, k, v, gate and up are cut by rows of their outputs, the output of attention and down by columns of their inputs, so that a layer needs
 * two sums over the ranks; embedding and head by vocabulary; experts each along their own feed-forward. Norms and routers are whole
 * everywhere; biases of the summed matrices are the first rank's. Where there are fewer KV heads than ranks, a KV head is on several.
 * Columns are cut between blocks of a quantised type: the feed-forward unevenly where it must be, and what cannot be (heads whose
 * columns end inside a block, a feed-forward of fewer blocks than ranks) is kept in float32, exactly as it is in the file.
 * Pure; any thread. Private to engine/model and the plan of memory.
 * Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. */
#ifndef DEJA_ENGINE_MODEL_SHARD_H
#define DEJA_ENGINE_MODEL_SHARD_H
#include "engine/model/model_plan.h"

enum { SHARD_RANKS_MAX = 16 };

/* Where a cut tensor begins in the one it is cut from, whose bytes and type it reads. */
struct tensor_cut {
    const struct gguf_tensor *whole;
    int64_t col_first, row_first; /* of each matrix */
};

/* Makes *p, just read, the plan of one rank: every tensor stands for its part. n_ranks 1: nothing. ERR_UNSUPPORTED: the model does not go
 * into so many ranks: a sentence with the numbers that would do. *p is then as it was. */
MUST enum err model_plan_shard(struct model_plan *p, int rank, int n_ranks, struct errmsg *e);

/* A tensor's rows one after the other in its own type: its bytes where they lie so, else gathered into *temp (mem_free; NULL before).
 * NULL: no memory. */
const void *tensor_rows(const struct gguf_tensor *t, void **temp);

#endif
