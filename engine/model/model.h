/* model.h - a decoder language model read from a GGUF file (architectures: arch.c), and its KV cache.
 * Owns weights (mmap'd or repacked), the paged KV storage and the scratch memory of one forward pass. Knows nothing
 * of requests, sampling or sockets. Who owns a KV block is sched/kv_pool's business; here blocks are numbers.
 * Threading: model_forward and the kv calls from one thread at a time (the engine's step thread); it uses its own
 * compute pool inside. model_info may be read from any thread.
 * Source: Touvron et al. 2023 (llama), Qwen2 report 2024; paged KV: Kwon et al. 2023, arXiv:2309.06180. */
#ifndef DEJA_ENGINE_MODEL_MODEL_H
#define DEJA_ENGINE_MODEL_MODEL_H
#include <stdbool.h>

#include "base/hash.h"
#include "engine/backend/kv_type.h"
#include "engine/backend/sample.h"

struct model;
struct gguf; /* engine/model/gguf.h */

struct model_info {
    const char *arch; /* "llama", "qwen2" .. */
    const char *name; /* general.name, or the file's stem */
    int n_layer, n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab;
    int context_length;    /* positions the model was trained for */
    uint64_t weight_bytes; /* sum of tensor bytes in the file */
    uint64_t kv_bytes_per_token;
    char file_hash
        [65]; /* identity for the prefix cache: sha-256 or a fast 128-bit content hash, hex */
};

struct model_options {
    int n_threads;        /* 1..64; 0 = all cores */
    int block_tokens;     /* tokens of one KV block: 8, 16, 32 or 64 (2 and up under DEJA_RARE) */
    int n_blocks;         /* KV blocks to allocate, > 0 */
    int max_batch_tokens; /* rows of the largest batch, > 0 */
    int max_seqs;         /* sequences of the largest batch, > 0 */
    int context_max;      /* positions a sequence may reach; 0 = model's context_length */
    enum kv_type kv_type; /* 0 = float16 (float32 when exact, which takes no other) */
    const char *
        isa; /* "scalar", "avx2", "avx512" or NULL = best of this CPU (env DEJA_ISA overrides NULL) */
    const char *device;   /* NULL or "cpu", or an accelerator by name; see backend_options */
    const char *products; /* as there */
    /* A file of calibration.h for products "int8" on an accelerator, or NULL. */
    const char *calibration;
    bool exact; /* true: float32 activations against dequantised weights (the oracle path), slow */
    /* Tensor parallelism: so many ranks compute it together (shard.h), rank i on the device that counts i higher than `device`; on the CPU
     * they share the threads. 0 and 1: one. ERR_UNSUPPORTED: the model does not go into so many, or the devices have no way to
     * one another. */
    int n_ranks;
    int rank_wait_ms; /* a rank that waits longer for another gives the model up; 0 = a minute */
};

/* One forward pass over a flattened batch: decodes and prefill chunks together. Rows of one sequence are adjacent and
 * in position order. All arrays are borrowed for the call. */
struct model_batch {
    int n_rows; /* 1..max_batch_tokens */
    const int32_t *
        token; /* [n_rows], each in [0,n_vocab); where model_samples also -1 - i: the i-th pick of the last submission */
    const int32_t *pos; /* [n_rows], position in its sequence, from 0 */
    const int32_t *seq; /* [n_rows], index into block_table, 0..n_seqs-1 */
    int n_seqs;         /* 1..max_seqs */
    const int32_t *const *
        block_table; /* [n_seqs] -> physical block of positions [i*block_tokens, ...) ; long enough for
                                        * the sequence's largest pos in this batch */
    int n_out;       /* rows whose logits are wanted, 0..n_rows */
    const int32_t *out_row; /* [n_out], ascending row indices */
    const int32_t
        *adapter; /* [n_seqs] number of model_adapter_add, or -1 = the base model; NULL = all -1 */
    /* Drafts that branch: then rows of a sequence need not be in position order, and where each lies and what it sees is said by
     * struct kv_tree's three arrays [n_rows] (backend.h). slot NULL: no tree. */
    const int32_t *slot, *tree_from;
    const uint64_t *tree_mask;
    /* Where model_samples: what model_submit will be called with after this pass, where that is known: it crosses over with the rest. */
    const struct sample_row *pick; /* [n_pick] or NULL */
    int n_pick;
};

