/* Goal: the FAISS index and the scan over signs answer like the exact scan, ids and tombstones are right through adds, replacements,
 * removals and rebuilds, and readers beside a writer see whole entries. Method: random operations against a plain array. */
#include "embeddings/vector_index.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "embeddings/sign_scan.h"
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
        size_t n = vector_index_search(x, q, 3, hits);
        CHECK_INT(n, live < 3 ? live : 3);
        bool halves = kind == VECTOR_INDEX_SCAN; /* two that are as near may change places */
        if (n && !halves) CHECK_INT(hits[0].id, id);
        if (n) CHECK_NEAR(hits[0].score, want, halves ? 1e-3 : 1e-5);
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

TEST(the_scan_over_signs_answers_like_a_plain_array)
{
    random_ops(VECTOR_INDEX_SCAN);
}

/* Groups of wordings around a question, in a cone as encoders make them, with changes under way. */
TEST(the_scan_over_signs_finds_what_the_exact_scan_finds)
{
    enum { N = 6000, D = 128, GROUP = 6, QUERIES = 300 };
    struct vector_index_options o = {.dim = D, .entries_max = 2 * N};
    struct vector_index *flat, *scan;
    struct errmsg e = {0};
    struct rng r;
    float *all = xcalloc((size_t)N * D, sizeof *all), centre[D], cone[D], q[D];
    size_t same = 0;
    rng_seed(&r, 21);
    o.kind = VECTOR_INDEX_FLAT;
    REQUIRE(vector_index_new(&flat, &o, &e) == OK);
    o.kind = VECTOR_INDEX_SCAN;
    REQUIRE(vector_index_new(&scan, &o, &e) == OK);
    unit(&r, cone, D);
    for (int i = 0; i < N; i++) {
        float *v = all + i * D, noise[D];
        double sum = 0;
        if (i % GROUP == 0) unit(&r, centre, D);
        unit(&r, noise, D);
        for (int d = 0; d < D; d++)
            v[d] = 1.5F * cone[d] + centre[d] + 0.5F * noise[d], sum += (double)v[d] * v[d];
        for (int d = 0; d < D; d++)
            v[d] = (float)(v[d] / sqrt(sum));
        CHECK_INT(vector_index_add(flat, (uint64_t)i, v), OK);
        CHECK_INT(vector_index_add(scan, (uint64_t)i, v), OK);
        if (i % 3) continue;
        uint64_t gone = rng_below(&r, (uint64_t)i + 1);
        CHECK_INT(vector_index_remove(flat, gone), vector_index_remove(scan, gone));
    }
    CHECK_INT(vector_index_count(flat), vector_index_count(scan));
    for (int i = 0; i < QUERIES; i++) {
        const float *v = all + rng_below(&r, N) * D;
        float noise[D];
        struct vector_hit a[3], b[3];
        double sum = 0;
        unit(&r, noise, D);
        for (int d = 0; d < D; d++)
            q[d] = v[d] + 0.2F * noise[d], sum += (double)q[d] * q[d];
        for (int d = 0; d < D; d++)
            q[d] = (float)(q[d] / sqrt(sum));
        REQUIRE(vector_index_search(flat, q, 3, a) == 3);
        REQUIRE(vector_index_search(scan, q, 3, b) == 3);
        same += a[0].id == b[0].id || fabs((double)a[0].score - (double)b[0].score) < 1e-3;
        CHECK(b[0].score >= b[1].score && b[1].score >= b[2].score);
    }
    CHECK_AT(same >= QUERIES * 99 / 100, "%zu of %d", same, QUERIES);
    mem_free(all);
    vector_index_free(flat);
    vector_index_free(scan);
}

/* Bits of rows and a query, most rows near it. */
static void bits(struct rng *r, uint64_t *rows, size_t n_blocks, size_t words, uint64_t *query)
{
    for (size_t w = 0; w < words; w++)
        query[w] = rng_u64(r);
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t w = 0; w < words; w++)
            for (size_t i = 0; i < SIGN_BLOCK; i++)
                rows[(b * words + w) * SIGN_BLOCK + i] =
                    query[w] ^ (rng_u64(r) & rng_u64(r) & (i % 3 ? rng_u64(r) : ~0ULL));
}

