/* vector_index.h - near ids to a unit vector by inner product (= cosine), one index per embedding-model id and partition.
 * Three implementations: flat (exact scan, the oracle), FAISS through its C API (flat, then HNSW by size), and a scan over signs that
 * measures the nearest few hundred. Labels are internal: callers see their own 64-bit ids. Removal leaves a tombstone; rebuilt when many
 * are dead, but for the scan, which uses the place again.
 * Threading: search from any number of threads, add/remove from any (a lock inside); searches never see half an add. */
#ifndef DEJA_EMBEDDINGS_VECTOR_INDEX_H
#define DEJA_EMBEDDINGS_VECTOR_INDEX_H
#include "base/str.h"

struct vector_index;
enum vector_index_kind { VECTOR_INDEX_FLAT, VECTOR_INDEX_FAISS, VECTOR_INDEX_SCAN };
struct vector_index_options {
    enum vector_index_kind kind;
    int dim;            /* 1..4096 */
    size_t entries_max; /* live ids; beyond: ERR_FULL */
    size_t hnsw_from;   /* FAISS: switch from flat to HNSW at this many ids; 0 = 20000 */
};
struct vector_hit {
    uint64_t id;
    float score; /* cosine, -1..1 */
};
MUST enum err vector_index_new(struct vector_index **out, const struct vector_index_options *o,
                               struct errmsg *e);
void vector_index_free(struct vector_index *x);
/* vec f32[dim], finite and of length 1 within 1e-3 (ERR_INVALID otherwise). An id added again is replaced. */
MUST enum err vector_index_add(struct vector_index *x, uint64_t id, const float *vec);
bool vector_index_remove(struct vector_index *x, uint64_t id); /* false: unknown */
/* Up to k live hits, best first; returns their number: 0 also where vec is not finite and of length 1. */
size_t vector_index_search(struct vector_index *x, const float *vec, size_t k,
                           struct vector_hit *hits);
/* Many at once, for less than one by one: what is there is read for all of them together. Changes wait for some of the queries at most, not
 * for all. */
enum { VECTOR_QUERIES_MAX = 16 };
struct vector_query {
    const float *vec;        /* [dim] */
    size_t k;                /* wanted */
    struct vector_hit *hits; /* [k], best first */
    size_t n;                /* found: 0 also where vec is not finite and of length 1 */
};
void vector_index_search_many(struct vector_index *x, struct vector_query *queries, size_t n);
size_t vector_index_count(struct vector_index *x);
size_t vector_index_bytes(struct vector_index *x);
/* Of them what the live ids take: the rest waits for others. */
size_t vector_index_live_bytes(struct vector_index *x);

#endif