/* Reads the file, checks every tensor's shape and type, allocates everything. On failure *out is NULL and *e says
 * which key or tensor is wrong and what would be right. Free with model_close. */
MUST enum err model_open(struct model **out, const char *path, const struct model_options *opt,
                         struct errmsg *e);
void model_close(struct model *m);                          /* NULL is fine */
const struct model_info *model_info(const struct model *m); /* borrowed until model_close */
/* "cpu" or "cuda:0", and what that is called; NULL, or why the device does nothing any more. Borrowed until model_close. */
const char *model_device(const struct model *m);
const char *model_device_model(const struct model *m);
const char *model_failure(const struct model *m);
/* The file's metadata, for tokenizer and chat template; borrowed until model_close. */
const struct gguf *model_gguf(const struct model *m);

/* Adds a LoRA adapter from a GGUF file (format: docs/models.md), at scale times its own strength; at most MODEL_ADAPTERS_MAX. Not during a
 * forward pass. On failure nothing has changed and *e names the key or tensor and what would be right. Freed with the model. */
enum { MODEL_ADAPTERS_MAX = 64 };
MUST enum err model_adapter_add(struct model *m, const char *path, float scale, int *number,
                                struct errmsg *e);
/* Of the adapter's content and scale: sequences with different ones must not share KV. */
struct hash128 model_adapter_id(const struct model *m, int number);

/* Writes K and V of every row into its block, and logits f32[n_out][n_vocab] (caller's memory; NULL where model_samples). Deterministic: a
 * row's logits are bit-identical whatever else is in the batch, whatever n_threads. ASSERTs on indices out of range. */
void model_forward(struct model *m, const struct model_batch *b, float *logits);

/* On an accelerator: records decoding passes of every padded number of rows up to max_seqs, without a trace in the KV. */
void model_warm(struct model *m);
/* Whether the model picks tokens itself from the logits of its last pass, whose caller then passes NULL for them: on an accelerator. */
bool model_samples(const struct model *m);
/* The end of a step: one pick for each of row[n] (n may be 0), row[i].logits counting the pass's out rows; and the picks of the oldest step
 * submitted. See backend_submit, whose bounds and failures these are. */
MUST enum err model_submit(struct model *m, const struct sample_row *row, int n, struct errmsg *e);
MUST enum err model_wait(struct model *m, struct sampler_pick_out *out, struct errmsg *e);

/* Copies the first n_tokens positions of one block to another (copy-on-write of a shared tail). */
void model_kv_copy(struct model *m, int32_t dst_block, int32_t src_block, int n_tokens);
/* Moves tokens' K and V: what is accepted of a tree goes to its positions. As kv_move_tokens in backend.h. */
struct kv_move;
void model_kv_move(struct model *m, const struct kv_move *moves, int n);
/* As kv_touch in backend.h. */
void model_kv_touch(struct model *m, int part, int n_parts);
/* Names everything but the file that makes one engine's blocks unfit for another: element types, layout, instruction set. Static text. */
const char *model_kv_format(const struct model *m);
/* A whole block to or from model_kv_block_bytes of the caller's memory. Only blocks of the same model file and the same layout of KV may be
 * written back. A device that fails (model_failure) reads 0xff: look before a block is kept. */
size_t model_kv_block_bytes(const struct model *m);
void model_kv_read(const struct model *m, int32_t block, void *to);
void model_kv_write(struct model *m, int32_t block, const void *from);

#endif