TEST(every_instruction_set_finds_the_same_rows_and_the_same_sums)
{
    enum { BLOCKS = 40, WORDS = 64 };
    static const size_t sizes[] = {1, 2, 6, 12, 31, 32, 63, 64};
    const struct sign_scan *all[SIGN_SCANS_MAX];
    size_t n_scans = sign_scans(all);
    uint64_t *rows = xcalloc(BLOCKS * WORDS * SIGN_BLOCK, sizeof *rows), query[WORDS];
    uint32_t want[BLOCKS * SIGN_BLOCK], got[BLOCKS * SIGN_BLOCK];
    float numbers[WORDS * 64];
    uint16_t halves[WORDS * 64];
    struct rng r;
    rng_seed(&r, 31);
    for (size_t i = 0; i < WORDS * 64; i++) {
        numbers[i] = (float)(rng_f64(&r) - 0.5);
        halves[i] = (uint16_t)(0x2C00 + rng_below(&r, 0x1000) + 0x8000 * rng_below(&r, 2));
    }
    CHECK(sign_scan_best() == all[n_scans - 1]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t words = sizes[s], found = 0;
        bits(&r, rows, BLOCKS, words, query);
        for (unsigned limit = 0; limit <= words * 64; limit += (unsigned)words * 4) {
            struct sign_query q = {query, limit, want, 0};
            all[0]->near(&q, 1, rows, BLOCKS, words);
            size_t n = q.n;
            for (size_t i = 1; i < n_scans; i++) {
                q.out = got;
                all[i]->near(&q, 1, rows, BLOCKS, words);
                CHECK_INT(q.n, n);
                CHECK_AT(!memcmp(want, got, n * sizeof *got), "%s", all[i]->name);
            }
            CHECK(n >= found && n <= BLOCKS * SIGN_BLOCK);
            found = n;
        }
        CHECK_INT(found, BLOCKS * SIGN_BLOCK);
        for (size_t i = 0; i < n_scans; i++) {
            CHECK_NEAR(all[i]->sum(numbers, rows + 3, words), all[0]->sum(numbers, rows + 3, words),
                       1e-3);
            for (size_t dim = words * 64 - 37; dim <= words * 64; dim += 37)
                CHECK_NEAR(all[i]->dot(numbers, halves, dim), all[0]->dot(numbers, halves, dim),
                           1e-3);
        }
    }
    mem_free(rows);
}

TEST(many_queries_at_once_find_what_each_finds_alone)
{
    enum { BLOCKS = 9, WORDS = 13, QUERIES = 2 * SIGN_TOGETHER + 3 };
    static const size_t sizes[] = {6, 12, 13};
    const struct sign_scan *all[SIGN_SCANS_MAX];
    size_t n_scans = sign_scans(all);
    static uint64_t rows[BLOCKS * WORDS * SIGN_BLOCK], bits_of[QUERIES][WORDS];
    static uint32_t alone[BLOCKS * SIGN_BLOCK], together[QUERIES][BLOCKS * SIGN_BLOCK];
    struct rng r;
    rng_seed(&r, 32);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t n = 1; n <= QUERIES; n++) {
            struct sign_query q[QUERIES];
            bits(&r, rows, BLOCKS, sizes[s], bits_of[0]);
            for (size_t i = 0; i < n; i++) {
                for (size_t w = 0; w < sizes[s]; w++)
                    bits_of[i][w] = bits_of[0][w] ^ (i ? rng_u64(&r) & rng_u64(&r) : 0);
                unsigned limit = (unsigned)rng_below(&r, sizes[s] * 64);
                q[i] = (struct sign_query){bits_of[i], limit, together[i], 99};
            }
            for (size_t k = 0; k < n_scans; k++) {
                all[k]->near(q, n, rows, BLOCKS, sizes[s]);
                for (size_t i = 0; i < n; i++) {
                    struct sign_query one = {bits_of[i], q[i].limit, alone, 0};
                    all[0]->near(&one, 1, rows, BLOCKS, sizes[s]);
                    CHECK_INT(q[i].n, one.n);
                    CHECK_AT(!memcmp(alone, together[i], one.n * sizeof *alone), "%s",
                             all[k]->name);
                }
            }
        }
}

/* Goal: a search of many gives what one by one gives, with some that cannot be searched, different k, and ids removed. */
static void many_are_as_one_by_one(enum vector_index_kind kind, size_t n)
{
    enum { QUERIES = 2 * VECTOR_QUERIES_MAX + 5, K = 9 };
    struct vector_index *x = NULL;
    struct vector_index_options o = {.kind = kind, .dim = DIM, .entries_max = n};
    struct vector_query queries[QUERIES];
    static float vecs[QUERIES][DIM];
    static struct vector_hit many[QUERIES][K];
    struct rng r;
    rng_seed(&r, 13);
    REQUIRE(vector_index_new(&x, &o, NULL) == OK);
    for (uint64_t id = 0; id < n; id++) {
        float v[DIM];
        unit(&r, v, DIM);
        CHECK_INT(vector_index_add(x, id, v), OK);
        if (id % 4 == 1) CHECK(vector_index_remove(x, id - 1));
    }
    for (size_t i = 0; i < QUERIES; i++) {
        unit(&r, vecs[i], DIM);
        if (i % 7 == 3) vecs[i][0] += 1;
        queries[i] = (struct vector_query){vecs[i], i % 11 == 5 ? 0 : 1 + i % K, many[i], 77};
    }
    vector_index_search_many(x, queries, QUERIES);
    for (size_t i = 0; i < QUERIES; i++) {
        struct vector_hit one[K];
        size_t found = vector_index_search(x, vecs[i], queries[i].k, one);
        CHECK_INT(queries[i].n, found);
        CHECK(i % 7 == 3 ? !found : found == queries[i].k);
        for (size_t h = 0; h < found; h++)
            CHECK(one[h].id == many[i][h].id && one[h].score == many[i][h].score);
    }
    vector_index_free(x);
}

