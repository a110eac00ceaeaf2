/* vector_index_store.h - private: what a vector store under vector_index offers. Labels are 0..count-1 in order of addition and are used
 * again only where there is `set`; who is alive is the index's business. Calls are already serialised: search may run beside search,
 * nothing beside add. */
#ifndef DEJA_EMBEDDINGS_VECTOR_INDEX_STORE_H
#define DEJA_EMBEDDINGS_VECTOR_INDEX_STORE_H
#include "embeddings/vector_index.h"

struct vector_store {
    const struct vector_store_ops *ops;
};
struct vector_store_ops {
    void (*free)(struct vector_store *s);
    MUST enum err (*add)(struct vector_store *s, const float *vec); /* its label is the old count */
    /* For each of vecs[n], n up to VECTOR_QUERIES_MAX: up to k best labels with their inner products, best first, in its row of scores and
     * labels [n][k]; the rest of labels is -1. False: the store failed (a miss). */
    bool (*search)(struct vector_store *s, const float *const *vecs, size_t n, size_t k,
                   float *scores, int64_t *labels);
    MUST enum err (*get)(struct vector_store *s, size_t label, float *vec);
    size_t (*bytes)(struct vector_store *s);
    /* NULL: cannot. Puts another vector at a label; vec NULL = none, and searches do not find it any more. */
    enum err (*set)(struct vector_store *s, size_t label, const float *vec);
};
/* Half precision, searched by signs first. */
MUST enum err vector_store_scan(struct vector_store **out, int dim);
MUST enum err vector_store_flat(struct vector_store **out, int dim);
/* hnsw: graph (32 links, built with 200, searched with 64) instead of an exact scan. */
MUST enum err vector_store_faiss(struct vector_store **out, int dim, bool hnsw, struct errmsg *e);

#endif
