/* vector_index_faiss.c - the store on FAISS through its own C API headers (the shim in faiss_c_shim.cpp supplies the symbols where the
 * library has none). Inner product; "Flat" or "HNSW32,Flat". FAISS hands out labels in order of addition, which is all we use: no
 * IDMap (refuses search here), no remove_ids (HNSW has none, Flat shifts labels).
 * Threading: FAISS calls OpenMP; one thread per call is set in each calling thread, parallelism is ours. */
#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/Index_c.h>
#define OK FAISS_OK /* error_c.h has an enumerator of that name too */
#include <faiss/c_api/error_c.h>
#undef OK
#include <faiss/c_api/index_factory_c.h>
#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "embeddings/vector_index_store.h"

void omp_set_num_threads(int n); /* libgomp; <omp.h> is not shipped with clang */

struct faiss_store {
    struct vector_store base;
    int dim;
    bool hnsw;
    FaissIndex *index;
};

static struct faiss_store *store_of(struct vector_store *s)
{
    return (struct faiss_store *)s;
}

static void one_thread(void)
{
    static _Thread_local bool done;
    if (!done) omp_set_num_threads(1);
    done = true;
}

static const char *last_error(void)
{
    const char *text = faiss_get_last_error();
    return text ? text : "unknown error";
}

static void store_free(struct vector_store *s)
{
    if (store_of(s)->index) faiss_Index_free(store_of(s)->index);
    mem_free(s);
}

static enum err store_add(struct vector_store *s, const float *vec)
{
    one_thread();
    if (!faiss_Index_add(store_of(s)->index, 1, vec)) return OK;
    log_limited(LOG_WARN, "embeddings", "faiss add: %s", last_error());
    return ERR_FULL;
}

static bool store_search(struct vector_store *s, const float *const *vecs, size_t n, size_t k,
                         float *scores, int64_t *labels)
{
    one_thread();
    _Static_assert(sizeof(idx_t) == sizeof(int64_t), "labels are 64 bit");
    for (size_t i = 0; i < n; i++) {
        if (!faiss_Index_search(store_of(s)->index, 1, vecs[i], (idx_t)k, scores + i * k,
                                (idx_t *)labels + i * k))
            continue;
        log_limited(LOG_WARN, "embeddings", "faiss search: %s", last_error());
        return false;
    }
    for (size_t i = 0; i < n * k; i++)
        if (!isfinite(scores[i])) labels[i] = -1; /* HNSW answers a NaN query with a valid label */
    return true;
}

static enum err store_get(struct vector_store *s, size_t label, float *vec)
{
    return faiss_Index_reconstruct(store_of(s)->index, (idx_t)label, vec) ? ERR_NOT_FOUND : OK;
}

static size_t store_bytes(struct vector_store *s)
{
    struct faiss_store *f = store_of(s);
    size_t links =
        f->hnsw ? 64 * sizeof(int32_t) + 16 : 0; /* 2 x 32 links on the ground level, few above */
    return (size_t)faiss_Index_ntotal(f->index) * ((size_t)f->dim * sizeof(float) + links);
}

static const struct vector_store_ops store_ops = {.free = store_free,
                                                  .add = store_add,
                                                  .search = store_search,
                                                  .get = store_get,
                                                  .bytes = store_bytes};

static int tune(FaissIndex *index)
{
    FaissParameterSpace *space = NULL;
    int rc = faiss_ParameterSpace_new(&space);
    if (!rc)
        rc = faiss_ParameterSpace_set_index_parameters(space, index,
                                                       "efConstruction=200,efSearch=64");
    if (space) faiss_ParameterSpace_free(space);
    return rc;
}

enum err vector_store_faiss(struct vector_store **out, int dim, bool hnsw, struct errmsg *e)
{
    struct faiss_store *f = xcalloc(1, sizeof *f);
    f->base.ops = &store_ops;
    f->dim = dim;
    f->hnsw = hnsw;
    one_thread();
    int rc =
        faiss_index_factory(&f->index, dim, hnsw ? "HNSW32,Flat" : "Flat", METRIC_INNER_PRODUCT);
    if (!rc && hnsw) rc = tune(f->index);
    if (rc) {
        err_set(e, ERR_UNAVAILABLE, "faiss cannot make the index: %s", last_error());
        store_free(&f->base);
        *out = NULL;
        return ERR_UNAVAILABLE;
    }
    *out = &f->base;
    return OK;
}
