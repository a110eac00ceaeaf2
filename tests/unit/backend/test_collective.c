/* test_collective.c - goal: ranks on the CPU sum and gather the same values everywhere, whatever the shapes; a rank that fails or
 * stays away ends every wait of the others with a sentence, soon. Method: a thread a rank, random values against plain loops. */
#include "engine/backend/collective.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/check.h"

enum { RANKS = 3, ROWS = 5, N = 1301, COLUMNS = 101, ROUNDS = 20 };

struct rank {
    struct collective *group;
    struct backend *be;
    int rank;
    float x[N], whole[ROWS * COLUMNS], part[ROWS * COLUMNS], all[ROWS * COLUMNS];
    uint64_t waited_ms;
    enum err joined;
    struct errmsg e;
};

static void start(struct rank *r, int n, struct collective *group)
{
    struct backend_options o = {.n_threads = 1};
    for (int i = 0; i < n; i++) {
        r[i] = (struct rank){.group = group, .rank = i};
        REQUIRE(backend_open(&r[i].be, &o, &r[i].e) == OK);
    }
}

static void on_threads(struct rank *r, int n, void *(*run)(void *))
{
    pthread_t t[RANKS];
    for (int i = 0; i < n; i++)
        REQUIRE(!pthread_create(&t[i], NULL, run, &r[i]));
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

static void end(struct rank *r, int n)
{
    for (int i = 0; i < n; i++)
        backend_close(r[i].be);
    collective_free(r[0].group);
}

static float value(int rank, int i)
{
    return (float)((i * 7919 + rank * 104729) % 2003) / 64.0f - 15;
}

static void *sum_and_gather(void *arg)
{
    struct rank *r = arg;
    int first = collective_first(COLUMNS, RANKS, r->rank),
        width = collective_first(COLUMNS, RANKS, r->rank + 1) - first;
    r->joined = backend_join(r->be, r->group, r->rank, &r->e);
    if (r->joined) return NULL;
    for (int k = 0; k < ROUNDS; k++) {
        for (int i = 0; i < N; i++)
            r->x[i] = value(r->rank, i);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < width; j++)
                r->part[i * width + j] = (float)(i * 1000 + first + j);
        backend_all_reduce(r->be, r->x, (size_t)(k ? N : 1));
        backend_all_gather(r->be, r->part, ROWS, COLUMNS, r->rank == 1 ? NULL : r->all);
    }
    return NULL;
}

TEST(sums_and_gathers_are_the_same_on_every_rank)
{
    static struct rank r[RANKS];
    start(r, RANKS, collective_new(RANKS, 0));
    on_threads(r, RANKS, sum_and_gather);
    for (int i = 0; i < RANKS; i++) {
        REQUIRE(r[i].joined == OK);
        for (int j = 0; j < N; j++)
            CHECK(r[i].x[j] == value(0, j) + value(1, j) + value(2, j));
        for (int j = 0; j < ROWS * COLUMNS && i != 1; j++)
            CHECK(r[i].all[j] == (float)(j / COLUMNS * 1000 + j % COLUMNS));
    }
    CHECK(!collective_failure(r[0].group));
    end(r, RANKS);
}

TEST(the_parts_of_a_number_follow_one_another_and_none_is_longer_than_the_longest)
{
    for (int n = 0; n < 70; n++)
        for (int ranks = 1; ranks <= COLLECTIVE_RANKS_MAX; ranks++) {
            CHECK_INT(collective_first(n, ranks, 0), 0);
            CHECK_INT(collective_first(n, ranks, ranks), n);
            for (int i = 0; i < ranks; i++) {
                int part = collective_first(n, ranks, i + 1) - collective_first(n, ranks, i);
                CHECK(part >= 0 && part <= collective_most(n, ranks));
            }
        }
}

static void *join_and_sum(void *arg)
{
    struct rank *r = arg;
    uint64_t from = clock_ms();
    r->joined = backend_join(r->be, r->group, r->rank, &r->e);
    if (!r->joined) backend_all_reduce(r->be, r->x, N);
    r->waited_ms = clock_ms() - from;
    return NULL;
}

TEST(a_rank_that_stays_away_ends_the_wait_of_the_others_with_its_number)
{
    static struct rank r[RANKS];
    start(r, RANKS, collective_new(RANKS, 200));
    on_threads(r, RANKS - 1, join_and_sum);
    for (int i = 0; i < RANKS - 1; i++) {
        CHECK_INT(r[i].joined, ERR_UNAVAILABLE);
        CHECK(strstr(r[i].e.text, "rank 2 of 3 did not come to the others within 200 ms"));
        CHECK(r[i].waited_ms < 20000);
    }
    end(r, RANKS);
}

static void *leave_or_sum(void *arg)
{
    struct rank *r = arg;
    uint64_t from = clock_ms();
    r->joined = backend_join(r->be, r->group, r->rank, &r->e);
    for (int i = 0; i < 1000 && !r->joined; i++) {
        if (r->rank == 1 && i == 700) {
            collective_abort(r->group, "rank 1 fell down");
            break;
        }
        backend_all_reduce(r->be, r->x, N);
    }
    r->waited_ms = clock_ms() - from;
    return NULL;
}

TEST(an_aborted_group_lets_everybody_go_and_keeps_the_first_reason)
{
    static struct rank r[RANKS];
    start(r, RANKS, collective_new(RANKS, 0));
    on_threads(r, RANKS, leave_or_sum);
    collective_abort(r[0].group, "something later");
    CHECK(!strcmp(collective_failure(r[0].group), "rank 1 fell down"));
    for (int i = 0; i < RANKS; i++)
        CHECK(r[i].joined == OK && r[i].waited_ms < COLLECTIVE_WAIT_MS / 2);
    backend_all_reduce(r[0].be, r[0].x, N); /* returns at once */
    end(r, RANKS);
}

TEST(devices_of_the_ranks_are_counted_from_the_first)
{
    char name[24];
    struct errmsg e = {0};
    CHECK(collective_device(NULL, 3, name, &e) == OK && !strcmp(name, "cpu"));
    CHECK_INT(collective_device("cuda:1", 1, name, &e), ERR_UNSUPPORTED);
}

TEST_MAIN()