TEST(a_search_of_many_gives_what_one_by_one_gives)
{
    many_are_as_one_by_one(VECTOR_INDEX_FLAT, 500);
    many_are_as_one_by_one(VECTOR_INDEX_FAISS, 500);
    many_are_as_one_by_one(VECTOR_INDEX_SCAN, 500);
    many_are_as_one_by_one(VECTOR_INDEX_SCAN, 9000);
}

TEST(a_search_among_thousands_of_equal_vectors_is_bounded_and_finds_the_better_one)
{
    struct vector_index *x = NULL;
    struct vector_index_options o = {.kind = VECTOR_INDEX_SCAN, .dim = DIM, .entries_max = 12000};
    struct vector_hit hits[40];
    struct rng r;
    float same[DIM], near[DIM], other[DIM];
    double sum = 0;
    rng_seed(&r, 17);
    REQUIRE(vector_index_new(&x, &o, NULL) == OK);
    unit(&r, same, DIM);
    unit(&r, other, DIM);
    for (int d = 0; d < DIM; d++)
        near[d] = same[d] + 0.6F * other[d], sum += (double)near[d] * near[d];
    for (int d = 0; d < DIM; d++)
        near[d] = (float)(near[d] / sqrt(sum));
    for (uint64_t id = 0; id < 12000; id++) {
        if (id < 5000) unit(&r, other, DIM);
        CHECK_INT(vector_index_add(x, id, id < 5000 ? other : id == 9000 ? near : same), OK);
    }
    REQUIRE(vector_index_search(x, near, 40, hits) == 40);
    CHECK_INT(hits[0].id, 9000);
    for (int i = 1; i < 40; i++)
        CHECK(hits[i].id >= 5000 && hits[i].id != 9000);
    vector_index_free(x);
}

TEST(a_place_of_the_scan_is_used_again_so_that_changes_take_no_more_memory)
{
    struct vector_index *x = make(VECTOR_INDEX_SCAN, DIM, 0);
    struct rng r;
    float v[DIM];
    REQUIRE(x);
    rng_seed(&r, 5);
    for (uint64_t id = 0; id < 100; id++) {
        unit(&r, v, DIM);
        CHECK_INT(vector_index_add(x, id, v), OK);
    }
    size_t bytes = vector_index_bytes(x), live = vector_index_live_bytes(x);
    for (uint64_t id = 0; id < 20000; id++) {
        unit(&r, v, DIM);
        CHECK_INT(vector_index_add(x, 100 + id, v), OK);
        CHECK(vector_index_remove(x, 100 + id));
        CHECK_INT(vector_index_add(x, id % 100, v), OK);
    }
    CHECK_INT(vector_index_count(x), 100);
    CHECK(vector_index_bytes(x) <= bytes + bytes / 2); /* the map of ids may be growing */
    for (uint64_t id = 0; id < 50; id++)
        CHECK(vector_index_remove(x, id));
    CHECK(vector_index_live_bytes(x) < live);
    vector_index_free(x);
}

TEST(removed_ids_do_not_use_up_places)
{
    struct vector_index *x = make(VECTOR_INDEX_FAISS, DIM, 0);
    REQUIRE(x);
    struct rng r;
    rng_seed(&r, 3);
    float v[DIM];
    unit(&r, v, DIM);
    for (uint64_t id = 0; id < 61; id++) /* too few to rebuild it when they are dead */
        CHECK_INT(vector_index_add(x, id, v), OK);
    for (uint64_t id = 0; id < 60; id++)
        CHECK(vector_index_remove(x, id));
    struct vector_hit hits[4];
    CHECK_INT(vector_index_search(x, v, 4, hits), 1);
    CHECK_INT(hits[0].id, 60);
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
    CHECK_INT(vector_index_search(x, nan_v, 1, &hit), 0);
    CHECK_INT(vector_index_search(x, good, 1, &hit), 1);
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
        found +=
            vector_index_search(x, v[i], 1, &hit) && hit.id == (uint64_t)i && hit.score > 0.999;
    }
    CHECK_AT(found >= 297, "%d of 300 found themselves", found);
    mem_free(v);
    vector_index_free(x);
}

struct racing {
    struct vector_index *x;
    uint64_t n;
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
        struct vector_hit hits[2], others[2];
        unit(&r, q, DIM);
        struct vector_query two[] = {{q, 2, hits, 0}, {q, 2, others, 0}};
        vector_index_search_many(c->x, two, 2);
        for (size_t i = 0; i < two[0].n; i++)
            if (hits[i].id >= c->n || hits[i].score > 1.001f) atomic_fetch_add(&c->wrong, 1);
        atomic_fetch_add(&c->searches, 1);
    }
    return NULL;
}

static void race(enum vector_index_kind kind, uint64_t n)
{
    struct racing c = {.x = make(kind, DIM, 500), .n = n};
    REQUIRE(c.x);
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, reader, &c);
    struct rng r;
    rng_seed(&r, 9);
    for (uint64_t id = 0; id < n; id++) {
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

TEST(searches_beside_adds_see_whole_entries)
{
    race(VECTOR_INDEX_FAISS, 3000);
    race(VECTOR_INDEX_SCAN, 6500);
}

TEST_MAIN()
