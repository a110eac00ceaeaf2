/* test_reserve.c - goal: memory is backed piece by piece, each once and in order, and a stop ends it early. Method: areas that record
 * which pieces they were asked for; waits for conditions, with bounds. */
#include "engine/reserve.h"

#include <stdatomic.h>
#include <unistd.h>

#include "tests/check.h"

enum { PIECES = 40, WAIT_MS = 20000 };

struct seen {
    atomic_int n, wrong;
    atomic_int hold_at; /* piece at which it waits until let go; -1: none */
    atomic_bool let_go;
};

static void record(void *arg, int part, int n_parts)
{
    struct seen *s = arg;
    if (part != atomic_load(&s->n) || n_parts != PIECES) atomic_fetch_add(&s->wrong, 1);
    atomic_fetch_add(&s->n, 1);
    for (int ms = 0; part == atomic_load(&s->hold_at) && !atomic_load(&s->let_go) && ms < WAIT_MS;
         ms++)
        usleep(1000);
}

TEST(every_piece_of_every_area_is_touched_once_in_order)
{
    struct seen a = {.hold_at = -1}, b = {.hold_at = -1};
    struct reserve_area areas[] = {{record, &a, PIECES}, {record, NULL, 0}, {record, &b, PIECES}};
    struct reserve *r = reserve_start(areas, 3);
    CHECK(r != NULL);
    for (int ms = 0; atomic_load(&b.n) < PIECES && ms < WAIT_MS; ms++)
        usleep(1000);
    reserve_stop(r);
    CHECK_INT(a.n, PIECES);
    CHECK_INT(b.n, PIECES);
    CHECK_INT(a.wrong + b.wrong, 0);
}

TEST(a_stop_waits_for_the_piece_under_way_and_leaves_the_rest)
{
    struct seen a = {.hold_at = 3};
    struct reserve *r = reserve_start(&(struct reserve_area){record, &a, PIECES}, 1);
    for (int ms = 0; atomic_load(&a.n) < 4 && ms < WAIT_MS; ms++)
        usleep(1000);
    CHECK_INT(a.n, 4);
    atomic_store(&a.let_go, true);
    reserve_stop(r);
    CHECK(a.n <= PIECES);
    reserve_stop(NULL);
}

TEST(nothing_to_do_is_fine)
{
    struct reserve *r = reserve_start(NULL, 0);
    CHECK(r != NULL);
    reserve_stop(r);
}

TEST(an_area_is_cut_into_pieces_of_one_size_at_most)
{
    CHECK_INT(reserve_pieces(0), 0);
    CHECK_INT(reserve_pieces(1), 1);
    CHECK_INT(reserve_pieces(RESERVE_PIECE_BYTES), 1);
    CHECK_INT(reserve_pieces((size_t)RESERVE_PIECE_BYTES * 5 + 1), 6);
}

TEST_MAIN()
