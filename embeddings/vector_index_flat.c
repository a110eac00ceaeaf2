/* vector_index_flat.c - exact scan over plain arrays: the oracle the FAISS store is tested against, and what serves without it. */
#include <string.h>

#include "base/mem.h"
#include "embeddings/vector_index_store.h"

struct flat {
    struct vector_store base;
    int dim;
    size_t n, cap;
    float *vecs; /* [n][dim] */
};

static struct flat *flat_of(struct vector_store *s)
{
    return (struct flat *)s;
}

static void flat_free(struct vector_store *s)
{
    mem_free(flat_of(s)->vecs);
    mem_free(s);
}

static enum err flat_add(struct vector_store *s, const float *vec)
{
    struct flat *f = flat_of(s);
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 64;
        float *more = try_realloc(f->vecs, cap * (size_t)f->dim * sizeof *more);
        if (!more) return ERR_FULL;
        f->vecs = more;
        f->cap = cap;
    }
    memcpy(f->vecs + f->n++ * (size_t)f->dim, vec, (size_t)f->dim * sizeof *vec);
    return OK;
}

static float dot(const float *a, const float *b, int dim)
{
    float part[8] = {0};
    int i = 0;
    for (; i + 8 <= dim; i += 8)
        for (int j = 0; j < 8; j++)
            part[j] += a[i + j] * b[i + j];
    for (; i < dim; i++)
        part[0] += a[i] * b[i];
    return ((part[0] + part[4]) + (part[1] + part[5])) +
           ((part[2] + part[6]) + (part[3] + part[7]));
}

/* k is small: insertion into a sorted list beats a heap. */
static void search_one(const struct flat *f, const float *vec, size_t k, float *scores,
                       int64_t *labels)
{
    size_t found = 0;
    for (size_t label = 0; label < f->n; label++) {
        float score = dot(vec, f->vecs + label * (size_t)f->dim, f->dim);
        if (found == k && score <= scores[k - 1]) continue;
        size_t at = found < k ? found++ : k - 1;
        for (; at && scores[at - 1] < score; at--)
            scores[at] = scores[at - 1], labels[at] = labels[at - 1];
        scores[at] = score;
        labels[at] = (int64_t)label;
    }
    for (; found < k; found++)
        labels[found] = -1;
}

static bool flat_search(struct vector_store *s, const float *const *vecs, size_t n, size_t k,
                        float *scores, int64_t *labels)
{
    for (size_t i = 0; i < n; i++)
        search_one(flat_of(s), vecs[i], k, scores + i * k, labels + i * k);
    return true;
}

static enum err flat_get(struct vector_store *s, size_t label, float *vec)
{
    struct flat *f = flat_of(s);
    if (label >= f->n) return ERR_NOT_FOUND;
    memcpy(vec, f->vecs + label * (size_t)f->dim, (size_t)f->dim * sizeof *vec);
    return OK;
}

static size_t flat_bytes(struct vector_store *s)
{
    return flat_of(s)->cap * (size_t)flat_of(s)->dim * sizeof(float);
}

static const struct vector_store_ops flat_ops = {.free = flat_free,
                                                 .add = flat_add,
                                                 .search = flat_search,
                                                 .get = flat_get,
                                                 .bytes = flat_bytes};

enum err vector_store_flat(struct vector_store **out, int dim)
{
    struct flat *f = xcalloc(1, sizeof *f);
    f->base.ops = &flat_ops;
    f->dim = dim;
    *out = &f->base;
    return OK;
}
