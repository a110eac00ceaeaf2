/* Goal: every reader of a tape gets the same bytes whatever its speed, and the usage range only if it wants it. Method: random pieces
 * against a plain string; seed printed on failure. */
#include "base/rng.h"
#include "gateway/tape.h"
#include "tests/check.h"

static void read_all(const struct tape *t, size_t *pos, bool usage, size_t max, struct buf *out)
{
    struct str piece;
    while ((piece = tape_piece(t, pos, usage, max)).n) {
        buf_str(out, piece);
        *pos += piece.n;
    }
}

TEST(reader_without_usage_skips_the_marked_range_in_any_piece_size)
{
    for (size_t max = 1; max < 12; max++) {
        struct tape t;
        struct buf with, without;
        size_t a = 0, b = 0;
        tape_init(&t, 1000);
        buf_init(&with, 1000);
        buf_init(&without, 1000);
        CHECK_INT(tape_add(&t, STR("one ")), OK);
        read_all(&t, &a, true, max, &with);
        read_all(&t, &b, false, max, &without);
        CHECK_INT(tape_add_usage(&t, STR("USAGE ")), OK);
        read_all(&t, &b, false, max, &without);
        CHECK_INT(tape_add_usage(&t, STR("AGAIN ")), OK);
        CHECK_INT(tape_add(&t, STR("end")), OK);
        read_all(&t, &a, true, max, &with);
        read_all(&t, &b, false, max, &without);
        CHECK_STR(buf_view(&with), "one USAGE end");
        CHECK_STR(buf_view(&without), "one end");
        CHECK_INT(a, tape_end(&t));
        CHECK_INT(b, tape_end(&t));
        buf_fini(&with);
        buf_fini(&without);
        tape_fini(&t);
    }
}

TEST(tape_that_ends_with_the_usage_range_has_nothing_left_for_who_does_not_want_it)
{
    struct tape t;
    size_t pos = 0;
    tape_init(&t, 100);
    CHECK_INT(tape_add_usage(&t, STR("usage")), OK);
    CHECK_INT(tape_piece(&t, &pos, false, 100).n, 0);
    CHECK_INT(pos, 5);
    tape_fini(&t);
}

TEST(slow_and_fast_readers_see_equal_bytes_while_the_front_is_dropped)
{
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct rng r;
        struct tape t;
        struct buf all, out[3];
        size_t pos[3] = {0};
        rng_seed(&r, seed);
        tape_init(&t, 1 << 20);
        buf_init(&all, 1 << 20);
        for (int k = 0; k < 3; k++)
            buf_init(&out[k], 1 << 20);
        for (int step = 0; step < 300; step++) {
            char piece[40];
            size_t n = rng_below(&r, sizeof piece);
            for (size_t i = 0; i < n; i++)
                piece[i] = (char)('a' + rng_below(&r, 26));
            CHECK_INT(tape_add(&t, (struct str){piece, n}), OK);
            buf_add(&all, piece, n);
            size_t slowest = SIZE_MAX;
            for (int k = 0; k < 3; k++) {
                struct str got = tape_piece(&t, &pos[k], true, 1 + rng_below(&r, 60));
                if (rng_below(&r, 3) == 0) buf_str(&out[k], got), pos[k] += got.n;
                if (pos[k] < slowest) slowest = pos[k];
            }
            tape_drop(&t, slowest);
        }
        for (int k = 0; k < 3; k++) {
            read_all(&t, &pos[k], true, 7, &out[k]);
            CHECK_AT(str_eq(buf_view(&out[k]), buf_view(&all)), "reader %d differs, seed %llu", k,
                     (unsigned long long)seed);
            buf_fini(&out[k]);
        }
        buf_fini(&all);
        tape_fini(&t);
    }
}

TEST(full_tape_says_so)
{
    struct tape t;
    tape_init(&t, 4);
    CHECK_INT(tape_add(&t, STR("1234")), OK);
    CHECK_INT(tape_add(&t, STR("5")), ERR_TOO_LARGE);
    tape_fini(&t);
}

TEST_MAIN()
