/* Goal: the FAISS index answers like the exact scan, ids and tombstones are right through adds, replacements, removals and
 * rebuilds, and readers beside a writer see whole entries. Method: random operations against a plain array. */
#include "embeddings/vector_index.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

enum { DIM = 48 };

static void unit(struct rng *r, float *v, int dim)
{
    double sum = 0;
    for (int i = 0; i < dim; i++) {
        v[i] = (float)(rng_f64(r) + rng_f64(r) + rng_f64(r) - 1.5);
        sum += (double)v[i] * v[i];
    }
    for (int i = 0; i < dim; i++)
        v[i] = (float)(v[i] / sqrt(sum));
}

static struct vector_index *make(enum vector_index_kind kind, int dim, size_t hnsw_from)
{
    struct vector_index *x = NULL;
    struct errmsg e = {0};
    struct vector_index_options o = {
        .kind = kind, .dim = dim, .entries_max = 5000, .hnsw_from = hnsw_from};
    if (vector_index_new(&x, &o, &e)) printf("    %s\n", e.text);
    return x;
}

/* the plain array everything is compared with */
struct plain {
    float vec[400][DIM];
    bool live[400];
};

static double best_of(const struct plain *p, const float *q, uint64_t *id)
{
    double best = -2;
    for (int i = 0; i < 400; i++) {
        double s = 0;
        for (int d = 0; p->live[i] && d < DIM; d++)
            s += (double)q[d] * p->vec[i][d];
        if (p->live[i] && s > best) best = s, *id = (uint64_t)i * 7919;
    }
    return best;
}

static void random_ops(enum vector_index_kind kind)
{
    struct vector_index *x = make(kind, DIM, 100000);
    REQUIRE(x);
    struct plain *p = xcalloc(1, sizeof *p);
    struct rng r;
    rng_seed(&r, 11);
    size_t live = 0;
    for (int step = 0; step < 6000; step++) {
        int i = (int)rng_below(&r, 400);
        if (rng_below(&r, 3)) {
            unit(&r, p->vec[i], DIM);
            live += !p->live[i];
            p->live[i] = true;
            CHECK_INT(vector_index_add(x, (uint64_t)i * 7919, p->vec[i]), OK);
        } else {
            CHECK_INT(vector_index_remove(x, (uint64_t)i * 7919), p->live[i]);
            live -= p->live[i];
            p->live[i] = false;
        }
        if (step % 7) continue;
        float q[DIM];
        uint64_t id = 0;
        struct vector_hit hits[3];
        unit(&r, q, DIM);
        double want = best_of(p, q, &id);
        size_t n = vector_index_search(x, q, 3, hits, NULL, NULL);
        CHECK_INT(n, live < 3 ? live : 3);
        if (n) CHECK_INT(hits[0].id, id);
        if (n) CHECK_NEAR(hits[0].score, want, 1e-5);
    }
    CHECK_INT(vector_index_count(x), live);
    mem_free(p);
    vector_index_free(x);
}

TEST(flat_index_answers_like_a_plain_array)
{
    random_ops(VECTOR_INDEX_FLAT);
}
TEST(faiss_index_answers_like_a_plain_array)
{
    random_ops(VECTOR_INDEX_FAISS);
}

static bool only_even(void *arg, uint64_t id)
{
    (void)arg;
    return id % 2 == 0;
}

TEST(refused_ids_do_not_use_up_places)
{
    struct vector_index *x = make(VECTOR_INDEX_FAISS, DIM, 0);
    REQUIRE(x);
    struct rng r;
    rng_seed(&r, 3);
    float v[DIM];
    unit(&r, v, DIM);
    for (uint64_t id = 0; id < 200; id++)
        CHECK_INT(vector_index_add(x, id * 2 + 1, v), OK);
    CHECK_INT(vector_index_add(x, 4, v), OK);
    struct vector_hit hits[4];
    CHECK_INT(vector_index_search(x, v, 4, hits, only_even, NULL), 1);
    CHECK_INT(hits[0].id, 4);
    vector_index_free(x);
}

