/* vector_index_store.h - private: what a vector store under vector_index offers. Labels are 0..count-1 in order of addition and
 * are never reused; who is alive is the index's business. Calls are already serialised: search may run beside search, nothing beside
 * add. */
#ifndef DEJA_EMBEDDINGS_VECTOR_INDEX_STORE_H
#define DEJA_EMBEDDINGS_VECTOR_INDEX_STORE_H
#include "base/str.h"

struct vector_store {
    const struct vector_store_ops *ops;
};
struct vector_store_ops {
    void (*free)(struct vector_store *s);
    MUST enum err (*add)(struct vector_store *s, const float *vec); /* its label is the old count */
    /* Up to k best labels with their inner products, best first; the rest of labels is -1. False: the store failed (a miss). */
    bool (*search)(struct vector_store *s, const float *vec, size_t k, float *scores,
                   int64_t *labels);
    MUST enum err (*get)(struct vector_store *s, size_t label, float *vec);
    size_t (*bytes)(struct vector_store *s);
};
MUST enum err vector_store_flat(struct vector_store **out, int dim);
/* hnsw: graph (32 links, built with 200, searched with 64) instead of an exact scan. */
MUST enum err vector_store_faiss(struct vector_store **out, int dim, bool hnsw, struct errmsg *e);

#endif
