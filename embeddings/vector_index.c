/* vector_index.c - ids, tombstones, locking and rebuilding around a vector store.
 * A removed or replaced id leaves a dead label; when a quarter is dead, or a flat FAISS store has outgrown hnsw_from, the live
 * vectors move to a new store. One rwlock: searches share it, changes are short (a rebuild is the long one, at most once per 25 %). */
#define _GNU_SOURCE
#include "embeddings/vector_index.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/u64_map.h"
#include "embeddings/vector_index_store.h"

enum {
    DEAD_MIN = 64,
    FETCH_EXTRA = 8,
    FETCH_MAX = 4096,
    SEARCHED_AT_ONCE = 800000 /* vectors times queries */
};

struct vector_index {
    struct vector_index_options opt;
    pthread_rwlock_t lock;
    struct vector_store *store;
    bool hnsw;
    size_t n_labels, labels_cap, n_live;
    uint64_t *id_of;          /* [n_labels] */
    uint8_t *live;            /* [n_labels] */
    struct u64_map label_of;  /* id -> 1 + label */
    size_t *vacant, n_vacant; /* [labels_cap]: labels to be used again, where the store can */
};

/* 1 + the label of id, 0 = unknown. */
static size_t find(const struct vector_index *x, uint64_t id)
{
    size_t at = SIZE_MAX;
    return (size_t)u64_map_next(&x->label_of, id, &at);
}

static bool labels_reserve(struct vector_index *x)
{
    if (x->n_labels == x->labels_cap) {
        size_t cap = x->labels_cap ? x->labels_cap * 2 : 64;
        uint64_t *ids = try_realloc(x->id_of, cap * sizeof *ids);
        if (!ids) return false;
        x->id_of = ids;
        uint8_t *live = try_realloc(x->live, cap);
        if (!live) return false;
        x->live = live;
        size_t *vacant = try_realloc(x->vacant, cap * sizeof *vacant);
        if (!vacant) return false;
        x->vacant = vacant;
        x->labels_cap = cap;
    }
    return true;
}

static enum err store_make(const struct vector_index *x, bool hnsw, struct vector_store **out,
                           struct errmsg *e)
{
    if (x->opt.kind == VECTOR_INDEX_SCAN) return vector_store_scan(out, x->opt.dim);
    if (x->opt.kind == VECTOR_INDEX_FLAT) return vector_store_flat(out, x->opt.dim);
    return vector_store_faiss(out, x->opt.dim, hnsw, e);
}

enum err vector_index_new(struct vector_index **out, const struct vector_index_options *o,
                          struct errmsg *e)
{
    *out = NULL;
    if (o->dim < 1 || o->dim > 4096)
        return err_set(e, ERR_RANGE, "vector index: %d dimensions, expected 1 to 4096", o->dim);
    struct vector_index *x = xcalloc(1, sizeof *x);
    x->opt = *o;
    if (!x->opt.hnsw_from) x->opt.hnsw_from = 20000;
    if (!x->opt.entries_max) x->opt.entries_max = 1000000;
    /* glibc's default lets overlapping searches keep an add waiting for ever */
    pthread_rwlockattr_t writers_first;
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&x->lock, &writers_first);
    pthread_rwlockattr_destroy(&writers_first);
    enum err rc = store_make(x, false, &x->store, e);
    if (rc) {
        vector_index_free(x);
        return rc;
    }
    *out = x;
    return OK;
}

void vector_index_free(struct vector_index *x)
{
    if (!x) return;
    if (x->store) x->store->ops->free(x->store);
    pthread_rwlock_destroy(&x->lock);
    mem_free(x->id_of);
    mem_free(x->live);
    u64_map_fini(&x->label_of);
    mem_free(x->vacant);
    mem_free(x);
}

static bool is_unit(const float *vec, int dim)
{
    double sum = 0;
    for (int i = 0; i < dim; i++)
        sum += (double)vec[i] * vec[i];
    return isfinite(sum) && fabs(sqrt(sum) - 1) <= 1e-3;
}