TEST(vectors_that_are_not_finite_and_of_length_one_are_refused)
{
    struct vector_index *x = make(VECTOR_INDEX_FAISS, 4, 0);
    REQUIRE(x);
    float nan_v[4] = {NAN, 0, 0, 0}, longer[4] = {1, 1, 0, 0}, good[4] = {1, 0, 0, 0};
    struct vector_hit hit;
    CHECK_INT(vector_index_add(x, 1, nan_v), ERR_INVALID);
    CHECK_INT(vector_index_add(x, 1, longer), ERR_INVALID);
    CHECK_INT(vector_index_add(x, 1, good), OK);
    CHECK_INT(vector_index_search(x, nan_v, 1, &hit, NULL, NULL), 0);
    CHECK_INT(vector_index_search(x, good, 1, &hit, NULL, NULL), 1);
    struct errmsg e = {0};
    struct vector_index *bad;
    CHECK_INT(vector_index_new(&bad, &(struct vector_index_options){.dim = 0}, &e), ERR_RANGE);
    CHECK(!bad && e.text[0]);
    vector_index_free(x);
}

TEST(index_full_says_so_and_still_replaces)
{
    struct vector_index *x;
    struct vector_index_options o = {.kind = VECTOR_INDEX_FLAT, .dim = 2, .entries_max = 2};
    REQUIRE(vector_index_new(&x, &o, NULL) == OK);
    float v[2] = {1, 0};
    CHECK_INT(vector_index_add(x, 1, v), OK);
    CHECK_INT(vector_index_add(x, 2, v), OK);
    CHECK_INT(vector_index_add(x, 3, v), ERR_FULL);
    CHECK_INT(vector_index_add(x, 2, v), OK);
    vector_index_free(x);
}

TEST(growing_past_the_limit_switches_to_a_graph_that_still_finds_near_vectors)
{
    enum { N = 1500 };
    struct vector_index *x = make(VECTOR_INDEX_FAISS, DIM, 1000);
    REQUIRE(x);
    float(*v)[DIM] = xcalloc(N, sizeof *v);
    struct rng r;
    rng_seed(&r, 5);
    for (int i = 0; i < N; i++) {
        unit(&r, v[i], DIM);
        CHECK_INT(vector_index_add(x, (uint64_t)i, v[i]), OK);
    }
    int found = 0;
    for (int i = 0; i < N; i += 5) {
        struct vector_hit hit;
        found += vector_index_search(x, v[i], 1, &hit, NULL, NULL) && hit.id == (uint64_t)i &&
                 hit.score > 0.999;
    }
    CHECK_AT(found >= 297, "%d of 300 found themselves", found);
    mem_free(v);
    vector_index_free(x);
}

struct racing {
    struct vector_index *x;
    atomic_bool stop;
    atomic_int searches, wrong;
};

static void *reader(void *arg)
{
    struct racing *c = arg;
    struct rng r;
    rng_seed(&r, 77);
    while (!atomic_load(&c->stop)) {
        float q[DIM];
        struct vector_hit hits[2];
        unit(&r, q, DIM);
        size_t n = vector_index_search(c->x, q, 2, hits, NULL, NULL);
        for (size_t i = 0; i < n; i++)
            if (hits[i].id >= 3000 || hits[i].score > 1.001f) atomic_fetch_add(&c->wrong, 1);
        atomic_fetch_add(&c->searches, 1);
    }
    return NULL;
}

TEST(searches_beside_adds_see_whole_entries)
{
    struct racing c = {.x = make(VECTOR_INDEX_FAISS, DIM, 500)};
    REQUIRE(c.x);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, reader, &c);
    struct rng r;
    rng_seed(&r, 9);
    for (uint64_t id = 0; id < 3000; id++) {
        float v[DIM];
        unit(&r, v, DIM);
        CHECK_INT(vector_index_add(c.x, id, v), OK);
        if (id % 3 == 0 && id) vector_index_remove(c.x, id - 1);
    }
    atomic_store(&c.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    CHECK_INT(atomic_load(&c.wrong), 0);
    CHECK(atomic_load(&c.searches) > 0);
    vector_index_free(c.x);
}

TEST_MAIN()
