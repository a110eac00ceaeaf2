/* vector_index.c - ids, tombstones, locking and rebuilding around a vector store.
 * A removed or replaced id leaves a dead label; when a quarter is dead, or a flat FAISS store has outgrown hnsw_from, the live
 * vectors move to a new store. One rwlock: searches share it, changes are short (a rebuild is the long one, at most once per 25 %). */
#define _GNU_SOURCE
#include "embeddings/vector_index.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "embeddings/vector_index_store.h"

enum { DEAD_MIN = 64, FETCH_EXTRA = 8, FETCH_MAX = 4096, NO_SLOT = -1 };

struct vector_index {
    struct vector_index_options opt;
    pthread_rwlock_t lock;
    struct vector_store *store;
    bool hnsw;
    size_t n_labels, labels_cap, n_live;
    uint64_t *id_of; /* [n_labels] */
    uint8_t *live;   /* [n_labels] */
    int64_t *slots;  /* open addressing: label or NO_SLOT; power of two, at most half full */
    size_t n_slots;
};

static size_t mix(uint64_t id)
{
    id = (id ^ id >> 33) * 0xFF51AFD7ED558CCDu;
    return (size_t)(id ^ id >> 29);
}

/* The slot that holds id, or the free one where it belongs. */
static size_t slot_of(const struct vector_index *x, uint64_t id)
{
    size_t at = mix(id) & (x->n_slots - 1);
    while (x->slots[at] != NO_SLOT && x->id_of[x->slots[at]] != id)
        at = (at + 1) & (x->n_slots - 1);
    return at;
}

static bool slots_resize(struct vector_index *x, size_t n_slots)
{
    int64_t *slots = try_malloc(n_slots * sizeof *slots);
    if (!slots) return false;
    memset(slots, 0xFF, n_slots * sizeof *slots);
    mem_free(x->slots);
    x->slots = slots;
    x->n_slots = n_slots;
    for (size_t label = 0; label < x->n_labels; label++)
        if (x->live[label]) x->slots[slot_of(x, x->id_of[label])] = (int64_t)label;
    return true;
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
        x->labels_cap = cap;
    }
    return (x->n_live + 1) * 2 <= x->n_slots || slots_resize(x, x->n_slots * 2);
}

static enum err store_make(const struct vector_index *x, bool hnsw, struct vector_store **out,
                           struct errmsg *e)
{
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
    if (!rc && !slots_resize(x, 128)) rc = err_set(e, ERR_FULL, "vector index: no memory");
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
    mem_free(x->slots);
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
    for (size_t label = 0; ok && label < x->n_labels; label++) {
        if (!x->live[label]) continue;
        ok = !x->store->ops->get(x->store, label, vec) && !store->ops->add(store, vec);
        if (ok) ids[n++] = x->id_of[label];
    }
    mem_free(vec);
    if (!ok) {
        store->ops->free(store);
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
    bool resized = slots_resize(x, x->n_slots);
    ASSERT(resized); /* same size as what was just freed */
}

static void rebuild_if_due(struct vector_index *x)
{
    size_t dead = x->n_labels - x->n_live;
    bool grow = x->opt.kind == VECTOR_INDEX_FAISS && !x->hnsw && x->n_live >= x->opt.hnsw_from;
    if (grow || (dead >= DEAD_MIN && dead * 4 > x->n_labels)) rebuild(x, x->hnsw || grow);
}

/* Clears the slot and moves later members of its run up, so that look-ups need no tombstones in the table. */
static void slot_clear(struct vector_index *x, size_t at)
{
    size_t mask = x->n_slots - 1;
    x->slots[at] = NO_SLOT;
    for (size_t next = (at + 1) & mask; x->slots[next] != NO_SLOT; next = (next + 1) & mask) {
        size_t home = mix(x->id_of[x->slots[next]]) & mask;
        if (((next - home) & mask) < ((next - at) & mask)) continue;
        x->slots[at] = x->slots[next];
        x->slots[next] = NO_SLOT;
        at = next;
    }
}

static bool drop(struct vector_index *x, uint64_t id)
{
    size_t at = slot_of(x, id);
    if (x->slots[at] == NO_SLOT) return false;
    x->live[x->slots[at]] = 0;
    x->n_live--;
    slot_clear(x, at);
    return true;
}

enum err vector_index_add(struct vector_index *x, uint64_t id, const float *vec)
{
    if (!is_unit(vec, x->opt.dim)) return ERR_INVALID;
    pthread_rwlock_wrlock(&x->lock);
    bool known = x->slots[slot_of(x, id)] != NO_SLOT;
    enum err rc = (!known && x->n_live >= x->opt.entries_max) || !labels_reserve(x)
                      ? ERR_FULL
                      : x->store->ops->add(x->store, vec);
    if (!rc) {
        drop(x, id);
        size_t label = x->n_labels++;
        x->id_of[label] = id;
        x->live[label] = 1;
        x->n_live++;
        x->slots[slot_of(x, id)] = (int64_t)label;
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

struct picking {
    struct vector_hit *hits;
    size_t k, n;
    bool (*keep)(void *arg, uint64_t id);
    void *arg;
};

static void pick(const struct vector_index *x, size_t n, const float *scores, const int64_t *labels,
                 struct picking *p)
{
    p->n = 0;
    for (size_t i = 0; i < n && p->n < p->k; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= x->n_labels || !x->live[labels[i]]) continue;
        uint64_t id = x->id_of[labels[i]];
        if (p->keep && !p->keep(p->arg, id)) continue;
        p->hits[p->n++] = (struct vector_hit){id, scores[i]};
    }
}

size_t vector_index_search(struct vector_index *x, const float *vec, size_t k,
                           struct vector_hit *hits, bool (*keep)(void *arg, uint64_t id), void *arg)
{
    struct picking p = {hits, k, 0, keep, arg};
    if (!k || k > FETCH_MAX || !is_unit(vec, x->opt.dim)) return 0;
    pthread_rwlock_rdlock(&x->lock);
    /* dead labels and refused ids use up places: ask for more until k are found or all were seen */
    for (size_t fetch = k + FETCH_EXTRA;; fetch *= 4) {
        if (fetch > x->n_labels) fetch = x->n_labels;
        if (fetch > FETCH_MAX) fetch = FETCH_MAX;
        if (!fetch) break;
        float *scores = try_malloc(fetch * sizeof *scores);
        int64_t *labels = try_malloc(fetch * sizeof *labels);
        bool ok = scores && labels && x->store->ops->search(x->store, vec, fetch, scores, labels);
        if (ok) pick(x, fetch, scores, labels, &p);
        mem_free(scores);
        mem_free(labels);
        if (!ok || p.n == k || fetch == x->n_labels || fetch == FETCH_MAX) break;
    }
    pthread_rwlock_unlock(&x->lock);
    return p.n;
}

size_t vector_index_count(struct vector_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    size_t n = x->n_live;
    pthread_rwlock_unlock(&x->lock);
    return n;
}

size_t vector_index_bytes(struct vector_index *x)
{
    pthread_rwlock_rdlock(&x->lock);
    size_t n = x->store->ops->bytes(x->store) + x->labels_cap * (sizeof *x->id_of + 1) +
               x->n_slots * sizeof *x->slots;
    pthread_rwlock_unlock(&x->lock);
    return n;
}