/* Moves the live vectors to a fresh store; on failure everything stays as it was. */
static void rebuild(struct vector_index *x, bool hnsw)
{
    struct vector_store *store;
    if (store_make(x, hnsw, &store, NULL)) return;
    uint64_t *ids = try_malloc((x->n_live + 1) * sizeof *ids);
    float *vec = try_malloc((size_t)x->opt.dim * sizeof *vec);
    size_t n = 0;
    bool ok = ids && vec;
    struct u64_map labels = {0};
    for (size_t label = 0; ok && label < x->n_labels; label++) {
        if (!x->live[label]) continue;
        ok = !x->store->ops->get(x->store, label, vec) && !store->ops->add(store, vec);
        ok = ok && u64_map_add(&labels, x->id_of[label], 1 + n);
        if (ok) ids[n++] = x->id_of[label];
    }
    mem_free(vec);
    if (!ok) {
        store->ops->free(store);
        u64_map_fini(&labels);
        mem_free(ids);
        return;
    }
    x->store->ops->free(x->store);
    x->store = store;
    x->hnsw = hnsw;
    memcpy(x->id_of, ids, n * sizeof *ids);
    memset(x->live, 1, n);
    x->n_labels = n;
    mem_free(ids);
    u64_map_fini(&x->label_of);
    x->label_of = labels;
}

static void rebuild_if_due(struct vector_index *x)
{
    size_t dead = x->n_labels - x->n_live;
    if (x->store->ops->set) return;
    bool grow = x->opt.kind == VECTOR_INDEX_FAISS && !x->hnsw && x->n_live >= x->opt.hnsw_from;
    if (grow || (dead >= DEAD_MIN && dead * 4 > x->n_labels)) rebuild(x, x->hnsw || grow);
}

static void vacate(struct vector_index *x, size_t label)
{
    x->live[label] = 0;
    if (x->store->ops->set && x->store->ops->set(x->store, label, NULL) == OK)
        x->vacant[x->n_vacant++] = label;
}

static bool drop(struct vector_index *x, uint64_t id)
{
    size_t found = find(x, id);
    if (!found) return false;
    (void)u64_map_remove(&x->label_of, id, found);
    x->n_live--;
    vacate(x, found - 1);
    return true;
}

/* Puts vec at a vacant label or a new one. */
static enum err put(struct vector_index *x, const float *vec, size_t *label)
{
    *label = x->n_vacant ? x->vacant[x->n_vacant - 1] : x->n_labels;
    enum err rc =
        x->n_vacant ? x->store->ops->set(x->store, *label, vec) : x->store->ops->add(x->store, vec);
    if (rc) return rc;
    if (x->n_vacant)
        x->n_vacant--;
    else
        x->n_labels++;
    return OK;
}

enum err vector_index_add(struct vector_index *x, uint64_t id, const float *vec)
{
    size_t label;
    if (!is_unit(vec, x->opt.dim)) return ERR_INVALID;
    pthread_rwlock_wrlock(&x->lock);
    bool known = find(x, id) != 0;
    enum err rc = (!known && x->n_live >= x->opt.entries_max) || !labels_reserve(x)
                      ? ERR_FULL
                      : put(x, vec, &label);
    if (!rc) {
        drop(x, id);
        x->id_of[label] = id;
        if (u64_map_add(&x->label_of, id, 1 + label)) {
            x->live[label] = 1;
            x->n_live++;
        } else {
            vacate(x, label);
            rc = ERR_FULL;
        }
        rebuild_if_due(x);
    }
    pthread_rwlock_unlock(&x->lock);
    return rc;
}

bool vector_index_remove(struct vector_index *x, uint64_t id)
{
    pthread_rwlock_wrlock(&x->lock);
    bool known = drop(x, id);
    if (known) rebuild_if_due(x);
    pthread_rwlock_unlock(&x->lock);
    return known;
}

static size_t pick(const struct vector_index *x, size_t n, const float *scores,
                   const int64_t *labels, size_t k, struct vector_hit *hits)
{
    size_t found = 0;
    for (size_t i = 0; i < n && found < k; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= x->n_labels || !x->live[labels[i]]) continue;
        hits[found++] = (struct vector_hit){x->id_of[labels[i]], scores[i]};
    }
    return found;
}

/* Asks the store for `fetch` labels of each query; false when it failed. The lock is held. */
static bool ask(struct vector_index *x, struct vector_query *queries, size_t n, size_t fetch)
{
    const float *vecs[VECTOR_QUERIES_MAX];
    float *scores = try_malloc(n * fetch * sizeof *scores);
    int64_t *labels = try_malloc(n * fetch * sizeof *labels);
    for (size_t i = 0; i < n; i++)
        vecs[i] = queries[i].vec;
    bool ok = scores && labels && x->store->ops->search(x->store, vecs, n, fetch, scores, labels);
    for (size_t i = 0; i < n && ok; i++)
        queries[i].n =
            pick(x, fetch, scores + i * fetch, labels + i * fetch, queries[i].k, queries[i].hits);
    mem_free(scores);
    mem_free(labels);
    return ok;
}

/* Dead labels use up places: asks for more until k are found or all were seen. */
static void search_on(struct vector_index *x, struct vector_query *q, size_t fetch)
{
    for (;; fetch *= 4) {
        if (fetch > x->n_labels) fetch = x->n_labels;
        if (fetch > FETCH_MAX) fetch = FETCH_MAX;
        if (!fetch || !ask(x, q, 1, fetch)) return;
        if (q->n == q->k || fetch == x->n_labels || fetch == FETCH_MAX) return;
    }
}

static bool is_searchable(const struct vector_index *x, const struct vector_query *q)
{
    return q->k && q->k <= FETCH_MAX && is_unit(q->vec, x->opt.dim);
}

/* Up to n queries, all searchable. The lock is held. */
static void search_together(struct vector_index *x, struct vector_query *queries, size_t n)
{
    size_t fetch = 0;
    for (size_t i = 0; i < n; i++)
        if (queries[i].k > fetch) fetch = queries[i].k;
    fetch += FETCH_EXTRA;
    if (fetch > x->n_labels) fetch = x->n_labels;
    if (fetch > FETCH_MAX) fetch = FETCH_MAX;
    if (!fetch || !ask(x, queries, n, fetch)) return;
    for (size_t i = 0; i < n; i++)
        if (queries[i].n < queries[i].k && queries[i].n < x->n_live)
            search_on(x, &queries[i], fetch * 4);
}

/* So many that a change need not wait for longer than a millisecond or two: a search of 100,000 takes some 0.1 ms. */
static size_t at_once(const struct vector_index *x)
{
    size_t n = x->n_labels ? SEARCHED_AT_ONCE / x->n_labels : VECTOR_QUERIES_MAX;
    return n < 1 ? 1 : n > VECTOR_QUERIES_MAX ? VECTOR_QUERIES_MAX : n;
}

void vector_index_search_many(struct vector_index *x, struct vector_query *queries, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t most = 1, together = 0;
        queries[i].n = 0;
        if (!is_searchable(x, &queries[i])) {
            i++;
            continue;
        }
        pthread_rwlock_rdlock(&x->lock);
        most = at_once(x);
        while (together < most && i + together < n && is_searchable(x, &queries[i + together]))
            queries[i + together++].n = 0;
        search_together(x, queries + i, together);
        pthread_rwlock_unlock(&x->lock);
        i += together;
    }
}

size_t vector_index_search(struct vector_index *x, const float *vec, size_t k,
                           struct vector_hit *hits)
{
    struct vector_query q = {vec, k, hits, 0};
    vector_index_search_many(x, &q, 1);
    return q.n;
}

size_t vector_index_count(struct vector_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    size_t n = x->n_live;
    pthread_rwlock_unlock(&x->lock);
    return n;
}

static size_t bytes_of(const struct vector_index *x)
{
    return x->store->ops->bytes(x->store) +
           x->labels_cap * (sizeof *x->id_of + sizeof *x->vacant + 1) + u64_map_bytes(&x->label_of);
}

size_t vector_index_bytes(struct vector_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    size_t n = bytes_of(x);
    pthread_rwlock_unlock(&x->lock);
    return n;
}

size_t vector_index_live_bytes(struct vector_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    size_t n = x->n_labels ? bytes_of(x) / x->n_labels * x->n_live : bytes_of(x);
    pthread_rwlock_unlock(&x->lock);
    return n;
}
